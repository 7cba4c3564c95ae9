"""How far a point is from a minimum: the KKT residual, and how much of a loss cancels in it."""

from __future__ import annotations

import numpy as np

from partwise.backends.arrays import Array, cast, namespace, spread
from partwise.backends.numeric import norm64, ratio
from partwise.backends.sweeps import row_runs
from partwise.model.subproblems import Subproblem

#: ½‖X - Y‖² / ½‖X‖² below which a fit counts as perfect: float32's rounding of X, so that both
#: precisions end alike. A divergence is a difference of sums: of a perfect fit, whose residual is
#: like the root of its value, less is left above their rounding.
LEAST_MISFIT = {"frobenius": 1.2e-7, "divergence": 1e-5}


def misfit(value: float, size: float, least: float, tol: float = 0.0) -> float:
    """‖X - Y‖/‖X‖: how much of the two halves of the loss's gradient is left when they cancel.

    ``value`` is the objective, ``size`` that of Y = 0 (0: not known); below ``least``, and below
    ``tol``, a fit is perfect to what was asked for.
    """
    if size <= 0:
        return 1.0
    return float(np.sqrt(np.clip(value / size, max(least, tol**2), 1.0)))


def kkt_residual(sub: Subproblem, Z: Array, misfit: float = 1.0) -> float:
    """‖projected gradient‖ / (misfit (‖neg‖ + ‖pos‖) + Σ ‖gradient of a term‖), at most 1.

    neg and pos are the halves of the loss's gradient, which cancel as far as the fit is good; the
    halves of a term's gradient are not told apart, so that they cannot hide what is left either.

    Where the gradient is positive, entries below the mean of their column count in proportion:
    at zero not at all, and a multiplicative update that is on its way there little; in the norms
    below the fraction likewise. A row of weight d counts like d equal rows.
    """
    mean = Z.mean(axis=0) if sub.d is None else sub.d @ Z / sub.d.sum()
    slopes = (term.gradient(Z) for term in sub.terms)
    parts = [spread(part, Z) for part in (*sub.halves(Z), *slopes)]
    if sub.held is not None:
        parts = [part * (1 - sub.held) for part in parts]
    blocks = row_runs(Z, sub.d, *parts)
    free = sub.free
    scale = ratio(namespace(mean).ones_like(mean), mean)
    lengths = [_norms(here, *each, scale=scale, d=d, free=free) for here, d, *each in blocks]
    peak = np.max(lengths, initial=0) or 1.0  # beside it, squares of lengths are finite
    gradient, minus, plus, *rest = np.linalg.norm(np.divide(lengths, peak), axis=0)
    total = misfit * (minus + plus) + sum(rest)
    return min(1.0, float(gradient / total)) if total > 0 else 0.0


def _norms(
    Z: Array, neg: Array, pos: Array, *slopes: Array, scale: Array, d: Array | None, free: bool
) -> list[float]:
    """Norms of the projected gradient and of its parts, on some rows; scale is 1 / mean of Z."""
    xp = namespace(Z)
    gradient = pos - neg
    for slope in slopes:
        gradient = gradient + slope
    share = xp.ones_like(Z)
    if not free:  # 1 where the gradient is not positive; a choice by entries is five times as slow
        share = xp.maximum(Z * scale, cast(gradient <= 0, Z.dtype))
        share = xp.minimum(share, 1)
    if d is not None:
        share = share * ratio(xp.ones_like(d), xp.sqrt(d))[:, None]
    return [norm64(part * share) for part in (gradient, neg, pos, *slopes)]
