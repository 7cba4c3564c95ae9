"""The cells of a table file as a data frame: .csv, .tsv, .txt, .xlsx, .jsonl and .parquet."""

from __future__ import annotations

import contextlib
import csv
import itertools
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

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


class Heading(NamedTuple):
    """The names of the columns, and where the values begin."""

    names: list[str]
    titles: int  #: number of rows above the heading
    above: int  #: number of rows above the first row of values


def read_frame(path: Path, options: Options) -> tuple[Any, str]:
    """Return the table and the usual decimal sign."""
    pandas = need("pandas", f"{path.suffix} files")
    usual, suffix = ".", path.suffix.lower()
    if suffix == ".parquet":
        frame = _read_parquet(path)
    elif suffix == ".xlsx":
        frame = _read_workbook(path, options)
    elif suffix == ".jsonl":
        frame = pandas.DataFrame(read_json_lines(path, options))
    else:
        frame, usual = _read_text(path, options)
    frame.columns = [str(column) for column in frame.columns]
    frame = _without_empty(frame, options)
    if not len(frame):
        raise ValueError("the table has no rows.")
    return frame, usual


def _read_parquet(path: Path) -> Any:
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
    return pandas.concat([_plain(frame[name]) for name in frame.columns], axis=1)


def _plain(column: Any) -> Any:
    """Convert types that only parquet has: decimals become floats, objects become columns."""
    import pandas

    kinds = set(column.dropna().map(type)) if column.dtype.kind == "O" else set()
    if kinds == {Decimal}:
        return column.astype(float)
    if kinds == {dict}:
        records = [flat({column.name: value or {}}) for value in column]
        return pandas.DataFrame(records, index=column.index)
    return column


def _read_workbook(path: Path, options: Options) -> Any:
    import pandas

    rows = read_sheet(path, options)
    seen = [[as_text(cell) for cell in row] for row in rows[: MOST_TITLES + SOME]]
    heading = find_heading(path, seen, options)
    rows = [row for row in rows[heading.above :] if any(as_text(cell) for cell in row)]
    return pandas.DataFrame(rows, columns=heading.names, dtype=object).infer_objects()


def _read_text(path: Path, options: Options) -> tuple[Any, str]:
    import pandas

    encoding, separator = text_format(path, options)
    heading, coded = _check_shape(path, separator, encoding, options)
    if path.suffix.lower() == ".txt" and len(heading.names) == 1:
        raise ValueError("this is not a table. Pass a folder of texts, or name the file .csv.")
    usual = "," if separator == ";" else "."
    asked = {options.id_column, options.label_column, options.text_column, NAMELESS}
    as_written = {c for c in heading.names if c in asked or looks_like_id(c) or may_be_id(c)}
    how = {
        "sep": separator,
        "encoding": encoding,
        "index_col": False,
        "header": None,
        "names": heading.names,
        "skiprows": heading.above + (named_separator(path, encoding) is not None),
        # "NA" and "null" are missing values among numbers, but ordinary ids, labels and texts.
        "keep_default_na": False,
        "na_values": {name: GAPS for name in heading.names if name not in as_written},
    }
    try:
        head = pandas.read_csv(path, dtype=str, nrows=1000, **how)
        signs = [decimal_sign(column.dropna(), usual=usual) for _, column in head.items()]
        kept = coded | as_written | _not_plain(options)
        types = str if "," in signs else dict.fromkeys(kept, str)  # else "43.006" becomes 43
        frame = pandas.read_csv(path, dtype=types, low_memory=False, **how)
    except (ValueError, csv.Error) as error:
        # The error of a quote that is never closed contains the row where it opens.
        reason = str(error).strip().replace("EOF inside string", "a quote that never closes")
        raise ValueError(f"{reason}.") from error
    for name, column in frame.items():
        if column.dtype.kind == "O":
            frame[name] = column.map(unquoted, na_action="ignore")
    return frame, usual


def _not_plain(options: Options) -> set[str]:
    """Return the model's columns of codes and of numbers with a decimal comma."""
    specs = (options.recipe or {}).get("columns", ())
    return {str(s["name"]) for s in specs if s["as"] == "category" or s.get("sign") == ","}


def _check_shape(
    path: Path, delimiter: str, encoding: str, options: Options
) -> tuple[Heading, set[str]]:
    """Return the heading and the columns with codes such as 01067; note if rows may be lost.

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
                    raise ValueError(f"line {line}: {len(row)} fields instead of {width}.")
                codes |= {j for j, cell in enumerate(row) if cell[:1] == "0" and is_code(cell)}
                text = "".join(row)
                if "\0" in text:
                    raise ValueError(f"line {line}: a cell contains a zero byte.")
                if "\n" in text and any(_swallows_rows(cell, delimiter, width) for cell in row):
                    swallowed.append(line)
    except (UnicodeError, csv.Error) as error:
        raise ValueError(f"not in {said(encoding)}; see --encoding ({error}).") from error
    if swallowed:
        options.note(f"A cell in line {swallowed[0]} looks like rows; is a quotation mark missing?")
    return heading, {heading.names[j] for j in codes}


def _swallows_rows(cell: str, delimiter: str, width: int) -> bool:
    """Return whether a missing quote may have merged several rows into one cell.

    Then all of its lines except for the first and last have as many separators as a row.
    """
    inner = cell.splitlines()[1:-1]
    return width > 1 and bool(inner) and all(own.count(delimiter) == width - 1 for own in inner)


def find_heading(path: Path, rows: list[list[str]], options: Options) -> Heading:
    """Find the heading: its row and the names of the columns; note what is unusual.

    ``rows`` are the first rows of the file, including blank ones.
    """
    known = [str(spec["name"]) for spec in (options.recipe or {}).get("columns", ())]
    asked = (options.id_column, options.label_column, options.text_column)
    names = {*asked, *options.columns, *options.exclude, *known} - {None}
    titles = _titles(path, rows, options, names)
    first = rows[titles]
    no_heading = options.heading == "no"
    if options.heading == "auto" and not names & set(first):
        no_heading = _is_data(first, rows[titles + 1 :])
    if no_heading:
        made = [f"column {j + 1}" for j in range(len(first))]
        ends = f"{made[0]} to {made[-1]}"
        options.note(f"There is no heading: columns are called {ends}; --heading yes reads one.")
        return Heading(made, titles, titles)
    own = [name if name.strip() else f"Unnamed: {j}" for j, name in enumerate(first)]
    unclear = next((name for name in own if name in asked and own.count(name) > 1), None)
    if unclear is not None:
        raise ValueError(f"the column {unclear!r} occurs more than once; rename one.")
    return Heading(_distinct(own, options), titles, titles + 1)


def _titles(path: Path, rows: list[list[str]], options: Options, names: set[Any]) -> int:
    """Return the number of rows above the heading; note a title."""
    filled = [sum(bool(cell.strip()) for cell in row) for row in rows]
    begin = options.skip_rows or 0
    if not any(filled[begin:]):
        raise ValueError(f"the table is empty (--skip-rows {begin}).")
    begin += next(at for at, count in enumerate(filled[begin:]) if count)
    if options.skip_rows is not None or options.heading == "no":
        return begin
    titles = _below_title(rows, filled, begin, names)
    text = shown(cell.strip() for row in rows[:titles] for cell in row if cell.strip())
    if text:
        options.note(f"Rows above the heading were left out ({text}); --skip-rows 0 reads them.")
    return titles


def _below_title(rows: list[list[str]], filled: list[int], begin: int, names: set[Any]) -> int:
    """Return the first row that is not a title; titles fill at most half as many cells."""
    usual = float(np.median([count for count in filled if count]))
    for at in range(begin, min(MOST_TITLES, len(rows))):
        # A blank row below indicates a title, not a heading with one missing name.
        alone = len(rows[at]) == 1 or not any(filled[at + 1 : at + 2])
        short = filled[at] < usual if alone else filled[at] <= usual / 2 and usual > 2
        if set(rows[at]) & names or (filled[at] and not short):
            return at
    return begin


def _distinct(names: list[str], options: Options) -> list[str]:
    """Append a number to repeated names, and note them."""
    counts: Counter[str] = Counter()
    made: list[str] = []
    for name in names:
        counts[name] += 1
        while (own := f"{name} ({counts[name]})" if counts[name] > 1 else name) in made:
            counts[name] += 1
        made.append(own)
    twice = [repr(new) for new, name in zip(made, names) if new != name]
    if twice:
        options.note(f"Columns with the name of an earlier one are called {shown(twice, 8)}.")
    return made


def _is_data(first: list[str], rows: list[list[str]]) -> bool:
    """Return whether a table's first row is one of its samples.

    This is so if its cells occur again below, are numbers or dates like those below, or are longer
    than names. A row of years or consecutive numbers, or with a blank cell, is a heading.
    """
    cells = [cell.strip() for cell in first]
    rows = [row for row in rows if len(row) == len(cells) and any(cell.strip() for cell in row)]
    if not rows or not all(cells):
        return False
    columns = list(zip(cells, ([text.strip() for text in own] for own in zip(*rows))))
    if any(_is_value(cell, own) for cell, own in columns):
        return True
    return not _may_name([c for c, own in columns if decimal_sign([c]) and decimal_sign(own)])


def _is_value(cell: str, below: list[str]) -> bool:
    """Return whether a cell is a value like those below and not the name of their column."""
    repeated = cell in below and not cell.isdigit()
    dates = bool(date_format([cell]) and date_format(below))
    return repeated or dates or len(cell) > NAME_LENGTH


def _may_name(numbers: list[str]) -> bool:
    """Return whether numbers may be column names: years, or consecutive numbers."""
    values = [int(number) if number.isdigit() else 0 for number in numbers]
    steps = {b - a for a, b in itertools.pairwise(values)}
    return all(1900 <= value <= 2100 for value in values) or steps in ({1}, {5}, {10})


def _without_empty(frame: Any, options: Options) -> Any:
    """Remove empty rows and nameless empty columns, which spreadsheets add."""
    blank = frame.isna()
    for name in frame.columns:
        if frame[name].dtype.kind == "O":
            texts = frame[name].map(lambda v: isinstance(v, str) and not v.strip())
            blank[name] |= texts.astype(bool)
    frame = frame[[c for c in frame.columns if not (c.startswith("Unnamed: ") and blank[c].all())]]
    empty = blank[frame.columns].all(axis=1)
    if frame.shape[1] > 1 and empty.any():
        count = int(empty.sum())
        options.note(f"{count} empty row{'s were' if count > 1 else ' was'} left out.")
        frame = frame[~empty].reset_index(drop=True)
    return frame


def sum_row(frame: Any, usual: str, options: Options) -> str:
    """Return the name of the last row if it is the sum of the others, else ""; note it."""
    if len(frame) < 4:
        return ""
    words = frame.iloc[-1].map(lambda v: v.strip() if isinstance(v, str) else "")
    word = next((w for w in words if w.casefold().rstrip(":").split(" ")[0] in SUMS), "")
    sums = Counter(_ends_in_sum(frame[name], usual) for name in frame.columns)
    if sums[True] and (word or (sums[True] > 1 and not sums[False])):
        options.note(f"The last row adds up the others and was left out ({word or 'sums'!r}).")
        return word or "sums"
    if word and not sums[True]:
        options.note(f"The last row is called {word!r}; if it is a sum, delete it.")
    return ""


def _ends_in_sum(column: Any, usual: str) -> bool | None:
    """Return whether the last value is the sum of the others; None if it is not a number."""
    if column.dtype.kind == "O":
        sign = decimal_sign(column.iloc[:-1].dropna().head(SOME), usual=usual)
        if sign is None:
            return None
        column = to_numbers(column, sign)
    if column.dtype.kind not in "if":
        return None
    numbers = np.asarray(column, dtype=np.float64)
    others = numbers[:-1][np.isfinite(numbers[:-1])]
    if not np.isfinite(numbers[-1]) or len(others) < 3 or not others.any():
        return None
    return bool(np.isclose(numbers[-1], others.sum(), rtol=1e-6, atol=0.01))
