"""Products of AᵀΓX without computing AᵀΓX, for samples with class probabilities."""

from __future__ import annotations

from typing import Any

from partwise.backends.arrays import AnyArray
from partwise.backends.data_matrix import DataMatrix, InNumpy


class MixedData(InNumpy):
    """Products of AᵀΓX, computed from products of ΓX.

    Parameters
    ----------
    data : DataMatrix
        ΓX, in memory.
    rows : MixedRows
        The map A: ``expand`` is A Z, ``reduce`` AᵀV.
    """

    newton_sides = ""  # second-order steps need rows of X, and several rows of Z share a row of X

    def __init__(self, data: DataMatrix, rows: Any) -> None:
        self.data, self.mixed = data, rows
        self.shape, self.dtype = (rows.n_rows, data.shape[1]), data.dtype
        self.density = data.density

    def row_sums(self) -> AnyArray:
        return self.data.row_sums()

    def dot(self, U: AnyArray) -> AnyArray:
        return self.mixed.reduce(self.data.dot(U))

    def tdot(self, V: AnyArray) -> AnyArray:
        return self.data.tdot(self.mixed.expand(V))

    def kl_dot(self, V: AnyArray, U: AnyArray) -> tuple[AnyArray, AnyArray]:
        product, logs = self.data.kl_dot(self.mixed.expand(V), U)
        return self.mixed.reduce(product), logs

    def kl_tdot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self.data.kl_tdot(self.mixed.expand(V), U)
