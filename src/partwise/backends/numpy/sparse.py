"""scipy sparse matrices and arrays, kept as CSR; the transpose is kept too once it is asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends.numeric import Array, chunk_bounds, in_threads, threads_for
from partwise.backends.numpy import blocks
from partwise.backends.numpy.dense import DenseData

#: Columns from which on a compiled product is faster than scipy's in one thread, too.
WIDE = 16


class SparseData(DenseData):
    """CSR with float32 or float64 values, no explicit zeros, sorted and summed indices.

    KL products visit the non-zeros only. Other β-divergences need every entry of VUᵀ and are
    taken block by block.
    """

    def __init__(self, X: Any) -> None:
        self.X = X

    @property
    def density(self) -> float:  # type: ignore[override]
        return self.X.nnz / max(1, self.shape[0] * self.shape[1])

    @cached_property
    def _XT(self) -> Any:
        return self.X.T.tocsr()

    def _blocks(self) -> Any:
        return ((rows, self.X[rows].toarray()) for rows in blocks.row_blocks(*self.shape))

    def dot(self, U: Array) -> Array:
        return multiply(self.X, U)

    def tdot(self, V: Array) -> Array:
        return multiply(self._XT, V)

    def _sums(self, values: Array) -> Array:
        X = sp.csr_array((values, self.X.indices, self.X.indptr), shape=self.shape)
        return np.asarray(X.sum(axis=1), dtype=np.float64).ravel()

    def row_sq_norms(self) -> Array:
        return self._squares

    @cached_property
    def _squares(self) -> Array:
        return self._sums(np.square(self.X.data, dtype=np.float64))

    def row_sums(self) -> Array:
        return self._sums(self.X.data.astype(np.float64))

    def row_xlogx(self) -> Array:
        return self._sums(blocks.xlogx(self.X.data[:, None]))

    def row_divergences(self, V: Array, U: Array) -> Array:
        V, U = V.astype(np.float64), U.astype(np.float64)
        out = V @ U.sum(axis=0)
        step = max(1, blocks.BLOCK_ENTRIES // V.shape[1])
        row_of = np.repeat(np.arange(self.shape[0]), np.diff(self.X.indptr))
        for at in range(0, self.X.nnz, step):
            rows, x = row_of[at : at + step], self.X.data[at : at + step].astype(np.float64)
            y = np.einsum("ij,ij->i", V[rows], U[self.X.indices[at : at + step]])
            out += np.bincount(rows, x * np.log(x / np.maximum(y, self._low)) - x, len(out))
        return out

    def row_powers(self, beta: float) -> Array:
        return self._sums(blocks.powers(self.X.data[:, None], beta))

    def weighted(self, weights: Array | None, index: Array | None, n_rows: int) -> SparseData:
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
        # indices as they came: kernels are compiled for each kind of them
        X.indices, X.indptr = (a.astype(self.X.indices.dtype) for a in (X.indices, X.indptr))
        return SparseData(X).weighing(weights, self.shape[0])

    def kl_dot(self, V: Array, U: Array) -> tuple[Array, Array]:
        return _kl_pass(self.X, V, U, self._low, want_log=True)

    def kl_tdot(self, V: Array, U: Array) -> Array:
        return _kl_pass(self._XT, U, V, self._low, want_log=False)[0]

    def kl_tdot_log(self, V: Array, U: Array) -> tuple[Array, float]:
        product, xlogy = _kl_pass(self._XT, U, V, self._low, want_log=True)
        return product, float(xlogy.sum())

    def kl_newton(
        self, V: Array, U: Array, cost: Array, ridge: Array, sweeps: int, rough: bool,
        transposed: bool,
    ) -> tuple[Array, Array]:  # fmt: skip
        from partwise.backends.numpy import kernels

        X, Z, B = (self._XT, U, V) if transposed else (self.X, V, U)
        Z, B = Z.copy(), np.ascontiguousarray(B)
        xlogy = np.empty(Z.shape[0])
        bounds, threads = cut_rows(X, 40 * Z.shape[1])
        run = kernels.newton_rows_parallel if threads > 1 else kernels.newton_rows
        args = (cost, ridge, sweeps, xlogy, transposed, bounds, self._low)
        run(X.indptr, X.indices, X.data, Z, B, *args)
        return Z, xlogy

    def times_dot(self, V: Array, U: Array) -> Array:
        return _sampled("times_rows", self.X, V, U, np.empty((self.shape[0], U.shape[1]), V.dtype))

    def times_tdot(self, V: Array, U: Array) -> Array:
        out = np.empty((self.shape[1], U.shape[1]), U.dtype)
        return _sampled("times_rows", self._XT, U, V, out)

    def times_squares(self, V: Array, U: Array) -> Array:
        return _sampled("square_rows", self.X, V, U, np.empty(self.shape[0]))


def _sampled(name: str, X: Any, V: Array, U: Array, out: Array) -> Array:
    from partwise.backends.numpy.kernels import sampled

    bounds, threads = cut_rows(X, 20 * V.shape[1])
    run = getattr(sampled, name + ("_parallel" if threads > 1 else ""))
    V, U = np.ascontiguousarray(V), np.ascontiguousarray(U)
    run(X.indptr, X.indices, X.data, V, U, out, bounds)
    return out


def sampled_values(places: Any, cut: tuple[Array, int], V: Array, U: Array) -> Array:
    """The entries of VUᵀ at the places of a CSR matrix, in its order; ``cut`` by `cut_rows`."""
    from partwise.backends.numpy.kernels import sampled

    out = np.empty(places.nnz, dtype=V.dtype)
    bounds, threads = cut
    run = sampled.value_rows_parallel if threads > 1 else sampled.value_rows
    V, U = np.ascontiguousarray(V), np.ascontiguousarray(U)
    run(places.indptr, places.indices, V, U, out, bounds)
    return out


def solve_rows(
    places: Any, U: Array, G: Array, d: Array | None, sign: float, Z: Array, C: Array, r: Array,
    stop: float, enough: float,
) -> Array:  # fmt: skip
    """The minimiser of each row with a Hessian of its own, from Z; see `kernels_sampled`."""
    from partwise.backends.numpy.kernels import sampled

    k = Z.shape[1]
    bounds, _ = cut_rows(places, 5 * k * k)
    U, C = (np.ascontiguousarray(a, Z.dtype) for a in (U, C))
    G, r = (np.ascontiguousarray(a, np.float64) for a in (G, r))
    d = np.ones(1) if d is None else np.asarray(d, np.float64)
    Z = np.array(Z, order="C")
    args = (U, G, d, sign, Z, C, r, 2000, stop, enough, bounds)
    sampled.solve_rows(places.indptr, places.indices, places.data, *args)
    return Z


def cut_rows(X: Any, work: int) -> tuple[Array, int]:
    """Row bounds with about equal numbers of non-zeros, and how many threads they deserve.

    ``work`` is for one non-zero, in multiply-adds of a dense sweep: gathers and logarithms cost
    ten of them each.
    """
    threads = threads_for(float(X.nnz) * work)
    cost = np.asarray(X.indptr, dtype=np.int64) + np.arange(X.shape[0] + 1)
    return chunk_bounds(cost, 8 * threads), threads


def multiply(X: Any, B: Array) -> Array:
    """X @ B for CSR, in threads where that pays."""
    B = np.ascontiguousarray(B)
    threads = threads_for(10.0 * X.nnz * B.shape[1])
    if threads == 1 and B.shape[1] < WIDE:
        return X @ B
    from partwise.backends.numpy import kernels

    out = np.empty((X.shape[0], B.shape[1]), dtype=X.dtype)
    entries = (X.indptr, X.indices, X.data)
    in_threads(lambda lo, hi: kernels.spmm(*entries, B, out, lo, hi), X.shape[0], 1, threads)
    return out


def laplacian(W: Any, Z: Array) -> Array:
    """(D - W) Z for a CSR graph, from differences of rows, in threads where that pays."""
    from partwise.backends.numpy import kernels

    Z = np.ascontiguousarray(Z)
    out = np.empty_like(Z)
    edges = (W.indptr, W.indices, W.data.astype(Z.dtype, copy=False))
    threads = threads_for(10.0 * W.nnz * Z.shape[1])
    in_threads(lambda lo, hi: kernels.laplacian(*edges, Z, out, lo, hi), len(Z), 1, threads)
    return out


def _kl_pass(X: Any, V: Array, U: Array, low: Any, *, want_log: bool) -> tuple[Array, Array]:
    from partwise.backends.numpy import kernels

    out = np.empty((X.shape[0], V.shape[1]), dtype=X.dtype)
    xlogy = np.empty(X.shape[0])
    bounds, threads = cut_rows(X, 20 * V.shape[1])
    run = kernels.kl_rows_parallel if threads > 1 else kernels.kl_rows
    V, U = np.ascontiguousarray(V), np.ascontiguousarray(U)
    run(X.indptr, X.indices, X.data, V, U, out, xlogy, want_log, bounds, low)
    return out, xlogy
