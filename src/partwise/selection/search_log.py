"""Results of a long search, line by line in a file, so that a killed one goes on."""

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

#: Hears how many fits are done, of how many, and what they are: ``progress(3, 60, "k = 2")``.
Progress = Callable[[int, int, str], object]


class Ledger:
    """Numbers by name; with a path each is on disk as soon as it is made, by any thread.

    Parameters
    ----------
    path : path or None
        None keeps everything in memory.
    named : mapping
        What defines the search. A file of another search is refused.
    seed : int
        For everything random; a file that is there brings its own.
    total : int
        How many there will be.
    progress : callable or None
    """

    def __init__(
        self,
        path: Any,
        named: Mapping[str, Any],
        seed: int,
        total: int,
        progress: Progress | None = None,
    ) -> None:
        self.path = None if path is None else Path(path)
        self.seed, self.total, self._hear = seed, total, progress
        self.held: dict[str, list[float]] = {}
        self._lock = Lock()
        if self.path is None:
            return
        mark = hashlib.sha256(describe(dict(named)).encode()).hexdigest()[:16]
        if self.path.exists() and self.path.stat().st_size:
            self._read(mark)
        else:
            self.path.write_text(json.dumps({"search": mark, "seed": seed}) + "\n", "utf-8")

    def _read(self, mark: str) -> None:
        assert self.path is not None
        text = self.path.read_text("utf-8")
        lines = text.split("\n")
        try:
            head = json.loads(lines[0])
            same, self.seed = head["search"] == mark, int(head["seed"])
            rows = [json.loads(line) for line in lines[1:-1]]  # the last may have been cut off
            self.held = {str(name): values for name, values in rows}
        except (json.JSONDecodeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{self.path} holds no results of a search; remove it.") from error
        if not same:
            raise ValueError(
                f"{self.path} holds results of another search (other data, numbers or settings); "
                "remove it or name another."
            )
        if lines[-1]:  # the cut one goes, so that the next begins on a line of its own
            self.path.write_text("\n".join(lines[:-1]) + "\n", "utf-8")

    def get(self, name: str, make: Callable[[], Any], what: str) -> np.ndarray:
        """The numbers of that name: read, or made and written."""
        with self._lock:
            if self._hear is not None:
                self._hear(min(len(self.held), self.total), self.total, what)
            if name in self.held:
                return np.array(self.held[name])
        made = [float(value) for value in np.atleast_1d(make())]
        with self._lock:
            self.held[name] = made
            if self.path is not None:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([name, made]) + "\n")
                    file.flush()
                    os.fsync(file.fileno())
        return np.array(made)
