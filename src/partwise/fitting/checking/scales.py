"""Check the magnitude of X, and rescale X where its squares would leave the number range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends import DataMatrix, as_data
from partwise.backends.arrays import limits
from partwise.backends.numpy.float64_products import in_double
from partwise.fitting.description import Description


@dataclass(frozen=True, eq=False)
class Rescaled:
    """X over a power of four where its values are extreme, the start over its root."""

    data: DataMatrix
    W: Any = None
    H: Any = None
    factor: float = 1.0


def rescale_extremes(
    spec: Description, X: Any, W: Any = None, H: Any = None, *, plain: bool | None = None
) -> Rescaled:
    """Only for ``plain`` models without penalties, whose weights would have to change with X."""
    plain = not spec.penalized if plain is None else plain
    alone = spec.signed and not spec.free_parts  # concepts use X only through its own products
    factor = 1.0 if alone else extreme_factor(X)
    if factor == 1:
        return Rescaled(as_data(X), W, H)
    check_factor(factor, spec.beta, spec.estimator_name)
    if not plain:
        check_penalized(factor, spec.beta, spec.estimator_name)
        return Rescaled(in_double(as_data(X)), W, H)  # squares of float32 overflow at 1e19
    root = np.sqrt(factor)
    W, H = (Z if Z is None else np.asarray(Z) / Z.dtype.type(root) for Z in (W, H))
    # scipy divides float32 by float32 in float64
    return Rescaled(as_data((X / X.dtype.type(factor)).astype(X.dtype, copy=False)), W, H, factor)


def check_scale(constant: float, has_values: bool, estimator_name: str) -> None:
    """Raise where the squares of X overflow or vanish."""
    if not np.isfinite(constant) or (constant == 0 and has_values):
        size = "small" if constant == 0 else "large"
        raise ValueError(
            f"{estimator_name}: values of X are too {size} for this loss; divide X by its maximum."
        )


def extreme_factor(X: Any) -> float:
    """Return a power of four near the largest entry of X if that is extreme, else 1.

    Dividing by it is exact, and so is multiplying the factors by its root afterwards.
    """
    values = X.data if sp.issparse(X) else X
    if not isinstance(values, np.ndarray) or isinstance(values, np.memmap) or not values.size:
        return 1.0
    peak = max(np.abs(limits(values)))
    limit = 1e60 if values.dtype == np.float64 else 1e9
    if peak <= 0 or 1 / limit <= peak <= limit:
        return 1.0
    return float(4.0 ** round(np.log2(peak) / 2))


def check_squares(X: Any, estimator_name: str) -> None:
    """Raise where the squares of squares of X overflow or vanish, or X is zero."""
    values = X.data if sp.issparse(X) else X
    if not values.size or not np.any(values):
        raise ValueError(
            f"{estimator_name}: X holds only zeros; there is nothing to learn from it."
        )
    factor = extreme_factor(X)
    if factor != 1:
        size = "large" if factor > 1 else "small"
        raise ValueError(
            f"{estimator_name}: values of X are too {size} for products of X with itself in "
            f"{values.dtype}; "
            "divide X by its maximum."
        )


def check_penalized(factor: float, beta: float, estimator_name: str) -> None:
    """Raise where norms of gradients, which hold fourth powers of X, overflow.

    And where X is below the least VUᵀ whose powers do not.
    """
    large = np.log10(factor) * 4 > 305
    if large or (factor < 1 and beta not in (1, 2)):
        raise ValueError(
            f"{estimator_name}: values of X are too {'large' if large else 'small'} for a model "
            "with "
            "penalties, whose weights would have to change with its unit; divide X by its maximum."
        )


def check_factor(factor: float, beta: float, estimator_name: str) -> None:
    """Raise where the objective of such values leaves the range of numbers."""
    log = np.log10(factor) * beta
    if abs(log) > 305:
        size = "large" if log > 0 else "small"
        raise ValueError(
            f"{estimator_name}: values of X are too {size} for beta_loss={beta:g}, whose "
            "objective grows "
            "like their power; divide X by its maximum."
        )
