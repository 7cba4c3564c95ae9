"""Dense arrays in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np

from partwise.backends import arrays
from partwise.backends.arrays import AnyArray, floor
from partwise.backends.curvature import of_pairs
from partwise.backends.data_matrix import InNumpy
from partwise.backends.numpy import blocks
from partwise.backends.threads import (
    BLAS,
    PASS,
    add_in_order,
    cached_property,
    each,
    in_threads,
    one_blas_thread,
    pieces,
    threads_for,
)

#: Minimum number of multiply-adds of a second-order sweep for which single precision is faster.
ROUGH_WORK = 5e6
#: Number of entries of a block of rows, small enough that 3,000 images keep many threads busy.
BLOCK = arrays.BLOCK_ENTRIES // 4
#: Products of X with few columns use compiled kernels instead of BLAS if X has at least NARROW
#: entries, rows of at least LONG entries, and the factor at most WIDEST columns. Compiling takes a
#: second once. With 20 columns the kernels were 1.5 times as fast as BLAS on an AMD EPYC and equal
#: on an Intel Xeon; with 50 the Xeon was a third slower. Only the shape and the registers of the
#: processor decide, not measured times, because the kernels round differently from BLAS.
NARROW, LONG, WIDEST = 8_000_000, 500, 25


@cache
def _many_registers() -> bool:
    """Return whether the processor has the 32 wide registers that these kernels use."""
    from llvmlite.binding import get_host_cpu_features

    return bool(get_host_cpu_features().get("avx512f", False))


#: How products with X are divided into calls of BLAS: at most PIECES pieces, each with at least
#: ENTRIES entries and LEAST rows, or FEW rows if there would be fewer than sixteen pieces. Pieces
#: of XᵀB have at least ACROSS columns, since BLAS takes a fifth longer with 200.
PIECES, ENTRIES, LEAST, FEW, ACROSS = 64, 2**17, 192, 64, 512


def product(X: AnyArray, B: AnyArray) -> AnyArray:
    """Return X B of a large X, in threads; X may be a transposed view."""
    found = narrow_product(X, B)
    if found is not None:
        return found
    threads = threads_for(BLAS * X.size * B.shape[1], True)
    with one_blas_thread:
        return (_product if X.flags.c_contiguous else _transposed)(X, B, threads)


def _product(X: AnyArray, B: AnyArray, threads: int) -> AnyArray:
    out = np.empty((len(X), B.shape[1]), np.result_type(X, B))
    least = min(LEAST, max(FEW, len(X) // 16))
    parts = pieces(len(X), max(least, ENTRIES // max(1, X.shape[1])), PIECES)
    if outside := _outside(X, B, threads):
        p, k = B.shape
        outside(X, B, out[None], [(0, rows, (0, p), (0, k)) for rows in parts], threads)
        return out
    each(lambda lo, hi: np.matmul(X[lo:hi], B, out=out[lo:hi]), parts, threads)
    return out


def _outside(X: AnyArray, B: AnyArray, threads: int) -> Any:
    """Return the compiled product function, if it is faster and rounds in the same way."""
    plain = X.dtype == B.dtype and B.flags.c_contiguous and min(B.shape) > 1
    if threads == 1 or not plain or X.dtype not in (np.float32, np.float64):
        return None
    from partwise.backends.numpy.kernels import products

    return products.multiply_parts if products.gemm(X.dtype)[1] else None


def _transposed(X: AnyArray, B: AnyArray, threads: int) -> AnyArray:
    """Return `_product` for X in Fortran order, where BLAS is up to twice as fast."""
    p, k = len(X), B.shape[1]
    # Each run of rows has a separate sum; the sums together have at most a quarter of X's size.
    runs = pieces(len(B), max(LEAST, 4 * k, ENTRIES // max(1, p)), PIECES // 2)
    parts = pieces(p, ACROSS, max(1, PIECES // (2 * len(runs))))
    sums = np.empty((len(runs), k, p), np.result_type(X, B))
    tasks = [(r, rows, part) for r, rows in enumerate(runs) for part in parts]
    outside = _outside(X, B, threads) if X.flags.f_contiguous else None
    out = np.empty((p, k), sums.dtype)
    if outside:
        from partwise.backends.numpy.kernels.products import add_up

        outside(B.T, X.T, sums, [(r, (0, k), rows, columns) for r, rows, columns in tasks], threads)
        add_up(sums, out, threads)
        return out

    def run(number: int, rows: tuple[int, int], columns: tuple[int, int]) -> None:
        (top, bottom), (lo, hi) = rows, columns
        np.matmul(B.T[:, top:bottom], X.T[top:bottom, lo:hi], out=sums[number, :, lo:hi])

    each(run, tasks, threads)

    def add(lo: int, hi: int) -> None:
        out[lo:hi] = sums[:, :, lo:hi].sum(axis=0).T

    in_threads(add, p, 16, threads_for(PASS * sums.size))
    return out


def narrow_product(X: AnyArray, B: AnyArray) -> AnyArray | None:
    """Return X B, or None if BLAS is as fast; X may be a transposed view."""
    across = not X.flags.c_contiguous
    rows = X.T if across else X
    if (
        X.size < NARROW
        or not 0 < B.shape[1] <= WIDEST
        or rows.shape[1] < LONG
        or not rows.flags.c_contiguous
        or B.dtype != X.dtype
        or (across and X.itemsize == 8)
        or not _many_registers()
    ):
        return None
    from partwise.backends.numpy.kernels import narrow

    threads = threads_for(BLAS * X.size * B.shape[1], True)
    product: Any = narrow.narrow_tdot if across else narrow.narrow_dot
    return product(rows, B, threads)


def row_squares(Y: AnyArray) -> AnyArray:
    """Return ‖y_i‖² in float64.

    Sums of at most 512 squares are computed in the dtype of Y, unless they leave its range.
    """
    cut = [Y[:, at : at + 512] for at in range(0, max(1, Y.shape[1]), 512)]
    with np.errstate(over="ignore"):
        sums: AnyArray = np.sum([np.vecdot(part, part) for part in cut], axis=0, dtype=np.float64)
    beyond = ~((sums > 1e-20) & (sums < 1e30)) if Y.itemsize == 4 else np.zeros(0, bool)
    if beyond.any():
        far = Y[beyond]
        sums[beyond] = np.einsum("ij,ij->i", far, far, dtype=np.float64, casting="unsafe")
    return sums


class DenseData(InNumpy):
    """Back end for a dense float32 or float64 ndarray, which is not copied or changed."""

    density = 1.0

    def __init__(self, X: AnyArray) -> None:
        self.X, self.shape, self.dtype = X, X.shape, X.dtype

    @cached_property
    def _low(self) -> Any:
        return self.dtype.type(self.model_floor(self.row_sums(), self.shape[1]))

    @cached_property
    def _size(self) -> int:
        """Size, in entries, of the whole matrix of which this object is a part."""
        return self.shape[0] * self.shape[1]

    def part_of(self, low: float, size: int) -> DenseData:
        """Store properties of the whole X, of which this is a part; return this object.

        They are the lower limit of VUᵀ and the size of X. All parts of X then use the same kernels.
        """
        self._low, self._size = self.dtype.type(low), size
        return self

    def whole(self) -> Any:
        return self.X

    def _blocks(self, entries: int | None = BLOCK) -> Any:
        """Return (rows, block) of all rows, with about this many ``entries`` or a default."""
        return ((rows, self.X[rows]) for rows in arrays.row_blocks(*self.shape, entries or 0))

    def _by_row(self, function: Any, work: float = 10.0) -> AnyArray:
        """Return the results of ``function(rows, block)`` for all blocks of rows.

        ``work`` is the number of multiply-adds per entry of X.
        """
        out = np.empty(self.shape[0], dtype=np.float64)

        def run(rows: slice, X: AnyArray) -> None:
            out[rows] = function(rows, X)

        self._each_block(run, work)
        return out

    def _each_block(self, run: Any, work: float) -> None:
        """Call run(rows, block) for each block of rows, in a suitable number of threads."""
        with one_blas_thread:
            each(run, self._blocks(), self._threads(work))

    def _threads(self, work: float) -> int:
        """Return the threads for ``work`` multiply-adds per entry, at most one per block."""
        n, p = self.shape
        return min(threads_for(work * n * p), max(1, -(-n * p // BLOCK)))

    def _summed(self, make: Any, out: AnyArray, work: float, entries: int = BLOCK) -> AnyArray:
        """Add the results of ``make(rows, block)`` to ``out``, in the order of the blocks."""

        def add(part: AnyArray) -> None:
            nonlocal out
            out += part

        with one_blas_thread:
            add_in_order(make, add, self._blocks(entries), self._threads(work))
        return out

    def dot(self, U: AnyArray) -> AnyArray:
        return product(self.X, U)

    def tdot(self, V: AnyArray) -> AnyArray:
        return product(self.X.T, V)

    def row_sq_norms(self) -> AnyArray:
        if "_squares" not in vars(self):  # computed once
            self._squares = self._by_row(lambda _, X: row_squares(X))
        return self._squares

    def total_squares(self, V: AnyArray | None = None, U: AnyArray | None = None) -> float:
        if V is not None or U is not None:
            return float(self.row_sq_residuals(V, U).sum())
        found = arrays.dot64(self.X, self.X) if type(self) is DenseData else 0.0
        if 1e-20 < found < 1e30 or (self.dtype.itemsize == 8 and found):
            return found
        return float(self.row_sq_norms().sum())  # the sum may overflow in float32

    def row_sums(self) -> AnyArray:
        return self._by_row(lambda _, X: X.sum(axis=1, dtype=np.float64))

    def row_xlogx(self) -> AnyArray:
        return self._by_row(lambda _, X: blocks.xlogx(X), 100.0)

    def row_sq_residuals(self, V: AnyArray, U: AnyArray) -> AnyArray:
        def squares(rows: slice, X: AnyArray) -> AnyArray:
            Y = V[rows] @ U.T
            Y -= X
            return row_squares(Y)

        return self._by_row(squares, 10.0 + U.shape[1])

    def row_divergences(self, V: AnyArray, U: AnyArray) -> AnyArray:
        U = U.astype(np.float64)

        def divergences(rows: slice, X: AnyArray) -> AnyArray:
            Y = V[rows].astype(np.float64) @ U.T
            X = X.astype(np.float64)
            sums = blocks.xlogx(X) + (Y - X).sum(axis=1)
            np.log(np.maximum(Y, self._low, out=Y), out=Y)
            return sums - np.einsum("ij,ij->i", X, Y)

        return self._by_row(divergences, 200.0 + U.shape[1])

    def row_powers(self, beta: float) -> AnyArray:
        return self._by_row(lambda _, X: blocks.powers(X, beta), 200.0)

    def weighted(self, weights: AnyArray | None, index: AnyArray | None, n_rows: int) -> DenseData:
        X = self.X if weights is None else self.X * weights[:, None].astype(self.dtype)
        if index is not None:
            out = np.zeros((n_rows, self.shape[1]), dtype=self.dtype)
            np.add.at(out, index, X)
            X = out
        return DenseData(X).weighing(weights, self.shape[0])

    def kl_dot(self, V: AnyArray, U: AnyArray) -> tuple[AnyArray, AnyArray]:
        out = np.empty((self.shape[0], U.shape[1]), dtype=self.dtype)
        xlogy = np.empty(self.shape[0])
        low = self._low

        def run(rows: slice, X: AnyArray) -> None:
            R, Y = blocks.kl_ratio(X, V[rows], U, low)
            out[rows], xlogy[rows] = R @ U, blocks.log_sums(X, Y, V[rows], U)

        self._each_block(run, 100.0 + 2 * U.shape[1])
        return out, xlogy

    def kl_tdot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        low = self._low

        def share(rows: slice, X: AnyArray) -> AnyArray:
            return blocks.kl_ratio(X, V[rows], U, low)[0].T @ V[rows]

        return self._summed(share, np.zeros_like(U), 20.0 + 2 * U.shape[1])

    def kl_tdot_log(self, V: AnyArray, U: AnyArray) -> tuple[AnyArray, float]:
        low, totals = self._low, np.empty(self.shape[0])

        def share(rows: slice, X: AnyArray) -> AnyArray:
            R, Y = blocks.kl_ratio(X, V[rows], U, low)
            out = R.T @ V[rows]
            totals[rows] = blocks.log_sums(X, Y, V[rows], U)
            return out

        out = self._summed(share, np.zeros_like(U), 100.0 + 2 * U.shape[1])
        return out, float(totals.sum())

    def kl_newton(
        self,
        V: AnyArray,
        U: AnyArray,
        cost: AnyArray,
        ridge: AnyArray,
        sweeps: int,
        rough: bool,
        transposed: bool,
    ) -> tuple[AnyArray, AnyArray]:
        from partwise.backends.numpy.kernels import divergence

        X, Z, B = (self.X.T, U, V) if transposed else (self.X, V, U)
        Z = Z.copy()
        rough = rough and self._size * Z.shape[1] >= ROUGH_WORK
        # float32 sweeps are faster: a vector register holds twice as many numbers, and their
        # division is faster.
        dtype = np.dtype(np.float32) if rough else self.dtype
        # The floors are 1e-30 and 1e-12 of the mean of X.
        low = self._low if dtype == self.dtype else max(1e18 * self._low, floor(dtype))
        threads = threads_for(12.0 * X.size * Z.shape[1], True)
        divergence.newton_dense(X, Z, B, cost, ridge, sweeps, dtype.type(low), threads)
        return Z, np.array([self.log_sum(V, Z)]) if transposed else np.zeros(0)

    def log_sum(self, V: AnyArray, U: AnyArray) -> float:
        """Return Σ x log y in float64."""
        B, low = U.T.astype(np.float64), self._low

        def logs(rows: slice, X: AnyArray) -> float:
            Y = V[rows].astype(np.float64) @ B
            np.log(np.maximum(Y, low, out=Y), out=Y)
            return float(Y.ravel() @ np.asarray(X, np.float64).ravel())

        return float(self._summed(logs, np.zeros(1), 20.0 + len(B), BLOCK // 4)[0])

    def kl_curvature(self, V: AnyArray, U: AnyArray, transposed: bool) -> AnyArray:
        assert transposed, "rows are swept"
        return self.column_curvature(V, U, range(U.shape[1]))

    def column_curvature(self, V: AnyArray, U: AnyArray, seconds: Sequence[int]) -> AnyArray:
        """Return `kl_curvature` of U for the pairs a <= b with b in ``seconds``."""
        low, pairs = self._low, sum(seconds) + len(seconds)

        def share(rows: slice, X: AnyArray) -> AnyArray:
            R, Y = blocks.kl_ratio(X, V[rows], U, low)
            return (R / Y).T @ of_pairs(V[rows], seconds)

        return self._summed(share, np.zeros((U.shape[0], pairs), U.dtype), 20.0 + 2 * pairs)

    def times_dot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        out = np.empty((self.shape[0], U.shape[1]), dtype=V.dtype)
        self._each_block(
            lambda rows, X: np.matmul(X * (V[rows] @ U.T), U, out=out[rows]), 10.0 + 2 * U.shape[1]
        )
        return out

    def times_tdot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        def share(rows: slice, X: AnyArray) -> AnyArray:
            return (X * (V[rows] @ U.T)).T @ V[rows]

        return self._summed(share, np.zeros_like(U, order="C"), 10.0 + 2 * U.shape[1])

    def times_squares(self, V: AnyArray, U: AnyArray) -> AnyArray:
        def squares(rows: slice, X: AnyArray) -> AnyArray:
            Y = V[rows] @ U.T
            return np.einsum("ij,ij,ij->i", X, Y, Y, dtype=np.float64, casting="unsafe")

        return self._by_row(squares, 10.0 + U.shape[1])

    def beta_dot(
        self, V: AnyArray, U: AnyArray, beta: float
    ) -> tuple[AnyArray, AnyArray, AnyArray]:
        num = np.empty((self.shape[0], U.shape[1]), dtype=self.dtype)
        den, loss = np.empty_like(num), np.empty(self.shape[0])

        def run(rows: slice, X: AnyArray) -> None:
            up, down, Y = blocks.beta_parts(X, V[rows], U, beta)
            num[rows], den[rows] = up @ U, down @ U
            loss[rows] = blocks.beta_divergence(X, Y, beta)

        self._each_block(run, 500.0 + 3 * U.shape[1])
        return num, den, loss

    def beta_tdot(self, V: AnyArray, U: AnyArray, beta: float) -> tuple[AnyArray, AnyArray]:
        def share(rows: slice, X: AnyArray) -> AnyArray:
            up, down, _ = blocks.beta_parts(X, V[rows], U, beta)
            return np.stack([up.T @ V[rows], down.T @ V[rows]])

        both = np.zeros((2, *U.shape), U.dtype)
        num, den = self._summed(share, both, 400.0 + 3 * U.shape[1])
        return num, den


class ByBlocks(DenseData):
    """An array whose products are computed one block of rows at a time."""

    def dot(self, U: AnyArray) -> AnyArray:
        out = np.empty((self.shape[0], U.shape[1]), dtype=self.dtype)
        self._each_block(lambda rows, X: np.matmul(X, U, out=out[rows]), U.shape[1])
        return out

    def tdot(self, V: AnyArray) -> AnyArray:
        out = np.zeros((self.shape[1], V.shape[1]), dtype=self.dtype)
        return self._summed(lambda rows, X: X.T @ V[rows], out, V.shape[1])
