"""Tests of the command `partwise demo`, and of output, files and exit codes in general."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from partwise import __version__
from partwise.apps import cli
from partwise.apps.cli import demonstration, progress_bar
from partwise.io.datasets import load
from partwise.persistence import atomic


def test_python_m_partwise_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "partwise", "--version"], capture_output=True, text=True, check=True
    )
    assert __version__ in done.stdout


@pytest.fixture
def few_methods(monkeypatch):
    """Let the demo run only one fast method."""
    monkeypatch.setattr(demonstration, "METHODS", demonstration.METHODS[1:2])


@pytest.fixture(scope="module")
def outcome():
    """Return the results of every method of the demo on 300 digits."""
    digits = load("digits")
    return demonstration.run(dataset=replace(digits, X=digits.X[:300], y=digits.y[:300]))


def replayed(outcome):
    def run(step, seen):
        for row in outcome.results:
            seen(row)
        return outcome

    return run


class Page(HTMLParser):
    """Parser that collects the tags, texts and addresses of an HTML page."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.links, self.open = [], [], []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag not in {"meta", "img", "br", "link", "input"}:
            self.open.append(tag)
        self.links += [value for key, value in attributes if key in {"src", "href"}]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_version(command):
    assert command("--version") == (0, f"partwise {__version__}\n", "")


@pytest.mark.parametrize("arguments", [["--help"], ["demo", "--help"], ["datasets", "--help"]])
def test_help(command, arguments):
    code, out, _ = command(*arguments)
    assert code == 0 and "Usage" in out
    assert len(arguments) == 1 or "Example" in out


@pytest.mark.parametrize("arguments", [["nonsense"], ["demo", "--nonsense"], ["demo", "extra"]])
def test_wrong_usage(command, arguments):
    code, out, err = command(*arguments)
    assert code == 2 and not out and "Traceback" not in err


def test_importing_the_command_is_light():
    heavy = ["numba", "sklearn", "scipy", "matplotlib", "jinja2", "torch"]
    code = f"import sys, partwise.apps.cli; print([m for m in {heavy} if m in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert answer.stdout.strip() == "[]", answer.stderr


def test_datasets(command, tmp_path, monkeypatch):
    monkeypatch.setenv("PARTWISE_DATA", str(tmp_path))
    monkeypatch.setattr("partwise.io.datasets.loading.user_cache", lambda: tmp_path / "cache")
    np.savez(tmp_path / "yale.npz", X=np.eye(3))
    code, out, _ = command("datasets", "--json")
    found = {row["name"]: row["found"] for row in json.loads(out)}
    assert code == 0
    assert found["yale"] == str(tmp_path / "yale.npz")
    assert found["orl"] is None and found["digits"] == "scikit-learn"
    code, out, _ = command("datasets")
    assert code == 0 and "caltech101" in out and "absent" in out


# Tests of `partwise demo`.


def test_demo_prints_a_table_and_writes_a_page(command, outcome, tmp_path, monkeypatch):
    monkeypatch.setattr(demonstration, "run", replayed(outcome))
    path = tmp_path / "page.html"
    code, out, err = command("demo", "--out", path)
    assert (code, err.strip()) == (0, "")  # rich 13 ends a status with an empty line
    for method in demonstration.METHODS:
        assert method.name in out
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]

    html = path.read_text(encoding="utf-8")
    page = Page(html)
    assert not page.open
    assert page.tags.count("tr") == 1 + len(demonstration.METHODS)
    lead = html[: html.index("<table>")]
    for row in outcome.results:
        compared = row.name in ("classify", "NMF of scikit-learn")
        assert f"{row.accuracy:.1%}" in (lead if compared else html)
    assert html.count('class="part"') == demonstration.N_COMPONENTS * len(demonstration.METHODS)
    # The page loads nothing: every address is a data URI, in styles and scripts too.
    assert page.links and all(link.startswith("data:") for link in page.links)
    assert not re.search(r"url\(|@import|<script|<link", html)


def test_demo_begins_with_the_classifier_and_says_why_pixels_beat_parts(
    outcome, command, tmp_path, monkeypatch
):
    assert outcome.results[0].name == "classify"
    monkeypatch.setattr(demonstration, "run", replayed(outcome))
    _, out, _ = command("demo", "--out", tmp_path / "page.html")
    rows = {row.name: row for row in outcome.results}
    if rows["k-means on pixels"].accuracy > rows["nmf"].accuracy:
        assert "k-means on pixels beats plain NMF here" in out and outcome.why in out
    better = replace(rows["nmf"], accuracy=1.0)
    none = replace(outcome, results=(rows["k-means on pixels"], better))
    assert none.why == ""


def test_demo_shows_each_row_as_it_comes_when_piped_and_leaves_the_processor_to_others(
    command, tmp_path, monkeypatch, capsys
):
    first, second = demonstration.METHODS[1:3]
    shown, limits = [], []
    real = demonstration.threadpool_limits

    def limited(n, **of):
        limits.append(n)
        return real(n, **of)

    def make(k, seed):
        shown.append(capsys.readouterr().out)
        assert limits == [1]
        return second.make(k, seed)

    monkeypatch.setattr(demonstration, "threadpool_limits", limited)

    monkeypatch.setattr(demonstration, "METHODS", (first, replace(second, make=make)))
    code, out, err = command("demo", "--out", tmp_path / "page.html")
    assert code == 0, err
    assert first.name in shown[0] and second.name in out
    assert limits == [1]


def test_durations_are_said_as_people_do():
    said = [progress_bar.duration(s) for s in (4.21, 59.99, 60, 204.4, 7500)]
    assert said == ["4.2 s", "60.0 s", "1 min 0 s", "3 min 24 s", "2 h 5 min"]


def test_demo_as_json(command, outcome, tmp_path, monkeypatch):
    monkeypatch.setattr(demonstration, "run", replayed(outcome))
    code, out, _ = command("demo", "--json", "--out", tmp_path / "demo.html")
    told = json.loads(out)
    assert code == 0 and Path(told["page"]).exists()
    assert [m["name"] for m in told["methods"]] == [m.name for m in demonstration.METHODS]
    assert all(0 < m["accuracy"] <= 1 for m in told["methods"])


def test_demo_runs_every_method(outcome):
    assert [row.name for row in outcome.results] == [
        method.name for method in demonstration.METHODS
    ]
    for row in outcome.results:
        # With ten classes, random clusters have an accuracy of about 0.1.
        assert 0.3 < row.accuracy <= 1 and 0.3 < row.nmi <= 1
        assert row.parts.shape == (10, 64)
        # k-means updates its centres incrementally, with rounding errors.
        assert row.parts.min() >= -1e-12
        assert row.iterations > 0 and row.objective > 0


def test_demo_objectives_agree_with_scikit_learn():
    wanted = {"nmf", "NMF of scikit-learn"}
    outcome = demonstration.run(
        [method for method in demonstration.METHODS if method.name in wanted]
    )
    theirs, ours = outcome.results
    # Both fits start from the same values, so their objectives differ only by where they stop.
    assert ours.objective == pytest.approx(theirs.objective, rel=0.02)
    assert ours.history[-1] == pytest.approx(ours.objective)


def test_examples_of_page_and_readme_are_one_and_run(capsys):
    readme = Path(__file__).parents[2] / "README.md"
    assert f"```python\n{demonstration.EXAMPLE}```" in readme.read_text(encoding="utf-8")
    exec(demonstration.EXAMPLE, {})
    accuracy = float(capsys.readouterr().out.split()[-1])
    assert accuracy > 0.6  # the accuracy of plain NMF; labels and graph increase it


def test_methods_that_take_labels_are_scored_on_the_others(digits):
    seen = {}

    class Spy(demonstration.KMeans):
        def fit(self, X, y=None, sample_weight=None):
            seen["y"] = y
            return super().fit(X)

        def fit_transform(self, X, y=None, sample_weight=None):
            self.fit(X, y)
            # Predict labelled samples correctly and put all others into one cluster.
            self.labels_ = np.where(y >= 0, y, 0)
            return X

    method = demonstration.Shown(
        "spy", lambda k, seed: Spy(k, n_init=1, random_state=seed), takes_labels=True
    )
    outcome = demonstration.run([method])
    known = seen["y"] >= 0
    assert np.array_equal(np.bincount(seen["y"][known]), [demonstration.LABELS_PER_CLASS] * 10)
    assert np.array_equal(seen["y"][known], digits.y[known])
    share = np.bincount(digits.y[~known]).max() / (~known).sum()
    assert outcome.results[0].accuracy == pytest.approx(share)
    assert str((~known).sum()) in outcome.scored


def test_demo_keeps_an_existing_page(command, few_methods, tmp_path):
    path = tmp_path / "page.html"
    path.write_text("mine")
    code, out, err = command("demo", "--out", path)
    assert (code, out) == (2, "") and "--force" in err and err.count("\n") == 1
    assert path.read_text() == "mine"
    assert command("demo", "--out", path, "--force")[0] == 0
    assert path.read_text().startswith("<!doctype html>")


def test_demo_into_a_missing_folder_or_onto_a_folder(command, few_methods, tmp_path):
    for out in (tmp_path / "gone" / "page.html", tmp_path):
        code, _, err = command("demo", "--out", out)
        assert code == 2 and "folder" in err and "Traceback" not in err
    assert not list(tmp_path.iterdir())


def test_traceback_on_request(tmp_path, monkeypatch):
    monkeypatch.setenv("PARTWISE_TRACEBACK", "1")
    with pytest.raises(IsADirectoryError):
        cli.main(["demo", "--out", str(tmp_path)])


def test_a_write_that_fails_leaves_nothing(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("before")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        atomic.write_whole(path, "after", force=True)
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]
    assert path.read_text() == "before"
