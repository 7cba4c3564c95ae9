"""Parallel tasks in forked copies of this process.

Threads would wait for Python's interpreter lock. A forked process has all data and imports, and its
own interpreter; only the results of a task are sent back. On other systems than Linux, threads are
used instead, because forks are not safe there: on macOS, system libraries may fail in a fork.
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

#: Function that yields the results of a task; the task can be stopped after each result.
Task = Callable[..., Iterator[Any]]
#: In a forked copy: the function that runs tasks, and the event that stops them.
_current: tuple[Task, Any]


def spread(
    run: Task,
    tasks: Sequence[tuple[Any, ...]],
    got: Callable[[Any], None],
    most: int,
) -> None:
    """Run several tasks in parallel, and call ``got`` with each of their results.

    ``run(*task)`` yields the results of a task. At most ``most`` tasks run at the same time. After
    an error or interrupt, the other tasks end after their current result.
    """
    copies = min(most, len(tasks))
    if copies < 2 or not FORKS:
        _in_threads(run, tasks, got, most)
        return
    context = get_context("fork")
    stopped = context.Event()
    with warnings.catch_warnings():
        # Python warns about forks of a process with threads. Here it is safe, because BLAS and
        # Partwise start new threads in the copy.
        warnings.simplefilter("ignore", DeprecationWarning)
        with one_blas_thread:  # setting the limit in a copy would start all BLAS threads
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
    """Run tasks in threads, as `spread` does with copies of the process."""
    lock, stopped = threading.Lock(), threading.Event()

    def one(*task: Any) -> None:
        """Run one task, and stop the other tasks if it fails."""
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
    """Prepare a forked copy before its first task.

    The copy inherits the arguments through the fork, so they need not be pickled.
    """
    global _current
    _current = run, stopped
    os.environ["OMP_NUM_THREADS"] = str(share)
    # Ctrl-C in a terminal reaches all processes. The copy ignores it, because the parent ends the
    # copy.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _whole(task: tuple[Any, ...]) -> list[Any]:
    """Return all results of a task, or those until the command was stopped."""
    run, stopped = _current
    found = []
    for item in run(*task):
        found.append(item)
        if stopped.is_set():
            break
    return found
