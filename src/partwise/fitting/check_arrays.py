"""Checks of X where it is not an ndarray or a scipy matrix: on disk, on a device, on a cluster.

scikit-learn's own validation would copy such an X into memory. Everything is checked in one pass
here, and errors name the row.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from partwise._sklearn import check_n_features
from partwise.backends import back_end
from partwise.backends.arrays import AnyArray, to_numpy
from partwise.backends.data_matrix import Swept
from partwise.backends.numpy import memmap
from partwise.backends.numpy.memmap import check_memmap
from partwise.fitting import check_gaps

ZEROS = (
    "When beta_loss <= 0 and X contains zeros, the solver may diverge. "
    "Please add small values to X, or use a positive beta_loss."
)


def check_special(estimator: Any, X: Any, *, reset: bool, beta: float) -> Any | None:
    """X checked, as its back end takes it; None where scikit-learn's validation should look."""
    name = type(estimator).__name__
    device, missing = estimator.device, getattr(estimator, "missing_values", None)
    on_disk = isinstance(X, np.memmap) and device is None
    if on_disk and X.ndim == 2 and X.size and X.dtype.kind in "fiub":
        if X.dtype.kind == "f" and X.dtype not in (np.float32, np.float64):
            return None
        _shape(estimator, X, reset)
        if missing is not None:
            kept, hidden = memmap.gaps(X, missing)
            check_memmap(kept, name)
            return check_gaps.masked(kept, hidden, seen=False)
        check_memmap(X, name, positive=beta <= 0)
        return X
    found = back_end(X)
    if found is None:
        return None
    if device is not None:
        raise ValueError(
            f"device={device!r} moves numpy and scipy input; {found.kind} are used where they "
            "are, so leave device out."
        )
    found.look(X)
    if beta not in (1.0, 2.0):
        raise ValueError(
            f"beta_loss={beta:g} needs X as a numpy or scipy array; {found.kind} have "
            "'frobenius' and 'kullback-leibler'."
        )
    _shape(estimator, X, reset)
    if "complex" in str(X.dtype):
        raise ValueError(f"Complex data not supported: X must be real, got {X.dtype}.")
    if missing is None:
        return found.check(X, name)
    if found.gaps is None:
        raise ValueError(f"missing_values is not for {found.kind}; use {found.home}.")
    base, places, seen = found.gaps(X, missing, name)
    return check_gaps.masked(base, places, seen=seen)


def check_local(X: Any, whom: str) -> None:
    """Refuse what would be copied here without a word."""
    found = back_end(X)
    if found is not None:
        found.look(X)
        raise ValueError(
            f"{whom} needs X as a numpy or scipy array or a memmap and takes no {found.kind}; use "
            f"{found.home}, or NMF, GNMF, CNMF, CDNMF, NMFDC or ConstrainedNMF, which stay where "
            "X is."
        )


def _shape(estimator: Any, X: Any, reset: bool) -> None:
    if len(X.shape) != 2:
        raise ValueError(f"Expected 2D array, got {len(X.shape)}D array instead.")
    if 0 in X.shape:
        raise ValueError(f"X must have samples and features, got shape {tuple(X.shape)}.")
    check_n_features(estimator, X, reset=reset)
    if reset and hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_


def move(X: Any, device: str) -> Any:
    """A numpy or scipy X as data on a torch device, whose results come back as ndarrays."""
    try:
        from partwise.backends.torch import torch_data
    except ImportError as error:
        raise ImportError(f'device={device!r} needs torch: pip install "partwise[gpu]"') from error
    return torch_data.move(X, device)


def searchable(X: Any) -> tuple[Any, Literal["exact", "approximate"]]:
    """X as the search for neighbours takes it, and how it is searched."""
    if isinstance(X, Swept):
        X = X.filled()
        whole = X.whole()
        return (X, "approximate") if whole is None else (to_numpy(whole), "exact")
    return to_numpy(X), "exact"


def plain(a: Any) -> AnyArray:
    """Labels, weights and starts as ndarrays, wherever they come from."""
    return a if back_end(a) is None else to_numpy(a)
