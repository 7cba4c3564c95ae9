"""The only code that touches X: one file for each kind of array."""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.engine.arrays import is_tensor
from partwise.engine.data.base import DataMatrix
from partwise.engine.data.dense import DenseData
from partwise.engine.data.memmap import MemmapData
from partwise.engine.data.sparse import SparseData

__all__ = ["DataMatrix", "as_data"]

#: A sparse matrix with fewer entries than this, zeros included, is faster as a dense one.
SMALL_SPARSE = 40_000


@singledispatch
def as_data(X: Any) -> DataMatrix:
    """Wrap a validated array in its back end."""
    if is_tensor(X):
        from partwise.engine.data.torch_data import as_torch_data

        return as_torch_data(X)
    if type(X).__module__.partition(".")[0] == "dask":
        from partwise.engine.data.dask_data import as_dask_data

        return as_dask_data(X)
    if hasattr(X, "tdot"):  # wrapped already
        return X
    raise TypeError(
        f"X must be a numpy array, memmap, scipy sparse matrix, torch tensor or Dask array, got "
        f"{type(X).__name__}; convert it with numpy.asarray first."
    )


@as_data.register(np.ndarray)
def _(X: np.ndarray) -> DataMatrix:
    return DenseData(X)


@as_data.register(np.memmap)
def _(X: np.memmap) -> DataMatrix:
    return MemmapData(X)


@as_data.register(sp.spmatrix)
@as_data.register(sp.sparray)
def _(X: Any) -> DataMatrix:
    X = sp.csr_array(X)
    if X.shape[0] * X.shape[1] <= SMALL_SPARSE:
        return DenseData(X.toarray())
    if not X.has_canonical_format or (X.data == 0).any():
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return SparseData(X)
