"""The cells of a table file as a data frame: .csv, .tsv, .txt, .xlsx, .jsonl and .parquet."""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from partwise.io._common import Options, need, shown
from partwise.io.archives import check_unpacked, whole
from partwise.io.columns import is_code, looks_like_id, may_be_id
from partwise.io.encoding import csv_rows, named_separator, said, text_format
from partwise.io.numbers import date_format, decimal_sign, to_numbers
from partwise.io.sheets import as_text, flat, read_json_lines, read_sheet, unquoted

#: Name that pandas gives to the unnamed index column of files that it wrote.
NAMELESS = "Unnamed: 0"
HEADINGS = ("auto", "yes", "no")
#: Maximum length of the name of a column.
NAME_LENGTH = 100
#: Texts that pandas reads as missing values.
GAPS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
#: Number of rows that are searched for the heading, and number of rows to compare it with.
MOST_TITLES, SOME = 20, 200
#: First words of a row with totals.
SUMS = {"summe", "summen", "gesamt", "gesamtsumme", "gesamtergebnis", "insgesamt", "ergebnis"}
SUMS |= {"total", "totals", "totale", "sum", "sums", "grand", "suma", "somme", "soma", "\u03a3"}


@dataclass(frozen=True)
class Heading:
    """The names of the columns, and where the values begin."""

    names: list[str]
    titles: int  #: number of rows above the heading
    is_row: bool  #: True if the names are a row of the file
    notes: tuple[str, ...] = ()

    @property
    def above(self) -> int:
        """Rows above the first row of values."""
        return self.titles + self.is_row


def read_frame(path: Path, options: Options) -> tuple[Any, tuple[str, ...], str]:
    """Return the table, notes on how it was read, and the usual decimal sign."""
    readers = {".parquet": _read_parquet, ".xlsx": _read_workbook, ".jsonl": _read_json}
    usual = "."
    reader = readers.get(path.suffix.lower())
    if reader is not None:
        need("pandas", f"{path.suffix} files")
        frame, notes = reader(path, options)
    else:
        frame, notes, usual = _read_text(path, options)
    frame.columns = [str(column) for column in frame.columns]
    frame, found = _without_empty(frame)
    if not len(frame):
        raise ValueError(f"{path} has no rows.")
    return frame, (*notes, *found), usual


def _read_parquet(path: Path, options: Options) -> tuple[Any, tuple[str, ...]]:
    import pandas

    need("pyarrow", ".parquet files", extra="parquet")
    from pyarrow.parquet import ParquetFile

    with whole(path, ".parquet file"):
        with ParquetFile(path) as file:
            held = file.metadata
            check_unpacked(path, 8 * held.num_rows * held.num_columns)
        frame = pandas.read_parquet(path)
    if not isinstance(frame.index, pandas.RangeIndex):
        frame = frame.reset_index(names=frame.index.name or "id")
    return pandas.concat([_plain(frame[name]) for name in frame.columns], axis=1), ()


def _plain(column: Any) -> Any:
    """Convert types that only parquet has: decimals become floats, objects become columns."""
    import pandas

    if column.dtype.kind != "O":
        return column
    cells = column.dropna()
    if len(cells) and all(isinstance(value, Decimal) for value in cells):
        return column.astype(float)
    if len(cells) and all(isinstance(value, dict) for value in cells):
        records = [flat({column.name: value or {}}) for value in column]
        return pandas.DataFrame(records, index=column.index)
    return column


def _read_workbook(path: Path, options: Options) -> tuple[Any, tuple[str, ...]]:
    import pandas

    rows, notes = read_sheet(path, options.sheet)
    seen = [[as_text(cell) for cell in row] for row in rows[: MOST_TITLES + SOME]]
    heading = find_heading(path, seen, options)
    rows = [row for row in rows[heading.above :] if any(as_text(cell) for cell in row)]
    frame = pandas.DataFrame(rows, columns=heading.names, dtype=object)
    return frame.infer_objects(), (*notes, *heading.notes)


def _read_json(path: Path, options: Options) -> tuple[Any, tuple[str, ...]]:
    import pandas

    return pandas.DataFrame(read_json_lines(path, options)), ()


def _read_text(path: Path, options: Options) -> tuple[Any, tuple[str, ...], str]:
    pandas = need("pandas", f"{path.suffix} files")
    encoding, separator, notes = text_format(path, options)
    heading, codes, lost = _check_shape(path, separator, encoding, options)
    if path.suffix.lower() == ".txt" and len(heading.names) == 1:
        raise ValueError(
            f"{path} is no table with several columns. Give the folder if each file is one text; "
            "name it .csv if each line is one."
        )
    usual = "," if separator == ";" else "."
    as_str = _kept_as_text(heading.names, options)
    # pandas misreads decimal signs other than the point, and codes such as 01067.
    specs = (options.recipe or {}).get("columns", ())
    kept = [str(s["name"]) for s in specs if s["as"] == "category" or s.get("sign") == ","]
    coded = {heading.names[j]: str for j in codes} | dict.fromkeys(kept, str)
    how = {
        "sep": separator,
        "encoding": encoding,
        "index_col": False,
        "header": None,
        "names": heading.names,
        "skiprows": heading.above + (named_separator(path, encoding) is not None),
        # "NA" and "null" are missing values among numbers, but ordinary ids, labels and texts.
        "keep_default_na": False,
        "na_values": {name: GAPS for name in heading.names if name not in as_str},
    }
    try:
        head = pandas.read_csv(path, dtype=str, nrows=1000, **how)
        everything = any(  # pandas reads "43.006" as about 43
            decimal_sign(head[name].dropna(), usual=usual) == "," for name in head.columns
        )
        frame = pandas.read_csv(
            path, dtype=str if everything else coded | as_str, low_memory=False, **how
        )
    except (ValueError, csv.Error) as error:
        raise _unreadable(path, error) from error
    for name, column in frame.items():
        if column.dtype.kind == "O":
            frame[name] = column.map(unquoted, na_action="ignore")
    return frame, (*notes, *heading.notes, *lost), usual


def _kept_as_text(names: list[str], options: Options) -> dict[str, type]:
    """Return the columns of ids, labels and texts, whose values stay as they are written."""
    asked = {options.id_column, options.label_column, options.text_column, NAMELESS}
    return {name: str for name in names if name in asked or looks_like_id(name) or may_be_id(name)}


def _unreadable(path: Path, error: Exception) -> ValueError:
    """Return an error that explains how to fix a file that pandas cannot read."""
    opened = re.search(r"EOF inside string starting at row (\d+)", str(error))
    if opened:
        return ValueError(
            f"{path}: a quote opens in row {opened[1]} and never closes; close it, or write it "
            "twice where it belongs to the text."
        )
    return ValueError(f"{path} cannot be read as a table ({error}).")


def _check_shape(
    path: Path, delimiter: str, encoding: str, options: Options
) -> tuple[Heading, set[int], tuple[str, ...]]:
    """Return the heading, the columns with codes such as 01067, and a note if rows may be lost.

    Raise if a row has more or fewer fields than the heading; pandas would fill or shift it.
    """
    codes: set[int] = set()
    swallowed: list[int] = []
    try:
        with contextlib.closing(csv_rows(path, encoding, delimiter)) as lines:
            first = list(itertools.islice(lines, MOST_TITLES + SOME))
            heading = find_heading(path, [row for _, row in first], options)
            width = len(heading.names)
            for line, row in itertools.chain(first[heading.titles :], lines):
                if row and len(row) != width:
                    raise ValueError(
                        f"{path}, line {line}: {len(row)} fields, but the heading has {width}."
                    )
                codes |= {j for j, cell in enumerate(row) if cell[:1] == "0" and is_code(cell)}
                text = "".join(row)
                if "\0" in text:
                    raise ValueError(
                        f"{path}, line {line}: a cell holds a zero byte, at which it would be "
                        "cut; save the table again without it."
                    )
                if "\n" in text and any(_swallows_rows(cell, delimiter, width) for cell in row):
                    swallowed.append(line)
    except (UnicodeError, csv.Error) as error:
        raise ValueError(
            f"{path} is not a table in {said(encoding)} ({error}); pass another --encoding."
        ) from error
    notes = tuple(
        f"A cell of {path.name} that ends in line {line} spans lines that look like rows; check "
        "for a missing quotation mark."
        for line in swallowed[:1]
    )
    return heading, codes, notes


def _swallows_rows(cell: str, delimiter: str, width: int) -> bool:
    """Return whether a missing quote may have merged several rows into one cell.

    Then all of its lines except for the first and last have as many separators as a row.
    """
    inner = cell.splitlines()[1:-1]
    return width > 1 and bool(inner) and all(own.count(delimiter) == width - 1 for own in inner)


def find_heading(path: Path, rows: list[list[str]], options: Options) -> Heading:
    """Find the heading: its row, the names of the columns, and the renamed ones.

    ``rows`` are the first rows of the file, including blank ones.
    """
    known = [str(spec["name"]) for spec in (options.recipe or {}).get("columns", ())]
    asked = (options.id_column, options.label_column, options.text_column)
    names = {*asked, *options.columns, *options.exclude, *known} - {None}
    titles, notes = _titles(path, rows, options, names)
    first = rows[titles]
    no_heading = options.heading == "no"
    if options.heading == "auto" and not names & set(first):
        no_heading = _is_data(first, rows[titles + 1 :])
    if no_heading:
        made = [f"column {j + 1}" for j in range(len(first))]
        said_so = (
            f"{path.name} has no heading, so its columns are called {made[0]} to {made[-1]}; "
            "--heading yes takes the first row as one."
        )
        return Heading(made, titles, False, (*notes, said_so))
    own = [name if name.strip() else f"Unnamed: {j}" for j, name in enumerate(first)]
    unclear = next((name for name in own if name in asked and own.count(name) > 1), None)
    if unclear is not None:
        raise ValueError(f"{path}: the column {unclear!r} occurs more than once; rename one.")
    own, found = _distinct(own)
    return Heading(own, titles, True, (*notes, *found))


def _titles(
    path: Path, rows: list[list[str]], options: Options, names: set[Any]
) -> tuple[int, tuple[str, ...]]:
    """Return the number of rows above the heading, and a note if a title is among them."""
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows]
    if not any(filled):
        raise ValueError(f"{path} is empty.")
    begin = options.skip_rows or 0
    if begin >= len(rows) or not any(filled[begin:]):
        raise ValueError(f"{path}: --skip-rows {begin} leaves no row.")
    begin += next(at for at, count in enumerate(filled[begin:]) if count)
    if options.skip_rows is not None or options.heading == "no":
        return begin, ()
    titles = _below_title(rows, filled, begin, names)
    said_so = shown(cell.strip() for row in rows[:titles] for cell in row if cell.strip())
    if not said_so:
        return titles, ()
    return titles, (
        f"The heading of {path.name} was found in row {titles + 1}; the rows above it were left "
        f"out ({said_so}). --skip-rows 0 reads them.",
    )


def _below_title(rows: list[list[str]], filled: list[int], begin: int, names: set[Any]) -> int:
    """Return the first row that is not a title; titles fill at most half as many cells."""
    usual = float(np.median([count for count in filled if count]))
    for at in range(begin, min(MOST_TITLES, len(rows))):
        if set(rows[at]) & names:
            return at
        # A blank row below indicates a title, not a heading with one missing name.
        alone = len(rows[at]) == 1 or not any(filled[at + 1 : at + 2])
        short = filled[at] < usual if alone else filled[at] <= usual / 2 and usual > 2
        if filled[at] and not short:
            return at
    return begin


def _distinct(names: list[str]) -> tuple[list[str], tuple[str, ...]]:
    """Append a number to repeated names; return also a note on them."""
    counts: dict[str, int] = {}
    made: list[str] = []
    for name in names:
        counts[name] = counts.get(name, 0) + 1
        while (own := f"{name} ({counts[name]})" if counts[name] > 1 else name) in made:
            counts[name] += 1
        made.append(own)
    twice = [f"{new!r}" for new, name in zip(made, names) if new != name]
    if not twice:
        return made, ()
    return made, (f"Columns with the name of an earlier one are called {shown(twice, 8)}.",)


def _is_data(first: list[str], rows: list[list[str]]) -> bool:
    """Return whether a table's first row is one of its samples.

    This is so if its cells occur again below, are numbers or dates like those below, or are longer
    than names. A row of years or consecutive numbers, or with a blank cell, is a heading.
    """
    cells = [cell.strip() for cell in first]
    rows = [row for row in rows if len(row) == len(cells) and any(cell.strip() for cell in row)]
    if not rows or not all(cells):
        return False
    numbers = []
    for j, cell in enumerate(cells):
        below = [own for row in rows if (own := row[j].strip())]
        if cell in below and not cell.isdigit():
            return True
        if len(cell) > NAME_LENGTH or (date_format([cell]) and date_format(below)):
            return True
        signs = decimal_sign([cell]), decimal_sign(below)
        if all(signs):
            numbers.append(cell)
    return not _may_name(numbers)


def _may_name(numbers: list[str]) -> bool:
    """Return whether numbers may be column names: years, or consecutive numbers."""
    if not all(number.isdigit() for number in numbers):
        return False
    values = [int(number) for number in numbers]
    steps = {b - a for a, b in itertools.pairwise(values)}
    years = all(1900 <= value <= 2100 for value in values)
    return not values or years or (len(steps) == 1 and steps <= {1, 5, 10})


def _without_empty(frame: Any) -> tuple[Any, tuple[str, ...]]:
    """Remove empty rows and nameless empty columns, which spreadsheets add."""
    blank = frame.isna()
    for name in frame.columns:
        if frame[name].dtype.kind == "O":
            texts = frame[name].map(lambda v: isinstance(v, str) and not v.strip())
            blank[name] |= texts.astype(bool)
    columns = [
        name
        for name in frame.columns
        if not (name.startswith("Unnamed: ") and bool(blank[name].all()))
    ]
    empty = blank.all(axis=1) if len(columns) > 1 else blank.any(axis=1) & False
    notes: tuple[str, ...] = ()
    if empty.any():
        count = int(empty.sum())
        notes = (
            f"{count} empty rows were left out." if count > 1 else "An empty row was left out.",
        )
        frame = frame[~empty].reset_index(drop=True)
    return frame[columns], notes


def sum_row(frame: Any, usual: str) -> tuple[str, tuple[str, ...]]:
    """Return the name of the last row if it is the sum of the others, else "", and a note."""
    if len(frame) < 4:
        return "", ()
    texts = [value.strip() for value in frame.iloc[-1] if isinstance(value, str) and value.strip()]
    words = [text for text in texts if text.casefold().rstrip(":").split(" ")[0] in SUMS]
    same = [own for name in frame.columns if (own := _ends_in_sum(frame[name], usual)) is not None]
    if any(same) and (words or (len(same) > 1 and all(same))):
        called = words[0] if words else "sums"
        return called, (f"The last row adds up the others ({called!r}) and was left out.",)
    if words and not any(same):
        return "", (f"The last row is called {words[0]!r}; if it is a sum, delete it.",)
    return "", ()


def _ends_in_sum(column: Any, usual: str) -> bool | None:
    """Return whether the last value is the sum of the others; None if it is not a number."""
    if column.dtype.kind in "if":
        numbers = np.asarray(column, dtype=np.float64)
    elif column.dtype.kind == "O":
        sign = decimal_sign(list(column.iloc[:-1].dropna())[:SOME], usual=usual)
        if sign is None:
            return None
        numbers = to_numbers(column, sign)
    else:
        return None
    others = numbers[:-1][np.isfinite(numbers[:-1])]
    if not np.isfinite(numbers[-1]) or len(others) < 3 or not others.any():
        return None
    return bool(np.isclose(numbers[-1], others.sum(), rtol=1e-6, atol=0.01))
