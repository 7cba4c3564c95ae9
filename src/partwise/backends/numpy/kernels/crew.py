"""Run kernels in helper threads that do not need the lock of the interpreter.

A Python thread needs the interpreter's lock to start and to end a kernel. With sixteen threads that
takes a millisecond, longer than most kernels run. Here the calling thread writes all tasks to an
array of counters, called a *desk*, and helper threads take tasks from it in compiled code. A helper
waits for the next kernel, which usually follows soon: it first reads the desk repeatedly, and then
sleeps for short intervals. It sleeps immediately if another program needs its core. Each helper has
a number, its *seat*, and begins with the tasks of this seat, whose rows are in the cache of its
core.

A task is a row of numbers, which encode the arguments of a kernel as numba passes them. `entry_of`
compiles a function that reads the arguments from such a row and calls the kernel.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Sequence
from typing import Any

import numba as nb
import numpy as np
from numba.core import types

from partwise.backends import threads as workers
from partwise.backends.numpy.kernels._atomics import (
    add,
    call,
    compare_exchange,
    entry_of,
    load,
)
from partwise.backends.numpy.kernels._options import HELPER, NO_JIT, OPTIONS, compiled

#: Positions on a desk. Counters are 128 bytes apart, so that no two share a cache line.
OPEN, DONE, FAILED, LEAVE, SLEEP = 0, 16, 32, 48, 64
TASK, ROWS, STEP, COUNT, TEAM = 80, 81, 82, 83, 84
SEATS, APART, MOST_SEATS = 96, 16, 256
LOWER = (1 << 32) - 1  # lower half of the counter OPEN: open tasks; the upper half counts calls
PATIENCE = 200  # reads of the desk before a helper yields its core and reads the clock
#: Nanoseconds for which a helper reads the desk repeatedly, for which it stays at the desk, and
#: after which it assumes that another program used its core.
WAIT, STAY, AWAY = 2_000_000, 100_000_000, 1_000_000
FIRST_NAP, LONGEST_NAP = 50, 1000  # microseconds that a helper sleeps, first and at most

CLOCK = getattr(time, "CLOCK_MONOTONIC", 0)
#: Functions of every POSIX system; helpers are used nowhere else.
POSIX = os.name == "posix"
_yield: Any = types.ExternalFunction("sched_yield", types.int32()) if POSIX else nb.njit(lambda: 0)
_usleep: Any = types.ExternalFunction("usleep", types.int32(types.uint32))
_gettime: Any = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.voidptr))


@compiled(**HELPER)
def give_way():
    """Let another thread that waits for this core run first."""
    _yield()


@compiled(**HELPER)
def _nanoseconds(buffer):
    """Return the time of a monotonic clock in nanoseconds.

    ``buffer`` is an array of two integers. The operating system writes the seconds and nanoseconds
    to it.
    """
    _gettime(CLOCK, buffer.ctypes)
    return buffer[0] * 1_000_000_000 + buffer[1]


@compiled(**HELPER)
def _offer(desk, task, rows, step, count, team):
    """Write the tasks of a calling thread to its desk, from which helpers take them."""
    desk[TASK], desk[ROWS], desk[STEP], desk[COUNT], desk[TEAM] = task, rows, step, count, team
    desk[DONE], desk[FAILED], desk[SLEEP] = 0, 0, 0
    for seat in range(team):
        desk[SEATS + APART * seat] = count * seat // team
    add(desk, OPEN, count + LOWER + 1)


@compiled(**HELPER)
def _own_task(desk, seat):
    """Return the next task of this seat, or of the first seat after it that has one left.

    A task must be left, because the thread has claimed one of the OPEN tasks.
    """
    count, team = desk[COUNT], desk[TEAM]
    at = seat % team
    while True:
        end = count * (at + 1) // team
        if load(desk, SEATS + APART * at) < end:
            number = add(desk, SEATS + APART * at, 1)
            if number < end:
                return number
        at = (at + 1) % team


@compiled(**HELPER)
def _take(desk, state, seat):
    """Claim a task from the desk and run it; return False if there was none."""
    if not compare_exchange(desk, OPEN, state, state - 1):
        return False
    if call(desk[TASK], desk[ROWS] + _own_task(desk, seat) * desk[STEP]) != 0:
        add(desk, FAILED, 1)
    add(desk, DONE, 1)
    return True


_SERVED = types.int64(types.int64[::1], *[types.int64] * 7)


@compiled(**OPTIONS)
def _serve(desk, wait, seat, task, rows, step, count, team):
    """Take tasks from the desk, as the caller until all are done, or as a helper.

    A caller offers ``count`` tasks and a helper none. A task calls the function at the address
    ``task`` with ``rows``, ``rows + step``, and so on. A thread with a claimed task may read the
    desk, which does not change until the task is done. Return the number of calls that did not
    return 0. A whole call happens here, because a signal or the garbage collector may call a kernel
    between two lines of Python.
    """
    looks = since = last = nap = 0 * count
    mine = SEATS + APART * (seat % MOST_SEATS)
    if count > 0:
        _offer(desk, task, rows, step, count, team)
    while True:
        state = load(desk, OPEN)
        if state & LOWER > 0:
            if _take(desk, state, seat):
                looks = since = nap = 0 * count
            continue
        if count > 0 and load(desk, DONE) == count:
            return desk[FAILED]
        looks += 1
        if nap == 0 and looks % PATIENCE > 0:
            continue
        give_way()
        if count > 0:
            continue
        leaving = load(desk, LEAVE)
        if leaving > 0 and compare_exchange(desk, LEAVE, leaving, leaving - 1):
            return 0
        now = _nanoseconds(desk[mine + 1 : mine + 3])
        if since == 0:
            since, last = now, now
        if now - since > STAY:
            return 0
        if nap > 0 or now - since > wait or now - last > AWAY or load(desk, SLEEP) != 0:
            nap = min(max(2 * nap, FIRST_NAP), LONGEST_NAP)
            _usleep(nap)
        last = now


class _Desk:
    """The tasks of one caller and the seats of its helpers."""

    def __init__(self) -> None:
        _serve.compile(_SERVED)
        size = SEATS + APART * MOST_SEATS
        raw = np.zeros(size + 16, np.int64)
        first = -address(raw) % 128 // 8
        self.desk, self.seats = raw[first : first + size], set[int]()  # of helpers, from 1 on
        passive = os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"
        self.wait = WAIT // 50 if passive else WAIT

    def help(self, seat: int) -> None:
        """Run as a helper until the desk no longer needs this thread."""
        _serve(self.desk, self.wait, seat, 0, 0, 0, 0, 0)

    def rest(self) -> None:
        """Make all helpers sleep until the next kernel."""
        self.desk[SLEEP] = 1

    def do(self, task: int, numbers: Any, threads: int) -> int:
        """Call the compiled ``task`` for each row of ``numbers``; return the error count."""
        caller = workers.pool.enter()
        try:
            count = len(numbers)
            team = min(threads, count, MOST_SEATS)
            self.desk[LEAVE] = workers.pool.gather(self, team - 1)
            rows = address(numbers), numbers.strides[0], count, team
            return int(_serve(self.desk, 0, 0, task, *rows))
        finally:
            workers.pool.leave(caller)


def _desk() -> _Desk:
    """Return the desk of this thread; after a fork, create a new one."""
    here = workers.here
    if getattr(here, "process", None) != os.getpid():
        here.process, here.desk = os.getpid(), _Desk()
    desk: _Desk = here.desk
    return desk


def address(a: Any) -> int:
    """Return the address of the entries of an array."""
    place: int = a.__array_interface__["data"][0]
    return place


def _as_numbers(a: Any) -> Sequence[int]:
    """Return the integers that numba passes for an argument."""
    if isinstance(a, np.ndarray):
        return (0, 0, a.size, a.itemsize, address(a), *a.shape, *a.strides)
    if isinstance(a, np.float32):
        return struct.unpack("<q", struct.pack("<fi", a, 0))
    if isinstance(a, float):
        return struct.unpack("<q", struct.pack("<d", a))
    return (int(a),)


PLACE = 4  # position of the address in the numbers of an array
Tasks = Sequence[tuple[int, ...]]


def run(kernel: Any, args: tuple[Any, ...], tasks: Tasks, threads: int, own: Any = ()) -> None:
    """Call kernel(*args, *[a[t] for a in own], *task) for each task t."""
    if NO_JIT or min(threads, len(tasks)) < 2:
        for number, task in enumerate(tasks):
            kernel(*args, *[a[number] for a in own], *task)
        return
    if not POSIX:
        calls = [(*args, *[a[t] for a in own], *task) for t, task in enumerate(tasks)]
        workers.each(kernel, calls, threads)
        return
    numbers = _rows(args, tasks, own)
    every = (*args, *[a[0] for a in own])
    kinds = (
        (a.dtype.num, a.ndim, a.flags.num & FLAGS) if isinstance(a, np.ndarray) else type(a)
        for a in every
    )
    name = (kernel, *kinds)
    if name not in _known:
        given = (*every, *[0] * len(tasks[0]))
        _known[name] = entry_of(kernel, tuple(nb.typeof(a) for a in given))
    if _desk().do(_known[name][0], numbers, threads):
        raise RuntimeError(f"{kernel.__name__} failed")


def _rows(args: tuple[Any, ...], tasks: Tasks, own: Any = ()) -> Any:
    """Return all tasks as rows of integers."""
    row: list[int] = []
    for a in args:
        row += _as_numbers(a)
    moving = []
    for a in own:
        moving.append((len(row) + PLACE, a.strides[0]))
        row += _as_numbers(a[0])
    numbers = np.empty((len(tasks), len(row) + len(tasks[0])), np.int64)
    numbers[:, : len(row)] = row
    for place, step in moving:
        numbers[:, place] += np.arange(0, step * len(tasks), step)
    if tasks[0]:
        numbers[:, len(row) :] = tasks
    return numbers


#: Key of an array's type: order of its entries, alignment, and whether it is writable.
FLAGS = 0x503
_known: dict[tuple[Any, ...], tuple[int, Any]] = {}


rows = workers.kernel_rows


@compiled(**OPTIONS)
def _add_up(numbers, sums, task):
    """Store the sum of ``numbers`` in sums[task]."""
    total = 0.0
    for number in numbers:
        total += number
    sums[task] = total


_numbers = np.ones(1 << 16)


def together(threads: int) -> None:
    """Run the same small task in each thread, to measure the cost of a call."""
    run(_add_up, (_numbers, np.empty(threads)), [(t,) for t in range(threads)], threads)
