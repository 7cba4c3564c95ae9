"""Functions that Dask tasks apply to one block of an array.

A block is a DenseData or SparseData object.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends.arrays import AnyArray, is_missing
from partwise.backends.numpy import blocks
from partwise.backends.numpy.dense import DenseData
from partwise.backends.numpy.sparse import SparseData


def entries(X: Any) -> float:
    return float(X.density * X.shape[0] * X.shape[1])


def tdot(X: Any, V: AnyArray) -> AnyArray:
    return X.tdot(np.ascontiguousarray(V))


def tdot_gram(X: Any, V: AnyArray) -> AnyArray:
    """Return the products XᵀV and VᵀV of a block, one below the other in one array."""
    return np.concatenate([tdot(X, V), V.T @ V])


def call(X: Any, name: str, *args: Any) -> AnyArray:
    return getattr(X, name)(*args)


def repeat(block: AnyArray, row: AnyArray) -> AnyArray:
    return np.tile(row, (block.shape[0], 1))


def head_sums(V: AnyArray, index: AnyArray, count: int) -> AnyArray:
    out = np.zeros((count, V.shape[1]))
    at = index < count
    np.add.at(out, index[at], V[at])
    return out


def tail(V: AnyArray, index: AnyArray, count: int) -> AnyArray:
    return V[index >= count]


def join(rest: AnyArray, index: AnyArray, head: AnyArray, count: int) -> AnyArray:
    out = np.empty((len(index), head.shape[1]), dtype=head.dtype)
    shared = index < count
    out[shared], out[~shared] = head[index[shared]], rest
    return out


def head_data(X: Any, index: AnyArray, count: int, weights: AnyArray | None) -> AnyArray:
    at = np.flatnonzero(index < count)
    part = X.X[at]
    part = part.toarray() if sp.issparse(part) else part
    if weights is not None:
        part = part * weights[at][:, None].astype(X.dtype)
    out = np.zeros((count, X.shape[1]), dtype=X.dtype)
    np.add.at(out, index[at], part)
    return out


def selected(X: Any, index: AnyArray | None, count: int, weights: AnyArray | None) -> Any:
    if index is not None and not (index >= count).all():
        at = np.flatnonzero(index >= count)
        X = type(X)(X.X[at])
        weights = None if weights is None else weights[at]
    return X if weights is None else X.weighted(weights, None, X.shape[0])


def of_part(X: DenseData, whole: tuple[float, int], name: str, *args: Any) -> Any:
    """Call a block's method after storing properties of the whole array in the block.

    These are the lower limit of VUᵀ in ratios, and the size of the array.
    """
    return getattr(X.part_of(*whole), name)(*args)


def kept(block: Any, missing: float) -> Any:
    return with_values(block, lambda x: np.where(is_missing(x, missing), x.dtype.type(0), x))


def places(block: Any, missing: float) -> Any:
    if missing == 0 and sp.issparse(block.X):
        return with_values(block, np.ones_like)
    return with_values(block, lambda x: is_missing(x, missing).astype(x.dtype))


def with_values(block: Any, function: Any) -> Any:
    """Return the block with these values instead of its own; zeros are not stored."""
    if not sp.issparse(block.X):
        return DenseData(function(block.X))
    X = block.X.copy()
    X.data = function(X.data)
    X.eliminate_zeros()
    return SparseData(X)


def dense(block: Any) -> AnyArray:
    return block.X.toarray() if sp.issparse(block.X) else block.X


def weight(X: AnyArray, w: AnyArray, missing: float | None) -> AnyArray:
    return w if missing is None else np.where(is_missing(X, missing), w.dtype.type(0), w)


def times(block: Any, w: AnyArray, missing: float | None) -> Any:
    X = dense(block)
    w = weight(X, w, missing)
    X = np.where(w > 0, X, X.dtype.type(0)) * w
    return SparseData(sp.csr_array(X)) if sp.issparse(block.X) else DenseData(X)


def short(block: Any, w: AnyArray, d: AnyArray, missing: float | None) -> Any:
    return DenseData(d[:, None] - weight(dense(block), w, missing))


def sums(block: Any, w: AnyArray, missing: float | None) -> AnyArray:
    X = dense(block)
    return np.stack(blocks.weighed_sums(X, weight(X, w, missing)), axis=1)
