"""One pool of threads for every kernel and every product, for as long as the process lives.

Kernels and BLAS let go of the interpreter's lock, so threads of Python serve them: nothing has to
be compiled twice, and any thread or fork of the user's may call them at any time, which the pools
of OpenMP and of numba's work queue forbid. Kernels that an iteration waits for are called without
that lock, see `kernels.crew`. BLAS runs on one thread in each of ours: two pools would wait for the
same cores.

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
from functools import cache, partial
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


#: Of this thread: whether it is ``counted`` as a helper or a caller, how deep it is in
#: `one_blas_thread`, the number of threads ``known`` there, and the ``desk`` of its kernels.
here = local()

# -- how many ----------------------------------------------------------------------------------


@cache
def _pools() -> Any:
    import scipy.linalg.cython_blas  # noqa: F401  # numpy's and scipy's may be two
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
        slow = partial(getattr, pool, "num_threads"), partial(_tell, pool)
        found.append(next((pair for pair in calls if all(pair)), slow))
    return found


def _blas() -> list[int]:
    """Return the threads that each BLAS may use, by its variables or by threadpoolctl.

    A large number if it is unknown, because some libraries cannot report it.
    """
    return [ask() or 1 << 20 for ask, _ in _calls()]


def _tell(pool: Any, number: int) -> None:
    """Set the number from any thread; threadpoolctl 3.8 otherwise obeys only the first thread."""
    clear = getattr(pool, "clear_controlling_thread", lambda force: None)
    if pool.num_threads:
        clear(force=True)
        pool.set_num_threads(number)
        clear(force=True)


def _tell_blas(numbers: list[int]) -> None:
    for (_, tell), number in zip(_calls(), numbers, strict=True):
        tell(number)


class _OneThread:
    """BLAS on one thread for as long as anyone is inside.

    The number is the process's: a thread that put back what it had found would put back the limit
    of another. So the first one in remembers it, and the last one out restores it.
    """

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0
        self.before: list[int] = []  # what BLAS was allowed

    def __enter__(self) -> None:
        depth = here.depth = getattr(here, "depth", 0) + 1
        if depth > 1:
            return
        with self.lock:
            told = _blas()
            if not self.inside:
                self.before = told
            self.inside += 1
            if max(told, default=1) > 1:  # also where somebody else has put it back
                _tell_blas([1] * len(told))

    def __exit__(self, *error: object) -> None:
        here.depth -= 1
        if here.depth:
            return
        here.known = None
        with self.lock:
            self.inside -= 1
            if not self.inside:
                _tell_blas(self.before)


one_blas_thread = _OneThread()


@contextmanager
def blas_threads(work: float) -> Iterator[None]:
    """Use one BLAS thread for products with few multiply-adds."""
    with one_blas_thread if threads_for(work) == 1 else nullcontext():
        yield


def _by_variable() -> int:
    """Return the first number of OMP_NUM_THREADS, that of the outermost level."""
    first = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return int(first) if first.isdigit() and int(first) else 1 << 20


def _numba_limit() -> int:
    """Return NUMBA_NUM_THREADS, by default the number of cores, or that of `set_num_threads`.

    Asking numba starts its threads, so this happens only if they were used before.
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
    """Return the threads of all callers, within the limits of numba, OMP_NUM_THREADS and BLAS.

    Asked once by who is in `one_blas_thread`, since it takes as long as a small product.
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
    """Run `each` for large tasks that use threads themselves; each gets its share of threads."""
    share = max(1, allowed() // max(1, min(threads, len(tasks))))

    def one(*task: Any) -> None:
        token = _share.set(share)
        try:
            run(*task)
        finally:
            _share.reset(token)

    each(one, tasks, threads)


class Costs(NamedTuple):
    """The cost of work on this machine, in seconds."""

    waits: dict[int, float]  # overhead of starting and joining this number of threads
    step: float  # one multiply-add


#: Multiply-adds that no machine takes longer for than for waking a thread.
LITTLE = 1_000_000.0
#: How much longer than with the best number of threads work may take with fewer.
NEAR = 1.1


@cache
def costs(threads: int, outside: bool = False) -> Costs:
    """Measure the costs once per process, in some milliseconds; results do not depend on them.

    A thread is woken, and waits for the interpreter whenever it comes from one of its products to
    the next: what that takes grows with their number, on each machine in its own way. Kernels that
    run ``outside`` the interpreter wait for nobody but each other.
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
        seconds(lambda: together(count), 5)  # makes the threads  # noqa: B023
        # of many threads one often comes late
        found.append(max(0.0, seconds(lambda: together(count), 9, 0.75) - alone))  # noqa: B023
    # more threads wait no less; where it seems so something else has come between
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
    most = allowed()
    if most == 1:
        return 1
    waits, step = costs(most, outside and os.name == "posix")
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
        """Call `help`, then wait for the others."""
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
            del work  # or its arrays would live until the next one
            with self.pool.lock:
                self.pool.idle.append(self)


#: Seconds for which a caller that has no helpers is thought to want some.
RECENT = 0.01


class _Pool:
    """A pool whose caller always works too, so that nobody waits for a free thread."""

    def __init__(self) -> None:
        self.lock, self.size, self.callers = Lock(), 0, 0
        self.idle: list[_Worker] = []
        self.desks: dict[Any, float] = {}  # and when each was last used

    def enter(self) -> bool:
        """Mark this thread as busy; return whether it was not counted yet, for `leave`."""
        new = not getattr(here, "counted", False)  # else a task of another region calls
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
        """Reserve free and sleeping helpers, at most so many; the caller holds the lock."""
        busy = self.size - len(self.idle) - asleep
        helpers = max(0, min(most, everybody() - self.callers - busy))
        while len(self.idle) < helpers:
            try:
                self.idle.append(_Worker(self))
            except RuntimeError:  # no more threads, or none since the interpreter ends
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
            region.run = _nothing  # helpers that come too late hold no arrays

    def gather(self, desk: Any, most: int) -> int:
        """Assign helpers to a desk; return how many of those there must leave.

        Desks side by side share what one alone would have.
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

    A task may call this again: its own tasks get the threads that are left of so many.
    """
    most = len(tasks) if isinstance(tasks, Sequence) else threads
    if min(threads, most) > 1:
        pool.do(_Region(run, tasks), min(threads, most))
        return
    for task in tasks:
        run(*task)


def results(make: Callable[..., Any], tasks: Sequence[tuple[Any, ...]], threads: int) -> list[Any]:
    """Return make(*task) of each task, in order; see `each`."""
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
                failed = True  # nobody waits for what will not come
                turn.notify_all()
            raise

    each(one, enumerate(tasks), threads)


def in_threads(run: Callable[[int, int], Any], n: int, block: int, threads: int) -> None:
    """Call run(lo, hi) for runs of rows that are multiples of ``block``, one per thread.

    No more: a thread that comes for its next run waits for the interpreter, which on a virtual
    machine takes 50 µs, and one after the other.
    """
    if threads == 1 or n <= block:
        run(0, n)
        return
    blocks = -(-n // block)
    cuts = [block * (blocks * t // threads) for t in range(threads)] + [n]
    each(run, [(lo, hi) for lo, hi in itertools.pairwise(cuts) if lo < hi], threads)


#: Multiply-adds that an entry is worth on its way from memory and back, and one of BLAS.
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
