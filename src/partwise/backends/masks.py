"""Masked arrays of numpy and Dask: masked entries are missing values, or are refused."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_masked(a: Any) -> bool:
    """Return whether a is a masked array of numpy or Dask with possibly masked entries."""
    chunk = getattr(a, "_meta", a)
    return isinstance(chunk, np.ma.MaskedArray) and (chunk is not a or np.ma.is_masked(a))


def refuse_masks(a: Any, name: str = "X") -> None:
    """Raise if entries are masked, because numpy's functions would use them anyway."""
    if is_masked(a):
        raise ValueError(
            f"{name} is a masked array with masked entries, which are not supported here. NMF and "
            "other estimators with the parameter missing_values accept a masked X with "
            "missing_values=np.nan; otherwise fill the entries in (numpy.ma.filled) or leave out "
            "those samples."
        )


def as_missing(X: Any, missing: float) -> Any:
    """Return X with ``missing`` at masked entries; other arrays stay unchanged."""
    if not is_masked(X):
        return X
    if np.isnan(missing) and X.dtype.kind != "f":
        X = X.astype(np.float64)
    fill = X.map_blocks if hasattr(X, "map_blocks") else lambda function, value: function(X, value)
    return fill(np.ma.filled, missing)
