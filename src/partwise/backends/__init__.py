"""Back ends: the only code that reads X, with one file for each kind of array."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from partwise.backends.arrays import limits, to_numpy
from partwise.backends.data_matrix import BackEnd, DataMatrix, Swept, refuse_anndata
from partwise.backends.masks import as_missing, refuse_masks
from partwise.backends.numpy.dense import DenseData
from partwise.backends.numpy.memmap import MemmapData
from partwise.backends.numpy.sparse import SparseData

__all__ = ["BackEnd", "DataMatrix", "as_data", "back_end", "in_memory", "in_memory_or_dask"]

#: A sparse matrix with fewer entries than this, zeros included, is faster as a dense one.
SMALL_SPARSE = 40_000


#: Packages whose arrays stay on their device or cluster, and the module that supports them.
BACK_ENDS = {
    "torch": "torch.torch_data",
    "cupy": "cupy_data",
    "cupyx": "cupy_data",
    "dask": "dask.dask_data",
}


def back_end(X: Any) -> BackEnd | None:
    """Return the back end for arrays of X's kind; None for numpy, scipy and unknown arrays."""
    refuse_anndata(X)
    refuse_masks(X)
    for cls in type(X).__mro__:
        name = BACK_ENDS.get(cls.__module__.partition(".")[0])
        if name is not None:
            found: BackEnd = import_module(f"{__name__}.{name}").BACK_END
            return found
    return None


def in_memory(X: Any, missing_values: float | None = None) -> Any:
    """Check X and return it as an ndarray or a CSR matrix of this process.

    PyTorch tensors and Dask arrays are converted. NaN and masked entries are allowed only if they
    are ``missing_values``.
    """
    refuse_anndata(X)
    if missing_values is not None:
        X = as_missing(X, missing_values)
    found = back_end(X)
    if found is not None and missing_values is None:
        checked = found.check(X, "X")
        X = X.compute() if isinstance(checked, Swept) else to_numpy(checked)  # Dask data
    elif found is not None:
        X = X.compute() if hasattr(X, "compute") else to_numpy(X)
    finite = True if missing_values is None else "allow-nan"
    dtypes = [np.float64, np.float32]
    try:
        return check_array(X, accept_sparse="csr", dtype=dtypes, ensure_all_finite=finite)
    except ValueError as error:
        if "contains NaN" not in str(error):
            raise
        raise ValueError(
            "X contains NaN. Use missing_values=np.nan if NaN marks missing entries; otherwise "
            "fill them in or leave out those samples."
        ) from error


def in_memory_or_dask(X: Any, missing_values: float | None = None) -> Any:
    """Return X as `in_memory` does, but leave a Dask array where it is, in chunks of rows."""
    refuse_anndata(X)
    if not hasattr(X, "to_delayed"):
        return in_memory(X, missing_values)
    if missing_values is not None:
        X = as_missing(X, missing_values)
    found = back_end(X)
    assert found is not None
    found.look(X)
    X = X if X.dtype in (np.float32, np.float64) else X.astype(np.float64)
    return X.rechunk({1: -1}) if X.numblocks[1] > 1 else X


def as_data(X: Any) -> DataMatrix:
    """Return the back end for a validated array; a back end is returned unchanged."""
    if isinstance(X, Swept):
        return X  # type: ignore[return-value]
    if isinstance(X, np.ndarray):
        return MemmapData(X) if isinstance(X, np.memmap) else DenseData(X)
    if sp.issparse(X):
        return _sparse_data(sp.csr_array(X))
    found = back_end(X)
    if found is not None:
        return found.wrap(X)
    raise TypeError(
        f"X must be a numpy array, memmap, scipy sparse matrix, torch tensor, CuPy or Dask array, "
        f"got {type(X).__name__}; convert it with numpy.asarray first."
    )


def _sparse_data(X: Any) -> DataMatrix:
    if X.shape[0] * X.shape[1] <= SMALL_SPARSE:
        return DenseData(X.toarray())
    if not X.has_canonical_format or (not limits(X.data)[0] > 0 and (X.data == 0).any()):
        X = X.copy()
        X.sum_duplicates()
        X.eliminate_zeros()
    return SparseData(X)
