"""Tests of tables from spreadsheets, tables without a header row, and very long cells."""

import csv
import datetime as dt
import json

import numpy as np
import pytest

from partwise.io import read_labels, read_samples

WORDS = {
    "sea": ["wave", "salt", "tide", "ship", "sail", "harbour"],
    "sky": ["cloud", "wind", "bird", "rain", "sun", "storm"],
}


def write(tmp_path, text, name="t.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def mails(n=40):
    rng = np.random.default_rng(0)
    return [[f"m{i}", " ".join(rng.choice(WORDS[("sea", "sky")[i % 2]], 6))] for i in range(n)]


def test_a_cell_as_long_as_a_book(tmp_path):
    path = tmp_path / "t.csv"
    before = csv.field_size_limit()
    rows = mails()
    rows[3][1] = "storm cloud " * 20_000  # a cell of 240,000 characters
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "body"], *rows])
    samples = read_samples(path, text_column="body")
    assert samples.n_samples == 40 and "storm" in samples.feature_names
    labels = write(tmp_path, f'id,label,why\nm0,sea,"{"x" * 200_000}"\nm1,sky,\n', "l.csv")
    assert read_labels(labels, samples.ids)[:2].tolist() == ["sea", "sky"]
    # This limit of the csv module holds for the whole process.
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "cp1252"])
@pytest.mark.parametrize("line", ["sep=;\r\n", '"sep=;"\r\n'])
def test_tables_as_excel_writes_them(tmp_path, line, encoding):
    """Check a .csv file as Excel writes it.

    Excel adds a line that states the separator, empty rows, and empty columns at the end.
    """
    rows = "".join(f"f{i};{i},5;Tür {i % 3};;\r\n" for i in range(30))
    text = f"{line}id;größe;was;;\r\n{rows};;;;\r\n;;;;\r\n"
    samples = read_samples(write(tmp_path, text, encoding=encoding))
    assert samples.ids == [f"f{i}" for i in range(30)]
    assert [c[0] for c in samples.columns] == ["größe", "was"]
    assert any("2 empty rows" in note for note in samples.notes)
    labels = write(tmp_path, f"{line}id;label\r\nf1;x\r\nf2;y\r\n;\r\n", "l.csv", encoding)
    assert read_labels(labels, samples.ids)[1:3].tolist() == ["x", "y"]


@pytest.mark.parametrize(
    "text",
    [
        "spam,buy cheap pills\nham,see you at noon\nspam,cheap pills now\nham,noon is fine\n",
        "5.1,3.5,setosa\n4.9,3.0,setosa\n6.1,2.9,other\n6.2,2.8,other\n",
        "12,7,31\n5,99,2\n44,1,8\n3,3,9\n",
        "2024-01-03,1.5\n2024-01-04,2.5\n2024-02-01,3.5\n2024-02-09,0.5\n",
    ],
    ids=["labels recur", "fractions", "counts", "dates"],
)
def test_a_table_without_a_heading_loses_no_row(tmp_path, text):
    samples = read_samples(
        write(tmp_path, text), text_column=None if text[0] != "s" else "column 2"
    )
    assert samples.n_samples == 4
    said = next(note for note in samples.notes if "no heading" in note)
    assert "column 1" in said and "--heading yes" in said
    assert all(name.startswith("column ") for name, _, _ in samples.columns)
    kept = {"text_column": "buy cheap pills"} if text[0] == "s" else {}
    assert read_samples(write(tmp_path, text), heading="yes", **kept).n_samples == 3


@pytest.mark.parametrize(
    "text",
    [
        "id,a,b\n1,2,3\n4,5,6\n7,8,8\n",
        "country,2000,2010,2020\nDE,1,2,3\nFR,4,5,6\nIT,4,4,4\n",  # columns named by years
        "0,1,2\n1.5,2.5,3.5\n4,5,6\n1,0,9\n",  # columns numbered by pandas
        ",a,b\nx,1,2\ny,2,4\nz,3,3\n",  # the index of pandas as the first column
        "text,label\nsome words,a\nother nouns,b\nwords and verbs,b\n",
        "a,b\n1,x\n2,y\n2,x\n",
    ],
)
def test_a_heading_stays_one(tmp_path, text):
    samples = read_samples(
        write(tmp_path, text), **({"text_column": "text"} if "text" in text else {})
    )
    assert samples.n_samples == 3 and not any("no heading" in note for note in samples.notes)
    if text[0] == "0":
        assert read_samples(write(tmp_path, text), heading="no").n_samples == 4


def test_new_data_without_a_heading(tmp_path):
    path = write(tmp_path, "12,7,31\n5,99,2\n44,1,8\n3,3,9\n")
    recipe = read_samples(path).recipe
    new = read_samples(write(tmp_path, "5,99,2\n12,7,31\n", "n.csv"), recipe=recipe)
    assert np.array_equal(new.X, read_samples(path).X[[1, 0]])
    named = read_samples(write(tmp_path, "a,b\n1,2\n3,4\n5,5\n")).recipe
    with pytest.raises(ValueError, match="column"):
        read_samples(write(tmp_path, "7,2\n3,4\n5,5\n", "n.csv"), recipe=named)


def workbook(path, sheets):
    openpyxl = pytest.importorskip("openpyxl", reason=".xlsx needs openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)
    return path


def test_a_workbook_holds_what_its_csv_does(tmp_path):
    rows = [
        [
            f"{i:03d}",
            i * 1.5,
            i % 2 == 0,
            ("red", "blue")[i % 3 == 0],
            dt.datetime(2024, 1, 1 + i % 28),
        ]
        for i in range(30)
    ]
    head = ["id", "size", "open", "colour", "day"]
    path = workbook(tmp_path / "t.xlsx", {"data": [head, *rows, [None] * 5], "notes": [["x"]]})
    samples = read_samples(path)
    with (tmp_path / "t.csv").open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    other = read_samples(tmp_path / "t.csv")
    assert samples.ids == other.ids == [f"{i:03d}" for i in range(30)]
    assert samples.feature_names == other.feature_names
    assert np.allclose(samples.X, other.X)
    assert any("'data'" in note and "2 sheets" in note for note in samples.notes)


def test_labels_in_a_workbook(tmp_path):
    path = workbook(tmp_path / "l.xlsx", {"a": [["id", "label"], [1, "x"], [2, "y"], [None, None]]})
    assert read_labels(path, ["0", "1", "2"]).tolist() == [None, "x", "y"]


def test_a_workbook_that_is_none(tmp_path):
    pytest.importorskip("openpyxl", reason=".xlsx needs openpyxl")
    with pytest.raises(ValueError, match=r"\.xlsx"):
        read_samples(write(tmp_path, "a;b\n1;2\n", "t.xlsx"))


def test_lines_of_json(tmp_path):
    rows = [{"id": f"{i:02d}", "body": text, "stars": i % 5} for i, (_, text) in enumerate(mails())]
    rows[4]["more"] = {"a": 1}
    text = "\n".join(map(json.dumps, rows)) + "\n\n"
    samples = read_samples(write(tmp_path, text, "t.jsonl"), text_column="body")
    assert samples.ids[:2] == ["00", "01"] and samples.n_samples == 40
    assert samples.texts[0] == rows[0]["body"]
    with pytest.raises(ValueError, match="line 2"):
        read_samples(write(tmp_path, '{"a": 1}\n{"a": \n', "t.jsonl"))
    with pytest.raises(ValueError, match=r"line 2.*\{\"id\""):
        read_samples(write(tmp_path, '{"a": 1}\n[1, 2]\n', "t.jsonl"))


@pytest.mark.parametrize(
    "name", ["t.xls", "t.ods", "t.numbers", "t.json", "t.zip", "t.docx", "t.pdf"]
)
def test_other_files_say_what_to_do(tmp_path, name):
    with pytest.raises(ValueError, match=r"save|unpack|expected"):
        read_samples(write(tmp_path, "x", name))
