"""Run a table or figure: what is missing, in parallel, stored cell by cell."""

from __future__ import annotations

import errno
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from partwise._versions import versions
from partwise.apps.papers import representations
from partwise.apps.papers.estimate import cell_seconds
from partwise.apps.papers.protocol import Protocol, load_protocol
from partwise.apps.papers.sampling import data_found
from partwise.apps.papers.store import Store
from partwise.apps.papers.trials import (
    Cell,
    PartOfProtocol,
    cells,
    cells_of,
    run_cell,
    wanted_readings,
)

_limits: Any = None  # held for the life of the process


def start_worker(parent: int, threads: int | None) -> None:
    """Prepare a worker: limit its threads, and let it end when its parent is killed."""
    global _limits
    if threads is not None:
        _limits = limit_threads(threads)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def limit_threads(threads: int) -> Any:
    """Limit BLAS, OpenMP and numba to ``threads``; the returned object undoes it for BLAS."""
    import numba
    from threadpoolctl import threadpool_limits

    numba.set_num_threads(min(threads, numba.get_num_threads()))
    return threadpool_limits(limits=threads)


def _end_with(parent: int) -> None:
    # After kill -9 nobody tells the workers; they would sit on the queue for ever.
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def work(cell: Cell, data_home: str | None) -> dict[str, Any]:
    """Run a cell; what fails comes back as a sentence, so that the other cells go on."""
    began, cpu = time.perf_counter(), time.process_time()
    try:
        result = run_cell(cell, data_home)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    result["wall_seconds"] = time.perf_counter() - began
    result["cpu_seconds"] = time.process_time() - cpu  # of all threads; unmoved by a busy machine
    return result


#: Why a data set is left out.
ABSENT = "the data set is not on this machine"


class DiskFull(OSError):
    """A result could not be written; the finished ones are safe."""


@dataclass
class Outcome:
    """What happened to the cells of one protocol."""

    name: str
    wanted: list[Cell]
    ran: int = 0
    found: int = 0
    failed: dict[str, str] = field(default_factory=dict)  # a cell's slug -> why
    skipped: dict[str, str] = field(default_factory=dict)  # a method or data set -> why


Progress = Callable[[Cell, "dict[str, Any] | None"], None]
Submit = Callable[
    [Iterable[Cell], "str | None", Store], Iterator[tuple[Cell, "dict[str, Any] | None"]]
]


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def plan(
    protocol: Protocol, selection: PartOfProtocol, data_home: str | None
) -> tuple[list[Cell], dict[str, str]]:
    """The cells to run here, and what is left out with the reason.

    A method that was asked for by name must be in the table, and in this installation.
    """
    for name in selection.methods:
        if name.lower() not in {m.name.lower() for m in protocol.methods}:
            raise ValueError(
                f"{protocol.name} has no method {name!r}; "
                f"it has {', '.join(m.name for m in protocol.methods)}"
            )
    skipped = {}
    for method in protocol.methods:
        chosen = method.name.lower() in {n.lower() for n in selection.methods}
        if selection.methods and not chosen:
            continue
        reason = representations.available(method)
        if reason:
            if chosen:
                raise representations.MethodUnavailable(f"{method.name}: {reason}")
            skipped[method.name] = reason
    for data in protocol.data:
        if not data_found(data, data_home):
            skipped[data.name] = ABSENT
    wanted = [
        cell
        for cell in cells(protocol, selection)
        if cell.variant.method.name not in skipped and cell.data.name not in skipped
    ]
    return wanted, skipped


def reproduce(
    name: str,
    out: str | os.PathLike[str],
    *,
    selection: PartOfProtocol | None = None,
    jobs: int | None = None,
    data_home: str | None = None,
    progress: Progress | None = None,
    workers: Submit | None = None,
) -> Outcome:
    """Run what is missing of a table or figure, and store it in the folder ``out``.

    ``jobs`` processes, by default one a core, compute with one thread each where they are several;
    or ``workers``, what `pool` gives, for several tables in the same processes. A full disk raises
    `DiskFull`: all finished cells before it are safe.
    """
    protocol = load_protocol(name)
    wanted, skipped = plan(protocol, selection or PartOfProtocol(), data_home)
    store = Store(out)
    store.sweep_up()
    todo = store.missing(wanted)
    outcome = Outcome(name, wanted, found=len(wanted) - len(todo), skipped=skipped)
    jobs = min(jobs or cores(), max(1, len(todo)))
    with nullcontext(workers) if workers else pool(jobs) as submit:
        fill(outcome, submit(todo, data_home, store), store, progress)
    return outcome


def fill(
    outcome: Outcome,
    results: Iterator[tuple[Cell, dict[str, Any] | None]],
    store: Store,
    progress: Progress | None = None,
) -> None:
    """Store results as they come, and count them."""
    for cell, result in results:
        if result is None:  # another process finished it meanwhile
            outcome.found += 1
        elif "error" in result:
            outcome.failed[cell.slug] = result["error"]
        else:
            _put(store, cell, result)
            outcome.ran += 1
        if progress is not None:
            progress(cell, result)


def _put(store: Store, cell: Cell, result: dict[str, Any]) -> None:
    try:
        store.put(cell, result | {"versions": versions()})
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"no space left in {Path(store.folder)}; all finished cells are safe. "
                "Make room and give the same command again: it goes on from here"
            ) from error
        raise


@contextmanager
def pool(jobs: int) -> Iterator[Submit]:
    """A way to run cells: here, or in ``jobs`` processes of one thread each."""
    if jobs == 1:
        yield _one_by_one
        return
    # spawn: a forked child would inherit the parent's BLAS and numba threads in an unknown state.
    executor = ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=start_worker,
        initargs=(os.getpid(), 1),
    )
    try:
        yield lambda todo, data_home, store: _in_pool(executor, jobs, todo, data_home, store)
    finally:
        executor.shutdown(wait=False, cancel_futures=True)


def _one_by_one(
    todo: Iterable[Cell], data_home: str | None, store: Store
) -> Iterator[tuple[Cell, dict[str, Any] | None]]:
    limits = limit_threads(1) if cores() == 1 else None
    try:
        for cell in todo:
            yield cell, None if store.has(cell) else work(cell, data_home)
    finally:
        if limits is not None:
            limits.restore_original_limits()


def _in_pool(
    executor: ProcessPoolExecutor,
    jobs: int,
    todo: Iterable[Cell],
    data_home: str | None,
    store: Store,
) -> Iterator[tuple[Cell, dict[str, Any] | None]]:
    queue = iter(todo)
    running: dict[Any, Cell] = {}
    while True:
        # A few in hand keep every worker busy, and are late enough to see another process's work.
        while len(running) < jobs + 2 + jobs // 4:
            cell = next(queue, None)
            if cell is None:
                break
            if store.has(cell):
                yield cell, None
            else:
                running[executor.submit(work, cell, data_home)] = cell
        if not running:
            return
        done, _ = wait(running, return_when=FIRST_COMPLETED)
        for future in done:
            yield running.pop(future), future.result()


COVER = 2  # runs of the main reading of every table, before anything else
DEAR = 1200.0  # seconds of one core beyond which a table waits for the others


def by_value(protocols: list[Protocol], selection: PartOfProtocol) -> list[Cell]:
    """All cells of these protocols once, the most valuable first.

    First `COVER` runs of every main reading; then all that the cheap tables declare; then the dear
    ones, run by run. Within such a step the longest go first, so that no core waits at the end.
    """
    placed: dict[str, tuple[tuple[float, ...], Cell]] = {}
    for protocol in protocols:
        readings = wanted_readings(protocol, selection)
        listed = [list(cells_of(protocol.read(r), selection)) for r in readings]
        unique = {cell.table + cell.slug: cell for found in listed for cell in found}
        dear = sum(cell_seconds(cell) for cell in unique.values()) > DEAR
        for place, found in enumerate(listed):
            for cell in found:
                cover = place == 0 and cell.run < COVER
                step = (0, 0) if cover else (2, cell.run + 0.5 * (place > 0)) if dear else (1, 0)
                key = (*step, -cell_seconds(cell))
                name = cell.table + cell.slug
                if name not in placed or key < placed[name][0]:
                    placed[name] = (key, cell)
    return [cell for _, cell in sorted(placed.values(), key=lambda pair: pair[0])]


def until(cells: list[Cell], deadline: float, *, slack: float = 1.5) -> Iterator[Cell]:
    """The cells one after the other, leaving out those that would not end before ``deadline``."""
    for cell in cells:
        if time.monotonic() + slack * cell_seconds(cell) < deadline:
            yield cell
