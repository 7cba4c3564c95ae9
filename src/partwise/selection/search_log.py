"""Results of a search in a file, so that an interrupted search can continue."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from partwise.solvers.checkpoint import describe

#: Function that is called as ``progress(done, total, what)`` before each fit, for example with
#: ``(3, 60, "k = 2")``.
Progress = Callable[[int, int, str], object]
#: Number of rows of a Dask array that are read to recognise the same data in a later search.
ROWS = 20


class SearchLog:
    """Results of a search by name, written to a file as soon as they are computed.

    Several threads may add results.

    Parameters
    ----------
    path : path or None
        A file, or a folder in which each search has its own file. None keeps results in memory
        only.
    search : mapping
        Data and settings that define the search. A file of another search raises an error.
    seed : int
        Random seed. An existing file has its own seed, which replaces this one.
    total : int
        Number of results of the whole search, for ``progress``.
    progress : callable or None
        Function that is called before each result.
    """

    def __init__(
        self, path: Any, search: Mapping[str, Any], seed: int, total: int, progress: Progress | None
    ) -> None:
        self.path = None if path is None else Path(path)
        self.seed, self.total, self._progress = seed, total, progress
        self.results: dict[str, list[float]] = {}
        self._lock = Lock()
        if self.path is None:
            return
        identity = {name: _identity(value) for name, value in search.items()}
        mark = hashlib.sha256(describe(identity).encode()).hexdigest()[:16]
        if self.path.is_dir():
            self.path = self.path / f"search-{mark}.jsonl"
        if self.path.exists() and self.path.stat().st_size:
            self._read(mark)
        else:
            self.path.write_text(json.dumps({"search": mark, "seed": seed}) + "\n", "utf-8")

    def _read(self, mark: str) -> None:
        """Read an existing file, whose ``mark`` must identify the same search."""
        assert self.path is not None
        lines = self.path.read_text("utf-8").split("\n")
        try:
            head = json.loads(lines[0])
            same, self.seed = head["search"] == mark, int(head["seed"])
            # A process that was killed may have left an incomplete last line.
            rows = [json.loads(line) for line in lines[1:-1]]
            self.results = {str(name): values for name, values in rows}
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"results: {self.path} contains no results of a search; remove the file or pass "
                "another one."
            ) from error
        if not same:
            raise ValueError(f"results: {self.path} is of another search; pass another file.")
        # An incomplete last line is removed, so that the next result begins on a new line.
        if lines[-1]:
            self.path.write_text("\n".join(lines[:-1]) + "\n", "utf-8")

    def get(self, name: str, compute: Callable[[], Any], what: str) -> np.ndarray:
        """Return the numbers of this name, computed and written if they are new."""
        with self._lock:
            if self._progress is not None:
                self._progress(min(len(self.results), self.total), self.total, what)
            if name in self.results:
                return np.array(self.results[name])
        values = [float(value) for value in np.atleast_1d(compute())]
        with self._lock:
            self.results[name] = values
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([name, values]) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
        return np.array(values)


def _identity(value: Any) -> Any:
    """Return what identifies a value in a search file.

    For a Dask array, these are its shape and some of its rows, so that the others are not computed.
    """
    if not hasattr(value, "to_delayed"):
        return value
    import dask

    at = np.unique(np.linspace(0, value.shape[0] - 1, ROWS).astype(int))
    return [*value.shape, str(value.dtype), *dask.compute(*(value[i : i + 1] for i in at))]
