"""Tests of --write-back, which adds predicted labels to a copy of the user's table."""

import csv
import json

import numpy as np
import pytest

from partwise.io import read_samples

WORDS = {
    "sea": ["wave", "salt", "tide", "ship", "sail", "harbour"],
    "sky": ["cloud", "wind", "bird", "rain", "sun", "storm"],
}
QUICK = ("--no-report", "--max-iter", "60")
GIVEN = ("--text-column", "body", "--label-column", "topic", *QUICK)
NEW = ["partwise_label", "partwise_probability", "partwise_second_label", "partwise_doubtful"]


def table():
    """Return the heading and rows of a table with empty texts, quotes and line breaks."""
    rng = np.random.default_rng(0)
    rows = []
    for i in range(60):
        topic = ("sea", "sky")[i % 2]
        body = "" if i == 7 else " ".join(rng.choice(WORDS[topic], 6))
        if i == 8:
            body = f'he said; "{body}"\nand left'
        rows.append([f"{i:03d}", f"{i},50", body, topic if i < 12 else ""])
    return ["id", "price", "body", "topic"], rows


def checked(found, rows):
    """Check that the original cells are unchanged and each row has the label of its text."""
    assert len(found) == len(rows)
    for i, (new, old) in enumerate(zip(found, rows)):
        assert list(new.values())[:4] == old
        if i == 7:
            assert [new[name] for name in NEW] == ["", "", "", ""]
            continue
        assert new["partwise_label"] == ("sea", "sky")[i % 2]
        assert new["partwise_second_label"] == ("sky", "sea")[i % 2]
        assert 0.5 <= float(new["partwise_probability"]) <= 1 and new["partwise_doubtful"] == "no"


@pytest.mark.parametrize(
    ("separator", "encoding"), [(",", "utf-8"), (";", "cp1252"), ("\t", "utf-16")]
)
def test_csv(command, tmp_path, separator, encoding):
    heading, rows = table()
    heading[1] = "größe"
    path = tmp_path / "mails.csv"
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerows([heading, *rows[:30], [""] * 4, *rows[30:]])
    before = path.read_bytes()
    out = tmp_path / "out"
    code, text, err = command("classify", path, *GIVEN, "--write-back", "--out", out)
    assert code == 0, err
    assert path.read_bytes() == before and "labelled.csv" in text + err
    with (out / "labelled.csv").open(newline="", encoding=encoding) as file:
        found = list(csv.DictReader(file, delimiter=separator))
    assert list(found[0]) == [*heading, *NEW]
    assert list(found[30].values()) == [""] * 8  # the empty row remains
    checked(found[:30] + found[31:], rows)
    new = tmp_path / "new.csv"
    told = ("predict", out / "model.partwise", path, "--write-back")
    code, _, err = command(*told, "--out", new)
    assert code == 0, err
    with new.open(newline="", encoding=encoding) as file:
        again = list(csv.DictReader(file, delimiter=separator))
    checked(again[:30] + again[31:], rows)
    code, _, err = command(*told, "--out", path)
    assert code == 2 and "--force" in err and path.read_bytes() == before
    code, _, err = command(*told)
    assert code == 2 and "--out" in err


def test_parquet_keeps_its_types(command, tmp_path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow", reason=".parquet needs pyarrow")
    heading, rows = table()
    frame = pandas.DataFrame(rows, columns=heading)
    frame["day"] = pandas.date_range("2024-01-01", periods=60)
    frame["small"] = np.arange(60, dtype=np.int8)
    path = tmp_path / "mails.parquet"
    frame.to_parquet(path)
    out = tmp_path / "out"
    code, _, err = command("classify", path, *GIVEN, "--write-back", "--out", out)
    assert code == 0, err
    found = pandas.read_parquet(out / "labelled.parquet")
    pandas.testing.assert_frame_equal(found[frame.columns], frame)
    known = np.arange(60) != 7
    assert found.loc[known, "partwise_label"].tolist() == [
        ("sea", "sky")[i % 2] for i in range(60) if i != 7
    ]
    # The cell is None or NaN, depending on the version of pandas.
    assert pandas.isna(found.loc[7, "partwise_label"])
    assert found["partwise_probability"].dtype == np.float64


def test_lines_of_json(command, tmp_path):
    heading, rows = table()
    path = tmp_path / "mails.jsonl"
    path.write_text("\n".join(json.dumps({**dict(zip(heading, row)), "n": [1]}) for row in rows))
    out = tmp_path / "out"
    code, _, err = command("classify", path, *GIVEN, "--write-back", "--out", out)
    assert code == 0, err
    found = [json.loads(line) for line in (out / "labelled.jsonl").read_text().splitlines()]
    assert (
        found[0]["n"] == [1]
        and found[0]["partwise_label"] == "sea"
        and found[7]["partwise_label"] is None
    )


def test_a_second_write_back_replaces_the_columns_of_the_first(command, tmp_path):
    heading, rows = table()
    path = tmp_path / "mails.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heading, *rows])
    out = tmp_path / "out"
    assert command("classify", path, *GIVEN, "--write-back", "--out", out)[0] == 0
    (tmp_path / "again.csv").write_bytes((out / "labelled.csv").read_bytes())
    told = ("classify", tmp_path / "again.csv", *GIVEN, "--write-back", "--out", tmp_path / "more")
    code, _, err = command(*told)
    assert code == 0, err
    with (tmp_path / "more" / "labelled.csv").open(newline="") as file:
        assert next(csv.reader(file)) == [*heading, *NEW]


def test_what_we_said_before_is_no_feature(tmp_path):
    path = tmp_path / "t.csv"
    rows = "".join(f"{i},{i % 3},{'ab'[i % 2]},0.9\n" for i in range(0, 80, 2))
    path.write_text("size,a,partwise_label,partwise_probability\n" + rows)
    samples = read_samples(path)
    assert samples.feature_names == ["size", "a"]
    assert any("earlier answer" in note and "partwise_label" in note for note in samples.notes)


def test_clusters_without_labels(command, tmp_path):
    heading, rows = table()
    path = tmp_path / "mails.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heading, *rows])
    out = tmp_path / "out"
    told = (
        "cluster",
        path,
        "--text-column",
        "body",
        "-k",
        "2",
        "--write-back",
        "--out",
        out,
        *QUICK,
    )
    code, _, err = command(*told)
    assert code == 0, err
    with (out / "labelled.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert list(found[0]) == [*heading, "partwise_cluster", "partwise_confidence"]
    with (out / "assignments.csv").open(newline="") as file:
        listed = {row["id"]: row["cluster"] for row in csv.DictReader(file)}
    assert all(row["partwise_cluster"] == listed.get(row["id"], "") for row in found)


def test_a_given_label_is_doubtful_only_where_the_rest_contradicts_it(command, tmp_path):
    heading, rows = table()
    for i in range(12, 40):
        rows[i][3] = ("sea", "sky")[i % 2]
    rows[20][3] = "sky"  # a wrong label, since the text is of the class "sea"
    path = tmp_path / "mails.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([heading, *rows])
    out = tmp_path / "out"
    code, _, err = command("classify", path, *GIVEN, "--write-back", "--out", out)
    assert code == 0, err
    with (out / "labelled.csv").open(newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["id"] for row in found if row["partwise_doubtful"] == "yes"] == ["020"]
    assert (found[20]["partwise_label"], found[20]["partwise_second_label"]) == ("sky", "sea")
    with (out / "assignments.csv").open(newline="") as file:
        listed = {row["id"]: row for row in csv.DictReader(file)}
    for row in found[:7] + found[8:]:  # labels that were given have probability one in both files
        same = listed[row["id"]]
        assert float(row["partwise_probability"]) == float(same["probability"])
        assert (row["topic"] == "") or float(same["probability"]) == 1


def test_for_what_it_is(command, tmp_path):
    code, _, err = command("cluster", "digits", "--write-back", "--out", tmp_path / "out")
    assert code == 2 and "--write-back" in err
