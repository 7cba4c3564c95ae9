"""Tests of more than a hundred damaged or unusual inputs: no label is joined to a wrong sample.

The content of a sample determines its label: words of the sea or the sky, a small or a large
number, a dark or a light image. A case passes if every joined label agrees with its sample, or if a
one-line error states the problem.
"""

from __future__ import annotations

import csv
import io
import json
import re
import unicodedata
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from partwise.io import read_samples

N = 24
KINDS = ("sea", "sky")
WORDS = {
    "sea": ["wave", "salt", "tide", "ship", "sail", "harbour"],
    "sky": ["cloud", "wind", "bird", "rain", "sun", "storm"],
}


def kind_of(i):
    return KINDS[(i * 7 // 3) % 2]


def texts():
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS[kind_of(i)], 6)) for i in range(N)]


def csv_text(rows, separator=",", end="\n"):
    buffer = io.StringIO(newline="")
    csv.writer(buffer, delimiter=separator, lineterminator=end).writerows(rows)
    return buffer.getvalue()


@dataclass
class Case:
    """Files to write, options with which they are read, and the expected note or error."""

    name: str
    files: dict
    told: dict = field(default_factory=dict)
    note: str = ""
    error: str = ""
    samples: int = N
    joined: int = N
    data: str = "t.csv"


def text_table(ids=None, *, heading=("id", "body"), bodies=None, separator=",", end="\n"):
    ids = [f"r{i:02d}" for i in range(N)] if ids is None else ids
    bodies = texts() if bodies is None else bodies
    return csv_text([heading, *zip(ids, bodies)], separator, end)


def label_rows(ids=None, known=range(N)):
    ids = [f"r{i:02d}" for i in range(N)] if ids is None else ids
    return [[ids[i], kind_of(i)] for i in known]


LABELS = csv_text([["id", "label"], *label_rows()])
TEXT = {"text_column": "body", "labels": "l.csv"}


def of_text(name, table, labels=LABELS, **more):
    told = {**TEXT, **more.pop("told", {})}
    return Case(name, {"t.csv": table, "l.csv": labels}, told, **more)


def encodings():
    for separator in (",", ";", "\t", "|"):
        for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"):
            bodies = [f"{text} über größe" for text in texts()]
            table = text_table(bodies=bodies, separator=separator, end="\r\n").encode(encoding)
            labels = csv_text([["id", "label"], *label_rows()], separator).encode(encoding)
            yield of_text(f"{encoding} with {separator!r}", table, labels)
    for end in ("\n", "\r\n", "\r"):
        yield of_text(f"lines that end in {end!r}", text_table(end=end))


def damaged_ids():
    plain = [f"r{i:02d}" for i in range(N)]
    for at in (0, 11, 22):
        twice = plain.copy()
        twice[at] = twice[23]
        yield of_text(f"an id twice, row {at}", text_table(twice), error="'r23'")
        blank = plain.copy()
        blank[at] = ""
        yield of_text(f"a blank id, row {at}", text_table(blank), error=rf"row {at + 1}\b")
    spaces = [f" {own} " for own in plain]
    yield of_text("spaces around ids", text_table(spaces))
    near = [*plain[:-1], f" {plain[0]}"]
    yield of_text("twice but for a space", text_table(near), error="occurs more than once")
    ones = [str(i + 1) for i in range(N)]
    own = csv_text([["id", "label"], *label_rows(ones)])
    yield of_text("numbers from 1", text_table(ones), own)
    pasted = text_table([*ones[:-1], ones[3]])
    yield of_text("numbers from 1, one row pasted twice", pasted, own, error="'4'")
    told = {"id_column": "none"}
    numbers = csv_text([["id", "label"], *label_rows([str(i) for i in range(N)])])
    yield of_text(
        "rows numbered as asked", text_table(), numbers, told=told, note="row numbers from 0"
    )
    yield of_text("rows numbered, labels from 1", text_table(), own, told=told, error="from 0")
    forms = {
        "leading zeros": [f"{i:05d}" for i in range(N)],
        "fractions": [f"{i}.5" for i in range(N)],
        "negative numbers": [str(-i - 1) for i in range(N)],
        "long": ["x" * 500 + str(i) for i in range(N)],
        "Chinese": [f"样本{i}" for i in range(N)],
        "emoji": [f"😀{i}" for i in range(N)],
        "commas and quotes": [f'a,"{i}";b' for i in range(N)],
        "line breaks": [f"a\nb{i}" for i in range(N)],
        "formulas": [f"=SUM(A{i})" for i in range(N)],
        "gaps by name": ["NA", "null", "None", "nan", "n/a", *plain[5:]],
        "case apart": [
            f"{'ab'[i % 2]}{i // 2}".upper() if i % 2 else f"a{i // 2}" for i in range(N)
        ],
        "scientific": [f"{i + 1}e5" for i in range(N)],
        "dates": [f"2024-01-{i + 1:02d}" for i in range(N)],
        "backslashes": [f"C:\\data\\{i}" for i in range(N)],
        "html": [f"<b>{i}</b>" for i in range(N)],
    }
    for name, ids in forms.items():
        table = csv_text([["id", "label"], *label_rows(ids)])
        yield of_text(f"ids: {name}", text_table(ids), table)
    for short, long in (("7", "007"), ("3", "3.5"), ("r01", "R01")):
        ids = [*plain[:-1], long]
        one = csv_text([["id", "label"], ["r00", kind_of(0)], [short, "sea"]])
        known = short in ids
        yield of_text(
            f"a label for {short} where {long} is",
            text_table(ids),
            one,
            error="" if known else f"'{short}'",
            joined=2,
            **({"samples": N} if known else {}),
        )
    half = csv_text([("customer_id", "body"), *((i % 5, text) for i, text in enumerate(texts()))])
    yield of_text("an id column that repeats by nature", half, numbers, error="customer_id")


def odd_labels():
    rows = label_rows()
    head = ["id", "label"]
    good = text_table()
    wide = [[*row, "me", "sure"] for row in rows]
    yield of_text("labels without a heading", good, csv_text(rows))
    yield of_text("other names", good, csv_text([["name", "what"], *rows]), note="'name'")
    yield of_text(
        "columns the other way", good, csv_text([["label", "id"], *(r[::-1] for r in rows)])
    )
    yield of_text("topic, id", good, csv_text([["topic", "ID"], *(r[::-1] for r in rows)]))
    yield of_text("more columns", good, csv_text([[*head, "who", "why"], *wide]))
    yield of_text("more columns, no heading", good, csv_text(wide), error="4 .*2")
    yield of_text("empty lines between", good, csv_text([head, *rows]).replace("\n", "\n\n,\n"))
    yield of_text("a line sep=;", good, "sep=;\n" + csv_text([head, *rows], ";"))
    yield of_text("spaces", good, csv_text([head, *([f" {a} ", f" {b}"] for a, b in rows)]))
    yield of_text("an id of nothing", good, csv_text([head, *rows, ["r99", "sea"]]), error="'r99'")
    told = {"skip_unknown": True}
    yield of_text(
        "skipped", good, csv_text([head, *rows, ["r99", "sea"]]), told=told, note=r"1 \(line"
    )
    first = csv_text([["r99", "sea"], *rows])
    yield of_text("the first id of nothing", good, first, error="line 1.*'r99'")
    yield of_text("twice the same", good, csv_text([head, *rows, rows[3]]))
    other = [rows[3][0], "sky" if rows[3][1] == "sea" else "sea"]
    yield of_text("a contradiction", good, csv_text([head, *rows, other]), error="'r05'|two")
    case = [["r00", "Sea" if rows[0][1] == "sea" else "Sky"], *rows[1:]]
    yield of_text("case", good, csv_text([head, *case]), error="--similar-labels")
    for word in ("unknown", "?", "n/a", "unbekannt", "-"):
        table = csv_text([head, *rows[:-1], ["r23", word]])
        yield of_text(f"the label {word}", good, table, error="--unknown-labels")
        told = {"unknown_labels": "drop"}
        yield of_text(f"the label {word}, dropped", good, table, told=told, joined=N - 1)
    yield of_text(
        "no label at all", good, csv_text([head, *([a, ""] for a, _ in rows)]), error="no label"
    )
    yield of_text("a heading and nothing", good, "id,label\n", error="label")
    yield of_text("nothing", good, "", error="is empty")
    yield of_text("a ragged line", good, csv_text([head, *rows]) + "r05\n", error="1 .*2")
    yield of_text("no text", good, bytes(range(256)), error="text|CSV")
    long = csv_text([[*head, "why"], *([a, b, "x" * 140_000] for a, b in rows[:3])])
    yield of_text("a cell like a book", good, long, joined=3)
    floats = [str(i + 1) for i in range(N)]
    spreadsheet = csv_text([head, *([f"{i + 1}.0", kind_of(i)] for i in range(N))])
    yield of_text("1.0 for 1", text_table(floats), spreadsheet, error="'1'")
    shuffled = [rows[i] for i in np.random.default_rng(2).permutation(N)]
    yield of_text("any order", good, csv_text([head, *shuffled]))
    yield of_text("a few", good, csv_text([head, *rows[:5]]), joined=5)


def odd_tables():
    good, body = text_table(), texts()
    lines = good.splitlines(keepends=True)
    empty = text_table(bodies=["" if i == 4 else text for i, text in enumerate(body)])
    yield of_text("an empty text", empty, note="r04", samples=N - 1, joined=N - 1)
    yield of_text("an empty text, refused", empty, told={"missing": "error"}, error="'r04'")
    yield of_text("an empty text, strict", empty, told={"strict": True}, error="'r04'")
    blank = text_table(bodies=[" \t" if i == 4 else text for i, text in enumerate(body)])
    yield of_text("a text of spaces", blank, note="r04", samples=N - 1, joined=N - 1)
    yield of_text("empty rows", "".join(lines) + ",\n,\n", note="2 empty rows")
    yield of_text("an empty row inside", "".join([*lines[:5], ",\n", *lines[5:]]), note="empty row")
    yield of_text("blank lines", "".join([*lines[:5], "\n\n", *lines[5:]]))
    yield of_text("sep=;", "sep=;\n" + text_table(separator=";"))
    columns = csv_text(
        [["id", "body", "", ""], *([f"r{i:02d}", t, "", ""] for i, t in enumerate(body))]
    )
    yield of_text("empty columns", columns)
    yield of_text("a short row", "".join([*lines[:5], "r77\n", *lines[5:]]), error="line 6.*1")
    yield of_text("a long row", "".join([*lines[:5], "r77,a,b\n", *lines[5:]]), error="line 6.*3")
    yield of_text(
        "a column twice",
        csv_text([["id", "body", "body"], ["1", "a", "b"]]),
        error="more than once",
    )
    yield of_text("nothing", "", error="is empty")
    yield of_text("a heading alone", "id,body\n", error="rows")
    yield of_text("one row", "".join(lines[:2]), error="single sample")
    yield of_text("another column", good, told={"text_column": "text"}, error="'text'")
    yield of_text(
        "an open quote",
        "".join([*lines[:5], 'r77,"open\n', *lines[5:]]),
        error="row 5",
    )
    inch = [*lines[:5], 'r77,"open\n', *lines[5:9], 'r78,shut"\n', *lines[9:]]
    yield of_text("a quote over rows", "".join(inch), error="'r0")
    few = csv_text([["id", "label"], *label_rows(known=range(3))])
    note = r"line 11\b"
    yield of_text(
        "the same unseen by labels", "".join(inch), few, note=note, samples=N - 3, joined=3
    )
    book = text_table(bodies=[f"{t} " * 30_000 if i == 4 else t for i, t in enumerate(body)])
    yield of_text("a book in a cell", book)
    noise = bytes(np.random.default_rng(0).integers(0, 256, 3000, dtype=np.uint8))
    yield of_text("noise", noise, error="text|table")
    yield of_text("a zero byte", good.replace("r05", "r0\x005"), error="line 7")
    no_heading = text_table(heading=("r99", "wave wave wave"))
    told = {"text_column": "column 2", "id_column": "column 1"}
    table = "".join(no_heading.splitlines(keepends=True)[1:]).replace("r00,", "1.5,", 1)
    labels = LABELS.replace("r00,", "1.5,")
    yield of_text("no heading", table, labels, told={**told, "heading": "no"}, note="no heading")
    for name in ("t.xls", "t.ods", "t.json", "t.zip", "t.docx", "t.pdf", "t.exe"):
        yield Case(f"a file {name}", {name: "x"}, error="read|expected", data=name)


def json_lines():
    rows = [{"id": f"r{i:02d}", "body": text} for i, text in enumerate(texts())]

    def case(name, lines, **more):
        return Case(name, {"t.jsonl": lines, "l.csv": LABELS}, TEXT, data="t.jsonl", **more)

    lines = [json.dumps(row) for row in rows]
    yield case("JSON", "\n".join(lines))
    yield case("JSON with a mark and blank lines", ("\ufeff" + "\n\n".join(lines) + "\n"))
    yield case("broken JSON", "\n".join([*lines[:3], '{"id": ', *lines[3:]]), error="line 4")
    yield case("a list in JSON", "\n".join([*lines[:3], "[1]", *lines[3:]]), error="line 4")
    yield case(
        "JSON without a text",
        "\n".join([*lines[:3], '{"id": "q"}', *lines[3:]]),
        note="'?q",
        samples=N,
    )
    yield case("an id twice in JSON", "\n".join([*lines, lines[0]]), error="'r00'")
    yield case("no id in JSON", "\n".join([*lines, '{"body": "x"}']), error="row 25")


def numbers():
    """Yield tables in which class "sea" has small numbers and class "sky" has large ones."""

    def case(name, cell, *, heading="id,a,b", note="", **more):
        rows = "".join(f"r{i:02d};{cell(i)};{i % 5}\n" for i in range(N))
        files = {"t.csv": heading.replace(",", ";") + "\n" + rows, "l.csv": LABELS}
        return Case(name, files, {"labels": "l.csv", **more.pop("told", {})}, note=note, **more)

    def value(i):
        return 5 + 90 * KINDS.index(kind_of(i)) + i % 3

    yield case("numbers", value)
    yield case("thousands", lambda i: f"{value(i)}.000,50")
    yield case("money", lambda i: f"{value(i)} €")
    yield case("per cent", lambda i: f"{value(i)} %")
    yield case("a gap", lambda i: "" if i == 3 else value(i), note="1 of 24 rows", joined=N)
    yield case("-999", lambda i: -999 if i in (3, 5) else value(i), note="2 of 24 rows")
    yield case("infinity", lambda i: "inf" if i == 3 else value(i), note="1 of 24 rows")
    yield case(
        "a word among numbers", lambda i: "lots" if i == 3 else value(i), note="1 of 24 rows"
    )
    drop = {"missing": "drop"}
    yield case(
        "a gap, dropped",
        lambda i: "" if i == 3 else value(i),
        told=drop,
        note="1 row with",
        samples=N - 1,
        joined=N - 1,
    )
    yield case(
        "an earlier answer",
        lambda i: value(i),
        heading="id,a,partwise_label",
        note="earlier answer",
    )


def pictures():
    """Yield folders of images in which class "sea" is dark and class "sky" is light."""
    from PIL import Image

    def picture(i, mode="L", size=(12, 12), suffix="PNG", exif=None):
        rng = np.random.default_rng(i)
        grey = rng.integers(0, 40, size[::-1]) + 200 * KINDS.index(kind_of(i))
        image = Image.fromarray(grey.astype(np.uint8))
        if mode == "I;16":
            image = Image.fromarray(grey.astype(np.uint16) * 257)
        elif mode == "1":
            image = image.point(lambda v: 255 * (v > 100)).convert("1")
        elif mode != "L":
            image = image.convert(mode)
        buffer = io.BytesIO()
        image.save(buffer, format=suffix, **({"exif": exif} if exif else {}))
        return buffer.getvalue()

    def folder(change=None, *, names=None, **more):
        names = names or [f"r{i:02d}.png" for i in range(N)]
        files = {f"p/{name}": picture(i) for i, name in enumerate(names)}
        files |= change or {}
        labels = csv_text([["id", "label"], *((n, kind_of(i)) for i, n in enumerate(names))])
        return {"files": {**files, "l.csv": more.pop("table", labels)}, "data": "p",
                "told": {"labels": "l.csv", **more.pop("told", {})}, **more}  # fmt: skip

    less = {"samples": N - 1, "joined": N - 1, "note": r"r03\.png"}
    whole = picture(3)
    yield Case("pictures", **folder())
    yield Case("cut short", **folder({"p/r03.png": whole[:-40]}, **less))
    yield Case("no byte", **folder({"p/r03.png": b""}, **less))
    yield Case("text called .png", **folder({"p/r03.png": b"no picture"}, **less))
    yield Case("a head alone", **folder({"p/r03.png": whole[:40]}, **less))
    broken = bytearray(whole)
    broken[len(whole) // 2] ^= 0xFF
    yield Case("a bit that fell over", **folder({"p/r03.png": bytes(broken)}, **less))
    strict = folder({"p/r03.png": whole[:-40]}, told={"strict": True}, error=r"r03\.png")
    yield Case("cut short, strict", **strict)
    yield Case("sizes", **folder({"p/r03.png": picture(3, size=(20, 9))}, note="differ in size"))
    yield Case("one pixel", **folder({"p/r03.png": picture(3, size=(1, 1))}, note="differ in size"))
    yield Case("a note", **folder({"p/notes.txt": b"x"}, note=r"notes\.txt"))
    yield Case("hidden files", **folder({"p/.DS_Store": b"x", "p/._r01.png": b"x"}))
    yield Case("a film", **folder({"p/film.mp4": b"x"}, note=r"film\.mp4"))
    for mode in ("1", "LA", "RGB", "RGBA", "P", "I;16"):
        yield Case(f"mode {mode}", **folder({"p/r03.png": picture(3, mode)}))
    yield Case("CMYK", **folder({"p/q.jpg": picture(3, "CMYK", suffix="JPEG")}, samples=N + 1))
    upper = folder(names=[f"IMG_{i}.PNG" for i in range(N)])
    yield Case("letters as cameras write them", **upper)
    two = [unicodedata.normalize("NFD", f"größe{i}.png") for i in range(N)]
    one = csv_text(
        [
            ["id", "label"],
            *((unicodedata.normalize("NFC", n), kind_of(i)) for i, n in enumerate(two)),
        ]
    )
    yield Case("names from a Mac", **folder(names=two, table=one))
    same = [f"{'ab'[i % 2]}/{i // 2}.png" for i in range(N)]
    short = csv_text([["id", "label"], ["0.png", "sea"]])
    yield Case("a name in two folders", **folder(names=same, table=short, error="folder"))
    stems = csv_text([["id", "label"], *((f"r{i:02d}", kind_of(i)) for i in range(N))])
    yield Case("names without suffix", **folder(table=stems))
    half = csv_text([["id", "label"], ["r0", "sea"]])
    yield Case("half a name", **folder(table=half, error="'r0'"))
    turned = Image.Exif()
    turned[0x0112] = 6
    side = picture(3, exif=turned)
    yield Case("a camera on its side", **folder({"p/r03.png": side}, note="turned upright"))
    nothing = {f"p/r{i:02d}.png": b"x" for i in range(N)}
    yield Case("all damaged", **folder(nothing, error="24"))
    captions = {f"p/r{i:02d}.txt": b"a caption" for i in range(N)}
    yield Case("as many texts", **folder(captions, error="24.*24"))
    yield Case("an empty folder", {"p/.keep": b""}, error="images", data="p")


CASES = [
    *encodings(), *damaged_ids(), *odd_labels(), *odd_tables(), *json_lines(), *numbers(),
    *pictures(),
]  # fmt: skip


def test_there_are_more_than_a_hundred():
    assert len(CASES) > 100 and len({case.name for case in CASES}) > 100


def class_of_sample(samples, i):
    """Return the class of a sample, determined from its words, number or brightness."""
    if samples.texts is not None:
        words = set(re.findall(r"\w+", samples.texts[i]))
        found = [kind for kind in KINDS if words & set(WORDS[kind])]
        return found[0] if len(found) == 1 else None
    if samples.kind == "images":
        image = samples.thumbnails(i)
        from PIL import Image

        with Image.open(io.BytesIO(image)) as picture:
            return KINDS[int(np.asarray(picture.convert("L")).mean() > 120)]
    value = samples.X[i, samples.feature_names.index("a")]
    return KINDS[int(value > 0.5)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_label_is_joined_to_a_wrong_sample(case, tmp_path):
    for name, content in case.files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    told = {k: tmp_path / v if k == "labels" else v for k, v in case.told.items()}
    if case.error:
        with pytest.raises(ValueError, match=case.error) as error:
            read_samples(tmp_path / case.data, **told)
        said = str(error.value)
        assert "\n" not in said and len(said) < 700 and said.endswith((".", "?", ")", "…")), said
        assert Path(tmp_path).name in said or case.data in said  # the message names the file
        return
    samples = read_samples(tmp_path / case.data, **told)
    assert samples.n_samples == case.samples
    assert np.isfinite(samples.X.data if samples.is_sparse else samples.X).all()
    if case.note:
        assert any(re.search(case.note, note) for note in samples.notes), samples.notes
    known = [i for i, label in enumerate(samples.y) if label is not None]
    assert len(known) == case.joined
    filled = {3, 5} if case.data == "t.csv" and "a" in (samples.feature_names or ()) else set()
    wrong = [
        samples.ids[i]
        for i in known
        if class_of_sample(samples, i) != samples.y[i] and i not in filled
    ]
    assert not wrong
