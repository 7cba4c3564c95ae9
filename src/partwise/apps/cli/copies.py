"""Tasks in copies of this process, for those whose Python would wait for one interpreter.

A copy (fork) has all data and imports and its own interpreter; only the results of a task are sent
back. Threads are used where forks are not safe: on macOS, system libraries may fail in a fork.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

from partwise.backends.threads import allowed, one_blas_thread, side_by_side

FORKS = sys.platform == "linux"

#: A task is a generator of results; it can be stopped after each result.
Task = Callable[..., Iterator[Any]]
#: The function that the tasks of this copy run, and the event that stops them.
_current: tuple[Task, Any]


def spread(
    run: Task,
    tasks: Sequence[tuple[Any, ...]],
    got: Callable[[Any], None],
    most: int,
) -> None:
    """Call got(item) for each item of run(*task) of each task, with at most ``most`` in parallel.

    After an error or an interrupt, the other tasks end with their current item.
    """
    copies = min(most, len(tasks))
    if copies < 2 or not FORKS:
        _in_threads(run, tasks, got, most)
        return
    context = get_context("fork")
    stopped = context.Event()
    with warnings.catch_warnings():
        # Python warns about threads, but BLAS and Partwise start new threads in the copy.
        warnings.simplefilter("ignore", DeprecationWarning)
        with one_blas_thread:  # setting it in a copy would start all threads of BLAS
            begin = (run, stopped, max(1, allowed() // copies))
            pool = ProcessPoolExecutor(copies, context, _begin, begin)
            results = [pool.submit(_whole, task) for task in tasks]
    try:
        for result in as_completed(results):
            for item in result.result():
                got(item)
    except BrokenProcessPool:
        raise MemoryError(
            "a process of this command was killed, probably because memory was short; "
            "set OMP_NUM_THREADS=1 to use fewer processes."
        ) from None
    finally:
        stopped.set()
        pool.shutdown(cancel_futures=True)


def _in_threads(
    run: Task, tasks: Sequence[tuple[Any, ...]], got: Callable[[Any], None], most: int
) -> None:
    lock, stopped = threading.Lock(), threading.Event()

    def one(*task: Any) -> None:
        try:
            for item in run(*task):
                with lock:
                    got(item)
                if stopped.is_set():
                    return
        except BaseException:
            stopped.set()
            raise

    side_by_side(one, tasks, most)


def _begin(run: Task, stopped: Any, share: int) -> None:
    """Prepare a copy, which inherits its arguments and does not receive them as a pickle."""
    global _current
    _current = run, stopped
    os.environ["OMP_NUM_THREADS"] = str(share)
    # A terminal interrupts all processes of a command; the parent ends this one.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _whole(task: tuple[Any, ...]) -> list[Any]:
    """Return the items of a task, up to the current one if the command was stopped."""
    run, stopped = _current
    found = []
    for item in run(*task):
        found.append(item)
        if stopped.is_set():
            break
    return found
