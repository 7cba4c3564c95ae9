"""Sparse matrices of scipy, stored as CSR; the transpose is stored on first use."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends import arrays
from partwise.backends.arrays import AnyArray
from partwise.backends.curvature import of_pairs
from partwise.backends.numpy import blocks
from partwise.backends.numpy.dense import DenseData
from partwise.backends.threads import PASS, cached_property, each, threads_for

#: With fewer columns and fewer multiply-adds than these, scipy's product takes about a millisecond,
#: and compiling a kernel is not worthwhile.
WIDE, SMALL = 16, 1_000_000


class SparseData(DenseData):
    """CSR with float32 or float64 values, no explicit zeros, sorted and summed indices.

    KL products visit the non-zeros only. Other β-divergences need every entry of VUᵀ and are
    taken block by block.
    """

    @property
    def density(self) -> float:  # type: ignore[override]
        return float(self.X.nnz / max(1, self.shape[0] * self.shape[1]))

    @cached_property
    def _XT(self) -> Any:
        return transposed(self.X)

    def _blocks(self, entries: int | None = None) -> Any:
        return ((rows, self.X[rows].toarray()) for rows in arrays.row_blocks(*self.shape))

    def dot(self, U: AnyArray) -> AnyArray:
        return multiply(self.X, U)

    def tdot(self, V: AnyArray) -> AnyArray:
        return multiply(self._XT, V)

    def _sums(self, make: Callable[[AnyArray], AnyArray]) -> AnyArray:
        """Return sums by row, in float64, of ``make`` applied to the entries."""
        X, out = self.X, np.zeros(self.shape[0])

        def run(lo: int, hi: int) -> None:
            begin, end = X.indptr[lo], X.indptr[hi]
            some = lo + np.flatnonzero(np.diff(X.indptr[lo : hi + 1]))  # rows with entries
            if len(some):
                out[some] = np.add.reduceat(make(X.data[begin:end]), X.indptr[some] - begin)

        cuts = equal_runs(X, 1 + X.nnz // arrays.BLOCK_ENTRIES)
        each(run, list(itertools.pairwise(cuts)), threads_for(2 * PASS * X.nnz))
        return out

    def row_sq_norms(self) -> AnyArray:
        if "_squares" not in vars(self):  # computed once
            self._squares = self._sums(lambda x: np.square(x, dtype=np.float64))
        return self._squares

    def total_squares(self, V: AnyArray | None = None, U: AnyArray | None = None) -> float:
        if V is None and type(self) is SparseData:
            return arrays.dot64(self.X.data[None], self.X.data[None])
        return super().total_squares(V, U)

    def row_sums(self) -> AnyArray:
        return self._sums(lambda x: x.astype(np.float64))

    def row_xlogx(self) -> AnyArray:
        return self._sums(lambda x: blocks.xlogx(x[:, None]))

    def row_divergences(self, V: AnyArray, U: AnyArray) -> AnyArray:
        V, U = V.astype(np.float64), U.astype(np.float64)
        out = V @ U.sum(axis=0)
        step = max(1, arrays.BLOCK_ENTRIES // V.shape[1])
        row_of = np.repeat(np.arange(self.shape[0]), np.diff(self.X.indptr))
        for at in range(0, self.X.nnz, step):
            rows, x = row_of[at : at + step], self.X.data[at : at + step].astype(np.float64)
            y = np.einsum("ij,ij->i", V[rows], U[self.X.indices[at : at + step]])
            out += np.bincount(rows, x * np.log(x / np.maximum(y, self._low)) - x, len(out))
        return out

    def row_powers(self, beta: float) -> AnyArray:
        return self._sums(lambda x: blocks.powers(x[:, None], beta))

    def weighted(self, weights: AnyArray | None, index: AnyArray | None, n_rows: int) -> SparseData:
        X = self.X
        if weights is not None:
            X = sp.diags_array(weights.astype(self.dtype)) @ X
        if index is not None:
            n = self.shape[0]
            A = sp.csr_array(
                (np.ones(n, dtype=self.dtype), (index, np.arange(n))), shape=(n_rows, n)
            )
            X = A @ X
        X = sp.csr_array(X)
        # Keep the dtype of the indices, because kernels are compiled for each dtype.
        X.indices, X.indptr = (a.astype(self.X.indices.dtype) for a in (X.indices, X.indptr))
        return SparseData(X).weighing(weights, self.shape[0])

    def kl_dot(self, V: AnyArray, U: AnyArray) -> tuple[AnyArray, AnyArray]:
        return _kl_pass(self.X, V, U, self._low, want_log=True)

    def kl_tdot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return _kl_pass(self._XT, U, V, self._low, want_log=False)[0]

    def kl_tdot_log(self, V: AnyArray, U: AnyArray) -> tuple[AnyArray, float]:
        product, xlogy = _kl_pass(self._XT, U, V, self._low, want_log=True)
        return product, float(xlogy.sum())

    def kl_newton(
        self, V: AnyArray, U: AnyArray, cost: AnyArray, ridge: AnyArray, sweeps: int, rough: bool,
        transposed: bool,
    ) -> tuple[AnyArray, AnyArray]:  # fmt: skip
        from partwise.backends.numpy.kernels import divergence

        X, Z, B = (self._XT, U, V) if transposed else (self.X, V, U)
        Z, B = Z.copy(), np.ascontiguousarray(B)
        cost, ridge = (np.broadcast_to(np.asarray(a, np.float64), Z.shape) for a in (cost, ridge))
        xlogy = np.empty(Z.shape[0])
        args = (Z, B, cost, ridge, sweeps, xlogy, transposed, self._low)
        by_rows(divergence.newton_rows, X, (X.indptr, X.indices, X.data, *args), 40 * Z.shape[1])
        return Z, xlogy

    def column_curvature(self, V: AnyArray, U: AnyArray, seconds: Sequence[int]) -> AnyArray:
        y = np.maximum(sampled_values(self._XT, U, V), self._low)
        W = sp.csr_array((self._XT.data / y / y, self._XT.indices, self._XT.indptr), self._XT.shape)
        # One b at a time, because all pairs of columns of V would take k/2 times its memory.
        return np.concatenate([multiply(W, of_pairs(V, [b])) for b in seconds], axis=1)

    def times_dot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return _times(self.X, V, U, np.empty((self.shape[0], U.shape[1]), V.dtype))

    def times_tdot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        out = np.empty((self.shape[1], U.shape[1]), U.dtype)
        return _times(self._XT, U, V, out)

    def times_squares(self, V: AnyArray, U: AnyArray) -> AnyArray:
        y, n = sampled_values(self.X, V, U), self.shape[0]
        return np.bincount(np.repeat(np.arange(n), np.diff(self.X.indptr)), self.X.data * y * y, n)


def _times(X: Any, V: AnyArray, U: AnyArray, out: AnyArray) -> AnyArray:
    from partwise.backends.numpy.kernels import sampled

    V, U = np.ascontiguousarray(V), np.ascontiguousarray(U)
    by_rows(sampled.times_rows, X, (X.indptr, X.indices, X.data, V, U, out), 20 * V.shape[1])
    return out


def sampled_values(places: Any, V: AnyArray, U: AnyArray) -> AnyArray:
    """Return the entries of VUᵀ at the places of a CSR matrix, in its order."""
    from partwise.backends.numpy.kernels import sampled

    out = np.empty(places.nnz, dtype=V.dtype)
    V, U = np.ascontiguousarray(V), np.ascontiguousarray(U)
    args = (places.indptr, places.indices, V, U, out)
    by_rows(sampled.value_rows, places, args, 20 * V.shape[1])
    return out


def solve_rows(
    places: Any, U: AnyArray, G: AnyArray, d: AnyArray | None, sign: float, Z: AnyArray,
    C: AnyArray, r: AnyArray, stop: float, enough: float,
) -> AnyArray:  # fmt: skip
    """Return the minimiser of each row with its own Hessian, from Z; see `kernels.sampled`."""
    from partwise.backends.numpy.kernels import sampled

    k = Z.shape[1]
    U, C = (np.ascontiguousarray(a, Z.dtype) for a in (U, C))
    G, r = (np.ascontiguousarray(a, np.float64) for a in (G, r))
    d = np.ones(1) if d is None else np.asarray(d, np.float64)
    Z = np.array(Z, order="C")
    args = (places.indptr, places.indices, places.data, U, G, d, sign, Z, C, r, 2000, stop, enough)
    by_rows(sampled.solve_rows, places, args, 5 * k * k)
    return Z


def by_rows(kernel: Any, X: Any, args: tuple[Any, ...], work: int) -> None:
    """Call kernel(*args, lo, hi) on runs of rows of CSR X, in a suitable number of threads.

    ``work`` is the cost of one non-zero, in multiply-adds of a dense sweep. A gather or a logarithm
    costs ten of them.
    """
    threads = threads_for(float(X.nnz) * work, True)
    if threads == 1:
        kernel(*args, 0, X.shape[0])
        return
    from partwise.backends.numpy.kernels import crew

    crew.run(kernel, args, list(itertools.pairwise(equal_runs(X, 4 * threads))), threads)


def runs_for(X: Any, threads: int) -> list[tuple[int, int]]:
    """Split the rows into several runs for each thread."""
    return list(itertools.pairwise(equal_runs(X, 1 if threads == 1 else 4 * threads)))


def equal_runs(X: Any, count: int) -> AnyArray:
    """Return bounds of at most ``count`` runs of rows with similar numbers of non-zeros."""
    if count == 1:
        return [0, X.shape[0]]
    bounds = X.indptr.searchsorted(X.nnz * np.arange(1, count) // count).tolist()
    return sorted({0, *bounds, X.shape[0]})


def transposed(X: Any) -> Any:
    """Return the transpose of a CSR matrix, in threads if that is faster."""
    n, p = X.shape
    threads = threads_for(50.0 * X.nnz, True)
    runs = min(threads, X.nnz // (4 * p + 1))  # each run needs an array with one entry per column
    if runs < 2:
        return X.T.tocsr()
    from partwise.backends.numpy.kernels import products

    cuts = list(itertools.pairwise(equal_runs(X, runs)))
    indptr, rows, values = products.transpose(X.indptr, X.indices, X.data, p, cuts, threads)
    return sp.csr_array((values, rows, indptr), shape=(p, n))


def multiply(X: Any, B: AnyArray) -> AnyArray:
    """Return the product X B of a CSR matrix, in threads if that is faster."""
    B = np.ascontiguousarray(B, X.dtype)
    if B.shape[1] < WIDE and X.nnz * B.shape[1] < SMALL:
        return X @ B
    from partwise.backends.numpy.kernels import products

    # The estimated work is twice that on an AMD EPYC, because caches of other processors are
    # slower.
    threads = threads_for(float(X.nnz) * (16 + B.shape[1]), True)
    lines, runs = slab_lines(len(B), products.LINE), runs_for(X, threads)
    return products.spmm(X.indptr, X.indices, X.data, B, lines, runs, threads)


def slab_lines(rows: int, line: int) -> int:
    """Return how many cache lines of each row of a factor a product uses at a time: 4, 2 or 1.

    More lines are faster as long as they fit into half of the cache; other data needs the rest.
    """
    return next((n for n in (4, 2) if 2 * n * line * rows <= last_cache()), 1)


@cache
def last_cache() -> int:
    """Return the bytes of the processor's largest cache, or 32 MB if unknown."""
    paths = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    sizes = [path.read_text().strip().removesuffix("K") for path in paths]
    return max((int(size) << 10 for size in sizes if size.isdigit()), default=32 << 20)


def laplacian(W: Any, Z: AnyArray) -> AnyArray:
    """Return (D - W) Z for a CSR graph from differences of rows, in threads if faster."""
    from partwise.backends.numpy.kernels import hals

    Z = np.ascontiguousarray(Z)
    out = np.empty_like(Z)
    edges = (W.indptr, W.indices, W.data.astype(Z.dtype, copy=False))
    by_rows(hals.laplacian, W, (*edges, Z, out), 10 * Z.shape[1])
    return out


def _kl_pass(
    X: Any, V: AnyArray, U: AnyArray, low: Any, *, want_log: bool
) -> tuple[AnyArray, AnyArray]:
    from partwise.backends.numpy.kernels import divergence

    out = np.empty((X.shape[0], V.shape[1]), dtype=X.dtype)
    xlogy = np.empty(X.shape[0])
    V, U = np.ascontiguousarray(V), np.ascontiguousarray(U)
    args = (X.indptr, X.indices, X.data, V, U, out, xlogy, want_log, low)
    by_rows(divergence.kl_rows, X, args, 20 * V.shape[1])
    return out, xlogy
