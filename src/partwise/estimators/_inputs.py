"""Checks of X where it is not an ndarray or a scipy matrix: on disk, on a device, on a cluster.

scikit-learn's own validation would copy such an X into memory. Everything is checked in one pass
here, and errors name the row.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import _check_n_features

from partwise.engine.arrays import is_tensor, to_numpy
from partwise.engine.data.memmap import check_memmap
from partwise.engine.numeric import Array

ZEROS = (
    "When beta_loss <= 0 and X contains zeros, the solver may diverge. "
    "Please add small values to X, or use a positive beta_loss."
)


def is_dask(X: Any) -> bool:
    return type(X).__module__.startswith("dask.array")


def check_special(estimator: Any, X: Any, *, reset: bool, beta: float) -> Any | None:
    """X checked, as its back end takes it; None where scikit-learn's validation should look."""
    name = type(estimator).__name__
    device = estimator.device
    on_disk = isinstance(X, np.memmap) and device is None
    if on_disk and X.ndim == 2 and X.size and X.dtype.kind in "fiub":
        if X.dtype.kind == "f" and X.dtype not in (np.float32, np.float64):
            return None
        _shape(estimator, X, reset)
        check_memmap(X, name, positive=beta <= 0)
        return X
    if device is not None and (is_dask(X) or is_tensor(X)):
        raise ValueError(
            f"device={device!r} moves numpy and scipy input; a {type(X).__name__} of "
            f"{type(X).__module__.partition('.')[0]} is used where it is, so leave device out."
        )
    if is_tensor(X):
        return _check_tensor(estimator, X, reset, beta, name)
    if is_dask(X):
        from partwise.engine.data.dask_data import check_dask

        if beta not in (1.0, 2.0):
            raise _only_two(beta, "Dask arrays")
        _shape(estimator, X, reset)
        return check_dask(X, name)
    return None


def check_local(X: Any, whom: str) -> None:
    """Refuse what would be copied here without a word."""
    if is_tensor(X) or is_dask(X):
        kind, call = "torch tensors", "X.cpu().numpy()"
        if is_dask(X):
            kind, call = "Dask arrays", "X.compute()"
        raise ValueError(
            f"{whom} needs X as a numpy or scipy array or a memmap and takes no {kind}; use "
            f"{call}, or NMF, GNMF, CNMF, CDNMF, NMFDC or ConstrainedNMF, which stay where X is."
        )


def _shape(estimator: Any, X: Any, reset: bool) -> None:
    if X.ndim != 2:
        raise ValueError(f"Expected 2D array, got {X.ndim}D array instead.")
    if 0 in X.shape:
        raise ValueError(f"X must have samples and features, got shape {tuple(X.shape)}.")
    _check_n_features(estimator, X, reset=reset)
    if reset and hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def _only_two(beta: float, kind: str) -> ValueError:
    return ValueError(
        f"beta_loss={beta:g} needs X as a numpy or scipy array; {kind} have 'frobenius' and "
        "'kullback-leibler'."
    )


def _check_tensor(estimator: Any, X: Any, reset: bool, beta: float, name: str) -> Any:
    import torch

    if beta not in (1.0, 2.0):
        raise _only_two(beta, "torch tensors")
    _shape(estimator, X, reset)
    X = X.detach()
    if X.layout != torch.strided:
        X = X.to_sparse_csr()
    if X.dtype not in (torch.float32, torch.float64):
        if X.is_complex():
            raise ValueError("Complex data not supported: X must be real.")
        X = X.to(torch.float32 if X.dtype in (torch.float16, torch.bfloat16) else torch.float64)
    values = X if X.layout == torch.strided else X.values()
    if values.numel() and not (float(values.min()) >= 0 and float(values.max()) < np.inf):
        _refuse(X, name)
    return X


def _refuse(X: Any, name: str) -> None:
    """Say what is wrong with a tensor, and where."""
    import torch

    values = X if X.layout == torch.strided else X.values()
    bad = ~torch.isfinite(values)
    finite = not bool(bad.any())
    flat = int(values.flatten().argmin() if finite else bad.flatten().int().argmax())
    if X.layout == torch.strided:
        row, column = divmod(flat, X.shape[1])
    else:
        row = int(torch.searchsorted(X.crow_indices(), flat, right=True)) - 1
        column = int(X.col_indices()[flat])
    value = float(values.flatten()[flat])
    if not finite:
        raise ValueError(
            f"Input X contains NaN or infinity: {value} at row {row}, column {column}."
        )
    raise ValueError(
        f"Negative values in data passed to {name}: the lowest is {value:g} at row {row}, "
        f"column {column}; CF and LCF take signed data."
    )


def move(X: Any, device: str) -> Any:
    """A numpy or scipy X as data on a torch device, whose results come back as ndarrays."""
    try:
        import torch
    except ImportError as error:
        raise ImportError(f'device={device!r} needs torch: pip install "partwise[gpu]"') from error
    from partwise.engine.data.torch_data import as_torch_data, csr_tensor, memory_errors

    with memory_errors(f"X of shape {X.shape}", device):
        if sp.issparse(X):
            X = sp.csr_array(X)
            X.sum_duplicates()
            parts = [torch.from_numpy(np.asarray(a, np.int64)) for a in (X.indptr, X.indices)]
            tensor = csr_tensor(*parts, torch.from_numpy(np.array(X.data)), X.shape)
        else:
            tensor = torch.from_numpy(X if X.flags.writeable else X.copy())
        return as_torch_data(tensor.to(device), back=True)


def searchable(X: Any) -> tuple[Any, Literal["exact", "approximate"]]:
    """X as the search for neighbours takes it, and how it is searched."""
    if hasattr(X, "layout") and hasattr(X, "blocks"):  # a Dask array, wrapped
        return X, "approximate"
    if hasattr(X, "tdot"):
        X = X.X
    return to_numpy(X), "exact"


def plain(a: Any) -> Array:
    """Labels, weights and starts as ndarrays, wherever they come from."""
    if is_tensor(a):
        return to_numpy(a)
    return a.compute() if is_dask(a) else a
