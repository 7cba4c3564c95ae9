"""One place for floors, float64 sums and the choice between one thread and several."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache, singledispatch
from threading import Lock
from typing import Any

import numpy as np

from partwise.backends.arrays import Array, largest, namespace, numpy_dtype, sum64

#: Multiply-adds below which starting threads costs more than it saves; measured on two cores.
THREAD_WORK = 5e7


#: Multiply-adds of a product with X below which one BLAS thread is faster than waking the others.
BLAS_WORK = 2e8


@cache
def _pools() -> Any:
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _OneThread:
    """BLAS on one thread for as long as anyone is inside.

    The number is the process's: a thread that put back what it had found would put back the limit
    of another. So the first one in sets it, and the last one out restores it.
    """

    def __init__(self) -> None:
        self.lock, self.inside = Lock(), 0
        self.limit: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.limit = _pools().limit(limits=1, user_api="blas")
            self.inside += 1

    def __exit__(self, *error: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside and self.limit is not None:
                self.limit.restore_original_limits()


one_blas_thread = _OneThread()


@contextmanager
def blas_threads(work: float) -> Iterator[None]:
    """One BLAS thread while products with X have less than BLAS_WORK multiply-adds."""
    with nullcontext() if work >= BLAS_WORK else one_blas_thread:
        yield


@cache
def compiled_code_is_kept() -> bool:
    """Whether numba finds a folder to keep compiled code in; a warning, once, where it does not."""
    import numba

    try:
        numba.njit(cache=True)(_nothing)
    except RuntimeError:
        warnings.warn(
            "compiled code cannot be kept, so each process compiles it again: neither partwise's "
            "folder nor the home folder can be written to; NUMBA_CACHE_DIR may name another one.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def _nothing() -> None: ...


def floor(dtype: Any) -> float:
    """Smallest number a denominator may have; numerators have no floor."""
    return float(np.finfo(numpy_dtype(dtype)).tiny)


@singledispatch
def dot64(a: Array, b: Array) -> float:
    """⟨a, b⟩ summed in float64 whatever the dtype of the factors."""
    return sum64(a * b)


@dot64.register
def _(a: np.ndarray, b: Array) -> float:
    # not BLAS: waking its threads costs more than the sum
    return float(np.einsum("ij,ij->", a, b, dtype=np.float64, casting="unsafe"))


@singledispatch
def inner64(a: Array, b: Array) -> float:
    """`dot64`; on a device an array of no dimension, which nobody has waited for yet."""
    return dot64(a, b)


def norm64(a: Array) -> float:
    """‖a‖_F, summed in float64; neither squares that overflow nor such that vanish lose it."""
    squares = dot64(a, a)
    if 1e-280 < squares < 1e280:
        return float(np.sqrt(squares))
    peak = largest(abs(a))
    return peak * float(np.sqrt(dot64(a / peak, a / peak))) if 0 < peak < np.inf else peak


def ratio(numerator: Array, denominator: Array) -> Array:
    """numerator / denominator with 0 where the denominator is below the floor."""
    leads = denominator if isinstance(numerator, np.ndarray) else numerator
    return ratio_of(leads, numerator, denominator)


@singledispatch
def ratio_of(leads: Array, numerator: Array, denominator: Array) -> Array:
    """`ratio` by the kind of ``leads``, the one of both that is not numpy's if either is not."""
    low, xp = floor(denominator.dtype), namespace(leads)
    return xp.where(denominator < low, 0.0, numerator / xp.maximum(denominator, low))


@ratio_of.register
def _(leads: np.ndarray, numerator: Array, denominator: Array) -> Array:
    out = np.zeros_like(numerator)
    np.divide(numerator, denominator, out=out, where=denominator >= floor(denominator.dtype))
    return out


def threads_for(work: float) -> int:
    """How many numba threads ``work`` multiply-adds deserve."""
    if work < THREAD_WORK:
        return 1
    import numba

    return int(numba.get_num_threads())


def in_threads(run: Callable[[int, int], None], n: int, block: int, threads: int) -> None:
    """run(lo, hi) for runs of rows that are multiples of ``block``, in Python's threads.

    For kernels that let go of the interpreter's lock: what numba makes of a parallel loop takes
    several times as long to compile.
    """
    if threads == 1 or n <= block:
        run(0, n)
        return
    step = block * -(-n // (4 * threads * block))
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(run, lo, min(n, lo + step)) for lo in range(0, n, step)]:
            done.result()


def chunk_bounds(sizes_before: Array, chunks: int) -> Array:
    """Cut rows into ``chunks`` runs of about equal work; sizes_before is a running sum (n + 1)."""
    targets = np.linspace(0, sizes_before[-1], chunks + 1)
    bounds = np.searchsorted(sizes_before, targets[1:-1])
    return np.unique(np.concatenate([[0], bounds, [len(sizes_before) - 1]])).astype(np.int64)
