"""One pool of threads for every kernel and every product, for as long as the process lives.

Kernels and BLAS let go of the interpreter's lock, so threads of Python serve them: nothing has to
be compiled twice, and any thread or fork of the user's may call them at any time, which the pools
of OpenMP and of numba's work queue forbid. BLAS runs on one thread in each of ours: two pools would
wait for the same cores.

Work is cut by shape alone and each piece is computed as one thread would do it, so the number of
threads changes no digit of a result; only how many pieces a thread takes follows from it.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from threading import Condition, Lock, Thread, local
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:
    import functools

    class cached_property(functools.cached_property):
        """Without the lock of Python 3.11: one for all objects, held while a value is computed.

        Fits side by side would wait for each other, and a fork in the meantime for ever.
        """

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


# -- how many ----------------------------------------------------------------------------------


@cache
def _pools() -> Any:
    import scipy.linalg.cython_blas  # noqa: F401  # numpy's and scipy's may be two
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


def _blas() -> list[int]:
    """Threads that each BLAS may use, by its variables or by threadpoolctl.

    Many where it is not known: a library that cannot be asked says None.
    """
    return [pool.num_threads or 1 << 20 for pool in _pools().lib_controllers]


def _tell_blas(numbers: list[int]) -> None:
    """From any thread: threadpoolctl 3.8 heeds only the first one, until that is cleared."""
    for pool, number in zip(_pools().lib_controllers, numbers, strict=True):
        clear = getattr(pool, "clear_controlling_thread", lambda force: None)
        if pool.num_threads:
            clear(force=True)
            pool.set_num_threads(number)
            clear(force=True)


class _OneThread:
    """BLAS on one thread for as long as anyone is inside.

    The number is the process's: a thread that put back what it had found would put back the limit
    of another. So the first one in remembers it, and the last one out restores it.
    """

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0
        self.before: list[int] = []  # what BLAS was allowed

    def __enter__(self) -> None:
        with self.lock:
            told = _blas()
            if not self.inside:
                self.before = told
            self.inside += 1
            if max(told, default=1) > 1:  # also where somebody else has put it back
                _tell_blas([1] * len(told))

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside:
                _tell_blas(self.before)


one_blas_thread = _OneThread()


@contextmanager
def blas_threads(work: float) -> Iterator[None]:
    """One BLAS thread for products of so few multiply-adds that others would not be worth it."""
    with one_blas_thread if threads_for(work) == 1 else nullcontext():
        yield


def _by_variable() -> int:
    """OMP_NUM_THREADS, whose first number is that of the outermost level."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdigit() and int(first) else 1 << 20


def _numba_limit() -> int:
    """NUMBA_NUM_THREADS, the cores there are unless it is set, or what `set_num_threads` said.

    Asking numba starts its threads, so it is asked only if somebody has used them.
    """
    parallel = sys.modules.get("numba.np.ufunc.parallel")
    if getattr(parallel, "_is_initialized", False):
        return int(sys.modules["numba"].get_num_threads())
    told = os.environ.get("NUMBA_NUM_THREADS", "")
    return int(told) if told.isdigit() and int(told) else cores()


def cores() -> int:
    """Those that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def allowed() -> int:
    """Threads that we may use: no more than numba, OMP_NUM_THREADS or a limit on BLAS allow."""
    blas = one_blas_thread.before if one_blas_thread.inside else _blas()
    return max(1, min(_share.get(), _numba_limit(), _by_variable(), *blas))


_share: ContextVar[int] = ContextVar("share", default=1 << 20)


def side_by_side(run: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], threads: int) -> None:
    """`each` for large tasks that use threads themselves: each has its share of those there are."""
    share = max(1, allowed() // max(1, min(threads, len(tasks))))

    def one(*task: Any) -> None:
        token = _share.set(share)
        try:
            run(*task)
        finally:
            _share.reset(token)

    each(one, tasks, threads)


class Costs(NamedTuple):
    """What work costs on this machine, in seconds."""

    waits: dict[int, float]  # what so many threads lose until all have begun and ended
    step: float  # one multiply-add


#: Multiply-adds that no machine takes longer for than for waking a thread.
LITTLE = 100_000.0
#: How much longer than with the best number of threads work may take with fewer.
NEAR = 1.1


@cache
def costs(threads: int) -> Costs:
    """Measured once a process, in some milliseconds; no digit of a result follows from it.

    A thread is woken, and waits for the interpreter whenever it comes from one of its products to
    the next: what that takes grows with their number, on each machine in its own way.
    """
    x = np.ones(1 << 15)
    rooms = [np.empty_like(x) for _ in range(threads)]

    def seconds(work: Callable[[], Any], times: int, share: float = 0.5) -> float:
        found = []
        for _ in range(times):
            begin = time.perf_counter()
            work()
            found.append(time.perf_counter() - begin)
        return sorted(found)[int(share * times)]

    def one(number: int) -> None:
        for _ in range(4):
            np.sqrt(x, out=rooms[number])

    def together(count: int) -> None:
        each(one, [(number,) for number in range(count)], count)

    alone, waits = seconds(lambda: one(0), 9), {1: 0.0}
    counts = [*itertools.takewhile(lambda count: count < threads, (2**n for n in range(1, 20)))]
    for count in (*counts, threads):
        together(count)  # makes the threads
        most = max(waits.values())
        # of many threads one often comes late
        waits[count] = max(seconds(lambda: together(count), 7, 0.75) - alone, most)  # noqa: B023
    block = np.ones((96, 96))
    with one_blas_thread:
        found = seconds(lambda: block @ block, 40)
    return Costs(waits, found / (BLAS * 96**3))


def threads_for(work: float) -> int:
    """How many threads ``work`` multiply-adds deserve: the fewest that are near the soonest."""
    if work < LITTLE:
        return 1
    most = allowed()
    if most == 1:
        return 1
    waits, step = costs(most)
    ends = {count: wait + work * step / count for count, wait in waits.items()}
    soonest = min(ends.values())
    return next(count for count, end in ends.items() if end <= NEAR * soonest)


# -- the pool ----------------------------------------------------------------------------------


class _Region:
    """Tasks that whoever comes takes, one after the other; the caller takes what nobody does."""

    def __init__(self, run: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> None:
        self.run, self.tasks = run, iter(tasks)
        self.changed, self.taken = Condition(Lock()), 0  # tasks that somebody is at
        self.error: BaseException | None = None

    def _next(self, held: int) -> tuple[Any, ...] | None:
        """The next task for who held one before, or none; after an error there are none."""
        with self.changed:
            self.taken -= held
            if self.error is None:
                try:
                    task = next(self.tasks)
                    self.taken += 1
                    return task
                except StopIteration:
                    pass
                except BaseException as error:
                    self.error = error
            self.tasks = iter(())
            if not self.taken:
                self.changed.notify_all()
            return None

    def help(self) -> None:
        """Take tasks until there are none."""
        task = self._next(0)
        while task is not None:
            try:
                self.run(*task)
            except BaseException as error:
                self.error = self.error or error
            task = self._next(1)

    def finish(self) -> None:
        """`help`, then wait for the others."""
        self.help()
        with self.changed:
            while self.taken:
                self.changed.wait()
        if self.error is not None:
            raise self.error


class _Worker:
    """A thread that waits to be called."""

    def __init__(self, pool: _Pool) -> None:
        self.pool = pool
        self.called = Lock()
        self.called.acquire()
        self.region: _Region | None = None
        Thread(target=self.work, name="partwise", daemon=True).start()

    def call(self, region: _Region) -> None:
        self.region = region
        self.called.release()

    def work(self) -> None:
        _here.counted = True
        while True:
            self.called.acquire()
            region, self.region = self.region, None
            assert region is not None
            region.help()
            del region  # or its arrays would live until the next one
            with self.pool.lock:
                self.pool.idle.append(self)


class _Pool:
    """Who calls always takes part, so none waits for a thread that is free."""

    def __init__(self) -> None:
        self.lock, self.size, self.callers = Lock(), 0, 0
        self.idle: list[_Worker] = []

    def do(self, region: _Region, threads: int, most: int) -> None:
        inner = getattr(_here, "counted", False)  # a task of another region calls
        _here.counted = True
        with self.lock:
            self.callers += not inner
            # callers side by side share what one alone would have
            busy = self.size - len(self.idle)
            helpers = max(0, min(most - 1, threads - self.callers - busy))
            while len(self.idle) < helpers:
                self.idle.append(_Worker(self))
                self.size += 1
            called = [self.idle.pop() for _ in range(helpers)]
        try:
            for worker in called:
                worker.call(region)
            region.finish()
        finally:
            _here.counted = inner
            with self.lock:
                self.callers -= not inner
            region.run = _nothing  # helpers that come too late hold no arrays


def _nothing(*_: Any) -> None: ...


_pool = _Pool()
#: Whether this thread is counted: as a helper, or as a caller.
_here = local()


def _after_fork() -> None:
    """A child has none of its parent's threads, and locks as some thread left them."""
    global _pool
    _pool, _here.counted = _Pool(), False
    one_blas_thread.lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def each(run: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], threads: int) -> None:
    """run(*task) for each task, in at most so many threads; they are made as they are taken.

    A task may call this again: its own tasks get the threads that are left of so many.
    """
    most = len(tasks) if isinstance(tasks, Sequence) else threads
    if min(threads, most) > 1:
        _pool.do(_Region(run, tasks), threads, most)
        return
    for task in tasks:
        run(*task)


def add_in_order(
    make: Callable[..., Any],
    add: Callable[[Any], None],
    tasks: Iterable[tuple[Any, ...]],
    threads: int,
) -> None:
    """add(make(*task)) for each task: made in threads, added one by one in the order of tasks."""
    turn, at, failed = Condition(), 0, False

    def one(number: int, task: tuple[Any, ...]) -> None:
        nonlocal at, failed
        try:
            made = make(*task)
            with turn:
                turn.wait_for(lambda: failed or at == number)
                if not failed:
                    add(made)
                    at += 1
                    turn.notify_all()
        except BaseException:
            with turn:
                failed = True  # nobody waits for what will not come
                turn.notify_all()
            raise

    each(one, enumerate(tasks), threads)


#: Runs of rows that differ in what they cost: as many as keep eight threads busy to the end.
RUNS = 32


def in_threads(
    run: Callable[[int, int], Any], n: int, block: int, threads: int, *, uneven: bool = False
) -> None:
    """run(lo, hi) for runs of rows that are multiples of ``block``.

    One for each thread, or four where rows differ in what they cost, but RUNS in all. No more: a
    thread that comes for its next run waits for the interpreter, which on a virtual machine takes
    50 µs, and one after the other.
    """
    if threads == 1 or n <= block:
        run(0, n)
        return
    blocks, count = -(-n // block), max(threads, min(4 * threads, RUNS)) if uneven else threads
    cuts = [block * (blocks * t // count) for t in range(count)] + [n]
    each(run, [(lo, hi) for lo, hi in itertools.pairwise(cuts) if lo < hi], threads)


#: Multiply-adds that an entry is worth on its way from memory and back, and one of BLAS.
PASS, BLAS = 4.0, 0.5


def by_entry(run: Callable[[slice], Any], a: Any, passes: int = 1) -> None:
    """run(rows) for runs of rows of a tall array: what it does to an entry knows of no other."""
    threads = threads_for(PASS * passes * a.size)
    in_threads(lambda lo, hi: run(slice(lo, hi)), len(a), 1, threads)


def pieces(n: int, least: int, most: int) -> list[tuple[int, int]]:
    """n rows cut into at most ``most`` runs of ``least`` rows or more; threads have no say."""
    count = max(1, min(most, n // least))
    cuts = [n * t // count for t in range(count + 1)]
    return list(itertools.pairwise(cuts))
