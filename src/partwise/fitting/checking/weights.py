"""Check the weights of samples."""

from __future__ import annotations

from typing import Any

import numpy as np

from partwise._sklearn import check_sample_weight
from partwise.backends import DataMatrix
from partwise.backends.arrays import AnyArray, to_numpy
from partwise.fitting.description import Description


def check_weights(
    spec: Description, data: DataMatrix, sample_weight: Any, *, plain: bool
) -> tuple[AnyArray | None, float]:
    """Return the weights of the samples, None if all are one, and their divisor."""
    weights = check_sample_weights(sample_weight, data)
    if spec.sample_weighting == "ncw":
        ncw = ncw_weights(data)
        weights = ncw if weights is None else weights * ncw
    if weights is None or (weights == 1).all():
        return None, 1.0  # the plain model, to the last bit
    if spec.beta not in (1.0, 2.0):
        raise ValueError(
            f"sample_weight needs beta_loss 'frobenius' or 'kullback-leibler', got "
            f"{spec.beta_loss!r}."
        )
    return tame_weights(weights) if plain else (weights, 1.0)


def check_sample_weights(sample_weight: Any, X: Any) -> AnyArray | None:
    """Sample weights >= 0, not all zero, in float64."""
    if sample_weight is None:
        return None
    like = np.broadcast_to(np.zeros(1, X.dtype), X.shape)  # all it needs is a shape
    weights = check_sample_weight(sample_weight, like, dtype=np.float64, ensure_non_negative=True)
    if not weights.any():
        raise ValueError("sample_weight must not be all zero.")
    return weights


def tame_weights(weights: AnyArray) -> tuple[AnyArray, float]:
    """Divide weights by an extreme mean; return also the mean. Their scale has no meaning."""
    scale = float(weights.mean(where=weights > 0))
    return (weights, 1.0) if 1e-3 <= scale <= 1e3 else (weights / scale, scale)


def ncw_weights(data: Any) -> AnyArray:
    """Return normalized-cut weights γ_i ∝ 1 / (x_iᵀ Σ_l x_l) (Xu et al. 2003); 0 for a zero sample.

    Their mean is one, so that the loss keeps its size beside a penalty.
    """
    data = data.filled()
    ones = data.constant_rows(np.ones(1, dtype=data.dtype))
    degree = to_numpy(data.dot(data.tdot(ones)))[:, 0].astype(np.float64)
    weights = np.divide(1.0, degree, out=np.zeros_like(degree), where=degree > 0)
    if not weights.any():
        raise ValueError("sample_weighting='ncw' needs a sample that is not zero.")
    return weights / weights.mean()
