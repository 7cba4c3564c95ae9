"""Tasks in copies of this process, for those whose Python would wait for one interpreter.

A copy (fork) has all data and imports and its own interpreter; only the results of a task are sent
back. Threads are used where forks are not safe: on macOS, system libraries may fail in a fork.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from threading import Event, Lock, Thread
from typing import Any, NoReturn

from partwise.backends.threads import allowed, one_blas_thread, side_by_side

FORKS = sys.platform == "linux"

#: A task is a generator of results; it can be stopped after each result.
Task = Callable[..., Iterator[Any]]


def spread(
    run: Task,
    tasks: Sequence[tuple[Any, ...]],
    got: Callable[[Any], None],
    most: int,
    meanwhile: Callable[[], None] | None = None,
) -> None:
    """Call got(item) for each item of run(*task) of each task, with at most ``most`` in parallel.

    After an error or an interrupt, the other tasks end with their current item. ``meanwhile`` runs
    in parallel with the tasks and ends before this function returns.
    """
    copies = min(most, len(tasks))
    if copies > 1 and FORKS:
        with one_blas_thread:  # setting it in a copy would start all threads of BLAS
            _in_copies(run, tasks, got, copies, meanwhile)
        return
    other = _beside(meanwhile)
    lock, stopped = Lock(), Event()

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
    other.join()


def _beside(work: Callable[[], None] | None) -> Thread:
    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


def _in_copies(
    run: Task,
    tasks: Sequence[tuple[Any, ...]],
    got: Callable[[Any], None],
    copies: int,
    meanwhile: Callable[[], None] | None,
) -> None:
    """Send each copy the number of its next task when it has finished one."""
    share, ends = max(1, allowed() // copies), {}  # type: int, dict[Connection, int]
    numbers = iter(range(len(tasks)))
    try:
        for _ in range(copies):
            here, there = Pipe()
            copy = _fork()
            if not copy:
                for end in (here, *ends):  # else it would not see that we are gone
                    end.close()
                _serve(run, tasks, there, share)
            there.close()
            ends[here] = copy
            here.send(next(numbers))
        other = _beside(meanwhile)
        busy = set(ends)
        while busy:
            for end in busy.intersection(wait(list(busy))):
                try:
                    what, item = end.recv()
                except EOFError:
                    raise MemoryError(
                        "a process of this command was killed, probably because memory was short; "
                        "set OMP_NUM_THREADS=1 to use fewer processes."
                    ) from None
                if what == "item":
                    got(item)
                elif what == "error":
                    raise item
                elif (number := next(numbers, None)) is None:
                    busy.remove(end)
                else:
                    end.send(number)
        other.join()
    finally:
        for end in ends:
            end.close()
        for copy in ends.values():
            os.waitpid(copy, 0)


def _fork() -> int:
    with warnings.catch_warnings():
        # Python warns about threads, but BLAS and Partwise start new threads in the copy
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _serve(run: Task, tasks: Sequence[tuple[Any, ...]], end: Connection, share: int) -> NoReturn:
    """Run tasks in a forked copy, which leaves everything that it inherited untouched."""
    try:
        signal.signal(
            signal.SIGINT, signal.SIG_IGN
        )  # a terminal signals all processes; the parent ends this one
        os.environ["OMP_NUM_THREADS"] = str(share)
        while True:
            for item in run(*tasks[end.recv()]):
                end.send(("item", item))
                if end.poll():  # nothing comes before a task's end, so the other end is closed
                    os._exit(0)
            end.send(("done", None))
    except (EOFError, BrokenPipeError):
        pass
    except BaseException as error:
        error.add_note(traceback.format_exc())
        try:
            end.send(("error", error))
        except Exception:  # an error that cannot be sent as it is
            end.send(("error", RuntimeError(repr(error))))
    finally:
        os._exit(0)
