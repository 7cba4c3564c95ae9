"""Results on disk: one small JSON file a cell, written at once and whole.

A file is written under a name of its own (it holds the writer's process number), flushed to the
disk and only then renamed, so a reader sees all of it or nothing, whatever happens to the writer:
killed, out of disk, or a second process doing the same cell (both results are the same; the later
rename wins).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from partwise.apps.papers.trials import Cell
from partwise.persistence.atomic import sweep, write_whole


class Store:
    """The results of one folder, which is made when the first result is written."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        # A table is read in several readings and views, one after the other.
        self._table, self._read = "", dict[str, dict[str, Any]]()

    def path(self, cell: Cell) -> Path:
        """Where a cell's result lies."""
        return self.folder / "cells" / cell.table / f"{cell.slug}.json"

    def has(self, cell: Cell) -> bool:
        """Whether the cell is done."""
        return self.path(cell).is_file()

    def missing(self, cells: Iterable[Cell]) -> list[Cell]:
        """The cells that are still to run; one listing a table, not one look a cell."""
        present: dict[str, set[str]] = {}
        todo = []
        for cell in cells:
            if cell.table not in present:
                folder = self.folder / "cells" / cell.table
                names = os.listdir(folder) if folder.is_dir() else []
                present[cell.table] = {n for n in names if n.endswith(".json")}
            if f"{cell.slug}.json" not in present[cell.table]:
                todo.append(cell)
        return todo

    def put(self, cell: Cell, result: dict[str, Any]) -> Path:
        """Store a result, whole or not at all."""
        path = self.path(cell)
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_whole(path, json.dumps(result, default=float), force=True)

    def get(self, cell: Cell) -> dict[str, Any] | None:
        """A cell's result, or None where it is not done."""
        if cell.table != self._table:
            self._table, self._read = cell.table, {}
        if cell.slug not in self._read:
            try:
                self._read[cell.slug] = json.loads(self.path(cell).read_text(encoding="utf-8"))
            except FileNotFoundError:
                return None
        return self._read[cell.slug]

    def results(self, cells: Iterable[Cell]) -> Iterator[dict[str, Any]]:
        """The results of those cells that are done."""
        for cell in cells:
            result = self.get(cell)
            if result is not None:
                yield result

    def stored_runs(self, table: str) -> int:
        """One more than the highest run number of a table that is stored."""
        folder = self.folder / "cells" / table
        names = os.listdir(folder) if folder.is_dir() else []
        runs = [int(found[1]) for name in names if (found := re.search(r"-r(\d{3,})-", name))]
        return max(runs, default=-1) + 1

    def sweep_up(self) -> int:
        """Remove what killed writers left behind (never a result); the number removed."""
        folders = [path for path in self.folder.glob("cells/**/") if path.is_dir()]
        return sum(sweep(folder) for folder in folders)
