"""Tests of `crew`, which runs compiled kernels in several threads without the interpreter lock."""

from __future__ import annotations

import threading
import time

import numba as nb
import numpy as np
import pytest

from partwise.backends import threads
from partwise.backends.numpy import dense
from partwise.backends.numpy.kernels import crew
from problems import DTYPES

pytestmark = pytest.mark.skipif(crew.os.name != "posix", reason="other systems use Python threads")


@nb.njit(nogil=True)
def copy_arguments(small, large, whole, yes, matrix, turned, out, own, lo, hi):
    """Copy the arguments of the kernel into its outputs."""
    for i in range(lo, hi):
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = small, large, whole, yes
        out[i, 4], out[i, 5] = matrix[i, 1], turned[1, i]
        own[i - lo] = i


@nb.njit(nogil=True)
def refuses(out, lo, hi):
    if lo > 2:
        raise ValueError("no")
    out[lo] = 1


@nb.njit(nogil=True)
def slowly(out, lo, hi):
    total = 0.0
    for i in range(2_000_000):
        total += (i % 7) * 1e-9
    out[lo] = 1 + total


@nb.njit(nogil=True)
def noted(order, number):
    order[0] += 1
    order[order[0]] = number


def wait_until(true, seconds=20.0):
    end = time.monotonic() + seconds
    while not true() and time.monotonic() < end:
        time.sleep(0.002)
    return true()


@pytest.mark.parametrize("count", [1, 2, 5])
def test_a_kernel_gets_what_it_would_get(count, rng, use_threads):
    use_threads(count)
    n, matrix = 12, rng.random((12, 3))
    cuts = [(lo, min(n, lo + 5)) for lo in range(0, n, 5)]
    for small, kind in [(np.float32(0.1), np.float64), (0.1, np.float32)]:
        matrix = matrix.astype(kind)
        turned = np.asfortranarray(matrix).T[:, ::1]
        out, own = np.zeros((n, 6)), np.full((len(cuts), 5), -1)
        crew.run(
            copy_arguments, (small, -2.5, -7, True, matrix, turned, out), cuts, count, own=(own,)
        )
        expected = np.zeros((n, 6))
        expected[:, :4] = small, -2.5, -7, 1
        expected[:, 4], expected[:, 5] = matrix[:, 1], turned[1]
        np.testing.assert_array_equal(out, expected)
        np.testing.assert_array_equal(own, [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9], [10, 11, -1, -1, -1]])


def test_a_kernel_that_fails_is_told_and_the_next_one_runs(use_threads):
    use_threads(3)
    out = np.zeros(6)
    with pytest.raises(RuntimeError, match="refuses"):
        crew.run(refuses, (out,), [(i, i) for i in range(6)], 3)
    np.testing.assert_array_equal(out, [1, 1, 1, 0, 0, 0])
    crew.run(slowly, (out,), [(i, i) for i in range(6)], 3)
    assert (out > 1).all()


@pytest.mark.parametrize(
    ("seat", "team", "first"), [(0, 3, 0), (1, 3, 2), (2, 3, 4), (3, 3, 0), (1, 6, 1), (1, 1, 0)]
)
def test_threads_run_their_own_tasks_first_and_then_the_rest(seat, team, first):
    """Check which tasks of a kernel each thread runs first.

    A thread begins with its own share of the tasks, which is the same in each kernel, and then
    takes all tasks that are left. A single thread has no helper threads.
    """
    order, count = np.zeros(7, np.int64), 6
    numbers = crew._rows((order,), [(t,) for t in range(count)])
    task, kept = crew.entry_of(noted, (nb.typeof(order), nb.int64))
    rows = (crew.address(numbers), numbers.strides[0], count, team)
    assert kept and crew._serve(crew._Desk().desk, 0, seat, task, *rows) == 0
    np.testing.assert_array_equal(order, [count, *[(first + t) % count for t in range(count)]])


def test_helper_threads_stay_within_the_limit_and_end(use_threads, monkeypatch):
    """There are three helper threads, then one if fewer are allowed, and none when idle."""
    desks = []
    monkeypatch.setattr(threads, "pool", threads._Pool())
    calls = [(i, i) for i in range(8)]

    def fits():
        desk = crew._desk()
        desks.append(desk)
        use_threads(4)
        crew.run(slowly, (np.zeros(8),), calls, 4)
        desks.append(len(desk.seats))
        use_threads(2)
        crew.run(slowly, (np.zeros(8),), calls, 2)
        desks.append(wait_until(lambda: len(desk.seats) <= 1))

    caller = threading.Thread(target=fits)
    caller.start()
    caller.join()
    desk, first, fewer = desks
    assert first == 3 and fewer
    assert wait_until(lambda: not desk.seats), "they go back when nobody calls"
    assert len(threads.pool.idle) == threads.pool.size == 3


def test_simultaneous_callers_share_helper_threads(use_threads, monkeypatch):
    """Helper threads of one caller leave when a second caller starts, so both have some."""
    monkeypatch.setattr(threads, "pool", threads._Pool())
    use_threads(4)
    stop, seen, calls = threading.Event(), [], [(i, i) for i in range(4)]
    out = np.zeros((2, 4))

    def call(number):
        while not stop.is_set():
            crew.run(slowly, (out[number],), calls, 4)
            seen.append(threads.pool.size - len(threads.pool.idle) + threads.pool.callers)

    callers = [threading.Thread(target=call, args=(n,)) for n in range(2)]
    callers[0].start()
    assert wait_until(lambda: len(threads.pool.desks) == 1)
    callers[1].start()
    shared = wait_until(
        lambda: len(threads.pool.desks) == 2 and all(d.seats for d in list(threads.pool.desks))
    )
    stop.set()
    for caller in callers:
        caller.join()
    assert shared, "both have helpers"
    assert max(seen) <= 4 and (out > 1).all()


def test_helper_threads_sleep_while_python_code_runs(use_threads, monkeypatch):
    """Helper threads sleep while other threads run Python code, and return afterwards."""
    monkeypatch.setattr(threads, "pool", threads._Pool())
    use_threads(3)
    names, calls = set(), [(i, i) for i in range(6)]
    out = np.zeros(6)
    for _ in range(3):
        crew.run(slowly, (out,), calls, 3)
        threads.each(
            lambda: (names.add(threading.current_thread().name), time.sleep(0.01)), [()] * 6, 3
        )
    assert "partwise" in names and (out > 1).all()


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2000, 300), (300, 2000), (5000, 3)])
def test_blas_outside_is_blas_inside(rng, shape, dtype, order, monkeypatch):
    X = np.asarray(rng.random(shape), dtype, order=order)
    B, V = (rng.random((m, 7)).astype(dtype) for m in (shape[1], shape[0]))
    found = []
    for count in (1, 3):
        monkeypatch.setattr(dense, "threads_for", lambda *work, count=count: count)
        found.append((dense.product(X, B), dense.product(X.T, V)))
    for inside, outside in zip(*found):
        np.testing.assert_array_equal(inside, outside)
    np.testing.assert_allclose(found[0][0], X @ B, rtol=1e3 * np.finfo(dtype).eps)


def test_a_kernel_runs_during_another_call_in_the_same_thread(use_threads, monkeypatch):
    """A kernel can run while another call of `crew.run` is in progress in the same thread.

    A signal handler or the garbage collector may run a fit between any two lines of Python.
    """
    monkeypatch.setattr(threads, "pool", threads._Pool())
    use_threads(3)
    calls, own, other = [(i, i) for i in range(6)], np.zeros(6), np.zeros(6)
    gather = threads.pool.gather

    def interrupted(*args):
        monkeypatch.setattr(threads.pool, "gather", gather)
        helpers = gather(*args)
        crew.run(slowly, (other,), calls, 3)
        return helpers

    monkeypatch.setattr(threads.pool, "gather", interrupted)
    crew.run(slowly, (own,), calls, 3)
    assert (own > 1).all() and (other > 1).all()


def test_kernels_run_in_the_caller_if_no_thread_can_start(use_threads, monkeypatch):
    """Check that kernels run in the calling thread if no other thread can be started.

    Python 3.12 starts no threads at its exit, and a system may limit their number.
    """
    monkeypatch.setattr(threads, "pool", threads._Pool())
    use_threads(3)

    def refused(self):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refused)
    out = np.zeros(6)
    crew.run(slowly, (out,), [(i, i) for i in range(6)], 3)
    threads.each(lambda i: out.__setitem__(i, 2 * out[i]), [(i,) for i in range(6)], 3)
    assert (out > 2).all() and threads.pool.size == 0
