"""One place for floors and float64 sums."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache, singledispatch
from typing import Any

import numpy as np

from partwise.backends.arrays import LEAST, PIECES, AnyArray, largest, namespace, numpy_dtype, sum64
from partwise.backends.threads import PASS, each, pieces, threads_for


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
def dot64(a: AnyArray, b: AnyArray) -> float:
    """⟨a, b⟩ summed in float64 whatever the dtype of the factors."""
    return sum64(a * b)


@dot64.register
def _(a: np.ndarray, b: AnyArray) -> float:
    b = np.broadcast_to(b, a.shape)

    # not BLAS, which sums in the precision of the factors
    def share(lo: int, hi: int) -> float:
        return float(np.einsum("ij,ij->", a[lo:hi], b[lo:hi], dtype=np.float64, casting="unsafe"))

    return summed(share, *a.shape)


def summed(share: Callable[[int, int], float], n: int, k: int, work: float = PASS) -> float:
    """Σ share(lo, hi) over pieces of n rows of k entries, in order; ``work`` is for one entry."""
    parts = pieces(n, max(1, LEAST // max(1, k)), PIECES)
    if len(parts) == 1:
        return share(0, n)
    shares = np.empty(len(parts))

    def run(number: int, part: tuple[int, int]) -> None:
        shares[number] = share(*part)

    each(run, list(enumerate(parts)), threads_for(work * n * k))
    return float(shares.sum())


@singledispatch
def inner64(a: AnyArray, b: AnyArray) -> float:
    """`dot64`; on a device an array of no dimension, which nobody has waited for yet."""
    return dot64(a, b)


def norm64(a: AnyArray) -> float:
    """‖a‖_F, summed in float64; neither squares that overflow nor such that vanish lose it."""
    squares = dot64(a, a)
    if 1e-280 < squares < 1e280:
        return float(np.sqrt(squares))
    peak = largest(abs(a))
    return peak * float(np.sqrt(dot64(a / peak, a / peak))) if 0 < peak < np.inf else peak


def ratio(numerator: AnyArray, denominator: AnyArray) -> AnyArray:
    """numerator / denominator with 0 where the denominator is below the floor."""
    leads = denominator if isinstance(numerator, np.ndarray) else numerator
    return ratio_of(leads, numerator, denominator)


@singledispatch
def ratio_of(leads: AnyArray, numerator: AnyArray, denominator: AnyArray) -> AnyArray:
    """`ratio` by the kind of ``leads``, the one of both that is not numpy's if either is not."""
    low, xp = floor(denominator.dtype), namespace(leads)
    return xp.where(denominator < low, 0.0, numerator / xp.maximum(denominator, low))


@ratio_of.register
def _(leads: np.ndarray, numerator: AnyArray, denominator: AnyArray) -> AnyArray:
    out = np.zeros_like(numerator)
    np.divide(numerator, denominator, out=out, where=denominator >= floor(denominator.dtype))
    return out
