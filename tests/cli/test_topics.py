"""Tests of topics: numbers against naive formulas, and the command ``partwise topics``."""

import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from partwise.apps.topics import Topics, find_topics, groups, npmi, periods, source_column
from partwise.io import read_samples
from partwise.io.samples import Samples

WORDS = {
    "sport": ["team", "match", "goal", "coach", "season", "league"],
    "food": ["bread", "butter", "soup", "onion", "pan", "oven"],
    "money": ["bank", "share", "price", "market", "profit", "tax"],
}


@pytest.fixture
def mails(tmp_path):
    """Write a table of 90 texts on three topics, and return its path.

    The share of sport increases over the dates, and each group has one topic.
    """
    rng, rows = np.random.default_rng(0), []
    for i in range(90):
        topic = list(WORDS)[int(rng.choice(3, p=[i / 120, (1 - i / 120) / 2, (1 - i / 120) / 2]))]
        words = " ".join(rng.choice(WORDS[topic], 12))
        rows.append((f"m{i}", f"2025-{1 + i // 8:02}-05", topic[0], words))
    path = tmp_path / "mails.csv"
    pd.DataFrame(rows, columns=["id", "date", "desk", "body"]).to_csv(path, index=False)
    return path


def test_coherence_is_the_mean_npmi_of_all_pairs():
    there = np.random.default_rng(0).random((40, 6)) < [0.9, 0.5, 0.5, 0.3, 0.3, 0.0]
    there[:, 3] = there[:, 2]
    pairs = []
    for a, b in itertools.combinations(range(6), 2):
        both = sum(there[i, a] and there[i, b] for i in range(40)) / 40
        pa, pb = there[:, a].mean(), there[:, b].mean()
        pairs.append(math.log(both / (pa * pb)) / -math.log(both) if both else -1.0)
    assert npmi(there) == pytest.approx(np.mean(pairs), abs=1e-12)
    assert npmi(np.ones((5, 3))) == 1.0


def test_topics_of_texts_are_found(mails):
    samples = read_samples(mails, text_column="body", id_column="id")
    found = find_topics(samples, 3, n_runs=5)
    assert {frozenset(words) for words in found.words(6)} == set(map(frozenset, WORDS.values()))
    truth = pd.read_csv(mails)["desk"].to_numpy()
    for j, words in enumerate(found.words(1)):
        name = next(name for name, own in WORDS.items() if words[0] in own)
        assert (truth[found.topic == j] == name[0]).all()
    assert found.stability.min() > 0.9
    assert all(found.topic[i] == j for j, rows in enumerate(found.representative()) for i in rows)


def test_merging_adds_weights_and_averages_words():
    rng = np.random.default_rng(0)
    parts = np.array([[1.0, 0.0, 0.1], [0.9, 0.1, 0.1], [0.0, 0.0, 1.0]])
    weights = rng.random((20, 3))
    X = sp.csr_array(rng.random((20, 3)))
    samples = Samples(X, [str(i) for i in range(20)], "texts", feature_names=["a", "b", "c"])
    found = Topics(parts, weights, np.array([0.8, 0.4, 1.0]), samples)
    assert found.words() == [["a", "c"], ["a", "b", "c"], ["c"]]  # words of weight zero are omitted
    merged = found.merged(2)
    used = weights.sum(axis=0)
    both = (used[0] * parts[0] + used[1] * parts[1]) / (used[0] + used[1])
    np.testing.assert_allclose(merged.parts[0], both)
    np.testing.assert_allclose(merged.weights[:, 0], weights[:, 0] + weights[:, 1])
    assert merged.stability[0] == pytest.approx((0.8 * used[0] + 0.4 * used[1]) / used[:2].sum())
    np.testing.assert_allclose(merged.parts[1], parts[2])


def test_shares_over_time_are_means_of_the_texts(mails):
    samples = read_samples(mails, text_column="body", id_column="id")
    found = find_topics(samples, 3, n_runs=2)
    when = periods(source_column(samples, "date", "--time-column"))
    table = found.over(when)
    assert table["texts"].sum() == 90
    for day, row in table.iterrows():
        naive = found.shares[(when == day).to_numpy()].mean(axis=0)
        np.testing.assert_allclose(row.to_numpy()[:3], naive)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["2024-01-05", "2024-01-06", None], ["2024-01-05", "2024-01-06", None]),
        ([2001, 2002, 2002], ["2001-01-01", "2002-01-01", "2002-01-01"]),
        (["2024-01-05T10:00:00Z", "2024-01-05 23:00", ""], ["2024-01-05", "2024-01-05", None]),
    ],
)
def test_dates_are_read(given, expected):
    found = periods(pd.Series(given, name="when"))
    assert [None if pd.isna(day) else day for day in found] == expected


def test_periods_are_as_long_as_needed():
    days = pd.Series(pd.date_range("2020-01-01", periods=400, freq="D"), name="when")
    assert set(periods(days).str[8:]) == {"01"}  # the periods are months
    with pytest.raises(ValueError, match=r"'when'.*'blue'"):
        periods(pd.Series(["blue", "red"], name="when"))


def test_rare_groups_are_one():
    names = [f"g{i}" for i in range(30)] + ["big"] * 5 + [""]
    found = groups(pd.Series(names))
    assert found.nunique() == 12 and (found == "big").sum() == 5 and found.isna().sum() == 1


def test_the_command_writes_tables_and_a_page(command, mails, tmp_path):
    args = (
        "topics", mails, "--text-column", "body", "--id-column", "id", "--topics", "3",
        "--runs", "3", "--time-column", "date", "--group-column", "desk", "--out", tmp_path / "out",
    )  # fmt: skip
    code, out, _ = command(*args)
    assert code == 0 and "topics.html" in out
    table = pd.read_csv(tmp_path / "out/topics.csv")
    assert table["topic"].tolist() == [1, 2, 3]
    assert table["share"].sum() == pytest.approx(1, abs=1e-3)
    sport = int(table["topic"][table["words"].str.contains("goal")].iloc[0])
    time = pd.read_csv(tmp_path / "out/over_time.csv")[f"topic_{sport}"]
    assert time.iloc[-1] > time.iloc[0]
    assert pd.read_csv(tmp_path / "out/by_group.csv", index_col=0).loc["s", f"topic_{sport}"] > 0.9
    assert len(pd.read_csv(tmp_path / "out/texts.csv")) == 90
    assert len(pd.read_csv(tmp_path / "out/hierarchy.csv")) == 2
    page = (tmp_path / "out/topics.html").read_text("utf-8")
    assert page.count("data:image/svg+xml") == 3 and "http" not in page.split("<body>")[1][:2000]
    assert command(*args)[0] == 2  # without --force, existing results are kept
    code, out, _ = command(*args, "--force", "--merge-to", "2", "--json")
    assert code == 0 and len(json.loads(out)) == 2


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--time-column", "when"), "when"),
        (("--time-column", "desk"), "desk"),
        (("--topics", "500"), "500"),
    ],
)
def test_what_cannot_be_done_is_refused(command, mails, tmp_path, options, named):
    args = ("topics", mails, "--text-column", "body", "--out", tmp_path / "out")
    code, _, err = command(*args, *options)
    assert code == 2 and named in err and not (tmp_path / "out").exists()


def test_numbers_are_not_texts(command, tmp_path):
    code, _, err = command("topics", "digits", "--out", tmp_path / "out")
    assert code == 2 and "images" in err
