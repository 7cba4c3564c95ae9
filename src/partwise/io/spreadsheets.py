"""Text cells that a spreadsheet would take for formulas.

A cell of a CSV file that begins with ``=``, ``+``, ``-`` or ``@`` is run by spreadsheets, whoever
wrote it. Such text gets an apostrophe in front, which they show as text; numbers stay numbers. Our
readers take the apostrophe away again, so that ids and labels come back as they were.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

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
