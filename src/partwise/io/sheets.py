"""Readers of workbooks (.xlsx) and lines of JSON (.jsonl), and a writer of CSV without formulas.

Spreadsheets run a cell of a CSV file that begins with ``=``, ``+``, ``-`` or ``@`` as a formula.
The writer therefore puts an apostrophe in front of such text; numbers are unchanged. Our readers
remove the apostrophe, so that ids and labels are the original ones.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from partwise.io._common import Options, named, need, shown
from partwise.io.archives import check_zip, whole
from partwise.io.encoding import find_encoding

#: Number of rows of a sheet that are read to estimate how much it contains.
SOME = 200


def read_sheet(path: Path, options: Options) -> list[list[Any]]:
    """Return the cells of a workbook's sheet, None where empty.

    The sheet is selected by its name or its number from 1. The default is the first one, unless it
    is hidden or contains less than a tenth of another one; a note lists the other sheets.
    """
    sheet = options.sheet
    openpyxl = need("openpyxl", ".xlsx files", extra="excel")
    with whole(path, ".xlsx file"):
        check_zip(path)
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        with contextlib.closing(book):
            names = [own.title for own in book.worksheets]
            at = _likely_sheet(book.worksheets) if sheet is None else _named_sheet(names, sheet)
            if at is not None:
                rows = [list(row) for row in book.worksheets[at].iter_rows(values_only=True)]
    if at is None:
        raise ValueError(f"{path} has no sheet {sheet!r}; it has {shown(map(repr, names), 8)}.")
    width = max((len(row) for row in rows), default=0)
    rows = [[*row, *[None] * (width - len(row))] for row in rows]
    if len(names) > 1 and sheet is None:
        others = shown((repr(name) for i, name in enumerate(names) if i != at), 8)
        options.note(f"Of {len(names)} sheets {names[at]!r} was read; --sheet reads {others}.")
    return rows


def _named_sheet(names: list[str], sheet: str) -> int | None:
    """Return the index of a sheet that was given by name or by number."""
    wanted, folded = str(sheet).strip().casefold(), [name.casefold() for name in names]
    if wanted in folded:
        return folded.index(wanted)
    return int(wanted) - 1 if wanted.isdigit() and 0 < int(wanted) <= len(names) else None


def _likely_sheet(sheets: Sequence[Any]) -> int:
    """Return the index of the first sheet that is not a cover page; see `read_sheet`."""
    sizes = []
    for own in sheets:
        rows = list(own.iter_rows(max_row=SOME, values_only=True))
        filled = [sum(cell is not None for cell in row) for row in rows]
        hidden = own.sheet_state != "visible"
        sizes.append((0 if hidden else sum(filled), max(filled, default=0)))
    most = max(size for size, _ in sizes)
    return next(
        i
        for i, (size, width) in enumerate(sizes)
        if size == most or size >= (0.1 if width > 2 else 0.5) * most
    )


def as_text(cell: Any) -> str:
    """Return a cell as it is displayed: whole numbers without a point, "" if empty."""
    whole = isinstance(cell, float) and cell.is_integer()
    return "" if cell is None else str(int(cell) if whole else cell).strip()


def flat(record: dict[str, Any], before: str = "") -> dict[str, Any]:
    """Flatten an object: ``{"a": {"b": 1}}`` becomes "a.b".

    Lists stay the text of their JSON.
    """
    found: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            inner = flat(value, f"{before}{key}.")
        else:
            is_list = isinstance(value, list)
            inner = {f"{before}{key}": json.dumps(value, ensure_ascii=False) if is_list else value}
        twice = found.keys() & inner.keys()
        if twice:
            raise ValueError(f"the field {min(twice)!r} occurs more than once.")
        found |= inner
    return found


def read_json_lines(path: Path, options: Options, *, nested: bool = False) -> list[dict[str, Any]]:
    """Return one object per line; nested objects stay as they are, or are flattened by `flat`."""
    records = []
    with path.open(encoding=find_encoding(path, options.encoding)) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            with named(f"{path}, line {number}"):
                record = json.loads(line.strip())
                if not isinstance(record, dict):
                    raise ValueError('each line must be an object, as {"id": 1, "text": "..."}.')
                records.append(record if nested else flat(record))
    return records


# -- protection against formulas ------------------------------------------------------------------

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"'*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _runs(text: str) -> bool:
    """Return whether a spreadsheet would run the text as a formula without its apostrophes."""
    return bool(_FORMULA.match(text)) and not _NUMBER.fullmatch(text)


def quoted(cell: Any) -> Any:
    """Escape a cell that a spreadsheet would read as a formula."""
    return f"'{cell}" if isinstance(cell, str) and _runs(cell) else cell


def unquoted(cell: Any) -> Any:
    """Undo `quoted`."""
    quote = isinstance(cell, str) and cell.startswith("'")
    return cell[1:] if quote and _runs(cell) else cell


def csv_text(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a CSV file as text, in which no cell is a formula."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([quoted(cell) for cell in row] for row in [heading, *rows])
    return buffer.getvalue()
