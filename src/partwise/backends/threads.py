"""One pool of threads for all kernels and products of the process.

Kernels and BLAS release the interpreter's lock, so Python threads can run them. Unlike the pools
of OpenMP and of numba's work queue, this pool may be used from any thread or fork of the user.
Short kernels of an iteration are called without the lock, see `kernels.crew`. Each thread runs
BLAS on one thread, because two pools would compete for the same cores.

Work is divided by shape alone, and each piece is computed by one thread. The number of threads
therefore changes no digit of a result, only the number of pieces that each thread computes.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache, partial
from threading import Condition, Lock, Thread, local
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:
    import functools

    class cached_property(functools.cached_property):
        """A cached property without the lock that Python 3.11 and earlier hold for all objects.

        With that lock, concurrent fits would wait for each other, and a forked process might hang.
        """

        def __get__(self, instance, owner=None):
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


#: State of this thread: whether it is ``counted`` as a helper or a calling thread, how often it has
#: entered `one_blas_thread`, the number of threads ``known`` there, and the ``desk`` of its
#: kernels.
here = local()

# -- number of threads -------------------------------------------------------------------------


@cache
def _pools() -> Any:
    import scipy.linalg.cython_blas  # noqa: F401  # numpy and scipy may use different BLAS libraries
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController().select(user_api="blas")


@cache
def _calls() -> list[tuple[Callable[[], int | None], Callable[[int], Any]]]:
    """Return the getters and setters of the threads of each BLAS; OpenBLAS is called directly."""
    found: list[Any] = []
    for pool in _pools().lib_controllers:
        own = pool.internal_api == "openblas" and pool.threading_layer == "pthreads"
        names = [(name, name.replace("get", "set")) for name in pool.check_symbols if own]
        calls = [[getattr(pool.dynlib, name, None) for name in pair] for pair in names]
        slow = partial(getattr, pool, "num_threads"), partial(_set_threads, pool)
        found.append(next((pair for pair in calls if all(pair)), slow))
    return found


def _blas() -> list[int]:
    """Return the number of threads of each BLAS, from its variables or threadpoolctl.

    If a library cannot report the number, return a large one.
    """
    return [ask() or 1 << 20 for ask, _ in _calls()]


def _set_threads(pool: Any, number: int) -> None:
    """Set the number of threads of a BLAS library, whichever thread calls this function.

    In threadpoolctl 3.8, the first thread that sets a number controls the library, and calls from
    other threads have no effect until `clear_controlling_thread` is called.
    """
    clear = getattr(pool, "clear_controlling_thread", lambda force: None)
    if pool.num_threads:
        clear(force=True)
        pool.set_num_threads(number)
        clear(force=True)


def _set_blas_threads(numbers: list[int]) -> None:
    for (_, set_number), number in zip(_calls(), numbers, strict=True):
        set_number(number)


class _OneThread:
    """A context in which BLAS uses one thread, shared by all threads of the process.

    The limit is global, so a thread that restored the limit it found could restore that of another
    thread. Therefore the first thread that enters stores the limit, and the last one restores it.
    """

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0
        self.before: list[int] = []  # the limits of BLAS before

    def __enter__(self) -> None:
        depth = here.depth = getattr(here, "depth", 0) + 1
        if depth > 1:
            return
        with self.lock:
            told = _blas()
            if not self.inside:
                self.before = told
            self.inside += 1
            # set the limit again, since other code may have changed it
            if max(told, default=1) > 1:
                _set_blas_threads([1] * len(told))

    def __exit__(self, *error: object) -> None:
        here.depth -= 1
        if here.depth:
            return
        here.known = None
        with self.lock:
            self.inside -= 1
            if not self.inside:
                _set_blas_threads(self.before)


one_blas_thread = _OneThread()


@contextmanager
def blas_threads(work: float) -> Iterator[None]:
    """Use one BLAS thread for products with few multiply-adds."""
    with one_blas_thread if threads_for(work) == 1 else nullcontext():
        yield


def _by_variable() -> int:
    """Return the first number in OMP_NUM_THREADS, the limit of the outermost level."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdigit() and int(first) else 1 << 20


def _numba_limit() -> int:
    """Return NUMBA_NUM_THREADS (default: number of cores), or the limit of `set_num_threads`.

    Reading numba's limit starts its threads, so it is only read if they have been used before.
    """
    parallel = sys.modules.get("numba.np.ufunc.parallel")
    if getattr(parallel, "_is_initialized", False):
        return int(sys.modules["numba"].get_num_threads())
    told = os.environ.get("NUMBA_NUM_THREADS", "")
    return int(told) if told.isdigit() and int(told) else cores()


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def everybody() -> int:
    """Return the largest number of threads that all callers together may use.

    It is the smallest of the limits of numba, OMP_NUM_THREADS and BLAS.

    `one_blas_thread` stores the result, since this function takes as long as a small product.
    """
    known = getattr(here, "known", None)
    if known is not None:
        return int(known)
    blas = one_blas_thread.before if one_blas_thread.inside else _blas()
    number = max(1, min(_numba_limit(), _by_variable(), *blas))
    if getattr(here, "depth", 0):
        here.known = number
    return number


def allowed() -> int:
    """Return the number of threads that this caller may use."""
    return min(_share.get(), everybody())


_share: ContextVar[int] = ContextVar("share", default=1 << 20)


def side_by_side(run: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], threads: int) -> None:
    """Run `each` for tasks that use threads themselves, with an equal share for each."""
    share = max(1, allowed() // max(1, min(threads, len(tasks))))

    def one(*task: Any) -> None:
        token = _share.set(share)
        try:
            run(*task)
        finally:
            _share.reset(token)

    each(one, tasks, threads)


class Costs(NamedTuple):
    """Measured times on this machine, in seconds."""

    waits: dict[int, float]  # overhead of starting and joining this number of threads
    step: float  # one multiply-add


#: Number of multiply-adds that every machine computes faster than it can wake a thread.
LITTLE = 1_000_000.0
#: Allowed ratio of the time with fewer threads to that with the best number of threads.
NEAR = 1.1


@cache
def costs(threads: int, outside: bool = False) -> Costs:
    """Measure the costs once per process, in a few milliseconds; results do not depend on them.

    Waking a thread takes time, and a thread waits for the interpreter's lock between its products.
    This overhead grows with the number of threads and depends on the machine. Kernels ``outside``
    of the interpreter only wait for each other.
    """
    if outside:
        from partwise.backends.numpy.kernels import crew

        together = crew.together
    else:
        together = _together
    counts = [*itertools.takewhile(lambda count: count < threads, (2**n for n in range(1, 20)))]
    counts.append(threads)
    alone = seconds(lambda: together(1), 9)
    found = []
    for count in counts:
        seconds(lambda: together(count), 5)  # this creates the threads  # noqa: B023
        # With many threads, one of them is often late.
        found.append(max(0.0, seconds(lambda: together(count), 9, 0.75) - alone))  # noqa: B023
    # The overhead cannot fall with the number of threads; if it seems to, the system was busy.
    waits = [min(found[n:]) for n in range(len(found))]
    return Costs({1: 0.0, **dict(zip(counts, waits, strict=True))}, _step())


def seconds(work: Callable[[], Any], times: int, share: float = 0.5) -> float:
    """Return the seconds of ``work``, the median or another quantile of repeated calls."""
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        work()
        found.append(time.perf_counter() - begin)
    return sorted(found)[int(share * times)]


def _together(threads: int) -> None:
    """Run the same small work in each of these threads."""
    x = np.ones(1 << 15)
    rooms = [np.empty_like(x) for _ in range(threads)]

    def one(room: Any) -> None:
        for _ in range(4):
            np.sqrt(x, out=room)

    each(one, [(room,) for room in rooms], threads)


@cache
def _step() -> float:
    """Return the seconds of a multiply-add."""
    block = np.ones((96, 96))
    with one_blas_thread:
        return seconds(lambda: block @ block, 40) / (BLAS * 96**3)


def threads_for(work: float, outside: bool = False) -> int:
    """Return the smallest number of threads that is nearly the fastest for this work."""
    if work < LITTLE:
        return 1
    most = min(_share.get(), everybody())
    if most == 1:
        return 1
    waits, step = costs(most, outside and os.name == "posix")
    ends = {count: wait + work * step / count for count, wait in waits.items()}
    soonest = min(ends.values())
    return next(count for count, end in ends.items() if end <= NEAR * soonest)


# -- the pool ----------------------------------------------------------------------------------


class _Region:
    """Tasks that the calling thread and its helper threads take one by one."""

    def __init__(self, run: Callable[..., Any], tasks: Iterable[tuple[Any, ...]]) -> None:
        self.run, self.tasks = run, iter(tasks)
        self.changed, self.taken = Condition(Lock()), 0  # ``taken``: number of tasks in progress
        self.error: BaseException | None = None

    def _next(self, held: int) -> tuple[Any, ...] | None:
        """Return the next task, or None at the end or after an error."""
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
        """Take tasks until there are none, then wait for the helpers to finish theirs."""
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
        self.work: Callable[[], None] | None = None
        Thread(target=self.live, name="partwise", daemon=True).start()

    def call(self, work: Callable[[], None]) -> None:
        self.work = work
        self.called.release()

    def live(self) -> None:
        here.counted = True
        while True:
            self.called.acquire()
            work, self.work = self.work, None
            assert work is not None
            work()
            del work  # release its arrays before the next task
            with self.pool.lock:
                self.pool.idle.append(self)


#: Seconds after its last call for which a caller without helpers still counts as active.
RECENT = 0.01


class _Pool:
    """A pool of threads in which the calling thread also works.

    A calling thread therefore never waits for a free thread.
    """

    def __init__(self) -> None:
        self.lock, self.size, self.callers = Lock(), 0, 0
        self.idle: list[_Worker] = []
        self.desks: dict[Any, float] = {}  # the time at which each desk was last used

    def enter(self) -> bool:
        """Mark this thread as busy, and return True if it was not.

        Pass the result to `leave`.
        """
        new = not getattr(here, "counted", False)  # otherwise this is a nested call
        here.counted = True
        with self.lock:
            self.callers += new
        return new

    def leave(self, new: bool) -> None:
        if new:
            here.counted = False
            with self.lock:
                self.callers -= 1

    def take(self, most: int, asleep: int = 0) -> list[_Worker]:
        """Reserve a limited number of free or sleeping helpers; the caller holds the lock."""
        busy = self.size - len(self.idle) - asleep
        helpers = max(0, min(most, everybody() - self.callers - busy))
        while len(self.idle) < helpers:
            try:
                self.idle.append(_Worker(self))
            except RuntimeError:  # no more threads, or the interpreter is ending
                break
            self.size += 1
        return [self.idle.pop() for _ in range(min(helpers, len(self.idle)))]

    def do(self, region: _Region, most: int) -> None:
        caller = self.enter()
        try:
            with self.lock:
                desk = getattr(here, "desk", None)
                if desk is not None:
                    desk.rest()
                called = self.take(most - 1, len(desk.seats) if desk is not None else 0)
            for worker in called:
                worker.call(region.help)
            region.finish()
        finally:
            self.leave(caller)
            region.run = _nothing  # so that a helper that is late does not keep arrays in memory

    def gather(self, desk: Any, most: int) -> int:
        """Assign helpers to a desk (a caller's tasks); return how many it must release.

        Concurrent desks share the number of helpers that a single desk would have.
        """
        now = time.monotonic()
        with self.lock:
            self.desks[desk] = now
            if len(self.desks) > 1:
                since = now - RECENT
                self.desks = {d: at for d, at in self.desks.items() if d.seats or at > since}
            share = everybody() // len(self.desks) - 1
            too_many = len(desk.seats) - share
            if len(desk.seats) >= min(most, share):
                return max(0, too_many)
            called = self.take(min(most, share) - len(desk.seats))
            free = itertools.filterfalse(desk.seats.__contains__, itertools.count(1))
            seats = list(itertools.islice(free, len(called)))
            desk.seats.update(seats)

        def help(seat: int) -> None:
            desk.help(seat)
            with self.lock:
                desk.seats.remove(seat)

        for worker, seat in zip(called, seats, strict=True):
            worker.call(partial(help, seat))
        return max(0, too_many)


def _nothing(*_: Any) -> None: ...


pool = _Pool()


def _after_fork() -> None:
    """Reset the state in a forked child, which has no threads and maybe held locks."""
    global pool
    pool, here.counted, here.depth, here.known, here.desk = _Pool(), False, 0, None, None
    one_blas_thread.lock = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def each(run: Callable[..., Any], tasks: Iterable[tuple[Any, ...]], threads: int) -> None:
    """Call run(*task) for each task, in a limited number of threads.

    A task may call `each` again; its own tasks get the remaining threads.
    """
    most = len(tasks) if isinstance(tasks, Sequence) else threads
    if min(threads, most) > 1:
        pool.do(_Region(run, tasks), min(threads, most))
        return
    for task in tasks:
        run(*task)


def results(make: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], threads: int) -> list[Any]:
    """Return make(*task) of each task, in order; see `each`."""
    if min(threads, len(tasks)) <= 1:
        return [make(*task) for task in tasks]
    found: list[Any] = [None] * len(tasks)

    def run(number: int, task: tuple[Any, ...]) -> None:
        found[number] = make(*task)

    each(run, list(enumerate(tasks)), threads)
    return found


def add_in_order(
    make: Callable[..., Any],
    add: Callable[[Any], None],
    tasks: Iterable[tuple[Any, ...]],
    threads: int,
) -> None:
    """Call add(make(*task)) for each task; results are computed in threads, added in order."""
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
                failed = True  # release threads that wait for this result
                turn.notify_all()
            raise

    each(one, enumerate(tasks), threads)


def in_threads(run: Callable[[int, int], Any], n: int, block: int, threads: int) -> None:
    """Call run(lo, hi) for runs of rows that are multiples of ``block``, one per thread.

    Each thread has a single run, because a thread waits for the interpreter's lock before its next
    run. On a virtual machine this takes 50 µs per thread, one after the other.
    """
    if threads == 1 or n <= block:
        run(0, n)
        return
    blocks = -(-n // block)
    cuts = [block * (blocks * t // threads) for t in range(threads)] + [n]
    each(run, [(lo, hi) for lo, hi in itertools.pairwise(cuts) if lo < hi], threads)


def kernel_rows(kernel: Any, args: tuple[Any, ...], n: int, block: int, threads: int) -> None:
    """Call kernel(*args, lo, hi) for runs of rows that are multiples of ``block``."""
    if threads <= 1:
        kernel(*args, 0, n)
        return
    from partwise.backends.numpy.kernels import crew

    blocks = -(-n // block)
    count = max(1, min(4 * threads, blocks))
    cuts = [block * (blocks * t // count) for t in range(count)] + [n]
    crew.run(kernel, args, list(itertools.pairwise(cuts)), threads)


#: Cost of reading and writing an array entry, and of a multiply-add in BLAS, both in multiply-adds.
PASS, BLAS = 4.0, 0.5


def by_entry(run: Callable[[slice], Any], a: Any, passes: int = 1) -> None:
    """Call run(rows) for runs of rows of a tall array, for functions of single entries."""
    threads = threads_for(PASS * passes * a.size)
    in_threads(lambda lo, hi: run(slice(lo, hi)), len(a), 1, threads)


def pieces(n: int, least: int, most: int) -> list[tuple[int, int]]:
    """Split n rows into at most ``most`` runs of at least ``least`` rows, for any threads."""
    count = max(1, min(most, n // least))
    cuts = [n * t // count for t in range(count + 1)]
    return list(itertools.pairwise(cuts))
