"""A half-step of `solvers.wide` as one job: a piece of the product with X, and its rows' sweeps.

Pieces are cut by what is known before the first iteration, never by the number of threads.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from partwise.backends.arrays import AnyArray
from partwise.backends.numpy.dense import DenseData
from partwise.backends.numpy.sparse import SparseData
from partwise.backends.threads import board, cached_property

#: Pieces at most. Those of a dense X each have a sum of their own for Xᵀ V, of which all together
#: take no more than X, or than this many bytes.
PIECES, ROOM = 32, 2**25
#: A sweep that moves less than this share of the first one is the last, as in `hals`.
STOP = 0.1


def half_steps(data: Any, dtype: Any) -> HalfSteps:
    """The way for this matrix and factors of this dtype."""
    if data.dtype == dtype:
        if type(data) is DenseData and data.X.flags.c_contiguous:
            return DenseSteps(data)
        if type(data) is SparseData:
            return SparseSteps(data)
    return HalfSteps(data)


class HalfSteps:
    """Where the products of the matrix are its own affair."""

    def __init__(self, data: Any) -> None:
        self.data = data
        self.bounds: dict[tuple[str, int], AnyArray] = {}
        # what the kernel takes and this matrix has not
        none = np.empty(0, np.int32)
        self.rows, self.sums = (0, 0), np.empty((0, 0, 0), data.dtype)
        self.csr = none, none, np.empty(0, data.dtype)

    def step(
        self, side: str, own: Any, B: AnyArray, G: AnyArray, weights: AnyArray, *, ready: bool
    ) -> AnyArray:
        """One half-step of a `Side` with Hessians G, where B is the other factor.

        ``own.C`` receives the product, unless it is ready, ``own.gram`` the Gram matrices, and
        ``own.spare`` where the step began. Returns by how much the objective changed, (R, 2): up to
        where the sweeps end, and from there to where the next ones begin.
        """
        from partwise.backends.numpy import kernels

        R, k, _ = G.shape
        wide = own.Z.shape[1]
        if (side, wide) not in self.bounds:
            self.bounds[side, wide] = self.cut(side, wide, k * (own.sweeps + 2))
        bounds = self.bounds[side, wide]
        count = len(bounds) - 1
        grams, changes = np.empty((count, R, k, k)), np.empty((count, R, 2))
        gram, change = np.empty_like(own.gram), np.empty((R, 2))
        how, work = self.run(side, own, B, ready=ready)
        work += float(own.Z.size) * k * (own.sweeps + 2)
        kernels.half_steps(
            board(work), -1, bounds, how, self.blas, *self.rows, self.sums, *self.csr, B, own.Z,
            own.C, G, own.old, weights, own.spare, grams, changes, gram, change, own.sweeps, STOP,
        )  # fmt: skip
        own.Z, own.spare, own.gram = own.spare, own.Z, gram
        return change

    def cut(self, side: str, wide: int, sweeps: int) -> AnyArray:
        """Where pieces begin and end, in blocks of rows; ``sweeps`` is their work on an entry."""
        return self.even(self.data.shape["VU".index(side)], 1)

    def even(self, n: int, least: int) -> AnyArray:
        """Pieces of as many blocks each, and at least so many."""
        from partwise.backends.numpy import kernels

        blocks = -(-n // kernels.LANES)
        size = max(least, -(-blocks // PIECES))
        return np.append(np.arange(0, blocks, size), blocks)

    def run(self, side: str, own: Any, B: AnyArray, *, ready: bool) -> tuple[int, float]:
        """Where C comes from (`kernels.half_steps`), and its multiply-adds."""
        from partwise.backends.numpy import kernels

        if not ready:
            product = self.data.dot if side == "V" else self.data.tdot
            own.C = np.ascontiguousarray(product(B))
        return kernels.GIVEN, 0.0

    @cached_property
    def blas(self) -> Any:
        from partwise.backends.numpy import kernels

        return kernels.gemm(self.data.dtype)


class DenseSteps(HalfSteps):
    """A C-contiguous array: its rows serve both products while they are in the cache."""

    def __init__(self, data: Any) -> None:
        super().__init__(data)
        self.rows = data.X.ctypes.data, data.shape[1]

    def cut(self, side: str, wide: int, sweeps: int) -> AnyArray:
        from partwise.backends.numpy import kernels

        n, p = self.data.shape
        if side == "U":
            return self.even(p, 1)
        size = p * wide * self.data.X.itemsize
        most = max(ROOM, self.data.X.nbytes) // max(1, size)  # pieces that there is room for
        least = -(-n // (kernels.LANES * max(1, most)))
        return self.even(n, max(2, least))

    def run(self, side: str, own: Any, B: AnyArray, *, ready: bool) -> tuple[int, float]:
        from partwise.backends.numpy import kernels

        if side == "U":
            return kernels.SUMS, self.sums.size
        (n, p), wide = self.data.shape, own.Z.shape[1]
        shape = (len(self.bounds[side, wide]) - 1, wide, p)
        if self.sums.shape != shape:
            self.sums = np.empty(shape, own.Z.dtype)
        return kernels.READY if ready else kernels.DENSE, 2.0 * n * p * wide


class SparseSteps(HalfSteps):
    """CSR and its transpose."""

    def matrix(self, side: str) -> Any:
        return self.data.X if side == "V" else self.data._XT

    def cut(self, side: str, wide: int, sweeps: int) -> AnyArray:
        """By non-zeros, each of which is worth ten multiply-adds a column."""
        from partwise.backends.numpy import kernels

        X = self.matrix(side)
        n = X.shape[0]
        blocks = -(-n // kernels.LANES)
        at = np.minimum(np.arange(blocks + 1) * kernels.LANES, n)
        cost = 10.0 * X.indptr[at] + float(sweeps) * at
        wanted = np.linspace(0, cost[-1], 2 * PIECES + 1)
        return np.unique(np.append(np.searchsorted(cost, wanted[:-1]), blocks))

    def run(self, side: str, own: Any, B: AnyArray, *, ready: bool) -> tuple[int, float]:
        from partwise.backends.numpy import kernels

        X = self.matrix(side)
        self.csr = X.indptr, X.indices, X.data
        return kernels.GIVEN if ready else kernels.SPARSE, 10.0 * X.nnz * B.shape[1]
