"""The worker's side of a run: one process, one core, one cell at a time."""

from __future__ import annotations

import os
import threading
import time
from typing import Any

from partwise.papers.trials import Cell, run_cell

_limits: Any = None  # held for the life of the process


def start_worker(parent: int, threads: int | None) -> None:
    """Prepare a worker: limit its threads, and let it end when its parent is killed."""
    global _limits
    if threads is not None:
        _limits = limit_threads(threads)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def limit_threads(threads: int) -> Any:
    """Limit BLAS, OpenMP and numba to ``threads``; the returned object undoes it for BLAS."""
    from threadpoolctl import threadpool_limits

    try:
        import numba

        numba.set_num_threads(min(threads, numba.get_num_threads()))
    except ImportError:  # numba is optional here
        pass
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
