"""Tests of user-defined protocols: exported from a paper's table, edited, and run."""

from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from partwise.apps.papers.export import export
from partwise.apps.papers.protocol import load_protocol, names
from partwise.apps.papers.representations import FitTask, fit
from partwise.apps.papers.results_page import write_one
from partwise.apps.papers.runner import reproduce
from partwise.apps.papers.sampling import draw
from partwise.apps.papers.store import Store
from partwise.apps.papers.trials import Selection, cells_of

TABLES = [name for name in names() if load_protocol(name).methods and load_protocol(name).data]
ADDED = """
[[methods]]
name = "sklearn"
estimator = "sklearn.decomposition:NMF"
params = { max_iter = 50 }

[[methods]]
name = "clusterer"
estimator = "sklearn.cluster:KMeans"
params = { n_init = 2 }

[[methods]]
name = "mine"
estimator = "partwise_own_method:InTurn"
"""
METHOD = """
import numpy as np


class InTurn:
    def __init__(self, n_clusters):
        self.n_clusters = n_clusters

    def fit_predict(self, X, y=None):
        return np.arange(len(X)) % self.n_clusters
"""


def slugs(protocol, **part):
    return {cell.table + cell.slug for cell in cells_of(protocol, Selection(**part))}


@pytest.mark.parametrize("name", TABLES)
def test_an_exported_file_runs_the_cells_of_its_table(name, tmp_path):
    export(name, tmp_path / "mine.toml")
    theirs, own = load_protocol(name).under(), load_protocol(str(tmp_path / "mine.toml")).under()
    assert slugs(own) == slugs(theirs)
    assert [m.readout for m in own.methods] == [m.readout for m in theirs.methods]
    assert own.printed == theirs.printed and own.metrics == theirs.metrics
    assert own.runs() == theirs.runs()


def test_an_export_overwrites_nothing_and_needs_methods(tmp_path):
    path = tmp_path / "mine.toml"
    export("cnmf/table1", path)
    with pytest.raises(FileExistsError):
        export("cnmf/table2", path)
    with pytest.raises(ValueError, match=r"\.toml"):
        export("cnmf/table1", tmp_path / "mine.txt")
    with pytest.raises(ValueError, match="lcf/table1"):
        export("lcf/table1", tmp_path / "other.toml")


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Return a copy of a protocol of the LCF paper, with three additional methods.

    The protocol has synthetic data and a printed average.
    """
    (tmp_path / "partwise_own_method.py").write_text(METHOD)
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "mine.toml"
    export("lcf/fig5", path)
    (tmp_path / "mine.csv").write_text("metric,k,method,mean,sd\nac,3,NMF,90.0,\nac,avg,NMF,90,\n")
    text = path.read_text().replace('printed_from = "lcf/fig5"\n', "")
    path.write_text(text + ADDED)
    return path


def test_methods_of_your_own_are_compared_with_each_printed_one(own, tmp_path):
    out = tmp_path / "out"
    outcome = reproduce(str(own), out, selection=Selection(runs=3), jobs=1)
    assert not outcome.failed
    judged = {v.text: v for v in write_one(str(own), Store(out)).verdicts}
    pairs = {(c["method"], c["over"][0]): judged[c["text"]] for c in load_protocol(str(own)).claims}
    assert set(pairs) == {(m, "NMF") for m in ("LCF", "sklearn", "clusterer", "mine")}
    assert all(verdict.counted for verdict in pairs.values())
    # InTurn ignores the data, so it finds fewer samples correctly than NMF.
    assert pairs["mine", "NMF"].measured == "fails"
    finished = {p.name for p in (out / "cells" / "lcf" / "fig5").iterdir()}
    table = load_protocol("lcf/fig5").under()
    assert all(f"{s.removeprefix('lcf/fig5')}.json" in finished for s in slugs(table, runs=3))


def test_an_estimator_that_takes_no_start_draws_its_own():
    protocol = load_protocol("lcf/fig5").under()
    sample = draw("lcf/fig5", protocol.data[0], 3, 0)
    method = protocol.methods[0]

    def labels(estimator, **params):
        task = FitTask(sample, None, 3, replace(method, estimator=estimator), params)
        return fit(task).labels

    found = labels("sklearn.cluster:AgglomerativeClustering")
    assert found.dtype == np.int64 and len(set(found)) == 3
    with pytest.raises(TypeError, match="LinearRegression"):
        labels("sklearn.linear_model:LinearRegression")


def test_the_command_writes_the_file(tmp_path):
    from partwise.apps.cli import app

    path = tmp_path / "mine.toml"
    done = CliRunner().invoke(app, ["reproduce", "--export", "cnmf/table1", str(path)])
    assert done.exit_code == 0, done.output
    assert load_protocol(str(path)).under().method("CNMF").stop
