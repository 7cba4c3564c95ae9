"""Tests that `partwise predict` accepts a model that the studio exported."""

import csv
import io

import pytest

pytest.importorskip("starlette", reason="the studio needs starlette and uvicorn")

from partwise.apps.cli import main
from partwise.apps.studio import exports
from partwise.apps.studio.workspace import Workspace
from partwise.io import read_samples
from studio_inputs import photos, table, texts

CLASSES = ("low", "high", "wide")


@pytest.mark.parametrize("kind", ["photos", "coloured photos", "texts", "table"])
def test_predict_takes_the_exported_model(kind, tmp_path, capsys):
    if "photos" in kind:
        how = {"coloured": kind == "coloured photos"}
        old = photos(tmp_path / "old", 60, **how)
        new, how = photos(tmp_path / "new", 30, 60, **how), {}
    elif kind == "texts":
        old, new = texts(tmp_path / "old.csv", 60), texts(tmp_path / "new.csv", 30, 60)
        how = {"text_column": "body"}
    else:
        old, new, how = table(tmp_path / "old.csv", 60), table(tmp_path / "new.csv", 30, 60), {}
    samples = read_samples(old, **how)
    workspace = Workspace(samples, tmp_path / "p", compare_colours=True)
    workspace.prepare()
    for i in range(18):
        workspace.label([i], CLASSES[i % 3], window="w")
    workspace.wait()
    (tmp_path / "model.partwise").write_bytes(exports.model(workspace))
    workspace.close()
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(tmp_path / "model.partwise"), str(new)])
    assert not ended.value.code, capsys.readouterr().err
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["predicted_label"] for row in rows] == [CLASSES[i % 3] for i in range(30)]
    # In Python, new data are prepared by the recipe in the model file.
    again = read_samples(new, recipe=tmp_path / "model.partwise")
    assert again.X.shape == (30, workspace.samples.X.shape[1])
