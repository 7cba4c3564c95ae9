"""Tests of known parts, topics and links that commands read from files."""

import json
import re

import numpy as np
import pytest
import scipy.sparse as sp

import partwise
from partwise.apps.cli import main
from partwise.io import Samples
from partwise.io.known_parts import read_known, read_topics, seed_parts, without_features

WORDS = {
    "sport": ["match", "player", "coach", "goal", "team"],
    "money": ["bank", "market", "profit", "shares", "price"],
}


def command(*arguments):
    with pytest.raises(SystemExit) as end:
        main([str(a) for a in arguments])
    return end.value.code


@pytest.fixture
def texts(tmp_path):
    """Write a table of texts on two topics with labels, and return its path."""
    rng = np.random.default_rng(0)
    rows = ["id,text,class"]
    for name, words in WORDS.items():
        for i in range(20):
            own = " ".join([*rng.choice(words, 4, replace=False), *rng.choice(["year", "day"], 2)])
            rows.append(f"{name}{i},{own},{name}")
    path = tmp_path / "texts.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def samples(kind="table", **more):
    names = ["a", "b", "c"]
    return Samples(np.ones((2, 3)), ["x", "y"], kind, names, source="data.csv", **more)


def test_topics_name_the_clusters_and_the_parts(texts, tmp_path, capsys):
    pytest.importorskip("plotly")  # the command writes a report, which needs plotly
    topics = tmp_path / "topics.toml"
    topics.write_text('money = ["bank", "Market", "zloty"]\n[sport]\nwords = ["match"]\n')
    options = ["--text-column", "text", "--seed-words", topics, "--max-df", 1.0, "--json"]
    read = [texts, *options, "--exclude", "class"]
    assert command("cluster", *read, "--out", tmp_path / "out", "--runs", 0) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["part_names"] == ["money", "sport"]
    assert {row["name"]: row["size"] for row in summary["clusters"]} == {"money": 20, "sport": 20}
    assert any("'money' goes without 'zloty'" in note for note in summary["notes"])
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert "part 1: money (" in page and "part 2: sport (" in page
    assert "seed_components = load(" in page.replace("&#39;", "'")
    lines = (tmp_path / "out" / "assignments.csv").read_text(encoding="utf-8").splitlines()[1:]
    assert all(line.split(",")[1] in line.split(",")[0] for line in lines)
    model = partwise.load(tmp_path / "out" / "model.partwise")
    assert model.seed_components.shape[0] == 2
    capsys.readouterr()
    new = ["predict", tmp_path / "out" / "model.partwise", texts, "--text-column", "text"]
    assert command(*new, "--json") == 0
    assert json.loads(capsys.readouterr().out)["clusters"] == {"money": 20, "sport": 20}


def test_a_topic_keeps_its_name_where_another_part_took_its_words(tmp_path, capsys):
    """Check that a topic keeps its name if its words end in a part that had no topic.

    The words of a topic only determine where the fit starts.
    """
    pytest.importorskip("plotly")  # the command writes a report, which needs plotly
    words = {"sport": ["match", "player", "goal", "team", "league", "score", "coach", "stadium"]}
    words["food"] = ["bread", "soup", "recipe", "oven", "flour", "sugar", "butter", "spice"]
    words["money"] = ["bank", "market", "share", "price", "loan", "credit", "stock", "fund"]
    rng = np.random.default_rng(0)
    (tmp_path / "texts").mkdir()
    for topic, own in words.items():
        for i in range(25):
            text = f"The {' '.join(rng.choice(own, 12))} and this is it."
            (tmp_path / "texts" / f"{topic}_{i}.txt").write_text(text)
    (tmp_path / "t.toml").write_text('sport = ["match", "team"]\nfood = ["bread", "soup"]\n')
    out = tmp_path / "out"
    options = ["--seed-words", tmp_path / "t.toml", "-k", 3, "--method", "gnmf", "--out", out]
    assert command("cluster", tmp_path / "texts", *options, "--runs", 0, "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    about = {row["name"]: row["about"] for row in summary["clusters"]}
    assert set(about["sport"]) <= set(words["sport"]) and set(about["food"]) <= set(words["food"])
    page = (out / "report.html").read_text(encoding="utf-8")
    for topic in ("sport", "food"):
        named = re.search(rf"part \d: {topic} \((\w+), (\w+)", page)
        assert named and set(named.groups()) <= set(words[topic])
    lines = (out / "assignments.csv").read_text().splitlines()[1:]
    for line in lines:
        name, cluster = line.split(",")[:2]
        assert (name.split("_")[0] == cluster) == (cluster in ("sport", "food")), line


def test_a_known_part_stays_in_a_model_of_the_command(tmp_path, capsys):
    rng = np.random.default_rng(1)
    parts = rng.random((3, 6)) + 0.1
    X = rng.dirichlet(np.ones(3), 50) @ parts
    np.save(tmp_path / "X.npy", X)
    known = tmp_path / "parts.csv"
    rows = [["name", *"abcdef"], ["one", *parts[0]], ["two", *parts[1, :4], "", ""]]
    known.write_text("\n".join(";".join(map(str, row)) for row in rows), encoding="utf-8")
    out = tmp_path / "m.partwise"
    fit = ["fit", tmp_path / "X.npy", "--known", known, "--scale", "none", "--out", out]
    assert command(*fit, "-k", 3, "--method", "nmf") == 0
    H = partwise.load(out).components_
    assert np.array_equal(H[0], parts[0]) and np.array_equal(H[1, :4], parts[1, :4])
    assert command(*fit, "-k", 1, "--force") == 2
    assert "-k 1 is less than the 2 parts" in capsys.readouterr().err
    assert command(*fit, "-k", 3, "--method", "cf", "--force") == 2
    assert "--method cf" in capsys.readouterr().err


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_a_seed_is_the_mean_of_texts_by_their_words(make):
    X = np.random.default_rng(2).random((8, 5))
    share = X[:, 1] / X[:, 1].sum() + X[:, 3] / X[:, 3].sum()
    naive = sum(s * x for s, x in zip(share, X, strict=True)) / share.sum()
    assert np.allclose(seed_parts(make(X), [[1, 3], [0]])[0], naive, rtol=1e-12)


def test_known_parts_are_in_the_units_of_the_data(tmp_path):
    path = tmp_path / "parts.csv"
    path.write_text("name,c,a\none,4,2\n")
    assert np.array_equal(read_known(path, samples()).H, [[2, np.nan, 4]], equal_nan=True)
    scaled = samples(recipe={"scale": "max", "divide": [2.0, 1.0, 8.0]})
    assert np.array_equal(read_known(path, scaled).H, [[1, np.nan, 0.5]], equal_nan=True)


@pytest.mark.parametrize(
    "text, message",
    [
        ("name,a\n", "part"),
        ("name,a,x\none,1,2\n", "'x'"),
        ("name,a,a\none,1,2\n", "'a' occurs twice"),
        ("name,a,b\none,1\n", "line 2.*2.*3"),
        ("name,a,b\none,1,two\n", "line 2.*'b'.*'two'"),
        ("name,a,b\none,1,-2\n", "line 2.*'b'.*-2"),
        ("name,a,b\none,1,inf\n", "line 2.*'b'.*inf"),
        ("name,a\none,1\none,2\n", "'one'"),
    ],
)
def test_wrong_files_of_parts_are_answered(text, message, tmp_path):
    path = tmp_path / "parts.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_known(path, samples())


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "topic"),
        ("sport: match", "topic"),
        ("sport = []", "'sport'"),
        ('sport = "match"', "'sport'"),
        ("sport = [1]", "'sport'"),
        ('sport = ["bb"]', "'sport'.*'bb'"),
    ],
)
def test_wrong_files_of_topics_are_answered(text, message, tmp_path):
    path = tmp_path / "topics.toml"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        read_topics(path, samples("texts"))


def test_wrong_uses_are_answered(tmp_path):
    path = tmp_path / "file"
    with pytest.raises(ValueError, match="file"):
        read_known(path, samples())
    with pytest.raises(ValueError, match="--seed-words"):
        read_topics(path, samples())
    path.write_text("name,a\none,1\n")
    with pytest.raises(ValueError, match="--scale none"):
        read_known(path, samples(recipe={"scale": "range"}))
    nameless = Samples(np.ones((2, 3)), ["x", "y"], "table", source="X.npy")
    with pytest.raises(ValueError, match=r"1.*X\.npy.*3"):
        read_known(path, nameless)


def test_links_of_a_file_are_kept_by_the_clusters(texts, tmp_path, capsys):
    links = tmp_path / "links.csv"
    links.write_text("a,b,kind\nsport0,sport1,must\nsport0,money3,cannot\n")
    read = [texts, "--text-column", "text", "--exclude", "class", "--max-df", 1.0]
    options = [*read, "--links", links, "-k", 3, "--runs", 0, "--no-report", "--out"]
    assert command("cluster", *options, tmp_path / "out", "--json") == 0
    summary = json.loads(capsys.readouterr().out)
    assert "1 must-links and 1 cannot-links." in summary["notes"]
    lines = (tmp_path / "out" / "assignments.csv").read_text(encoding="utf-8").splitlines()[1:]
    found = dict(line.split(",")[:2] for line in lines)
    assert found["sport0"] == found["sport1"] != found["money3"]
    assert command("cluster", *options, tmp_path / "no", "--method", "classify") == 2
    assert "--links; nmf" in " ".join(capsys.readouterr().err.split())
    for line, words in {
        "sport0,sport1,maybe": "line 2: 'sport0,sport1,maybe'",
        "sport0,sprot1,must": "line 2: no sample has the id 'sprot1'; did you mean 'sport1'?",
        "sport0,money3,must": "links contradict each other",
    }.items():
        links.write_text(f"sport0,money3,cannot\n{line}\n")
        assert command("cluster", *options, tmp_path / "no") == 2
        assert words in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("loss", ["frobenius", "kullback-leibler"])
def test_a_part_does_not_use_what_it_must_not(loss):
    rng = np.random.default_rng(0)
    X = rng.dirichlet(np.ones(3), 60) @ rng.gamma(0.5, size=(3, 12))
    names = [f"w{j}" for j in range(12)]
    fixed = without_features([["w1", "w5"], [0]], names)
    model = partwise.NMF(3, fixed_components=fixed, beta_loss=loss, random_state=0, tol=1e-2).fit(X)
    assert not model.components_[0, [1, 5]].any() and model.components_[1, 0] == 0
    assert (model.components_[2, [0, 1, 5]] > 0).any() and model.components_[0].any()
    for wrong, said in (
        (["w1"], "must be a list"),
        ([["no"]], "none of the 12 features"),
        ([[12]], "none of the 12 features"),
        ([names], r"excluded\[0\]"),
    ):
        with pytest.raises(ValueError, match=said):
            without_features(wrong, names)
