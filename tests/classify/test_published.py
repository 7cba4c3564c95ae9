"""Tests of the benchmarks that follow published protocols, on small synthetic files."""

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

sys.path.insert(0, str(Path(__file__).parents[2]))
pytest.importorskip("benchmarks.published", reason="the benchmarks are not in this copy")

from benchmarks import published


def rows_of(text):
    """Return the cells of the table that a protocol printed, without its header."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()[2:]]


@pytest.fixture
def graph_learning(tmp_path):
    """Write a folder in the layout of the GraphLearning repository, with digits as data."""
    X, y = load_digits(n_class=3, return_X_y=True)
    for name in ("Data", "LabelPermutations", "ResultsFromPaper"):
        (tmp_path / name).mkdir()
    np.savez(tmp_path / "Data" / "tiny_raw.npz", data=X)
    np.savez(tmp_path / "Data" / "tiny_labels.npz", labels=y)
    trials = np.empty(4, dtype=object)
    for i, m in enumerate((1, 1, 3, 3)):
        trials[i] = published.per_class(y, m, i)
    np.savez(tmp_path / "LabelPermutations" / "tiny_permutations.npz", perm=trials)
    results = tmp_path / "ResultsFromPaper" / "tiny_vae_k10_poisson_accuracy.csv"
    results.write_text("Date/Time, 2020-06-12_15:59\n3,60.00\n9,90.00\n3,70.00\n")
    return tmp_path, trials


def test_graph_learning_prints_published_means_next_to_ours(graph_learning, capsys):
    folder, trials = graph_learning
    found = published.permutations(folder / "LabelPermutations" / "tiny_permutations.npz")
    for rows, wanted in zip(found, trials, strict=True):
        np.testing.assert_array_equal(rows, wanted)
    published.main(["graphlearning", str(folder), "--set", "tiny", "--trials", "1"])
    three, nine = rows_of(capsys.readouterr().out)
    assert three[:3] == ["tiny", "3", "1"] and nine[:3] == ["tiny", "9", "1"]
    assert float(three[3]) > 80 and float(nine[3]) > 90
    assert three[4:] == ["-", "65.0", "-"] and nine[4:] == ["-", "90.0", "-"]


class Harmful:
    def __reduce__(self):
        return print, ("this must not run",)


def test_permutations_that_hold_code_are_refused(tmp_path, capsys):
    trials = np.empty(1, dtype=object)
    trials[0] = Harmful()
    np.savez(tmp_path / "perm.npz", perm=trials)
    with pytest.raises(pickle.UnpicklingError):
        published.permutations(tmp_path / "perm.npz")
    assert not capsys.readouterr().out


@pytest.fixture
def texts(tmp_path):
    """Write a text data set of two topics in the layout of SetFit and MTEB."""
    rng = np.random.default_rng(0)
    topics = ["match goal player team coach league", "bank market share price profit trade"]
    folder = tmp_path / "emotion"
    folder.mkdir()
    for part, n in (("train", 200), ("test", 60)):
        lines = []
        for i in range(n):
            words = rng.choice(topics[i % 2].split(), 5)
            lines.append(json.dumps({"text": " ".join(words), "label": i % 2}))
        (folder / f"{part}.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_setfit_prints_its_published_accuracy(texts, capsys):
    published.main(["setfit", str(texts), "--trials", "1"])
    eight, many = rows_of(capsys.readouterr().out)
    assert eight[:3] == ["emotion", "8", "1"] and many[1] == "64"
    assert float(eight[3]) > 90 and (eight[5], many[5]) == ("48.8", "76.2")


def test_mteb_compares_with_logistic_regression_on_the_embeddings(texts):
    def encode(batch):
        return np.array([[text.count(letter) for letter in "abcdefghijklm"] for text in batch])

    ((name, m, draws, ours, theirs),) = published.mteb(texts, encode, 2)
    assert (name, m, draws) == ("emotion", 8, 2)
    assert float(ours) > 80 and float(theirs) > 80
    with pytest.raises(SystemExit):
        published.main(["mteb", str(texts)])
