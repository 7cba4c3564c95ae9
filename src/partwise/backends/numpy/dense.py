"""Dense arrays in memory."""

from __future__ import annotations

from functools import cache, cached_property
from typing import Any

import numpy as np

from partwise.backends.data_matrix import InNumpy
from partwise.backends.numeric import Array, floor, in_threads, threads_for
from partwise.backends.numpy import blocks

#: Multiply-adds of a second-order sweep from which single precision pays.
ROUGH_WORK = 5e6
#: Bytes of a cache line: a vector that lies across two takes twice as long to load or store.
LINE = 64


def lined(rows: int, width: int, dtype: np.dtype[Any]) -> Array:
    """Room for so many rows, or more: each begins on a cache line, no two alike within a page."""
    size = (-(-width * dtype.itemsize // LINE) + 1) * LINE
    room = np.empty(rows * size + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + rows * size].view(dtype).reshape(rows, -1)


#: Entries of X from which its products with few columns have kernels of their own, which take a
#: second to compile once; how long its rows must be, and how many columns are few.
NARROW, LONG, WIDEST = 8_000_000, 500, 64


@cache
def _many_registers() -> bool:
    """Whether the processor has the 32 wide registers that those kernels fill."""
    from llvmlite.binding import get_host_cpu_features

    return bool(get_host_cpu_features().get("avx512f", False))


def narrow_product(X: Array, B: Array) -> Array | None:
    """X B, or None where BLAS does as well; X may be the transpose of how it lies in memory."""
    across = not X.flags.c_contiguous
    rows = X.T if across else X
    if (
        X.size < NARROW
        or not 0 < B.shape[1] <= WIDEST
        or rows.shape[1] < LONG
        or not rows.flags.c_contiguous
        or B.dtype != X.dtype
        or not _many_registers()
    ):
        return None
    from partwise.backends.numpy.kernels import narrow

    threads = threads_for(float(X.size) * B.shape[1])
    return (narrow.narrow_tdot if across else narrow.narrow_dot)(rows, B, threads)


class DenseData(InNumpy):
    """A float32 or float64 ndarray, C or Fortran order; never copied or written to."""

    density = 1.0

    def __init__(self, X: Array) -> None:
        self.X = X

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return self.X.shape

    @property
    def dtype(self) -> Any:  # type: ignore[override]
        return self.X.dtype

    @cached_property
    def _low(self) -> Any:
        return self.dtype.type(self.model_floor(self.row_sums(), self.shape[1]))

    @cached_property
    def _size(self) -> int:
        """Entries of the matrix that this is a part of."""
        return self.shape[0] * self.shape[1]

    def part_of(self, low: float, size: int) -> DenseData:
        """Itself, told what it cannot know as a part: what a kernel does must not depend on it."""
        self._low, self._size = self.dtype.type(low), size
        return self

    def whole(self) -> Any:
        return self.X

    def _blocks(self) -> Any:
        return ((rows, self.X[rows]) for rows in blocks.row_blocks(*self.shape))

    def _by_row(self, function: Any) -> Array:
        out = np.empty(self.shape[0], dtype=np.float64)
        for rows, X in self._blocks():
            out[rows] = function(rows, X)
        return out

    def dot(self, U: Array) -> Array:
        found = narrow_product(self.X, U)
        return self.X @ U if found is None else found

    def tdot(self, V: Array) -> Array:
        found = narrow_product(self.X.T, V)
        # BLAS is up to twice as fast where X is the right operand
        return np.ascontiguousarray((V.T @ self.X).T) if found is None else found

    def row_sq_norms(self) -> Array:
        return self._squares

    @cached_property
    def _squares(self) -> Array:
        # einsum converts in small buffers: no copy of X in float64
        return self._by_row(
            lambda _, X: np.einsum("ij,ij->i", X, X, dtype=np.float64, casting="unsafe")
        )

    def row_sums(self) -> Array:
        return self.X.sum(axis=1, dtype=np.float64)

    def row_xlogx(self) -> Array:
        return self._by_row(lambda _, X: blocks.xlogx(X))

    def row_sq_residuals(self, V: Array, U: Array) -> Array:
        def squares(rows: slice, X: Array) -> Array:
            Y = V[rows] @ U.T
            Y -= X
            return blocks.row_squares(Y)

        return self._by_row(squares)

    def row_divergences(self, V: Array, U: Array) -> Array:
        U = U.astype(np.float64)

        def divergences(rows: slice, X: Array) -> Array:
            Y = V[rows].astype(np.float64) @ U.T
            X = X.astype(np.float64)
            sums = blocks.xlogx(X) + (Y - X).sum(axis=1)
            np.log(np.maximum(Y, self._low, out=Y), out=Y)
            return sums - np.einsum("ij,ij->i", X, Y)

        return self._by_row(divergences)

    def row_powers(self, beta: float) -> Array:
        return self._by_row(lambda _, X: blocks.powers(X, beta))

    def weighted(self, weights: Array | None, index: Array | None, n_rows: int) -> DenseData:
        X = self.X if weights is None else self.X * weights[:, None].astype(self.dtype)
        if index is not None:
            out = np.zeros((n_rows, self.shape[1]), dtype=self.dtype)
            np.add.at(out, index, X)
            X = out
        return DenseData(X).weighing(weights, self.shape[0])

    def kl_dot(self, V: Array, U: Array) -> tuple[Array, Array]:
        out = np.empty((self.shape[0], U.shape[1]), dtype=self.dtype)
        xlogy = np.empty(self.shape[0])
        for rows, X in self._blocks():
            out[rows], xlogy[rows] = blocks.kl_rows(X, V[rows], U, self._low)
        return out, xlogy

    def kl_tdot(self, V: Array, U: Array) -> Array:
        out = np.zeros_like(U)
        for rows, X in self._blocks():
            out += blocks.kl_ratio(X, V[rows], U, self._low)[0].T @ V[rows]
        return out

    def kl_tdot_log(self, V: Array, U: Array) -> tuple[Array, float]:
        out, total = np.zeros_like(U), 0.0
        for rows, X in self._blocks():
            R, Y = blocks.kl_ratio(X, V[rows], U, self._low)
            out += R.T @ V[rows]
            total += float(blocks.log_sums(X, Y, V[rows], U).sum())
        return out, total

    def kl_newton(
        self,
        V: Array,
        U: Array,
        cost: Array,
        ridge: Array,
        sweeps: int,
        rough: bool,
        transposed: bool,
    ) -> tuple[Array, Array]:
        from partwise.backends.numpy import kernels

        X, Z, B = (self.X.T, U, V) if transposed else (self.X, V, U)
        Z = Z.copy()
        rough = rough and self._size * Z.shape[1] >= ROUGH_WORK
        # float32 has twice the numbers in a vector, and divides them faster still
        dtype = np.dtype(np.float32) if rough else self.dtype
        basis = lined(Z.shape[1], len(B), dtype)
        basis[:, : len(B)] = B.T
        # floors are 1e-30 and 1e-12 of the mean of X
        low = self._low if dtype == self.dtype else max(1e18 * self._low, floor(dtype))

        def run(lo: int, hi: int) -> None:
            room = lined(3, len(B), dtype)
            for part in blocks.row_blocks(hi - lo, X.shape[1]):
                rows = slice(lo + part.start, lo + part.stop)
                prices = (a if len(a) == 1 else a[rows] for a in (cost, ridge))
                here = np.ascontiguousarray(X[rows], dtype)  # one layout: compiled once
                kernels.newton_dense(here, Z[rows], basis, *prices, sweeps, dtype.type(low), room)

        in_threads(run, len(Z), 1, threads_for(20.0 * X.size * Z.shape[1]))
        if not transposed:
            return Z, np.zeros(0)
        return Z, sum(blocks.xlogy(X, V[rows], Z, self._low) for rows, X in self._blocks())

    def times_dot(self, V: Array, U: Array) -> Array:
        out = np.empty((self.shape[0], U.shape[1]), dtype=self.dtype)
        for rows, X in self._blocks():
            np.matmul(X * (V[rows] @ U.T), U, out=out[rows])
        return out

    def times_tdot(self, V: Array, U: Array) -> Array:
        out = np.zeros_like(U, order="C")
        for rows, X in self._blocks():
            out += (X * (V[rows] @ U.T)).T @ V[rows]
        return out

    def times_squares(self, V: Array, U: Array) -> Array:
        def squares(rows: slice, X: Array) -> Array:
            Y = V[rows] @ U.T
            return np.einsum("ij,ij,ij->i", X, Y, Y, dtype=np.float64, casting="unsafe")

        return self._by_row(squares)

    def beta_dot(self, V: Array, U: Array, beta: float) -> tuple[Array, Array, Array]:
        num = np.empty((self.shape[0], U.shape[1]), dtype=self.dtype)
        den, loss = np.empty_like(num), np.empty(self.shape[0])
        for rows, X in self._blocks():
            up, down, Y = blocks.beta_parts(X, V[rows], U, beta)
            num[rows], den[rows] = up @ U, down @ U
            loss[rows] = blocks.beta_divergence(X, Y, beta)
        return num, den, loss

    def beta_tdot(self, V: Array, U: Array, beta: float) -> tuple[Array, Array]:
        num, den = np.zeros_like(U), np.zeros_like(U)
        for rows, X in self._blocks():
            up, down, _ = blocks.beta_parts(X, V[rows], U, beta)
            num += up.T @ V[rows]
            den += down.T @ V[rows]
        return num, den
