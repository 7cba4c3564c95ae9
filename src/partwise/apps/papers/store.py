"""Storage of results: one small JSON file per cell, written completely or not at all."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from partwise.apps.papers.trials import Cell


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file under a temporary name and rename it, so that it is never incomplete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name[-60:]}.{os.getpid()}.part")
    try:
        part.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path


class Store:
    """The results in one folder, which is created with the first result."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)

    def path(self, cell: Cell) -> Path:
        """Return the file of a cell's result."""
        return self.folder / "cells" / f"{cell.key}.json"

    def has(self, cell: Cell) -> bool:
        """Return whether the cell is done."""
        return self.path(cell).is_file()

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """List the cells that are still to run."""
        return [cell for cell in cells if not self.has(cell)]

    def put(self, cell: Cell, result: dict[str, Any]) -> Path:
        """Store a result completely or not at all."""
        return write_whole(self.path(cell), json.dumps(result, default=float))

    def get(self, cell: Cell) -> dict[str, Any] | None:
        """Return a cell's result, or None if the cell is not done."""
        try:
            found: dict[str, Any] = json.loads(self.path(cell).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return found

    def results(self, cells: Iterable[Cell]) -> Iterator[dict[str, Any]]:
        """Yield the results of the cells that are done."""
        return (result for cell in cells if (result := self.get(cell)) is not None)

    def stored_runs(self, table: str) -> int:
        """Return one more than the highest stored run number of a table."""
        files = (self.folder / "cells" / table).glob("*.json")
        found = (re.search(r"-r(\d{3,})-", file.name) for file in files)
        return max((int(run[1]) for run in found if run), default=-1) + 1
