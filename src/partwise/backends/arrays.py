"""Functions of the array API standard for every kind of array.

A factor is an array of a library that follows the standard (numpy, PyTorch, CuPy;
`array_api_compat` corrects their deviations), or `Rows` of a Dask array
(`backends.dask.row_blocks`), which have the functions of the standard too. `namespace` returns the
functions for an array. Functions that the standard lacks are defined here by functions of the
standard. A library with a faster version registers it with ``function.register``: the versions of
numpy are below, the others are in the module of their back end.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import cache, singledispatch
from typing import Any, Protocol

import numpy as np

from partwise.backends.threads import PASS, each, pieces, results, threads_for

try:
    import array_api_compat as compat
except ImportError:  # scikit-learn contains a copy
    from sklearn.externals import array_api_compat as compat  # type: ignore[no-redef]

from partwise.backends.threads import by_entry, one_blas_thread

#: An array in code that uses attributes beyond those of `Array`.
AnyArray = Any


class Array(Protocol):
    """The interface of arrays for losses, terms and the loop."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    @property
    def T(self) -> Array: ...
    def __getitem__(self, key: Any, /) -> Array: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __len__(self) -> int: ...
    def __float__(self) -> float: ...
    def __int__(self) -> int: ...
    def __neg__(self) -> Array: ...
    def __invert__(self) -> Array: ...
    def __and__(self, other: Any, /) -> Array: ...
    def __add__(self, other: Any, /) -> Array: ...
    def __radd__(self, other: Any, /) -> Array: ...
    def __sub__(self, other: Any, /) -> Array: ...
    def __rsub__(self, other: Any, /) -> Array: ...
    def __mul__(self, other: Any, /) -> Array: ...
    def __rmul__(self, other: Any, /) -> Array: ...
    def __truediv__(self, other: Any, /) -> Array: ...
    def __rtruediv__(self, other: Any, /) -> Array: ...
    def __pow__(self, other: Any, /) -> Array: ...
    def __matmul__(self, other: Any, /) -> Array: ...
    def __lt__(self, other: Any, /) -> Array: ...
    def __le__(self, other: Any, /) -> Array: ...
    def __gt__(self, other: Any, /) -> Array: ...
    def sum(self, *, axis: int | None = None) -> Array: ...
    def mean(self, *, axis: int | None = None, keepdims: bool = False) -> Array: ...
    def max(self) -> Array: ...
    def any(self) -> Any: ...


class Namespace(Protocol):
    """The functions of the array API for one kind of array."""

    float64: Any
    linalg: Any
    unique_inverse: Any

    def __getattr__(self, name: str, /) -> Callable[..., Array]: ...


#: Entries of a temporary block: half a million float64 are 4 MB, which stay in the cache.
BLOCK_ENTRIES = 500_000
#: End of the error message if a device is out of memory.
NO_MEMORY = "use float32, a smaller n_components, or leave X on disk as a numpy.memmap."

_namespaces: dict[type, Any] = {np.ndarray: np}


def namespace(Z: AnyArray) -> Namespace:
    """Return the functions of the array API standard for arrays of Z's kind."""
    found = _namespaces.get(type(Z))
    if found is None:
        numpy = isinstance(Z, (np.ndarray, np.generic))
        found = np if numpy else compat.array_namespace(Z)
        _namespaces[type(Z)] = found
    return found


def register_namespace(kind: type, functions: Any) -> None:
    """Make `namespace` return ``functions`` for arrays of this kind."""
    _namespaces[kind] = functions


@cache
def numpy_dtype(dtype: Any) -> np.dtype[Any]:
    """Convert a library's dtype to numpy's."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
        return found
    except TypeError:
        return np.dtype(str(dtype).rpartition(".")[2])


@singledispatch
def to_numpy(a: Any) -> Any:
    """Return an array of any device as an ndarray or csr_array; other values stay unchanged."""
    if isinstance(a, np.ndarray) or not compat.is_array_api_obj(a):
        return a
    return np.asarray(compat.to_device(a, "cpu"))


def none(Z: AnyArray, ndim: int = 2) -> Array:
    """Return a zero of shape (1, 1) or (1,), with the dtype and device of Z."""
    return namespace(Z).zeros((1,) * ndim, dtype=Z.dtype, device=Z.device)


def ones(Z: AnyArray, n: int) -> Array:
    """Return n ones with the dtype and device of Z."""
    return namespace(Z).ones(n, dtype=Z.dtype, device=Z.device)


def spread(part: AnyArray, Z: AnyArray) -> Array:
    """Return an array of fewer rows or columns, broadcast to the shape of Z."""
    return spread_over(Z, part)


@singledispatch
def spread_over(Z: AnyArray, part: AnyArray) -> Array:
    """Broadcast an array to the shape of Z."""
    return namespace(Z).broadcast_to(part, Z.shape)


def cast(a: AnyArray, dtype: Any) -> Array:
    """Convert ``a`` to a dtype of numpy or its own library, without an unnecessary copy."""
    xp = namespace(a)
    return xp.astype(a, getattr(xp, numpy_dtype(dtype).name), copy=False)


def float64(a: AnyArray) -> Array:
    """Return ``a`` in double precision."""
    return cast(a, np.float64)


@singledispatch
def contiguous(a: AnyArray) -> AnyArray:
    """Return ``a`` in C order, if its library supports memory orders; the standard does not."""
    return a


@contiguous.register
def _(a: np.ndarray) -> Array:
    return np.ascontiguousarray(a)


def is_missing(values: AnyArray, missing: float) -> AnyArray:
    """Return a mask of the missing entries."""
    return namespace(values).isnan(values) if np.isnan(missing) else values == missing


def largest(a: AnyArray) -> float:
    """Return max(a, 0)."""
    return max(0.0, float(namespace(a).max(a))) if a.shape[0] else 0.0


def sum64(a: AnyArray) -> float:
    """Return Σ a in float64."""
    xp = namespace(a)
    return float(xp.sum(a, dtype=xp.float64))


def column_sums64(Z: AnyArray, d: AnyArray | None = None) -> Array:
    """Return Σ_i d_i z_i in float64."""
    xp = namespace(Z)
    if d is not None:
        return float64(d) @ float64(Z)
    if not isinstance(Z, np.ndarray):
        return xp.sum(Z, axis=0, dtype=xp.float64)
    n, k = Z.shape
    parts = pieces(n, max(1, LEAST // max(1, k)), PIECES)
    threads = threads_for(PASS * n * k)
    sums = results(lambda lo, hi: np.sum(Z[lo:hi], axis=0, dtype=np.float64), parts, threads)
    total: Array = np.sum(sums, axis=0)
    return total


def entrywise(do: Callable[[Any, Any], Any], a: AnyArray, b: AnyArray) -> Array:
    """Return do(a, b) for ``operator.add``, ``sub`` or ``mul``; b may be broadcast."""
    if not (isinstance(a, np.ndarray) and isinstance(b, np.ndarray)):
        result: Array = do(a, b)
        return result
    ufunc = {operator.add: np.add, operator.sub: np.subtract, operator.mul: np.multiply}[do]
    out = np.empty(a.shape, np.result_type(a, b))
    whole = b.ndim == a.ndim and len(b) == len(a)
    by_entry(lambda rows: ufunc(a[rows], b[rows] if whole else b, out=out[rows]), out)
    return out


def vdot(a: AnyArray, b: AnyArray) -> float:
    """Return ⟨a, b⟩ in the precision of the arrays."""
    return float((a * b).sum())


def spectral_norm(G: AnyArray) -> float:
    """Return ‖G‖₂ of a small matrix."""
    return float(np.linalg.norm(to_numpy(G), 2))


@singledispatch
def pending_scalar(value: Any) -> Callable[[], float] | None:
    """Return a function that waits for a number on a GPU; None for a number in memory."""
    return None


@singledispatch
def extrapolate(new: AnyArray, old: AnyArray, weight: float) -> AnyArray:
    """Return the extrapolated factor new + weight (new - old), in few passes over it."""
    return new + weight * (new - old)


@extrapolate.register
def _(new: np.ndarray, old: AnyArray, weight: float) -> Array:
    out = np.empty_like(new, subok=False)

    def run(rows: slice) -> None:
        np.subtract(new[rows], old[rows], out=out[rows])
        out[rows] *= weight
        out[rows] += new[rows]

    by_entry(run, out, 3)
    return out


@singledispatch
def clip_at_zero(out: AnyArray) -> Array:
    """Return the array with negative entries set to zero, in place if possible."""
    return namespace(out).maximum(out, 0)


@clip_at_zero.register
def _(out: np.ndarray) -> Array:
    by_entry(lambda rows: np.maximum(out[rows], 0, out=out[rows]), out)
    return out


def side_by_side(parts: Sequence[AnyArray]) -> Array:
    """Concatenate factors with the same rows to one factor with more columns."""
    return parts[0] if len(parts) == 1 else joined(*parts)


@singledispatch
def joined(first: AnyArray, *others: AnyArray) -> Array:
    """Return one array with the columns of all arrays."""
    return namespace(first).concat([first, *others], axis=1)


@joined.register
def _(first: np.ndarray, *others: AnyArray) -> Array:  # concat is numpy 2's name
    return np.concatenate([first, *others], axis=1)


def column_blocks(wide: AnyArray, widths: Sequence[int]) -> list[AnyArray]:
    """Split a factor with many columns into blocks of columns, each copied."""
    if len(widths) == 1:
        return [wide]
    ends = np.cumsum(widths).tolist()
    wide = materialize(wide)
    return [cut(wide, begin, end) for begin, end in zip([0, *ends], ends, strict=False)]


@singledispatch
def cut(wide: AnyArray, begin: int, end: int) -> Array:
    """Return some columns of a factor as a contiguous array."""
    some: Array = contiguous(wide[:, begin:end])
    return some


@singledispatch
def materialize(a: AnyArray) -> AnyArray:
    """Return the array with its values computed; only lazy arrays change."""
    return a


@singledispatch
def orthonormal(Y: AnyArray) -> Array:
    """Return an orthonormal basis of the columns of Y, which has many rows."""
    Q: Array = namespace(Y).linalg.qr(Y)[0]
    return Q


@orthonormal.register
def _(Y: np.ndarray) -> Array:
    """Compute the QR decomposition of many rows from those of pieces of them."""
    n, k = Y.shape
    parts = pieces(n, max(64 * k, LEAST // max(1, k)), PIECES)
    if len(parts) == 1:
        return np.linalg.qr(Y)[0]
    found = np.empty((len(parts), k, k), Y.dtype)
    Q = np.empty_like(Y, order="C")

    def split(number: int, part: tuple[int, int]) -> None:
        Q[slice(*part)], found[number] = np.linalg.qr(Y[slice(*part)])

    threads = threads_for(float(n) * k * k)
    each(split, list(enumerate(parts)), threads)
    joint = np.linalg.qr(found.reshape(-1, k))[0].reshape(found.shape)

    def times(number: int, part: tuple[int, int]) -> None:
        Q[slice(*part)] = Q[slice(*part)] @ joint[number]

    with one_blas_thread:
        each(times, list(enumerate(parts)), threads)
    return Q


@singledispatch
def own(V: AnyArray) -> Array:
    """Return a copy that the caller may overwrite, if arrays of this kind are writable."""
    return namespace(V).asarray(V, copy=True)


@own.register
def _(V: np.ndarray) -> Array:
    out = np.empty_like(V, subok=False)
    by_entry(lambda rows: np.copyto(out[rows], V[rows]), out)
    return out


def limits(a: np.ndarray) -> tuple[float, float]:
    """Return the smallest and largest entry, or NaN if there is one, in one pass."""
    if not a.size:
        return 0.0, 0.0
    if a.flags.f_contiguous:
        a = a.T
    if a.size >= MANY and _plain_pair(a, a):
        least, most, total = _overview(a, a)
        if not np.isnan(total):
            return least, most
    return float(a.min()), float(a.max())


#: Minimum number of entries for compiled versions of operations that run once per array. For
#: smaller arrays, compiling takes longer than the operation.
MANY = 1 << 18


def _plain_pair(a: Any, b: Any) -> bool:
    """Return whether both arrays are contiguous with one dtype, as `kernels.overview` needs."""
    same = type(a) is type(b) is np.ndarray and a.dtype == b.dtype and a.shape == b.shape
    return (
        same and a.dtype in (np.float32, np.float64) and a.flags.c_contiguous & b.flags.c_contiguous
    )


def _overview(a: AnyArray, b: AnyArray) -> tuple[float, float, float]:
    """Return the smallest and largest entry of a, and Σ a b, for a `_plain_pair`."""
    from partwise.backends.numpy.kernels import sums

    least, most, total = sums.overview(a, b, threads_for(PASS * a.size, True))
    return least, most, total


def row_blocks(n: int, p: int, entries: int = 0) -> Iterator[slice]:
    """Yield slices of rows with at most ``entries`` entries, by default BLOCK_ENTRIES."""
    step = max(1, (entries or BLOCK_ENTRIES) // max(p, 1))
    for start in range(0, n, step):
        yield slice(start, min(n, start + step))


@singledispatch
def forget(X: Any) -> None:
    """Release the memory pages of a memmap after reading them.

    The system would otherwise count them as memory that the process uses.
    """


@singledispatch
def gram(F: Array) -> Array:
    """Return FᵀF."""
    return F.T @ F


#: Maximum number of pieces of a sum over the rows of a tall array, and minimum size of a piece.
PIECES, LEAST = 16, 1 << 16


@gram.register
def _(F: np.ndarray) -> AnyArray:
    n, k = F.shape
    with one_blas_thread:
        if n * k * k < 16 * MANY or not _plain_pair(F, F):
            return F.T @ F
        from partwise.backends.numpy.kernels import products

        parts = pieces(n, max(1, 16 * LEAST // (k * k)), PIECES)
        sums = np.empty((len(parts), k, k), F.dtype)
        calls = [(t, (0, k), part, (0, k)) for t, part in enumerate(parts)]
        products.multiply_parts(F.T, F, sums, calls, threads_for(float(n) * k * k, True))
    G = sums.sum(axis=0)
    return 0.5 * (G + G.T)  # exactly symmetric, although rounding errors of the triangles differ


@cache
def compiled_code_is_kept() -> bool:
    """Return whether numba has a cache folder for compiled code; warn once if not."""
    import numba

    try:
        numba.njit(cache=True)(_nothing)
    except RuntimeError:
        warnings.warn(
            "compiled code cannot be cached, so each process compiles it again: neither the folder "
            "of partwise nor the home folder is writable. Set NUMBA_CACHE_DIR to another folder.",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    return True


def _nothing() -> None: ...


def floor(dtype: Any) -> float:
    """Return the smallest normal number; smaller denominators count as zero."""
    return float(np.finfo(numpy_dtype(dtype)).tiny)


@singledispatch
def dot64(a: AnyArray, b: AnyArray) -> float:
    """Return ⟨a, b⟩ summed in float64, whatever the dtype of the factors."""
    return sum64(a * b)


@dot64.register
def _(a: np.ndarray, b: AnyArray) -> float:
    b = np.broadcast_to(b, a.shape)
    if a.size >= MANY:
        pair = (a, b) if a.flags.c_contiguous else (a.T, b.T)
        if _plain_pair(*pair):
            return _overview(*pair)[2]

    # BLAS would add in the precision of the factors.
    return float(np.einsum("ij,ij->", a, b, dtype=np.float64, casting="unsafe"))


@singledispatch
def inner64(a: AnyArray, b: AnyArray) -> float:
    """Return `dot64`; on a device, return a scalar array without waiting for its value."""
    return dot64(a, b)


def norm64(a: AnyArray) -> float:
    """Return ‖a‖_F, summed in float64 without overflow or underflow of squares."""
    squares = dot64(a, a)
    if 1e-280 < squares < 1e280:
        return float(np.sqrt(squares))
    peak = largest(abs(a))
    return peak * float(np.sqrt(dot64(a / peak, a / peak))) if 0 < peak < np.inf else peak


def ratio(numerator: AnyArray, denominator: AnyArray) -> AnyArray:
    """Return numerator / denominator, or 0 where the denominator is below the floor."""
    leads = denominator if isinstance(numerator, np.ndarray) else numerator
    return ratio_of(leads, numerator, denominator)


@singledispatch
def ratio_of(leads: AnyArray, numerator: AnyArray, denominator: AnyArray) -> Array:
    """Compute `ratio` by the version for the array type of ``leads``.

    ``leads`` is one of the other arguments: the one that is not a numpy array, if there is one.
    """
    low, xp = floor(denominator.dtype), namespace(leads)
    return xp.where(denominator < low, 0.0, numerator / xp.maximum(denominator, low))


@ratio_of.register
def _(leads: np.ndarray, numerator: AnyArray, denominator: AnyArray) -> AnyArray:
    out = np.zeros_like(numerator)
    low = np.finfo(denominator.dtype).tiny
    np.divide(numerator, denominator, out=out, where=denominator >= low)
    return out


def squares_in_range(X: Any) -> Any:
    """Return X in float64 if its squares would leave the range of float32, else unchanged."""
    if X.dtype != np.float32 or 0 in X.shape or 1e-9 < max(X.max(), -X.min()) < 1e9:
        return X
    return X.astype(np.float64)
