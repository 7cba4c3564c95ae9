"""Tests of ``partwise choose``, and of ``-k auto`` in other commands."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.datasets import load_iris

from partwise import NMF, choose_k
from partwise.apps.cli import main


@pytest.fixture
def counts(tmp_path):
    """Write a table of counts that are made of three parts, and return its path."""
    rng = np.random.default_rng(1)
    Y = rng.gamma(0.5, size=(60, 3)) @ rng.gamma(0.4, size=(3, 25))
    path = tmp_path / "counts.npz"
    np.savez(path, X=rng.poisson(8 * Y / Y.mean()).astype(float))
    return path


@pytest.fixture
def command(capfd):
    def run(*words):
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        return end.value.code, *capfd.readouterr()

    return run


def test_choose_prints_the_curve_and_writes_the_page(counts, command, tmp_path):
    out = tmp_path / "choice"
    words = ("choose", counts, "--range", "1-5", "--runs", 3, "--splits", 3, "--out", out)
    code, said, _ = command(*words)
    assert not code
    assert "3 parts: the smallest number" in said
    chosen = [line for line in said.splitlines() if line.rstrip().endswith("chosen")]
    assert chosen[0].split()[0] == "3"
    page = (out / "choice.html").read_text(encoding="utf-8")
    assert "data:image/svg+xml" in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    lines = (out / "choice.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("k,error,above_best,standard_error,stability,cophenetic")
    assert len(lines) == 6
    code, said, _ = command(*words, "--json")
    found = json.loads(said)
    assert found["answer"] == {"k": 3}
    assert [row["k"] for row in found["tried"]] == [1, 2, 3, 4, 5]
    assert found["tried"][0]["stability"] is None
    code, _, err = command(*words[:3], "1-4", *words[4:])
    assert code == 2
    assert "--force" in err
    (out / "mine.txt").write_text("kept")
    code, _, err = command(*words, "--force")
    assert code == 2
    assert "mine.txt" in err


@pytest.mark.skipif(os.name == "nt", reason="the test uses POSIX signals")
def test_a_killed_choose_command_is_continued(counts, command, tmp_path):
    out = tmp_path / "choice"
    words = ["choose", str(counts), "--range", "1-5", "--runs", "0", "--splits", "2"]
    code = f"from partwise.apps.cli import main; main({[*words, '--out', str(out)]!r})"
    slow = "import time, partwise.estimators.nmf as m; f = m.NMF.fit\n"
    slow += "m.NMF.fit = lambda s, *a, **k: (time.sleep(0.3), f(s, *a, **k))[1]\n"
    child = subprocess.Popen([sys.executable, "-c", slow + code])
    # The command may first compile the kernels.
    file, end = out / "results.jsonl", time.monotonic() + 180
    while time.monotonic() < end and (not file.exists() or file.read_text().count("\n") < 4):
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.wait()
    held = file.read_text()
    assert 4 <= held.count("\n") < 11
    assert command(*words, "--out", out)[0] == 0
    assert file.read_text().startswith(held[: held.rindex("\n")])
    assert command(*words, "--out", tmp_path / "whole")[0] == 0
    both = [json.loads((p / "choice.json").read_text()) for p in (out, tmp_path / "whole")]
    assert both[0]["tried"] == both[1]["tried"]


def test_a_grid_is_tried_by_labels_or_entries(command, tmp_path):
    X, y = load_iris(return_X_y=True)
    np.savez(tmp_path / "iris.npz", X=X, y=y + 1)
    words = ("choose", tmp_path / "iris.npz", "--splits", 2, "--json", "--max-iter", 30, "--out")
    grid = ("--method", "gnmf", "--grid", "graph_reg=0,10")
    code, said, _ = command(*words, tmp_path / "a", *grid, "--label-share", 0.2)
    assert not code
    found = json.loads(said)
    assert found["hidden"] == "labels"
    assert [row["graph_reg"] for row in found["tried"]] == [0, 10]
    code, said, _ = command(*words, tmp_path / "b", *grid, "--parts", 2)
    assert json.loads(said)["hidden"] == "entries"
    code, _, err = command(
        *words, tmp_path / "c", "--method", "nmf", "--grid", "graph=1,2", "--parts", 2
    )
    assert code == 2
    assert "no parameter 'graph'" in err
    code, _, err = command(*words, tmp_path / "c", "--grid", "graph_reg", "--parts", 2)
    assert "--grid" in err and "'graph_reg'" in err


def test_k_auto_shows_its_curve_in_the_report(counts, command, tmp_path):
    pytest.importorskip("plotly")  # the command writes a report, which needs plotly
    out = tmp_path / "out"
    words = ("cluster", counts, "--method", "nmf", "--max-iter", 50, "--runs", 0, "--out", out)
    code, said, _ = command(*words, "-k", "auto")
    assert not code
    assert "Number of parts: 3" in said or "3 parts" in said
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert summary["choice"]["k"] == summary["parts"] == 3
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "Error at hidden entries against the number of parts" in page
    code, _, err = command(*words[:-1], tmp_path / "no", "-k", "many")
    assert code == 2
    assert "auto" in err


def test_a_range_ends_where_there_are_no_more_parts(tmp_path, command):
    X = np.random.default_rng(0).random((30, 4))
    np.savetxt(tmp_path / "t.csv", X, delimiter=",", header="a,b,c,d", comments="")
    words = ("choose", tmp_path / "t.csv", "--runs", 0, "--out", tmp_path / "o", "--force")
    code, out, err = command(*words, "--range", "2-8")
    assert code == 0
    assert "30 samples of 4 features have at most 4 parts" in " ".join((out + err).split())
    code, _, err = command(*words, "--range", "6-8")
    assert code == 2 and "--range" in err and "6" in err


@pytest.mark.filterwarnings("ignore:The lowest error is at")
def test_settings_of_the_command_are_those_of_the_fits(counts, command, tmp_path):
    words = ("choose", counts, "--range", "1-3", "--runs", 0, "--splits", 2, "--scale", "none")
    more = ("--set", "alpha_W=0.05", "--set", "l1_ratio=1.0", "--max-iter", 7, "--json")
    code, said, err = command(*words, *more, "--out", tmp_path / "a", "--method", "nmf-kl")
    assert not code, err
    with np.load(counts) as file:
        X = file["X"]
    model = NMF(beta_loss="kullback-leibler", alpha_W=0.05, l1_ratio=1.0, tol=1e-3, max_iter=7)
    found = choose_k(X, [1, 2, 3], estimator=model, n_splits=2, n_runs=0, random_state=0)
    errors = [row["error"] for row in json.loads(said)["tried"]]
    np.testing.assert_allclose(errors, found.errors.mean(axis=1), rtol=1e-6)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("--set", "graph_reg=1"), "graph_reg"),
        (("--parts", 3), "--parts"),
        (("--grid", "alpha_W=0,1", "--parts", 2, "--runs", 3), "--runs"),
        (("--grid", "alpha_W=0,1", "--range", "2-3"), "--grid"),
        (("--grid", "random_state=0,1", "--parts", 2), "random_state"),
    ],
)
def test_options_without_effect_are_refused_by_name(words, name, counts, command, tmp_path):
    code, _, err = command("choose", counts, *words, "--out", tmp_path / "o", "--method", "nmf")
    assert code == 2 and name in err


def test_k_auto_names_the_settings_that_it_leaves_out(counts, command, tmp_path):
    words = ("cluster", counts, "--method", "gnmf", "--set", "graph_reg=0.5", "-k", "auto")
    code, _, err = command(*words, "--runs", 0, "--no-report", "--out", tmp_path / "o")
    assert not code and "graph_reg" in err
