"""Tests of tables, texts and labels in many common file layouts.

Each file is read correctly, or refused with a message that says what to do.
"""

import csv
import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pytest

from partwise.io import read_samples
from partwise.io.read import READERS

N = 24
TOWNS = ["Ulm", "Bonn", "Köln"]
IDS = [f"K{i:03}" for i in range(N)]
AMOUNTS = [round(10 + 3.25 * i, 2) for i in range(N)]
TEXTS = [
    f"Guten Tag, die Lieferung {i} kam {'zu spät' if i % 2 else 'pünktlich'} an, bitte prüfen Sie "
    f"{'die Rechnung' if i % 3 else 'den Versand'} und antworten Sie bald auf diese Nachricht."
    for i in range(N)
]
HEADING = ["id", "amount", "town"]
ROWS = [[IDS[i], AMOUNTS[i], TOWNS[i % 3]] for i in range(N)]


def workbook(folder, *sheets, name="t.xlsx", hidden=()):
    openpyxl = pytest.importorskip("openpyxl", reason="workbooks need openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for number, rows in enumerate(sheets):
        sheet = book.create_sheet(f"sheet {number + 1}")
        for row in rows:
            sheet.append(row)
        if number in hidden:
            sheet.sheet_state = "hidden"
    book.save(folder / name)
    return folder / name


def text(folder, rows, name="t.csv", separator=",", encoding="utf-8"):
    with (folder / name).open("w", newline="", encoding=encoding) as file:
        csv.writer(file, delimiter=separator).writerows(rows)
    return folder / name


def raw(folder, content, name="t.csv", encoding="utf-8"):
    (folder / name).write_bytes(content.encode(encoding))
    return folder / name


def lines(folder, records, name="t.jsonl"):
    return raw(folder, "\n".join(json.dumps(record) for record in records), name)


def parquet(folder, **columns):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow", reason="parquet needs pyarrow")
    pandas.DataFrame(columns).to_parquet(folder / "t.parquet")
    return folder / "t.parquet"


def german(value):
    return f"{value:,.2f}".translate(str.maketrans(",.", ".,"))


TABLE = [HEADING, *ROWS]
SUM = ["Summe", sum(AMOUNTS), None]
TITLE = [["Kundenliste 2024"], []]
INFO = [["Diese Mappe"], ["wurde erstellt am"], ["3.11.2026"]]

#: Files in different layouts that contain the same table of ids, amounts and towns.
SAME = {
    "a workbook": lambda f: workbook(f, TABLE),
    "a title above": lambda f: workbook(f, [*TITLE, *TABLE]),
    "two lines of a title": lambda f: workbook(f, [["Kunden"], ["Stand", "3.11."], [], *TABLE]),
    "an info sheet first": lambda f: workbook(f, INFO, TABLE),
    "an info sheet, a title": lambda f: workbook(f, INFO, [*TITLE, *TABLE]),
    "a hidden sheet first": lambda f: workbook(f, [["x", "y"]] * 90, TABLE, hidden=[0]),
    "an empty sheet first": lambda f: workbook(f, [], TABLE),
    "notes behind": lambda f: workbook(f, TABLE, INFO),
    "empty rows and columns": lambda f: workbook(
        f, [[None, *row] for row in [*TABLE[:9], [], *TABLE[9:], []]]
    ),
    "a row of sums": lambda f: workbook(f, [*TABLE, SUM]),
    "sums below an empty row": lambda f: workbook(f, [*TABLE, [], SUM]),
    "sums in a text file": lambda f: text(f, [*TABLE, ["Total:", sum(AMOUNTS), ""]]),
    "sums in German": lambda f: text(
        f,
        [HEADING, *[[a, german(b), c] for a, b, c in ROWS], ["Summe", german(sum(AMOUNTS)), ""]],
        separator=";",
    ),
    "a title in a text file": lambda f: text(f, [["Kundenliste, Stand 2024"], [], *TABLE]),
    "a padded title": lambda f: text(f, [["Kunden", "", ""], ["", "", ""], *TABLE], separator=";"),
    "a title between semicolons": lambda f: text(f, [["Kunden"], *TABLE], separator=";"),
    "a title with a line break": lambda f: text(f, [["Kunden\naus 2024"], *TABLE], separator=";"),
    "sep=": lambda f: raw(f, "sep=;\n" + "\n".join(";".join(map(str, row)) for row in TABLE)),
    "Unicode Text": lambda f: text(f, TABLE, "t.txt", "\t", "utf-16"),
    "tabs": lambda f: text(f, TABLE, "t.tab", "\t"),
    "tabs in .csv": lambda f: text(f, TABLE, "t.csv", "\t"),
    "semicolons and commas": lambda f: text(
        f, [HEADING, *[[a, str(b).replace(".", ","), c] for a, b, c in ROWS]], separator=";"
    ),
    "German amounts": lambda f: text(
        f, [HEADING, *[[a, f"{german(b)} €", c] for a, b, c in ROWS]], separator=";"
    ),
    "Windows-1252": lambda f: text(f, TABLE, encoding="cp1252"),
    "UTF-8 with a mark": lambda f: text(f, TABLE, encoding="utf-8-sig"),
    "vertical bars": lambda f: text(f, TABLE, separator="|"),
    "old Mac line ends": lambda f: raw(
        f, "\r".join(",".join(map(str, row)) for row in TABLE) + "\r"
    ),
    "a column of numbers first": lambda f: text(
        f, [["Zeile", *HEADING], *[[i + 1, *row] for i, row in enumerate(ROWS)]]
    ),
    "objects": lambda f: lines(f, [dict(zip(HEADING, row)) for row in ROWS]),
    "nested objects": lambda f: lines(
        f, [{"id": a, "data": {"amount": b, "town": {"name": c}}} for a, b, c in ROWS]
    ),
    "parquet": lambda f: parquet(f, id=IDS, amount=AMOUNTS, town=[row[2] for row in ROWS]),
    "decimals": lambda f: parquet(
        f, id=IDS, amount=[Decimal(str(b)) for b in AMOUNTS], town=[row[2] for row in ROWS]
    ),
    "nested parquet": lambda f: parquet(
        f, id=IDS, data=[{"amount": b, "town": c} for _, b, c in ROWS]
    ),
}


@pytest.mark.parametrize("name", SAME)
def test_the_same_table(tmp_path, name):
    samples = read_samples(SAME[name](tmp_path), scale="none")
    assert samples.ids == IDS
    amount = next(j for j, own in enumerate(samples.feature_names) if own.endswith("amount"))
    np.testing.assert_allclose(samples.X[:, amount], AMOUNTS)
    towns = [own.split(" = ")[1] for own in samples.feature_names if " = " in own]
    assert towns == sorted(TOWNS) and samples.X.shape[1] == 4
    assert len(samples.table) == N and IDS[3] in map(str, samples.table.iloc[3])


def test_durations_of_parquet_are_hours(tmp_path):
    took = [dt.timedelta(minutes=30 * i) for i in range(N)]
    took[3] = None
    path = parquet(tmp_path, id=IDS, took=took, amount=AMOUNTS)
    X = read_samples(path, scale="none").X
    assert {name: kind for name, kind, _ in read_samples(path).columns}["took"] == "time"
    assert X[2, 0] / X[20, 0] == pytest.approx(0.1)


def test_lists_and_bytes_of_parquet_are_left_out_with_a_reason(tmp_path):
    path = parquet(tmp_path, id=IDS, tags=[[i] for i in range(N)], blob=[b"x"] * N, amount=AMOUNTS)
    samples = read_samples(path)
    assert samples.X.shape[1] == 1
    assert all(done for _, read_as, done in samples.columns if read_as == "left out")


def test_columns_of_one_name_are_told_apart(tmp_path):
    rows = [["id", "value", "value"], *[[IDS[i], i * i % 7, 100 - i] for i in range(N)]]
    for path in (text(tmp_path, rows), workbook(tmp_path, rows)):
        samples = read_samples(path, scale="none")
        assert samples.feature_names == ["value", "value (2)"] and samples.X[1].tolist() == [1, 99]
        assert any("value (2)" in note for note in samples.notes)
    with pytest.raises(ValueError, match="'value'"):
        read_samples(text(tmp_path, rows), text_column="value")


def test_a_sheet_and_rows_of_ones_choice(tmp_path):
    other = [["id", "size", "b"], *[[f"x{i}", i * i % 7, i % 2] for i in range(9)]]
    path = workbook(tmp_path, TABLE, [["a"], ["b"], *other])
    for sheet in ("sheet 2", "2", "SHEET 2"):
        samples = read_samples(path, sheet=sheet)
        assert samples.ids == [row[0] for row in other[1:]]
    assert read_samples(path, sheet="sheet 2", skip_rows=2).ids[0] == "x0"
    assert read_samples(path, sheet="1", skip_rows=0).ids == IDS
    with pytest.raises(ValueError, match="sheet 2"):
        read_samples(path, sheet="sheet 3")
    with pytest.raises(ValueError, match="--skip-rows"):
        read_samples(path, skip_rows=999)


def test_a_customer_called_total_is_no_sum(tmp_path):
    samples = read_samples(text(tmp_path, [*TABLE, ["Total Oil", 17.5, "Ulm"]]))
    assert samples.n_samples == N + 1


def test_a_copy_of_the_table_keeps_titles_and_sums(tmp_path):
    from partwise.io.write_back import named_table

    path = text(tmp_path, [["Kunden", "", ""], *TABLE, ["Summe", sum(AMOUNTS), ""]])
    found = named_table(read_samples(path), {"new": [f"n{i}" for i in range(N)]})
    rows = list(csv.reader(found.decode().splitlines()))
    assert rows[0][0] == "Kunden" and rows[1] == [*HEADING, "new"]
    assert [row[-1] for row in rows[2:-1]] == [f"n{i}" for i in range(N)] and rows[-1][-1] == ""


MAILS = [["id", "from", "date", "body"]]
MAILS += [[IDS[i], f"x{i % 5}@y.de", f"2024-03-{1 + i:02}", TEXTS[i]] for i in range(N)]


@pytest.mark.parametrize(
    "make",
    [
        lambda f: text(f, MAILS),
        lambda f: workbook(f, MAILS),
        lambda f: lines(
            f, [{"id": a, "payload": {"from": b, "text": d}} for a, b, _, d in MAILS[1:]]
        ),
    ],
    ids=["text", "workbook", "objects"],
)
def test_a_column_of_long_texts_is_used(tmp_path, make):
    samples = read_samples(make(tmp_path))
    assert samples.kind == "texts" and samples.ids == IDS
    assert samples.whole_texts[5] == TEXTS[5] and "versand" in samples.feature_names
    assert any("--kind table" in note for note in samples.notes)


def test_texts_beside_numbers_are_left_out_by_name(tmp_path):
    rows = [[*row, text_] for row, text_ in zip(ROWS, TEXTS)]
    samples = read_samples(text(tmp_path, [[*HEADING, "remark"], *rows]))
    assert samples.kind == "table"
    assert any("--text-column remark" in note for note in samples.notes)


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_field_of_an_object_holds_the_texts(tmp_path, form):
    records = [{"id": a, "payload": {"text": own, "n": 1}} for a, own in zip(IDS, TEXTS)]
    if form == "jsonl":
        path = lines(tmp_path, records)
    else:
        path = parquet(tmp_path, id=IDS, payload=[record["payload"] for record in records])
    samples = read_samples(path, text_column="payload.text")
    assert samples.whole_texts == TEXTS and not any("u00" in w for w in samples.feature_names)
    with pytest.raises(ValueError, match=r"payload\.text"):
        read_samples(path, text_column="payload")


REFUSED = {
    "an old workbook": ("t.xls", b"\xd0\xcf\x11\xe0", {}, ".xlsx"),
    "LibreOffice": ("t.ods", b"PK", {}, ".xlsx"),
    "a list in JSON": ("t.json", b"[]", {}, ".jsonl"),
    "a packed table": ("t.csv.gz", b"\x1f\x8b", {}, "unpack"),
    "a mailbox": ("t.mbox", b"From x", {}, ".txt"),
    "SPSS": ("t.sav", b"$FL2", {}, ".csv"),
    "Word": ("t.docx", b"PK", {}, ".txt"),
    "one picture": ("t.png", b"\x89PNG", {}, "folder"),
    "one text": ("t.txt", b"Hello there. How are you?\nFine.\n", {}, "folder"),
    "nothing": ("t.csv", b"", {}, "empty"),
    "a heading alone": ("t.csv", b"id,a,b\n", {}, "no rows"),
    "a workbook that is none": ("t.xlsx", b"id,a\n1,2\n", {}, ".xlsx"),
    "parquet that is none": ("t.parquet", b"PAR1", {}, ".parquet"),
    "a ragged row": ("t.csv", b"id,a\n1,2\n2,3,4\n3,4\n", {}, "line 3"),
    "a quote that stays open": ("t.csv", b'id,a\n1,"2\n2,3\n3,4\n', {}, "quote"),
    "zero bytes": ("t.csv", b"id,a\n1,\x00\n2,3\n", {}, "zero byte"),
    "no JSON": ("t.jsonl", b'{"a": 1}\n{a: 2}\n', {}, "line 2"),
    "JSON of lists": ("t.jsonl", b"[1]\n[2]\n", {}, "line 1"),
    "one field twice": ("t.jsonl", b'{"a": {"b": 1}, "a.b": 2}\n' * 3, {}, "a.b"),
    "another case": (
        "t.csv",
        b"Nr,Nachricht\n1,a b\n2,c d\n",
        {"text_column": "nachricht"},
        "'Nac",
    ),
    "another name": ("t.csv", b"Nr,Nachricht\n1,a b\n2,c d\n", {"text_column": "Nachrich"}, "'Nac"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_says_what_to_do(tmp_path, name):
    pytest.importorskip("openpyxl")
    pytest.importorskip("pyarrow")
    file, content, options, word = REFUSED[name]
    (tmp_path / file).write_bytes(content)
    with pytest.raises(ValueError, match=word.replace(".", r"\.")):
        read_samples(tmp_path / file, **options)


GIVEN = {IDS[i]: "late" if i % 2 else "early" for i in range(0, N, 3)}

#: Label files in different layouts: written by Partwise, by spreadsheets, and by other tools.
LABELS = {
    "id and label": lambda f: text(f, [["id", "label"], *GIVEN.items()], "l.csv"),
    "label and id": lambda f: text(
        f, [["label", "id"], *[x[::-1] for x in GIVEN.items()]], "l.csv"
    ),
    "no heading": lambda f: text(f, GIVEN.items(), "l.csv", ";"),
    "assignments.csv": lambda f: text(
        f,
        [
            ["id", "predicted_label", "probability", "given_label", "about"],
            *[[i, "late", "0.7", GIVEN.get(i, ""), "a, b"] for i in IDS],
        ],
        "l.csv",
    ),
    "label_next.csv": lambda f: text(
        f,
        [
            ["id", "looks_like", "probability", "label", "text"],
            *[[i, "late", "0.5", GIVEN.get(i, ""), "x"] for i in IDS],
        ],
        "l.csv",
    ),
    "a list with remarks": lambda f: workbook(
        f,
        [["Nr", "Klasse", "Bemerkung"], *[[i, own, "unklar"] for i, own in GIVEN.items()]],
        name="l.xlsx",
    ),
    "remarks first, a title": lambda f: workbook(
        f,
        [
            ["Etiketten"],
            ["Bemerkung", "Kunde", "Kategorie"],
            *[["-", i, own] for i, own in GIVEN.items()],
        ],
        name="l.xlsx",
    ),
    "objects": lambda f: lines(
        f, [{"id": i, "label": own, "by": "me"} for i, own in GIVEN.items()], "l.jsonl"
    ),
    "Unicode Text": lambda f: text(f, [["id", "label"], *GIVEN.items()], "l.txt", "\t", "utf-16"),
}


@pytest.mark.parametrize("name", LABELS)
def test_labels_in_many_shapes(tmp_path, name):
    data = text(tmp_path, TABLE)
    samples = read_samples(data, labels=LABELS[name](tmp_path))
    assert {i: own for i, own in zip(samples.ids, samples.y) if own is not None} == GIVEN


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ([["id", "cluster", "confidence"], *[[i, 1, 0.5] for i in IDS]], "two columns"),
        ([["who", "label", "what"], *[[f"x{i}", "a", "b"] for i in IDS]], "K000"),
        ([["id", "label"], ["k000", "a"]], "'K000'"),
    ],
)
def test_labels_that_cannot_be_joined_say_what_to_do(tmp_path, rows, word):
    with pytest.raises(ValueError, match=word):
        read_samples(text(tmp_path, TABLE), labels=text(tmp_path, rows, "l.csv"))


def test_paths_of_windows_and_labels_before_pictures(tmp_path, monkeypatch):
    image = pytest.importorskip("PIL.Image", reason="images need pillow")
    folder = tmp_path / "photos"
    for i in range(4):
        (folder / f"d{i % 2}").mkdir(parents=True, exist_ok=True)
        image.new("L", (8, 8), 40 * i).save(folder / f"d{i % 2}" / f"IMG_{i}.JPG")
    rows = [["id", "label"], ["d0\\IMG_0.JPG", "a"], ["d1\\IMG_1.JPG", "b"]]
    samples = read_samples(folder, labels=text(tmp_path, rows, "l.csv"))
    assert list(samples.y) == ["a", None, "b", None]

    def never(*args):
        raise AssertionError("an image was read")

    monkeypatch.setitem(READERS, "images", ({".jpg"}, never))
    with pytest.raises(ValueError, match=r"'IMG_1\.JPG'"):
        read_samples(folder, labels=text(tmp_path, [["img_1.jpg", "a"]], "l.csv"))
