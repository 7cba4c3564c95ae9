"""Tests that each option of the command line has its documented effect."""

import csv
import json
import re
import socket
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import typer

import partwise
from partwise.apps import cli
from partwise.apps.cli.options import REFUSAL
from partwise.apps.papers import command as papers
from partwise.apps.papers.protocol import load_protocol
from partwise.apps.papers.trials import cells
from partwise.estimators import saving

QUICK = ("--method", "nmf", "-k", "2", "--max-iter", "5", "--json", "--force")


@pytest.fixture
def fit(command, tmp_path):
    """Return a function that fits data with command-line options.

    The function returns the summary, the model, and the recipe that prepares new data.
    """

    def run(data, *options):
        out = tmp_path / "m.partwise"
        code, text, err = command("fit", data, "--out", out, *QUICK, *options)
        assert code == 0, err
        return json.loads(text), *saving.read(out)

    return run


def table(path, header, rows, separator=","):
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def test_every_option_is_passed_in_some_test():
    """Check that every option of every command occurs in some test."""
    here = Path(__file__).parents[1]
    told = "\n".join(path.read_text() for path in here.rglob("*.py"))
    commands = typer.main.get_command(cli.app).commands
    silent = []
    for name, one in commands.items():
        for option in one.params:
            words = [word for word in (*option.opts, *option.secondary_opts) if word[:1] == "-"]
            if (
                option.name != "help_all"
                and words
                and not any(f'"{word}"' in told for word in words)
            ):
                silent.append(f"{name} {'/'.join(words)}")
    assert silent == []


@pytest.mark.parametrize("name", sorted(typer.main.get_command(cli.app).commands))
def test_help_shows_ten_options_and_help_all_shows_the_rest(command, monkeypatch, name):
    monkeypatch.setenv("COLUMNS", "80")
    options = {
        max((word for word in option.opts if word[:2] == "--"), key=len)
        for option in typer.main.get_command(cli.app).commands[name].params
        if option.opts[0][:1] == "-"
        and getattr(option, "help", None) != REFUSAL
        and not (option.hidden and option.name == "help_all")
    }
    code, short, _ = command(name, "-h")
    shown = {option for option in options if re.search(rf"│ +(\* +)?{option}\b(?!-)", short)}
    assert code == 0 and (
        "--help-all" not in options or len(shown - {"--help", "--help-all"}) <= 10
    )
    if options - shown:
        whole = command(name, "--help-all")[1]
        assert all(re.search(rf"[ │]{option}\b(?!-)", whole) for option in options), name
    assert all(len(line) <= 80 for line in short.splitlines())


# -- tables ---------------------------------------------------------------------------------------


def test_separator(fit, tmp_path):
    """Check --separator for a table that could be read with two separators."""
    rows = [[f"{i},5", f"{(i * 7) % 5 + 1},25"] for i in range(12)]
    path = table(tmp_path / "t.csv", ["a", "b"], rows, separator=";")
    told = fit(path, "--separator", ";")[1]
    assert told.n_features_in_ == 2 and told.components_.shape == (2, 2)
    other = tmp_path / "o.tsv"
    other.write_text("a|b|c\n" + "".join(f"{i}|{i % 3 + 1}|{i % 2 + 1}\n" for i in range(12)))
    assert fit(other, "--separator", "|")[0]["features"] == 3
    tabs = tmp_path / "o.csv"
    tabs.write_text(other.read_text().replace("|", "\t"))
    assert fit(tabs, "--separator", "tab")[0]["features"] == 3


def test_missing(fit, command, tmp_path):
    rows = [[f"s{i}", "" if i in (2, 5) else i + 1, 12 - i] for i in range(12)]
    path = table(tmp_path / "t.csv", ["id", "a", "b"], rows)
    assert fit(path)[0]["samples"] == 12
    summary, model, _ = fit(path, "--missing", "drop")
    assert summary["samples"] == 10 and len(model.embedding_) == 10
    assert "2 rows with missing values were left out." in summary["notes"]
    out = tmp_path / "p.csv"
    code, _, err = command("transform", tmp_path / "m.partwise", path, "--out", out)
    assert code == 0, err
    # The model stored how missing values are handled.
    assert [line[:2] for line in out.read_text().splitlines()[3:5]] == ["s3", "s4"]
    again = command("transform", tmp_path / "m.partwise", path, "--missing", "median", "--out", out,
                    "--force")  # fmt: skip
    assert again[0] == 0 and len(out.read_text().splitlines()) == 13
    mean = np.mean([i + 1 for i in range(12) if i not in (2, 5)])
    assert fit(path, "--missing", "mean", "--scale", "none")[2]["fill"][0] == pytest.approx(mean)
    code, _, err = command("fit", path, "--missing", "error", *QUICK, "--out", tmp_path / "e")
    assert code == 2 and "2 values are missing, the first in column 'a' of row 2" in err


def test_columns_and_kind(fit, tmp_path):
    rows = [[i + 1, 12 - i, (i * 5) % 7] for i in range(12)]
    path = table(tmp_path / "t.csv", ["a", "b", "c"], rows)
    assert fit(path)[0]["features"] == 3
    some, _, recipe = fit(path, "--columns", "a,c")
    assert some["features"] == 2 and [spec["name"] for spec in recipe["columns"]] == ["a", "c"]
    counts = fit(path, "--kind", "counts")
    assert counts[0]["kind"] == "counts" and fit(path)[0]["kind"] == "table"
    # Each sample is scaled to the median total, not each column to a range.
    assert counts[2]["scale"] == "total"


def test_encoding(fit, tmp_path):
    """Check --encoding for a byte that is "ä" in one encoding and a Cyrillic letter in another."""
    text = "id,größe,höhe\n" + "".join(f"s{i},{i + 1},{12 - i}\n" for i in range(12))
    path = tmp_path / "t.csv"
    path.write_bytes(text.encode("cp1252"))
    names = [
        [spec["name"] for spec in fit(path, "--encoding", encoding)[2]["columns"]]
        for encoding in ("cp1252", "cp1251")
    ]
    assert names == [["größe", "höhe"], ["grцЯe", "hцhe"]]


def test_parts_are_not_clusters(fit, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((20, 9)))
    summary, model, _ = fit(tmp_path / "x.npy", "--method", "gnmf", "--parts", "4")
    assert summary["parts"] == 4 and model.components_.shape == (4, 9)
    assert len(summary["clusters"]) == 2


def test_image_order(fit, tmp_path):
    """Check --image-order: pixels stored by columns or by rows give the same parts."""
    X = np.random.default_rng(0).random((20, 2, 3))
    np.save(tmp_path / "rows.npy", X.reshape(20, 6))
    np.save(tmp_path / "columns.npy", X.transpose(0, 2, 1).reshape(20, 6))
    shape = ("--image-shape", "2x3")
    rows = fit(tmp_path / "rows.npy", *shape, "--image-order", "rows")[1]
    columns = fit(tmp_path / "columns.npy", *shape, "--image-order", "columns")[1]
    # Products over pixels have another order of memory, so five iterations differ by rounding.
    np.testing.assert_allclose(rows.components_, columns.components_, rtol=0, atol=1e-10)


def test_transpose(fit, tmp_path):
    X = np.random.default_rng(0).random((20, 6))
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "t.npy", np.ascontiguousarray(X.T))
    plain, turned = fit(tmp_path / "x.npy"), fit(tmp_path / "t.npy", "--transpose")
    assert turned[0]["samples"] == 20 and turned[0]["features"] == 6
    np.testing.assert_allclose(turned[1].components_, plain[1].components_, rtol=0, atol=1e-10)


# -- labels ---------------------------------------------------------------------------------------


def test_similar_labels(fit, command, tmp_path):
    names = ["Block 2", "block2", "other", ""]
    rows = [[f"s{i}", i % 4 + 1, i % 3 + 1, names[i % 4]] for i in range(24)]
    path = table(tmp_path / "t.csv", ["id", "a", "b", "kind"], rows)
    asked = ("--label-column", "kind")
    code, _, err = command("fit", path, *asked, *QUICK, "--out", tmp_path / "n")
    assert code == 2 and "'Block 2' (6)" in err and "'block2' (6)" in err
    merged = fit(path, *asked, "--similar-labels", "merge")[0]
    assert merged["classes"] == ["Block 2", "other"] and merged["labels"] == 18
    kept = fit(path, *asked, "--similar-labels", "keep", "-k", "3")[0]
    assert kept["classes"] == ["Block 2", "block2", "other"]


def test_skip_unknown(fit, command, tmp_path):
    rows = [[f"s{i}", i % 4 + 1, i % 3 + 1] for i in range(12)]
    path = table(tmp_path / "t.csv", ["id", "a", "b"], rows)
    given = [["s0", "x"], ["s3", "y"], ["gone", "x"]]
    labels = ("--labels", table(tmp_path / "l.csv", ["id", "label"], given))
    code, _, err = command("fit", path, *labels, *QUICK, "--out", tmp_path / "n")
    assert code == 2 and "no sample has the id 'gone'" in err
    summary = fit(path, *labels, "--skip-unknown")[0]
    assert summary["labels"] == 2
    assert any("l.csv" in note and "1 (line 4)" in note for note in summary["notes"])


# -- texts ----------------------------------------------------------------------------------------


@pytest.fixture
def texts(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    for i in range(24):
        words = ["red wine", "red wine glass", "the red house", "the old house"][i % 4]
        (folder / f"{i:02d}.txt").write_text(words)
    return folder


def words_of(fitted):
    """Return the vocabulary of a fit, which its recipe stores for new texts."""
    return set(fitted[2]["vocabulary"] if "vocabulary" in fitted[2] else fitted[2]["words"])


def test_stop_words(fit, texts, tmp_path):
    most = ("--max-df", "1.0")
    assert {"the", "red"} <= words_of(fit(texts, "--stop-words", "off", *most))
    assert "the" not in words_of(fit(texts, "--stop-words", "english", *most))
    own = tmp_path / "own.txt"
    own.write_text("house\n")
    left = words_of(fit(texts, "--stop-words", own, *most))
    assert "house" not in left and "the" in left


def test_tokens_and_ngrams(fit, texts):
    plain = words_of(fit(texts, "--stop-words", "off"))
    assert "red wine" not in plain and "wine" in plain
    pairs = words_of(fit(texts, "--stop-words", "off", "--ngrams", "1-2", "--max-df", "1.0"))
    assert {"red wine", "wine"} <= pairs
    # These texts are already split into words by spaces. They can be read as words or as
    # characters.
    for path, text in zip(sorted(texts.iterdir()), ["今天 很好", "明天 不好", "晚上 下雨"] * 8):
        path.write_text(text, encoding="utf-8")
    cut = words_of(fit(texts, "--tokens", "words", "--stop-words", "off"))
    assert cut == {"今天", "很好", "明天", "不好", "晚上", "下雨"}
    letters = ("--tokens", "characters", "--stop-words", "off", "--max-df", "1.0")
    assert all(len(piece) == 1 for piece in words_of(fit(texts, *letters, "--ngrams", "1")))


def test_min_df(fit, texts):
    assert "glass" in words_of(fit(texts, "--min-df", "6"))  # the word is in 6 texts
    assert "glass" not in words_of(fit(texts, "--min-df", "7"))
    assert "glass" not in words_of(fit(texts, "--min-df", "0.3"))
    assert "glass" in words_of(fit(texts, "--min-df", "0.2"))


# -- AnnData files --------------------------------------------------------------------------------


@pytest.fixture
def cells_file(tmp_path):
    anndata = pytest.importorskip("anndata", reason=".h5ad needs anndata")
    rng = np.random.default_rng(0)
    counts = rng.poisson(2.0, (30, 8)).astype(np.float32)
    counts[:15, :3] += rng.poisson(9.0, (15, 3))
    found = anndata.AnnData(sp.csr_matrix(counts))
    found.obs_names = [f"cell{i}" for i in range(30)]
    found.var_names = [f"gene{j}" for j in range(8)]
    found.layers["halved"] = sp.csr_matrix(np.floor(counts / 2))
    found.write_h5ad(tmp_path / "c.h5ad")
    return tmp_path / "c.h5ad", counts


def test_layer_and_genes(fit, cells_file):
    path, counts = cells_file
    plain = fit(path, "--scale", "none")
    other = fit(path, "--scale", "none", "--layer", "halved")
    left = [np.linalg.norm(X - m[1].embedding_ @ m[1].components_)
            for X, m in ((counts, plain), (np.floor(counts / 2), other))]  # fmt: skip
    sizes = np.linalg.norm(counts), np.linalg.norm(np.floor(counts / 2))
    # The error of each model is far below the norm of its own layer.
    assert all(a < 0.6 * b for a, b in zip(left, sizes))
    few = fit(path, "--genes", "3")
    assert few[0]["features"] == 3 and "3 most variable genes" in few[0]["preparation"]
    assert fit(path, "--genes", "0")[0]["features"] == 8


def test_write_back(command, cells_file, tmp_path):
    anndata = pytest.importorskip("anndata")
    path, counts = cells_file
    args = ("--out", tmp_path / "out", "--runs", "0", "--no-report", *QUICK)
    code, _, err = command("cluster", path, "--write-back", *args)
    assert code == 0, err
    model = partwise.load(tmp_path / "out" / "model.partwise")
    found = anndata.read_h5ad(path)
    np.testing.assert_array_equal(found.obsm["X_partwise"], model.embedding_)
    np.testing.assert_array_equal(found.varm["partwise_parts"], model.components_.T)
    with (tmp_path / "out" / "assignments.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["cluster"] for row in rows] == [str(name) for name in found.obs["partwise"]]
    np.testing.assert_array_equal(found.X.toarray(), counts)  # the original counts are unchanged
    # In anndata 0.13, the layers contain X under the name None.
    assert [name for name in found.layers if name is not None] == ["halved"]


# -- random seeds ---------------------------------------------------------------------------------


def test_seed(fit, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((20, 9)))
    random = ("--set", "init=random")
    first, same, other = (
        fit(tmp_path / "x.npy", "--seed", seed, *random)[1] for seed in ("3", "3", "4")
    )
    assert (first.random_state, other.random_state) == (3, 4)
    np.testing.assert_array_equal(first.components_, same.components_)
    assert np.abs(first.components_ - other.components_).max() > 1e-3


# -- the command `partwise studio` ----------------------------------------------------------------


def test_studio_says_where_it_is_and_where_labels_are(command, tmp_path, monkeypatch):
    serve = pytest.importorskip("partwise.apps.studio.server", reason="the studio needs starlette")
    rows = [[f"s{i}", i % 5 + 1, i % 3 + 1] for i in range(20)]
    data = table(tmp_path / "t.csv", ["id", "a", "b"], rows)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]

    def stop(studio):
        raise KeyboardInterrupt

    monkeypatch.setattr(serve.Studio, "wait", stop)
    where = ("--project", tmp_path / "mine", "--host", "127.0.0.1", "--port", port)
    more = ("--no-browser", "--seed", "1", "--random-first", "7")
    code, out, err = command("studio", data, *where, *more)
    assert code == 0, err
    assert json.loads((tmp_path / "mine" / "project.json").read_text())["random_first"] == 7
    assert re.match(rf"http://127\.0\.0\.1:{port}/", out)
    assert "0 labels" in err and str(tmp_path / "mine") in err.replace("\n", "")
    assert list((tmp_path / "mine").iterdir()) and not (tmp_path / "t-studio").exists()
    code, _, err = command("studio", data, "--host", "0.0.0.0", "--no-browser")
    assert code == 2 and "password" in err


# -- the command `partwise reproduce` -------------------------------------------------------------


def test_reproduce_one_variant(command, monkeypatch, tmp_path):
    """Check that --variant requires only the runs of that variant."""
    asked = []
    monkeypatch.setattr(papers, "_run", lambda plans, *a: asked.extend(plans.values()) or {})
    args = ("reproduce", "gnmf/table3", "--out", tmp_path / "out")
    assert command(*args, "--variant", "authors")[0] == 0
    assert command(*args)[0] == 0
    only, every = ({c.slug for c in cells(load_protocol("gnmf/table3"), one)} for one in asked)
    assert 0 < len(only) < len(every) and only < every
    one = asked[0]
    assert one.variant == "authors" and asked[1].variant == ""
    assert command(*args, "--quick")[0] == 0
    small = list(cells(load_protocol("gnmf/table3"), asked[2]))
    assert 0 < len(small) < len(every)
    code, _, err = command(*args, "--variant", "nobody")
    assert code == 2 and "nobody" in err and "authors" in err


def test_labels_that_say_unknown_are_dropped_or_a_class(fit, command, tmp_path):
    rows = [[f"r{i}", i % 2 + 0.01 * i, 1 - i % 2] for i in range(12)]
    data = table(tmp_path / "t.csv", ["id", "a", "b"], rows)
    labels = [[f"r{i}", "?" if i > 3 else "xy"[i % 2]] for i in range(6)]
    given = ("--labels", table(tmp_path / "l.csv", ["id", "label"], labels))
    code, _, err = command("fit", data, "--out", tmp_path / "m", *QUICK, *given)
    assert code == 2 and "--unknown-labels drop" in err
    assert fit(data, *given, "--unknown-labels", "drop")[0]["labels"] == 4
    assert fit(data, *given, "--unknown-labels", "keep", "-k", "3")[0]["labels"] == 6


def test_a_first_row_is_a_heading_or_a_sample(fit, tmp_path):
    rows = [[i % 2 + 0.01 * i, 1 - i % 2] for i in range(12)]
    data = table(tmp_path / "t.csv", [0.5, 0.6], rows)
    assert fit(data, "--heading", "yes")[0]["samples"] == 12
    assert fit(data, "--heading", "no")[0]["samples"] == 13
    assert fit(data, "--skip-rows", "3", "--heading", "yes")[0]["samples"] == 9


def test_a_sheet_by_its_number(fit, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for n in (9, 12):
        sheet = book.create_sheet()
        for row in [["a", "b"], *([i % 2 + 0.01 * i, 1 - i % 2] for i in range(n))]:
            sheet.append(row)
    book.save(tmp_path / "t.xlsx")
    assert fit(tmp_path / "t.xlsx", "--sheet", "3")[0]["samples"] == 12
