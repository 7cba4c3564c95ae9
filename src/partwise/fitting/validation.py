"""Checks of what a user hands in: once, here; everything below assumes."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from partwise._sklearn import check_sample_weight
from partwise.backends.arrays import AnyArray, limits, to_numpy

_OURS = ("partwise.", "sklearn.")
SIGNED = "SemiNMF, CF and LCF take signed data"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning at the line that called this package, through scikit-learn or not."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def check_finite(X: Any) -> None:
    """Raise where X has NaN or infinity."""
    values = X.data if sp.issparse(X) else X
    if not np.isfinite(limits(values)).all():
        raise ValueError("Input X contains NaN or infinity beside its missing values.")


def check_non_negative(X: Any, whom: str) -> None:
    """Raise where X has a negative entry, and say where."""
    values = X.data if sp.issparse(X) else X
    if not limits(values)[0] < 0:
        return
    if sp.issparse(X):
        X = X.tocoo()
        at = int(X.data.argmin())
        row, column, low = int(X.coords[0][at]), int(X.coords[1][at]), X.data[at]
    else:
        row, column = (int(i) for i in np.unravel_index(X.argmin(), X.shape))
        low = X[row, column]
    raise ValueError(
        f"Negative values in data passed to {whom}: the lowest is {low:g} at row {row}, "
        f"column {column}; {SIGNED}."
    )


def check_scale(constant: float, has_values: bool, whom: str) -> None:
    """Raise where the squares of X overflow or vanish."""
    if not np.isfinite(constant):
        raise ValueError(
            f"{whom}: values of X are too large for this loss; divide X by its maximum."
        )
    if constant == 0 and has_values:
        raise ValueError(
            f"{whom}: values of X are too small for this loss; divide X by its maximum."
        )


def extreme_factor(X: Any) -> float:
    """A power of four near the largest entry of X where that is extreme, else 1.

    Dividing by it is exact, and so is multiplying the factors by its root afterwards.
    """
    values = X.data if sp.issparse(X) else X
    if not isinstance(values, np.ndarray) or isinstance(values, np.memmap) or not values.size:
        return 1.0
    peak = max(np.abs(limits(values)))
    limit = 1e60 if values.dtype == np.float64 else 1e9
    if peak <= 0 or 1 / limit <= peak <= limit:
        return 1.0
    return 4.0 ** round(np.log2(peak) / 2)


def check_squares(X: Any, whom: str) -> None:
    """Raise where the squares of squares of X overflow or vanish, or X is zero."""
    values = X.data if sp.issparse(X) else X
    if not values.size or not np.any(values):
        raise ValueError(f"{whom}: X holds only zeros; there is nothing to learn from it.")
    factor = extreme_factor(X)
    if factor != 1:
        size = "large" if factor > 1 else "small"
        raise ValueError(
            f"{whom}: values of X are too {size} for products of X with itself in {values.dtype}; "
            "divide X by its maximum."
        )


def check_fourth(factor: float, whom: str) -> None:
    """Raise where norms of gradients, which hold fourth powers of X, overflow."""
    if np.log10(factor) * 4 > 305:
        raise ValueError(
            f"{whom}: values of X are too large for a model with penalties, whose weights would "
            "have to change with its unit; divide X by its maximum."
        )


def check_factor(factor: float, beta: float, whom: str) -> None:
    """Raise where the objective of such values leaves the range of numbers."""
    log = np.log10(factor) * beta
    if abs(log) > 305:
        size = "large" if log > 0 else "small"
        raise ValueError(
            f"{whom}: values of X are too {size} for beta_loss={beta:g}, whose objective grows "
            "like their power; divide X by its maximum."
        )


def check_start(
    Z: Any, shape: tuple[int, int], dtype: Any, name: str, whom: str, *, zeros: bool = False
) -> AnyArray:
    """A custom start: shape, dtype, non-negative, not all zero."""
    Z = check_array(Z, dtype=[np.float64, np.float32], input_name=name)
    for axis, word in enumerate(("first", "second")):
        if Z.shape[axis] != shape[axis]:
            raise ValueError(
                f"Array with wrong {word} dimension passed to {whom} (input {name}). "
                f"Expected {shape[axis]}, but got {Z.shape[axis]}."
            )
    if Z.dtype != dtype:
        raise TypeError(f"{name} should have the same dtype as X. Got {Z.dtype}, expected {dtype}.")
    if (Z < 0).any():
        raise ValueError(f"Negative values in data passed to {whom} (input {name})")
    if not zeros and not Z.any():
        raise ValueError(f"Array passed to {whom} (input {name}) is full of zeros.")
    return Z


def check_weights(sample_weight: Any, X: Any) -> AnyArray | None:
    """Sample weights >= 0, not all zero, in float64."""
    if sample_weight is None:
        return None
    like = np.broadcast_to(np.zeros(1, X.dtype), X.shape)  # all it needs is a shape
    weights = check_sample_weight(sample_weight, like, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must not be all zero.")
    return weights


def check_codes(V: Any, k: int) -> Any:
    """V with a column for each part, of any kind of array."""
    if isinstance(V, (list, tuple)) or hasattr(V, "iloc"):
        V = np.asarray(V)
    shape = tuple(getattr(V, "shape", ()))
    if len(shape) != 2 or shape[1] != k:
        raise ValueError(
            f"X must hold codes, of shape (n_samples, {k}), got shape {shape}; "
            "transform makes them."
        )
    return V


def tame_weights(weights: AnyArray) -> tuple[AnyArray, float]:
    """Weights over their mean where that is extreme, and the mean: their scale means nothing."""
    scale = float(weights.mean(where=weights > 0))
    return (weights, 1.0) if 1e-3 <= scale <= 1e3 else (weights / scale, scale)


def ncw_weights(data: Any) -> AnyArray:
    """Normalized-cut weights γ_i ∝ 1 / (x_iᵀ Σ_l x_l) (Xu et al. 2003); 0 for a zero sample.

    Their mean is one, so that the loss keeps its size beside a penalty.
    """
    data = data.filled()
    ones = data.constant_rows(np.ones(1, dtype=data.dtype))
    degree = to_numpy(data.dot(data.tdot(ones)))[:, 0].astype(np.float64)
    weights = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    if not weights.any():
        raise ValueError("sample_weighting='ncw' needs a sample that is not zero.")
    return weights / weights.mean()
