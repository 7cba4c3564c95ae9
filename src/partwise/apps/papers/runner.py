"""Parallel computation of the missing runs of a table or figure.

Each result is stored as soon as it is computed.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any

from joblib import Parallel, cpu_count, delayed, parallel_config

import partwise
from partwise.apps.papers import representations
from partwise.apps.papers.protocol import Protocol, load_protocol
from partwise.apps.papers.sampling import data_found
from partwise.apps.papers.store import Store
from partwise.apps.papers.trials import Cell, Selection, cells, run_cell

#: Reason that is reported for a data set that is not installed.
ABSENT = "the data set is not on this machine"
LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")

Result = dict[str, Any]
#: Function that is called after each run, with the total number of runs to do.
Progress = Callable[[int], None]


@dataclass
class Outcome:
    """Summary of a reproduction: which cells (runs) ended, failed or were left out."""

    name: str
    wanted: list[Cell]
    ran: int = 0
    found: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # reason by the name of the cell
    skipped: dict[str, str] = field(default_factory=dict)  # reason by method or data set


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that the results depend on."""
    libraries = {name: metadata.version(name) for name in LIBRARIES}
    return {"python": platform.python_version(), "partwise": partwise.__version__} | libraries


def work(cell: Cell, data_home: str | None) -> tuple[Cell, Result]:
    """Return the result of a cell (one run of a method), or its error as a sentence.

    An error does not end the other runs.
    """
    cpu = time.process_time()
    try:
        result = run_cell(cell, data_home)
    except Exception as error:
        return cell, {"error": f"{type(error).__name__}: {error}"}
    result["cpu_seconds"] = time.process_time() - cpu  # not affected by other processes
    return cell, result


def plan(
    protocol: Protocol, selection: Selection, data_home: str | None
) -> tuple[list[Cell], dict[str, str]]:
    """Return the cells to run on this machine, and why others are left out.

    A cell is one run of one method. A method that the user lists by name must be in the table, and
    must be installed.
    """
    known = {m.name.lower(): m for m in protocol.methods}
    for name in selection.methods:
        if name.lower() not in known:
            names = ", ".join(known)
            raise ValueError(f"{protocol.name} has no method {name!r}; choose from {names}")
        if reason := representations.available(known[name.lower()]):
            raise ImportError(f"{protocol.name}: {reason}")
    skipped = {m.name: why for m in protocol.methods if (why := representations.available(m))}
    skipped |= {d.name: ABSENT for d in protocol.data if not data_found(d, data_home)}
    every = cells(protocol, selection)
    wanted = [c for c in every if not {c.column.method.name, c.data.name} & set(skipped)]
    return wanted, skipped


def reproduce(
    name: str,
    out: str | os.PathLike[str],
    *,
    selection: Selection | None = None,
    jobs: int | None = None,
    data_home: str | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Run the missing cells (runs) of a table, and store them in the folder ``out``.

    ``jobs`` processes compute with one thread each; the default is one process per core. The
    results of finished cells are kept if the run ends early, for example because the disk is full.
    """
    wanted, skipped = plan(load_protocol(name), selection or Selection(), data_home)
    store = Store(out)
    todo = store.missing(wanted)
    outcome = Outcome(name, wanted, found=len(wanted) - len(todo), skipped=skipped)

    def still_missing() -> Iterator[Cell]:
        for cell in todo:
            if store.has(cell):  # another process has finished it
                outcome.found += 1
            else:
                yield cell

    for cell, result in _run(still_missing(), jobs or cpu_count(), data_home):
        if "error" in result:
            outcome.failed[cell.slug] = result["error"]
        else:
            store.put(cell, result | {"versions": versions()})
            outcome.ran += 1
        if progress is not None:
            progress(len(todo))
    return outcome


def _run(todo: Iterator[Cell], jobs: int, data_home: str | None) -> Iterator[tuple[Cell, Result]]:
    """Yield the results of cells, computed in one or several processes."""
    if jobs == 1:
        yield from (work(cell, data_home) for cell in todo)
        return
    with parallel_config("loky", inner_max_num_threads=1):
        parallel = Parallel(jobs, return_as="generator_unordered", pre_dispatch=jobs + 2)
        yield from parallel(delayed(work)(cell, data_home) for cell in todo)
