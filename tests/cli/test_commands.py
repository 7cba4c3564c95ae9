"""Tests of the commands cluster, classify, fit, transform, predict, methods and compare."""

import csv
import io
import json
import os
import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, load_iris

import partwise
from partwise.apps.cli import outputs, work
from partwise.estimators import saving
from partwise.evaluation.metrics import clustering_accuracy
from partwise.io import read_labels
from partwise.persistence import atomic

FILES = {n for n in outputs.FILES if not n.startswith(("report.", "skipped.", "labelled."))}
QUICK = ("--no-report", "--max-iter", "60")


@pytest.fixture
def refused(command, tmp_path):
    """Return a function that runs a command that must fail.

    The command prints one line, has exit code 2, and writes no new file.
    """

    def run(*arguments):
        before = sorted(str(path) for path in tmp_path.rglob("*"))
        code, out, err = command(*arguments)
        assert (code, out) == (2, ""), (code, out, err)
        assert err.startswith("partwise: ") and err.count("\n") == 1 and "Traceback" not in err
        assert sorted(str(path) for path in tmp_path.rglob("*")) == before
        return err

    return run


@pytest.fixture(scope="session")
def photo_folder(tmp_path_factory):
    """Write 90 digits of three classes as images of 16 x 16 pixels into one folder per class."""
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    folder = tmp_path_factory.mktemp("digits") / "photos"
    X, y = load_digits(n_class=3, return_X_y=True)
    for i in range(90):
        place = folder / f"digit{y[i]}"
        place.mkdir(parents=True, exist_ok=True)
        pixels = (X[i].reshape(8, 8) / 16 * 255).astype(np.uint8)
        image.fromarray(pixels).resize((16, 16)).save(place / f"{i:03d}.png")
    return folder


@pytest.fixture
def iris(tmp_path):
    """Write a table with an id, numbers, a text column and a class that few rows have."""
    pytest.importorskip("pandas", reason="tables need pandas")
    data = load_iris()
    path = tmp_path / "iris.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "a", "b", "c", "d", "remark", "species"])
        for i, (row, label) in enumerate(zip(data.data, data.target)):
            name = data.target_names[label] if i % 10 == 0 else ""
            writer.writerow([f"flower {i}", *row, "fine", name])
    return path


@pytest.fixture
def mails(tmp_path):
    pytest.importorskip("pandas", reason="tables need pandas")
    rng = np.random.default_rng(0)
    words = {
        "sea": ["wave", "salt", "tide", "ship", "sail", "harbour"],
        "sky": ["cloud", "wind", "bird", "rain", "sun", "storm"],
    }
    path = tmp_path / "mails.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["who", "body", "topic"])
        for i in range(80):
            topic = list(words)[i % 2]
            writer.writerow([f"m{i}", " ".join(rng.choice(words[topic], 5)), topic])
    return path


def rows(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


# -- cluster --------------------------------------------------------------------------------------


def test_cluster_images(command, photo_folder, tmp_path):
    out = tmp_path / "out"
    code, text, err = command(
        "classify", photo_folder, "--label-share", "0.2", "--out", out, *QUICK
    )
    assert code == 0, err
    assert {path.name for path in out.iterdir()} == FILES
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    found = rows(out / "assignments.csv")
    assert list(found[0]) == ["id", "predicted_label", "probability", "given_label"]
    assert len(found) == 90 and found[0]["id"].startswith("digit0/")
    truth = [row["id"].split("/")[0] for row in found]
    given = [row["given_label"] for row in found]
    assert sum(map(bool, given)) == 18 and all(g in ("", t) for g, t in zip(given, truth))
    assert clustering_accuracy(truth, [row["predicted_label"] for row in found]) > 0.9
    model = partwise.load(out / "model.partwise")
    V = np.load(out / "representation.npy", allow_pickle=False)
    assert np.array_equal(V, model.embedding_)
    confidence = model.label_confidence_
    assert np.allclose([float(row["probability"]) for row in found], confidence, atol=1e-4)
    codes = rows(out / "representation.csv")
    assert np.allclose(float(codes[5]["part_2"]), V[5, 1], rtol=1e-5, atol=1e-9)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["labels"] == 18 and summary["scores"]["samples"] == 72
    assert summary["reason"] in text and "since" in summary["reason"]
    assert set(summary["files"]) == FILES


def test_cluster_a_table(command, iris, tmp_path):
    out = tmp_path / "out"
    code, text, err = command(
        "classify", iris, "--label-column", "species", "--out", out, "--json", *QUICK
    )
    summary = json.loads(text)
    assert (code, err) == (0, "")
    assert summary["classes"] == ["setosa", "versicolor", "virginica"]
    assert summary["features"] == 4 and any("remark" in note for note in summary["notes"])
    names = [row["predicted_label"] for row in rows(out / "assignments.csv")]
    assert clustering_accuracy(load_iris().target, names) > 0.85


def test_classify_keeps_colours_only_if_labels_need_them(command, tmp_path):
    """Check that `classify` keeps colours only if they separate the labels better.

    Blue and red are equally bright here, so they need colour; squares that differ in brightness do
    not.
    """
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    rng = np.random.default_rng(0)
    folder = tmp_path / "photos"
    for name, colour in (("blue", (30, 30, 220)), ("red", (140, 20, 20))):
        (folder / name).mkdir(parents=True)
        for i in range(20):
            pixels = np.tile(np.array(colour), (9, 9, 1)) + rng.integers(0, 35, (9, 9, 3))
            image.fromarray(pixels.astype(np.uint8)).save(folder / name / f"{i}.png")
    quick = ("--label-share", "0.2", *QUICK)
    code, text, err = command("classify", folder, "--out", tmp_path / "a", *quick)
    assert code == 0 and "of 8 labels in colour" in err and "RGB" in text
    assert "100%" in text
    model = tmp_path / "a" / "model.partwise"
    # A single image instead of a folder.
    code, text, _ = command("predict", model, folder / "red" / "3.png")
    assert code == 0 and text.splitlines()[1].startswith("3.png,red")
    code, text, err = command("classify", folder, "--out", tmp_path / "b", "--grey", *quick)
    assert code == 0 and "grey" in text and "Colours" not in err


def test_one_class_with_a_single_label_keeps_the_colours(command, tmp_path):
    """Check that colours are kept if one class has a single label.

    The labels of the two other classes show that colours are needed.
    """
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    rng = np.random.default_rng(0)
    hues = {"blue": (30, 30, 220), "green": (20, 85, 20), "red": (140, 20, 20)}
    for name, hue in hues.items():
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(15):
            pixels = np.tile(np.array(hue), (9, 9, 1)) + rng.integers(0, 35, (9, 9, 3))
            image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photos" / name / f"{i}.png")
    ids = [f"{name}/{i}.png" for name in hues for i in range(1 if name == "red" else 4)]
    lines = "".join(f"{name},{name.split('/')[0]}\n" for name in ids)
    (tmp_path / "labels.csv").write_text(f"id,label\n{lines}")
    out = tmp_path / "out"
    arguments = ("--labels", tmp_path / "labels.csv", *QUICK, "--out", out)
    code, _, err = command("classify", tmp_path / "photos", *arguments)
    # Only samples in classes with two labels count for the score.
    assert code == 0 and "8 labels" in err
    found = rows(out / "assignments.csv")
    assert np.mean([row["predicted_label"] == row["id"].split("/")[0] for row in found]) > 0.95


def test_cluster_texts_with_a_file_of_labels(command, mails, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("id,label\nm0,sea\nm1,sky\nm2,sea\nm3,sky\n")
    out = tmp_path / "out"
    code, _, err = command(
        *("classify", mails, "--text-column", "body", "--id-column", "who"),
        *("--labels", labels, "-k", "2", "--out", out, *QUICK),
    )
    assert code == 0, err
    found = rows(out / "assignments.csv")
    right = [row["predicted_label"] == ("sea", "sky")[i % 2] for i, row in enumerate(found)]
    assert np.mean(right) > 0.95


def test_cluster_writes_a_report(command, iris, tmp_path):
    pytest.importorskip("plotly", reason="the report needs plotly")
    out = tmp_path / "out"
    arguments = ("cluster", iris, "-k", "3", "--out", out, "--runs", "0", "--max-iter", "60")
    code, text, err = command(*arguments)
    assert code == 0 and "report.html" in text, err
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "flower 149" in page


def test_a_report_that_cannot_be_made_is_noted(command, iris, tmp_path, monkeypatch):
    from partwise.apps.view import report

    def missing(*arguments, **keys):
        raise ImportError("The report needs plotly: pip install plotly")

    monkeypatch.setattr(report, "write_report", missing)
    out = tmp_path / "out"
    code, _, err = command("cluster", iris, "-k", "3", "--out", out, "--runs", "0")
    assert code == 0 and "pip install plotly" in err
    assert {path.name for path in out.iterdir()} == FILES - {"label_next.csv"}


def test_nothing_is_overwritten_without_force(command, refused, iris, tmp_path):
    out = tmp_path / "out"
    again = ("cluster", iris, "-k", "3", "--out", out, "--runs", "0", *QUICK)
    out.mkdir()  # an empty output folder is accepted
    assert command(*again)[0] == 0
    old = (out / "summary.json").read_bytes()
    assert "--force" in refused(*again)
    assert (out / "summary.json").read_bytes() == old
    assert command(*again, "--method", "nmf", "--force")[0] == 0
    assert (out / "summary.json").read_bytes() != old
    # A folder that contains any other file is never replaced.
    (out / "thesis.tex").write_text("mine")
    assert "thesis.tex" in refused(*again, "--force")
    assert (out / "thesis.tex").read_text() == "mine"
    assert "gone" in refused(*again[:4], "--out", tmp_path / "gone" / "out")
    assert iris.name in refused(*again[:4], "--out", iris)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_failure_leaves_nothing(command, iris, tmp_path, monkeypatch, error):
    def fail(*arguments, **keys):
        raise error

    monkeypatch.setattr(saving, "save", fail)
    code, _, err = command("cluster", iris, "-k", "3", "--out", tmp_path / "out", *QUICK)
    assert code == (130 if isinstance(error, KeyboardInterrupt) else 2)
    assert "Traceback" not in err and [p.name for p in tmp_path.iterdir()] == ["iris.csv"]


def test_a_replaced_folder_comes_back_if_renaming_fails(tmp_path, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    (out / "summary.json").write_text("old")
    real, calls = os.rename, []

    def second_fails(a, b):
        calls.append(b)
        if len(calls) == 2:
            raise OSError("no")
        real(a, b)

    monkeypatch.setattr(atomic.os, "rename", second_fails)
    with pytest.raises(OSError, match="no"), outputs.whole_folder(out, force=True) as folder:
        (folder / "summary.json").write_text("new")
    assert (out / "summary.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


# -- bad input ------------------------------------------------------------------------------------


def test_bad_images(refused, photo_folder, tmp_path):
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    folder = tmp_path / "photos"
    folder.mkdir()
    for name, size in (("a", 8), ("b", 8), ("c", 9)):
        image.new("L", (size, size), 100).save(folder / f"{name}.png")
    out = tmp_path / "out"
    assert "differ in size" in refused("cluster", folder, "-k", "2", "--out", out, "--strict")
    (folder / "c.png").write_bytes(b"no image")
    assert "c.png" in refused("cluster", folder, "-k", "2", "--out", out, "--strict")
    assert "--size takes" in refused("cluster", folder, "-k", "2", "--size", "big", "--out", out)
    (folder / "c.png").unlink()
    assert "more than the 2 samples" in refused("cluster", folder, "-k", "3", "--out", out)


def test_bad_tables_and_texts(refused, tmp_path):
    pytest.importorskip("pandas", reason="tables need pandas")
    ragged = tmp_path / "ragged.csv"
    ragged.write_text("a,b\n1,2\n3\n")
    out = ("-k", "2", "--out", tmp_path / "out")
    assert "line 3" in refused("cluster", ragged, *out)
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "a.txt").write_text("words and words")
    (texts / "b.txt").write_text("")
    assert "'b.txt' is empty" in refused("cluster", texts, *out, "--strict")
    assert "'a.txt'" in refused("cluster", texts, *out)
    assert "no file or folder" in refused("cluster", tmp_path / "gone", *out)


def test_bad_labels_and_methods(refused, command, iris, photo_folder, tmp_path):
    labels = tmp_path / "labels.csv"
    labels.write_text("id,label\nflower 1,x\nflower 999,y\n")
    out = ("--out", tmp_path / "out")
    err = refused("classify", iris, "--labels", labels, *out)
    assert "line 3" in err and "'flower 999'; did you mean 'flower 99'?" in err
    for option, value in (("--labels", labels), ("--label-column", "a"), ("--label-share", "0.1")):
        err = refused("cluster", iris, option, value, *out)
        assert option in err and "partwise classify" in err
    assert "--labels" in refused("classify", iris, *out)
    assert "-k" in refused("cluster", iris, *out)
    assert "-k 3" in refused("cluster", photo_folder, *out)
    assert "--label-share" in refused("classify", iris, "--label-share", "0.1", *out)
    assert "label_share" in refused("classify", photo_folder, "--label-share", "7", *out)
    assert "'magic'" in refused("cluster", iris, "-k", "3", "--method", "magic", *out)
    assert "needs labels" in refused("cluster", iris, "-k", "3", "--method", "cnmf", *out)
    assert "--grey" in refused("cluster", iris, "-k", "3", "--method", "ntf", *out)
    code, _, err = command("cluster", iris, "-k", "none", *out)
    assert code == 2 and "Traceback" not in err


def test_settings_of_the_method(command, refused, iris, tmp_path):
    out = ("--out", tmp_path / "out", *QUICK)
    code, text, err = command(
        *("cluster", iris, "-k", "3", "--set", "graph_reg=0.25", "--set", "solver=mu", *out),
        "--json",
    )
    assert code == 0, err
    assert json.loads(text)["parameters"]["graph_reg"] == 0.25
    assert json.loads(text)["parameters"]["solver"] == "mu"
    more = ("--label-column", "species", "--components-per-class", "2", "--force", "--json")
    code, text, err = command("classify", iris, *more, *out)
    assert code == 0 and json.loads(text)["parts"] == 6, err
    other = ("--out", tmp_path / "other")
    assert "no parameter 'grap'" in refused("cluster", iris, "-k", "3", "--set", "grap=1", *other)
    assert "NAME=VALUE" in refused("cluster", iris, "-k", "3", "--set", "graph_reg", *other)


def test_options_override_a_settings_file_next_to_the_data(command, refused, iris, tmp_path):
    """Check that command-line options override a settings file next to the data.

    The file `repeat.py` contains the settings of both.
    """
    settings = tmp_path / "partwise.toml"
    settings.write_text('k = 4\nreport = false\nexclude = ["a"]\n\n[set]\ngraph_reg = 0.5\n')
    out = ("--out", tmp_path / "out", "--runs", "0", "--max-iter", "40", "--json")
    code, text, err = command("cluster", iris, "-k", "3", *out)
    assert code == 0, err
    found = json.loads(text)
    assert len(found["clusters"]) == 3 and found["parameters"]["graph_reg"] == 0.5
    assert [c["name"] for c in found["columns"] if c["read_as"] == "number"] == ["b", "c", "d"]
    assert found["command"].startswith("partwise cluster")
    assert found["command"].endswith("--no-report --exclude a --set graph_reg=0.5")
    settings.write_text("clustrs = 4\n")
    assert "'clustrs'" in refused("cluster", iris, *out[:2], "--force")
    settings.write_text("k = \n")
    assert "partwise.toml cannot be read" in refused("cluster", iris, *out[:2], "--force")


def test_signed_data(command, refused, tmp_path, rng):
    X = rng.normal(size=(60, 5))
    X[:30] += 4
    np.save(tmp_path / "m.npy", X)
    out = ("-k", "2", "--out", tmp_path / "out", "--runs", "0", *QUICK)
    assert "lcf" in refused("cluster", tmp_path / "m.npy", "--method", "nmf", *out)
    code, text, _ = command("cluster", tmp_path / "m.npy", *out)
    assert code == 0 and "negative values" in text
    code, text, _ = command("cluster", tmp_path / "m.npy", "--method", "seminmf", *out, "--force")
    assert code == 0 and "seminmf" in text
    halves = {row["cluster"] for row in rows(tmp_path / "out" / "assignments.csv")[:30]}
    assert len(halves) == 1


def test_similarities_and_other_new_methods(command, refused, tmp_path, rng):
    X = np.kron(np.eye(2), np.ones((10, 10))) + 0.1
    X[0, 1] = X[1, 0] = 0.7
    np.save(tmp_path / "s.npy", X)
    out = ("-k", "2", "--out", tmp_path / "out", "--runs", "0", *QUICK)
    code, text, _ = command("cluster", tmp_path / "s.npy", "--method", "symnmf", *out)
    # Scaling the rows would make the similarities asymmetric.
    assert code == 0 and "values as they are" in text
    found = [row["cluster"] for row in rows(tmp_path / "out" / "assignments.csv")]
    assert len(set(found[:10])) == len(set(found[10:])) == 1 and found[0] != found[10]
    np.save(tmp_path / "m.npy", X[:, :5])
    again = (*out, "--force")
    assert "(20, 5)" in refused("cluster", tmp_path / "m.npy", "--method", "symnmf", *again)
    code, text, _ = command("cluster", tmp_path / "m.npy", "--method", "nmf-robust", *again)
    assert code == 0 and "nmf-robust" in text
    assert "needs labels" in refused("cluster", tmp_path / "m.npy", "--method", "lpcnmf", *again)


# -- fit, transform, predict ----------------------------------------------------------------------


def test_in_steps(command, refused, iris, tmp_path):
    model = tmp_path / "iris.partwise"
    fit = ("fit", iris, "--label-column", "species", "--out", model, "--max-iter", "60")
    fit = (*fit, "--scale", "max")
    assert command(*fit)[0] == 0
    assert "--force" in refused(*fit)
    kept, recipe = saving.read(model)
    assert [spec["name"] for spec in recipe["columns"]] == ["a", "b", "c", "d"]
    few = tmp_path / "few.csv"
    few.write_text("".join(iris.read_text().splitlines(keepends=True)[:5]))
    codes = tmp_path / "codes.npy"
    assert command("transform", model, few, "--out", codes)[0] == 0
    top = np.array([[float(row[c]) for c in "abcd"] for row in rows(iris)]).max(axis=0)
    X = np.array([[float(row[c]) for c in "abcd"] for row in rows(few)]) / top
    assert np.allclose(np.load(codes), kept.transform(X))
    assert command("transform", model, few, "--out", tmp_path / "c.csv")[0] == 0
    assert [row["id"] for row in rows(tmp_path / "c.csv")] == [f"flower {i}" for i in range(4)]
    code, text, _ = command("predict", model, few)
    found = list(csv.DictReader(text.splitlines()))
    assert code == 0 and [row["predicted_label"] for row in found] == list(kept.predict(X))
    code, text, _ = command("predict", model, few, "--json")
    assert json.loads(text)["assignments"][0]["id"] == "flower 0"
    assert command("predict", model, few, "--out", tmp_path / "p.csv")[0] == 0
    assert rows(tmp_path / "p.csv") == found
    assert "--force" in refused("predict", model, few, "--out", tmp_path / "p.csv")
    assert ".csv or .npy" in refused("transform", model, few, "--out", tmp_path / "c.txt")


def test_models_know_their_kind_of_data(command, refused, iris, mails, photo_folder, tmp_path):
    model = tmp_path / "m.partwise"
    texts = ("--text-column", "body", "--label-column", "topic", "--label-share", "0.1")
    assert command("fit", mails, *texts, "--out", model, "--max-iter", "60")[0] == 0
    # The model file stores the name of the text column.
    code, text, _ = command("predict", model, mails, "--label-column", "topic", "--json")
    assert code == 0 and json.loads(text)["scores"]["matched_accuracy"] > 0.9
    assert "no column 'body'" in refused("predict", model, iris)
    assert "holds no texts" in refused("predict", model, photo_folder)
    table = tmp_path / "t.partwise"
    assert command("fit", iris, "-k", "3", "--out", table, "--max-iter", "60")[0] == 0
    error = refused("transform", table, photo_folder)
    assert str(photo_folder) in error and "folder" in error
    np.save(tmp_path / "m.npy", np.ones((3, 4)))
    error = refused("transform", table, tmp_path / "m.npy")
    assert "m.npy" in error and "matrix" in error


def test_bad_models(refused, iris, tmp_path):
    model = tmp_path / "m.partwise"
    assert "There is no file" in refused("predict", model, iris)
    partwise.NMF(2, max_iter=5, tol=0).fit(np.eye(4)).save(model)
    assert "partwise.load in Python" in refused("predict", model, iris)
    whole = model.read_bytes()
    model.write_bytes(whole[:-100])
    assert str(model) in refused("predict", model, iris)
    model.write_bytes(b"PK\x03\x04 a zip file")
    assert "no partwise model" in refused("predict", model, iris)
    model.write_bytes(whole.replace(b"partwise-model 1 ", b"partwise-model 99 ", 1))
    assert "upgrade" in refused("predict", model, iris)


# -- methods, compare -----------------------------------------------------------------------------


def test_methods(command):
    code, text, _ = command("methods")
    assert code == 0 and "cdnmf-kl" in text and "when" in text
    listed = json.loads(command("methods", "--json")[1])
    assert {"name", "when", "labels"} <= listed[0].keys()


def test_compare_on_held_out_labels(command, iris, photo_folder, tmp_path):
    table = tmp_path / "c.csv"
    chosen = ("--methods", "k-means,nmf,logistic-regression,classify", "--max-iter", "40")
    code, text, err = command("compare", iris, "--label-column", "species", *chosen, "--out", table)
    assert code == 0 and "15 of the 15 labels" in text, err
    assert "15 labels are too few" in err
    assert [row["method"] for row in rows(table)] == chosen[1].split(",")
    assert all(0 <= float(row["accuracy"]) <= 1 for row in rows(table))
    chosen = ("--methods", "label-spreading,linear-svc,classify", "--json")
    code, text, _ = command("compare", photo_folder, "--label-share", "0.2", *chosen)
    found = json.loads(text)
    assert code == 0 and found["auto"] == "classify" and "72 labels" in found["scored"]
    share = {row["method"]: row["accuracy"] for row in found["methods"]}
    assert share["classify"] >= max(share["linear-svc"], share["label-spreading"])


def test_compare_includes_the_usual_classifiers(command, iris):
    code, text, _ = command("compare", iris, "--label-column", "species", "--max-iter", "10")
    assert code == 0
    for name in ("classify", "logistic-regression", "linear-svc", "label-spreading", "cdnmf"):
        assert name in text
    assert "lcf" not in text  # LCF is slow, and runs only on request


def test_names_by_class_with_what_to_expect(command, iris, tmp_path):
    out = tmp_path / "out"
    asked = ("classify", iris, "--label-column", "species", "--out", out, "--no-report")
    code, text, _ = command(*asked)
    assert code == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["method"] == "classify" and summary["naming"]["held_out"] == 15
    low, high = summary["naming"]["interval"]
    assert 0 <= low <= summary["naming"]["expected"] <= high <= 1
    # Given labels are unchanged, and most other predictions are correct.
    found = [row["predicted_label"] for row in rows(out / "assignments.csv")]
    names = load_iris().target_names[load_iris().target]
    assert np.mean(np.array(found) == names) > 0.85
    assert found[::10] == names[::10].tolist()
    listed = rows(out / "label_next.csv")
    assert len(listed) == 10 and not {row["id"] for row in listed} & {
        f"flower {i}" for i in range(0, 150, 10)
    }
    # The list of samples to label next is also a label file, in which an empty cell means unknown.
    assert {row["label"] for row in listed} == {""}
    listed[3]["label"] = "virginica"
    with (tmp_path / "filled.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(listed[0]))
        writer.writeheader()
        writer.writerows(listed)
    y = read_labels(tmp_path / "filled.csv", [f"flower {i}" for i in range(150)])
    assert {i: v for i, v in enumerate(y) if v} == {int(listed[3]["id"][7:]): "virginica"}
    code, text, err = command("predict", out / "model.partwise", iris)
    assert code == 0, err
    again = [line.split(",")[1] for line in text.strip().splitlines()[1:]]
    assert np.mean(np.array(again) == np.array(found)) > 0.98


def test_compare_texts_with_k_means(command, mails):
    """Check that `compare` runs k-means on sparse tf-idf weights of texts."""
    chosen = ("--text-column", "body", "--label-column", "topic", "--label-share", "0.1")
    code, text, err = command("compare", mails, *chosen, "--methods", "k-means", "--runs", "1")
    assert code == 0 and "k-means" in text, err


def test_compare_without_labels(command, refused, tmp_path, rng):
    X = rng.random((50, 6))
    X[:25, :3] += 3
    np.save(tmp_path / "m.npy", X)
    data = ("compare", tmp_path / "m.npy", "-k", "2")
    code, text, _ = command(*data, "--methods", "nmf,gnmf", "--runs", "2", "--json")
    found = json.loads(text)
    assert code == 0 and "stability" in found["scored"]
    assert [row["stability"] for row in found["methods"]] == [1.0, 1.0]
    assert all(row["matched_accuracy"] is None for row in found["methods"])
    # A method that cannot use the data is reported, and the others continue.
    code, text, _ = command(*data, "--methods", "nmf,cnmf", "--runs", "1")
    assert code == 0 and "needs labels" in " ".join(text.split())
    assert "'x'" in refused(*data, "--methods", "x")


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_compare_fits_with_the_settings_of_the_command(command, tmp_path, rng):
    X = rng.random((40, 6))
    np.save(tmp_path / "m.npy", X)
    settings = ("--set", "graph_reg=0.2", "--max-iter", "9", "--parts", "3", "--scale", "none")
    words = ("compare", tmp_path / "m.npy", "-k", "2", "--methods", "gnmf,cf", "--runs", "2")
    code, text, err = command(*words, *settings, "--json")
    assert code == 0, err
    made = {"n_clusters": 2, "graph_reg": 0.2, "max_iter": 9}
    clusters = [
        partwise.GNMF(3, random_state=seed, init=None if seed == 0 else "random", **made)
        .fit(X)
        .labels_
        for seed in (0, 1)
    ]
    gnmf, cf = json.loads(text)["methods"]
    assert gnmf["stability"] == pytest.approx(partwise.metrics.adjusted_rand(*clusters), abs=1e-4)
    # CF has no parameter graph_reg, so it was not compared.
    assert cf["stability"] is None and "graph_reg" in cf["note"]


def test_the_score_looks_at_unseen_labels_only():
    truth = np.array(["a", "a", "b", "b", None], dtype=object)
    given = np.array(["a", None, "b", None, None], dtype=object)
    found = work.scores(truth, given, ["a", "b", "b", "b", "a"])
    assert found["samples"] == 2 and found["accuracy"] == 0.5
    assert work.scores(truth, truth, ["a"] * 5) is None
    assert work.scores(None, None, ["a"] * 5) is None


# -- help texts, piped output and progress --------------------------------------------------------


@pytest.mark.parametrize("name", ["cluster", "fit", "transform", "predict", "methods", "compare"])
def test_help_has_an_example(command, name):
    code, text, _ = command(name, "--help")
    assert code == 0 and f"Example: partwise {name}" in " ".join(text.split())


def test_quiet_when_piped(iris, tmp_path):
    """Check that piped output contains results only: no progress bar, colours or warnings."""
    code = "from partwise.apps.cli import main; main()"
    arguments = ["cluster", iris, "-k", "3", "--out", "out", "--json", "--runs", "0", *QUICK]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "") and "\x1b" not in done.stdout
    assert json.loads(done.stdout)["out"] == "out"


def test_progress_on_a_terminal():
    from rich.console import Console

    from partwise.apps.cli.progress_bar import Bar

    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=100)
    model = partwise.GNMF(3, max_iter=20, tol=0, random_state=0)
    with Bar(console) as bar:
        done = bar.watch(model, "fitting gnmf")
        model.fit(load_iris().data)
        done()
        bar.step(3, 4, "something else")
    assert "_skl_callbacks" not in vars(model)
    assert "something else" in screen.getvalue() and "left" in screen.getvalue()


def test_long_fits_have_an_estimate_of_time_and_memory():
    from rich.console import Console

    from partwise.apps.cli.progress_bar import Bar

    seconds, memory = work.classifier_cost(np.broadcast_to(0.0, (20_000, 4096)))
    assert 40 < seconds < 160 and 2e9 < memory < 8e9  # 111 s were measured, including reading
    assert 30 < work.classifier_cost(sp.csr_array((100_000, 9000)))[0] < 150
    assert work.classifier_cost(np.zeros((150, 4)))[0] < work.LONG
    for terminal in (True, False):
        screen = io.StringIO()
        with Bar(Console(file=screen, force_terminal=terminal, width=100)) as bar:
            bar.note("A sentence.")
            bar.start("fitting", seconds=84.0)
            if terminal:
                bar._progress.refresh()
        shown = "about 1 min 24 s" in screen.getvalue() or "about 1 min 23 s" in screen.getvalue()
        assert shown == ("A sentence." in screen.getvalue()) == terminal
