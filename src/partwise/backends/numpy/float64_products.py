"""Products in float64 of an X in float32, to avoid cancellation; X is not copied."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends import arrays
from partwise.backends.arrays import AnyArray, float64, namespace
from partwise.backends.data_matrix import DataMatrix
from partwise.backends.gaps import Beside, MaskedData, WeightDeficit
from partwise.backends.numpy.dense import ByBlocks, DenseData
from partwise.backends.numpy.sparse import SparseData


class FromSingle:
    """Mixin for factors in float64 while the user's X is in float32."""

    given = np.dtype(np.float32)

    def result(self, a: AnyArray) -> AnyArray:
        return a.astype(self.given)


class DoubleDense(FromSingle, ByBlocks):
    """A float32 ndarray with products in float64, one block of rows at a time."""

    def __init__(self, X: AnyArray) -> None:
        super().__init__(X)
        self.dtype = np.dtype(np.float64)

    def _blocks(self, entries: int | None = None) -> Any:
        return ((rows, self.X[rows].astype(float)) for rows in arrays.row_blocks(*self.shape))


class DoubleSparse(FromSingle, SparseData):
    """A CSR matrix converted to float64."""


def in_double(data: DataMatrix) -> DataMatrix:
    """Return ``data`` with products in float64, if it is float32 in memory."""
    if type(data) not in (DenseData, SparseData) or data.dtype != np.float32:
        return data
    X: Any = data.whole()
    return DoubleSparse(X.astype(np.float64)) if sp.issparse(X) else DoubleDense(X)


class DoubleProducts(Beside):
    """`dot` and `tdot` in float64 of an X in float32, one block of rows at a time."""

    def __init__(self, base: Any) -> None:
        super().__init__(base)
        self.dtype = np.dtype(np.float64)
        self.row_sums = base.row_sums

    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        base: Any = self.base
        # Two blocks in float64 are in memory together with one of the base, so each is an eighth.
        step = max(1, arrays.BLOCK_ENTRIES // 8 * getattr(base, "block_scale", 1) // self.shape[1])
        for rows, X in base._blocks():
            for at in range(0, X.shape[0], step):
                part = float64(X[at : at + step])
                yield slice(rows.start + at, rows.start + at + part.shape[0]), part

    def dot(self, U: AnyArray) -> AnyArray:
        parts = [X @ U for _, X in self._blocks()]
        return np.concatenate(parts) if namespace(U) is np else namespace(U).concat(parts)

    def tdot(self, V: AnyArray) -> AnyArray:
        return sum(X.T @ V[rows] for rows, X in self._blocks())

    def kl_dot(self, V: AnyArray, U: AnyArray) -> tuple[AnyArray, AnyArray]:
        raise NotImplementedError("products alone")

    kl_tdot = kl_newton = kl_dot


class _DoubleRows(DoubleProducts):
    """`DoubleProducts` of CSR rows, in blocks with a similar number of non-zeros."""

    def _blocks(self) -> Iterator[tuple[slice, Any]]:
        X: Any = self.base.whole()
        for rows in arrays.row_blocks(X.shape[0], X.nnz // max(1, X.shape[0])):
            yield rows, X[rows].astype(np.float64)


@singledispatch
def double_products(data: Any) -> Any:
    """Return ``data`` with `dot` and `tdot` in float64, if rounding would change the result."""
    return data if data.dtype == np.float64 else DoubleProducts(data)


@double_products.register
def _(data: SparseData) -> Any:
    return data if data.dtype == np.float64 else _DoubleRows(data)


@double_products.register
def _(data: MaskedData) -> Any:
    if data.dtype == np.float64:
        return data
    lack, d = data.lack, data.lack.d
    entries, d = double_products(lack.entries), None if d is None else float64(d)
    return MaskedData(double_products(data.base), WeightDeficit(entries, seen=lack.seen, d=d))
