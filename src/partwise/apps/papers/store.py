"""Storage of results: one JSON file per cell, which is one run of one method."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from partwise.apps.papers.trials import Cell


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file under a temporary name, then rename it, so that it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name[-60:]}.{os.getpid()}.part")
    try:
        part.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


class Store:
    """Folder of stored results; it is created with the first result."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, cell: Cell) -> Path:
        """Return the path of the file with the result of a cell (one run)."""
        return self.folder / "cells" / f"{cell.key}.json"

    def has(self, cell: Cell) -> bool:
        """Return whether the result of a cell (one run) is stored."""
        return self.path(cell).is_file()

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells (runs) whose results are not stored."""
        return [cell for cell in cells if not self.has(cell)]

    def put(self, cell: Cell, result: dict[str, Any]) -> Path:
        """Write the result of a cell (one run), completely or not at all."""
        return write_whole(self.path(cell), json.dumps(result, default=float))

    def get(self, cell: Cell) -> dict[str, Any] | None:
        """Return the stored result of a cell (one run), or None."""
        try:
            found: dict[str, Any] = json.loads(self.path(cell).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return found

    def results(self, cells: Iterable[Cell]) -> Iterator[dict[str, Any]]:
        """Return an iterator over the stored results of these cells (runs)."""
        return (result for cell in cells if (result := self.get(cell)) is not None)

    def stored_runs(self, table: str) -> int:
        """Return one more than the highest stored run number of a table."""
        files = (self.folder / "cells" / table).glob("*.json")
        found = (re.search(r"-r(\d{3,})-", file.name) for file in files)
        return max((int(run[1]) for run in found if run), default=-1) + 1
