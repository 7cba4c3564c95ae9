"""CuPy arrays, dense or CSR. Factors are CuPy arrays on the same GPU.

The products are those of `array_api`. This file adds what the array API standard lacks: sums by
index, sparse matrices, and coordinate sweeps as one kernel with one thread per row.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import Any

import cupy
import numpy as np
import scipy.sparse as sp
from cupyx.scipy import sparse as cusparse

from partwise.backends import arrays, sweeps
from partwise.backends.array_api import (
    GPU_BLOCKS,
    Csr,
    DeviceDense,
    DeviceSparse,
    check_csr,
    without_missing,
)
from partwise.backends.arrays import NO_MEMORY, AnyArray, cast
from partwise.backends.data_matrix import BackEnd, DataMatrix, check_values

#: Arrays are stored transposed, (k, n), so that neighbouring threads read neighbouring numbers.
SWEEP = r"""
extern "C" __global__ void sweep(
    T* Z, const T* C, const T* G, const T* D, const T* R, const T* E, const long long n,
    const int k, const int d_row, const int r_row, const int r_column, const int e_row,
    const int e_column, const int times, const double stop2, const double enough)
{
    const long long i = (long long)blockDim.x * blockIdx.x + threadIdx.x;
    if (i >= n) return;
    const T d = D[d_row * i];
    double first = 0, last = 0;
    for (int done = 0; done < times; ++done) {
        double moved = 0;
        for (int j = 0; j < k; ++j) {
            T gradient = 0;
            for (int other = 0; other < k; ++other) gradient += G[j * k + other] * Z[other * n + i];
            const T r = R[r_column * j * (r_row ? n : 1) + r_row * i], old = Z[j * n + i];
            const T e = E[e_column * j * (e_row ? n : 1) + e_row * i];
            const T h = d * G[j * k + j] + e;
            gradient = d * gradient + r * old - C[j * n + i];
            // without curvature it moves only where its linear cost sends it to zero
            T next = h > 0 ? old - gradient / h : (gradient > 0 ? (T)0 : old);
            next = next > 0 ? next : (T)0;
            moved += (double)(next - old) * (next - old) * h;
            Z[j * n + i] = next;
        }
        if (done == 0) first = moved;
        if (moved <= stop2 * first || moved <= enough) return;
        if (done > 20 && moved >= last) return;  // rounding is all that still moves
        last = moved;
    }
}
"""
THREADS = 128


@cache
def _kernel(dtype: str) -> Any:
    name = {"float32": "float", "float64": "double"}[dtype]
    return cupy.RawKernel(f"typedef {name} T;\n{SWEEP}", "sweep")


@sweeps.sweep.register
def _(
    Z: cupy.ndarray, C: AnyArray, G: AnyArray, d: AnyArray | None, r: AnyArray, e: AnyArray,
    times: int, stop: float, enough: float,
) -> AnyArray:  # fmt: skip
    n, k = Z.shape
    dtype = Z.dtype
    new = cupy.array(Z.T, order="C", copy=True)
    C, G, r, e = (
        cupy.ascontiguousarray(cast(a, dtype))
        for a in (cupy.broadcast_to(C, Z.shape).T, G, r.T, e.T)
    )
    d = cupy.ones(1, dtype) if d is None else cupy.ascontiguousarray(cast(d, dtype))
    steps = [np.int32(size > 1) for size in (d.shape[0], *r.shape[::-1], *e.shape[::-1])]
    args = (new, C, G, d, r, e, np.int64(n), np.int32(k), *steps, np.int32(times))
    limits = (np.float64(stop * stop), np.float64(enough / sweeps.ROWS))
    _kernel(dtype.name)((-(-n // THREADS),), (THREADS,), (*args, *limits))
    return new.T


@arrays.to_numpy.register
def _(a: cupy.ndarray) -> Any:
    return a.get()


@arrays.to_numpy.register
def _(a: cusparse.spmatrix) -> Any:
    return sp.csr_array(a.get())


@arrays.contiguous.register
def _(a: cupy.ndarray) -> AnyArray:
    return cupy.ascontiguousarray(a)


@contextmanager
def memory_errors(what: str) -> Iterator[None]:
    """Turn an out-of-memory error into one with the operation and a remedy."""
    try:
        yield
    except cupy.cuda.memory.OutOfMemoryError as error:
        raise MemoryError(f"the GPU has too little memory for {what}; {NO_MEMORY}") from error


class OnCupy:
    """Placement on the CuPy device, and CuPy functions that the array API lacks."""

    block_scale = GPU_BLOCKS

    def sums(self, index: AnyArray, values: AnyArray, n_rows: int) -> AnyArray:
        out = cupy.zeros((n_rows, *values.shape[1:]), dtype=values.dtype)
        cupy.add.at(out, index, values)
        return out

    def csr(self, parts: Csr) -> Any:
        return csr_matrix(parts)

    def multiply(self, W: Any, Z: AnyArray) -> AnyArray:
        return W @ cupy.ascontiguousarray(Z)

    def product(self, what: str) -> AbstractContextManager[None]:
        return memory_errors(what)


class CupyData(OnCupy, DeviceDense):
    """Back end for dense CuPy arrays in float32 or float64."""


class CupySparse(OnCupy, DeviceSparse):
    """Back end for CSR matrices of cupyx."""

    def __init__(self, X: Any, *, back: bool = False) -> None:
        super().__init__(X, back=back)
        self.parts = csr_parts(X)


def csr_parts(X: Any) -> Csr:
    """Return the arrays of a CSR matrix."""
    return Csr(X.indptr, X.indices, X.data, tuple(X.shape))


def csr_matrix(parts: Csr) -> Any:
    """Return the matrix with these arrays; cuSPARSE takes 32-bit indices."""
    indices, indptr = (cast(a, np.int32) for a in (parts.indices, parts.indptr))
    return cusparse.csr_matrix((parts.values, indices, indptr), shape=parts.shape)


def as_cupy_data(X: Any) -> CupyData | CupySparse:
    """Wrap a validated array or matrix."""
    return CupySparse(X) if cusparse.issparse(X) else CupyData(X)


def check(X: Any, estimator_name: str) -> Any:
    """Return X as float32 or float64, dense or CSR; raise if an entry is invalid."""
    if cusparse.issparse(X):
        X = X.tocsr(copy=True)
        X.sum_duplicates()
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float32 if X.dtype == np.float16 else np.float64)
    if cusparse.issparse(X):
        check_csr(csr_parts(X), estimator_name)
    else:
        check_values(X, estimator_name)
    return X


def gaps(X: Any, missing: float, estimator_name: str) -> tuple[DataMatrix, DataMatrix, bool]:
    """Return X with zeros for missing entries, and an array with ones there."""
    parts = csr_parts(X.tocsr()) if cusparse.issparse(X) else None
    checked = partial(check, estimator_name=estimator_name)
    return without_missing(X, parts, missing, csr_matrix, checked, as_cupy_data)


def bring(a: Any, like: Any) -> CupyData | CupySparse:
    """Return an ndarray or CSR matrix on the GPU."""
    if not sp.issparse(a):
        return CupyData(cupy.asarray(a))
    parts = tuple(cupy.asarray(part) for part in (a.data, a.indices, a.indptr))
    return CupySparse(cusparse.csr_matrix(parts, shape=a.shape))


BACK_END = BackEnd("CuPy arrays", "X.get()", check, as_cupy_data, gaps=gaps, bring=bring)
