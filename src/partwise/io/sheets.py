"""Cells of tables: workbooks (.xlsx) and lines of JSON (.jsonl) read, CSV written without formulas.

A cell of a CSV file that begins with ``=``, ``+``, ``-`` or ``@`` is run by spreadsheets, whoever
wrote it. Such text gets an apostrophe in front, which they show as text; numbers stay numbers. Our
readers take the apostrophe away again, so that ids and labels come back as they were.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import re
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from partwise.io._common import Options, need
from partwise.io.archives import check_unpacked, whole
from partwise.io.encoding import check_encoding, find_encoding


def read_sheet(path: Path) -> tuple[list[list[Any]], tuple[str, ...]]:
    """The cells of a workbook's first sheet, None where empty, and a note where it has more."""
    openpyxl = need("openpyxl", ".xlsx files", extra="excel")
    with whole(path, ".xlsx file"):
        with zipfile.ZipFile(path) as archive:
            check_unpacked(path, sum(member.file_size for member in archive.infolist()))
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        with contextlib.closing(book):
            rows = [list(row) for row in book.worksheets[0].iter_rows(values_only=True)]
            names = [own.title for own in book.worksheets]
    width = max((len(row) for row in rows), default=0)
    rows = [[*row, *[None] * (width - len(row))] for row in rows]
    notes = (f"{path.name} has {len(names)} sheets; {names[0]!r}, the first, was read.",)
    return rows, notes if len(names) > 1 else ()


def as_text(cell: Any) -> str:
    """A cell as it is seen: whole numbers without a point, nothing where it is empty."""
    whole = isinstance(cell, float) and cell.is_integer()
    return "" if cell is None else str(int(cell) if whole else cell).strip()


def read_json_lines(path: Path, options: Options, *, nested: bool = False) -> list[dict[str, Any]]:
    """An object a line; what is nested as it is written, or as it is."""
    encoding = check_encoding(options.encoding) if options.encoding else find_encoding(path)
    records = []
    with path.open(encoding="utf-8-sig" if encoding == "utf-8" else encoding) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line.strip())
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: no JSON ({error}).") from error
            if not isinstance(record, dict):
                raise ValueError(
                    f'{path}, line {number}: each line is an object, as {{"id": 1, "text": "..."}}.'
                )
            if not nested:
                inner = {k: v for k, v in record.items() if isinstance(v, (dict, list))}
                record |= {k: json.dumps(v) for k, v in inner.items()}
            records.append(record)
    return records


# -- what a spreadsheet would run -----------------------------------------------------------------

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_NUMBER = re.compile(r"'*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


def _runs(text: str) -> bool:
    """Whether text would be run once its apostrophes are gone."""
    return bool(_FORMULA.match(text)) and not _NUMBER.fullmatch(text)


def quoted(cell: Any) -> Any:
    """A cell as it may be written."""
    return f"'{cell}" if isinstance(cell, str) and _runs(cell) else cell


def unquoted(cell: Any) -> Any:
    """The cell that `quoted` was given."""
    quote = isinstance(cell, str) and cell.startswith("'")
    return cell[1:] if quote and _runs(cell) else cell


def csv_text(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A CSV file as text, in which no cell is a formula."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerows([quoted(cell) for cell in row] for row in [heading, *rows])
    return buffer.getvalue()
