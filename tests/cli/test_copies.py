"""Tests of `copies.spread`, which runs tasks in processes or threads.

Results are equal, and errors, interrupts and killed processes leave nothing behind.
"""

import multiprocessing
import os
import signal
import sys
import time

import numpy as np
import pytest

from partwise.apps.cli import copies
from partwise.backends.threads import allowed, one_blas_thread

BOTH = [pytest.param(False, id="threads")]
if sys.platform == "linux":
    BOTH.append(pytest.param(True, id="copies"))


@pytest.fixture(params=BOTH)
def forks(request, monkeypatch):
    monkeypatch.setattr(copies, "FORKS", request.param)
    return request.param


def test_all_that_tasks_yield_comes(forks):
    found = []

    def run(start, count):
        yield from ((start + i, os.getpid()) for i in range(count))

    tasks = [(100 * n, n) for n in range(6)]
    copies.spread(run, tasks, found.append, 3)
    assert sorted(item for item, _ in found) == [s + i for s, count in tasks for i in range(count)]
    assert (os.getpid() in {who for _, who in found}) is not forks


def test_an_error_comes_here_and_ends_the_others_after_their_item(forks, tmp_path):
    def run(number):
        if not number:
            raise ValueError("the first one")
        for item in range(100):
            time.sleep(0.02)
            (tmp_path / f"{number}-{item}").touch()
            yield item

    with pytest.raises(ValueError, match="first"):
        copies.spread(run, [(0,), (1,), (2,)], lambda item: None, 3)
    assert len(list(tmp_path.iterdir())) < 100
    before = len(list(tmp_path.iterdir()))
    time.sleep(0.1)
    assert len(list(tmp_path.iterdir())) == before


def test_an_interrupt_leaves_no_process_behind(forks):
    def stop(item):
        raise KeyboardInterrupt

    def run(number):
        for _ in range(100 if number else 5):
            time.sleep(0.02)
            yield number

    before = set(multiprocessing.active_children())  # earlier tests may have left workers of joblib
    began = time.perf_counter()
    with pytest.raises(KeyboardInterrupt):
        copies.spread(run, [(0,), (1,)], stop, 2)
    assert time.perf_counter() - began < 1.9
    assert set(multiprocessing.active_children()) <= before


@pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux alone")
def test_a_copy_has_its_share_of_the_threads_and_may_be_killed():
    found = []

    def run(number):
        yield allowed()

    copies.spread(run, [(0,), (1,)], found.append, 2)
    assert found == [max(1, allowed() // 2)] * 2

    def threads(number):
        with one_blas_thread:
            np.ones((300, 300)) @ np.ones((300, 300))
        yield len(os.listdir("/proc/self/task"))

    found.clear()
    copies.spread(threads, [(0,), (1,)], found.append, 2)
    assert found == [1, 1]

    def killed(number):
        os.kill(os.getpid(), signal.SIGKILL)
        yield number

    with pytest.raises(MemoryError, match="killed"):
        copies.spread(killed, [(0,), (1,)], found.append, 2)

    def last(number):
        if number:
            os.kill(os.getpid(), signal.SIGKILL)
        yield number

    # No other process holds the end of this pipe, so the parent notices that the worker was killed.
    with pytest.raises(MemoryError, match="killed"):
        copies.spread(last, [(0,), (1,)], found.append, 2)
