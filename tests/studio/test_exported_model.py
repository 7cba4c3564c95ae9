"""The studio's model predicts new data by the command, as one that `classify` wrote."""

import csv
import io

import numpy as np
import pytest

pytest.importorskip("starlette", reason="the studio needs starlette and uvicorn")

from partwise.apps.cli import main
from partwise.apps.studio.answers import Judge
from partwise.apps.studio.project import Project
from partwise.apps.studio.workspace import Desk
from partwise.io import read_samples

CLASSES = ("low", "high", "wide")


def photos(folder, n, start=0):
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    rng = np.random.default_rng(start)
    folder.mkdir()
    for i in range(start, start + n):
        pixels = rng.integers(0, 40, (10, 10))
        rows = {0: slice(0, 4), 1: slice(6, 10), 2: slice(0, 10)}[i % 3]
        pixels[rows, :: 2 if i % 3 == 2 else 1] += 180
        image.fromarray(pixels.astype(np.uint8)).save(folder / f"{i:03}.png")
    return folder


def texts(path, n, start=0):
    words = ("rain wind snow sun", "goal team match league", "judge court law appeal")
    rng = np.random.default_rng(start)
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["id", "body"])
        for i in range(start, start + n):
            rows.writerow([f"m{i}", " ".join(rng.choice(words[i % 3].split(), 8))])
    return path


def table(path, n, start=0):
    rng = np.random.default_rng(start)
    with path.open("w", newline="") as file:
        rows = csv.writer(file, delimiter=";")
        rows.writerow(["id", "amount", "town", "since"])
        for i in range(start, start + n):
            amount = f"{rng.uniform(0, 90) + 1000 * (i % 3):,.2f}"
            german = amount.translate(str.maketrans(",.", ".,"))
            day = f"{1 + i % 28:02}.{1 + i % 12:02}.2024"
            rows.writerow([f"k{i}", german, ("Ulm", "Bonn", "Köln")[i % 3], day])
    return path


@pytest.mark.parametrize("kind", ["photos", "texts", "table"])
def test_predict_takes_the_exported_model(kind, tmp_path, capsys):
    if kind == "photos":
        old, new, how = photos(tmp_path / "old", 60), photos(tmp_path / "new", 30, 60), {}
    elif kind == "texts":
        old, new = texts(tmp_path / "old.csv", 60), texts(tmp_path / "new.csv", 30, 60)
        how = {"text_column": "body"}
    else:
        old, new, how = table(tmp_path / "old.csv", 60), table(tmp_path / "new.csv", 30, 60), {}
    samples = read_samples(old, **how)
    desk = Desk(samples, Project(tmp_path / "p", samples), Judge(samples))
    desk.prepare()
    for i in range(18):
        desk.label([i], CLASSES[i % 3], window="w")
    desk.wait()
    (tmp_path / "model.partwise").write_bytes(desk.export("model.partwise")[0])
    desk.close()
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["predict", str(tmp_path / "model.partwise"), str(new)])
    assert not ended.value.code, capsys.readouterr().err
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["predicted_label"] for row in rows] == [CLASSES[i % 3] for i in range(30)]
    # the same in Python: new data are prepared as the file says
    again = read_samples(new, recipe=tmp_path / "model.partwise")
    assert again.X.shape == (30, samples.X.shape[1])
