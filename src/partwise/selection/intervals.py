"""How sure parts and codes are: intervals by bootstrap."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from scipy.stats import t as student
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from partwise.backends import in_memory
from partwise.backends.arrays import AnyArray, to_numpy
from partwise.estimators.nmf import NMF
from partwise.evaluation.groups import unit_rows
from partwise.evaluation.resampling import KINDS, check_counts, resample
from partwise.model.losses import beta_of
from partwise.selection.consensus import codes_of
from partwise.selection.parameters import check_count

#: Entries that are looked at together.
PIECE = 2**22


@dataclass(frozen=True, eq=False)
class Intervals:
    """What `bootstrap_intervals` found, in the units of the model.

    Parameters
    ----------
    parts, parts_low, parts_high : ndarray of shape (k, n_features)
    codes, codes_low, codes_high : ndarray of shape (n_samples, k)
    level : float
    n_draws : int

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import NMF, bootstrap_intervals
    >>> X = np.random.default_rng(0).poisson(5, (30, 6)).astype(float)
    >>> found = bootstrap_intervals(X, NMF(2, random_state=0).fit(X), n_draws=20, random_state=0)
    >>> bool((found.parts_low <= found.parts).all() and (found.parts <= found.parts_high).all())
    True
    """

    parts: AnyArray
    parts_low: AnyArray
    parts_high: AnyArray
    codes: AnyArray
    codes_low: AnyArray
    codes_high: AnyArray
    level: float
    n_draws: int


def bootstrap_intervals(
    X: Any,
    model: Any,
    *,
    n_draws: int = 200,
    draw: str = "samples",
    level: float = 0.95,
    random_state: Any = None,
) -> Intervals:
    r"""Intervals for the parts and codes of a fitted `NMF`.

    The model is fitted again to data drawn anew, beginning where it ended, its parts are matched to
    those of the fit and brought to their sums. An interval is the estimate :math:`\pm t\,s`, cut at
    zero. For parts s is the standard deviation over the draws, and at least what the curvature of
    the loss says with the codes held: a part that is zero in every draw is not known to be zero.
    For codes :math:`s^2` adds what the parts' uncertainty does to them and the curvature of their
    own loss.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        What the model was fitted to.
    model : NMF
        Fitted, with ``beta_loss`` "frobenius" or "kullback-leibler", no penalties.
    n_draws : int, default=200
    draw : {"samples", "poisson", "multinomial"}, default="samples"
        "samples": as many samples, with replacement; for samples that are some of many. Else the
        counts of the same samples are drawn again, as in `consensus`.
    level : float, default=0.95
    random_state : int, RandomState instance or None, default=None

    Returns
    -------
    found : Intervals

    Notes
    -----
    Noise is taken as independent between samples; under Kullback-Leibler codes have that of
    Poisson counts. Where several factorizations fit alike (no zeros in parts or codes), the
    intervals are around one of them, and the planted one may be another: see the guide.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import NMF, bootstrap_intervals
    >>> rng = np.random.default_rng(0)
    >>> V = rng.gamma(1, 100, (80, 2)) * (rng.random((80, 2)) < 0.7)
    >>> X = rng.poisson(V @ rng.dirichlet(np.full(12, 0.5), 2))
    >>> model = NMF(2, beta_loss="kullback-leibler", random_state=0).fit(X)
    >>> found = bootstrap_intervals(X, model, n_draws=20, random_state=0)
    >>> bool((found.parts_low <= model.components_).all() & (found.parts_high > 0).all())
    True
    """
    beta = _check(model, draw, level)
    check_count("n_draws", n_draws, 10)
    X = in_memory(X)
    V, H = (
        np.asarray(to_numpy(a), dtype=np.float64) for a in (model.embedding_, model.components_)
    )
    if X.shape != (len(V), H.shape[1]):
        raise ValueError(
            f"X must be what the model was fitted to, of shape {(len(V), H.shape[1])}; got "
            f"{X.shape}."
        )
    if draw != "samples":
        check_counts(X, f"draw={draw!r}")
    rng = check_random_state(random_state)
    parts, codes = _Moments(H.shape), _Moments(V.shape)
    for _ in range(n_draws):
        drawn = _one_draw(X, model, V, H, draw, rng)
        parts.add(drawn)
        codes.add(np.asarray(to_numpy(codes_of(X, drawn.astype(X.dtype), model.beta_loss))))
    q = float(student.ppf(0.5 + level / 2, n_draws - 1))
    of_parts, of_codes = _curvature(X, V, H, beta)
    s = np.maximum(parts.deviation, of_parts)
    r = np.sqrt(codes.deviation**2 + of_codes**2)
    return Intervals(
        H, np.maximum(H - q * s, 0), H + q * s, V, np.maximum(V - q * r, 0), V + q * r,
        float(level), int(n_draws),
    )  # fmt: skip


def _one_draw(
    X: Any, model: Any, V: AnyArray, H: AnyArray, draw: str, rng: np.random.RandomState
) -> AnyArray:
    """The parts of a fit to data drawn anew, in the order and at the sums of H."""
    n = X.shape[0]
    again, weight = clone(model).set_params(init="custom", n_init=1), None
    again.set_params(n_components=len(H))
    if draw == "samples":
        weight = rng.multinomial(n, np.full(n, 1 / n)).astype(np.float64)
    else:
        X = resample(X, draw, rng)
    # a multiplicative step cannot leave zero
    W, start = (
        np.maximum(Z, 1e-3 * Z.mean(axis=axis, keepdims=True)).astype(X.dtype)
        for Z, axis in ((V, 0), (H, 1))
    )
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        again.fit(X, W=W, H=start, sample_weight=weight)
    found = np.asarray(to_numpy(again.components_), dtype=np.float64)
    order = linear_sum_assignment(-unit_rows(H) @ unit_rows(found).T)[1]
    found = found[order]
    mass = found.sum(axis=1, keepdims=True)
    return found * np.divide(
        H.sum(axis=1, keepdims=True), mass, out=np.ones_like(mass), where=mass > 0
    )


class _Moments:
    """Mean and standard deviation of arrays that come one by one."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.n, self.mean, self.squares = 0, np.zeros(shape), np.zeros(shape)

    def add(self, a: AnyArray) -> None:
        self.n += 1
        step = a - self.mean
        self.mean += step / self.n
        self.squares += step * (a - self.mean)

    @property
    def deviation(self) -> AnyArray:
        return np.sqrt(self.squares / max(self.n - 1, 1))


def _curvature(X: Any, V: AnyArray, H: AnyArray, beta: float) -> tuple[AnyArray, AnyArray]:
    """Standard errors of parts with the codes held, and of codes with the parts held.

    Kullback-Leibler: the inverse of Σ x/μ² v vᵀ + diag(g/1.5)², where g > 0 is the slope at an
    entry that is zero: exp(-g z) is 0.05 at z = 3/g, two such deviations away. Frobenius:
    (Σ v vᵀ)⁻¹ times the mean squared residual of the feature, or of the sample.
    """
    k, p = H.shape
    step = max(1, PIECE // (p * k))
    pieces = [slice(lo, lo + step) for lo in range(0, len(V), step)]
    of_codes, of_parts = np.zeros(V.shape), np.zeros(H.shape)
    information, ratios = np.zeros((p, k, k)), np.zeros(H.shape)
    by_feature = np.zeros(p)
    for at in pieces:
        v, x = V[at], np.asarray(X[at].toarray() if sp.issparse(X) else X[at], dtype=np.float64)
        if beta == 1:
            ratio = np.divide(x, v @ H, out=np.zeros_like(x), where=x > 0)
            weight = np.divide(ratio, v @ H, out=np.zeros_like(x), where=x > 0)
            information += np.einsum("ij,ia,ib->jab", weight, v, v, optimize=True)
            ratios += v.T @ ratio
            own = np.einsum("ij,aj,bj->iab", weight, H, H, optimize=True)
            of_codes[at] = _roots(own, H.sum(axis=1) - ratio @ H.T)
        else:
            residual = x - v @ H
            by_feature += (residual**2).sum(axis=0) / max(len(V) - k, 1)
            error = np.sqrt((residual**2).sum(axis=1) / max(p - k, 1))
            of_codes[at] = error[:, None] * _roots((H @ H.T)[None])
    if beta == 1:
        of_parts = _roots(information, V.sum(axis=0) - ratios.T).T
    else:
        of_parts = _roots((V.T @ V)[None]).T * np.sqrt(by_feature)
    return of_parts, of_codes


def _roots(information: AnyArray, slope: AnyArray | float = 0.0) -> AnyArray:
    """√ of the diagonals of the inverses; without any information about an entry, 0."""
    own = np.diagonal(information, axis1=-2, axis2=-1) + (np.maximum(slope, 0) / 1.5) ** 2
    root = np.sqrt(np.where(own > 0, own, 1))
    alike = information / (root[..., :, None] * root[..., None, :])
    k = own.shape[-1]
    alike[..., np.arange(k), np.arange(k)] = 1 + 1e-9
    inverse = np.diagonal(np.linalg.inv(alike), axis1=-2, axis2=-1)
    return np.where(own > 0, np.sqrt(np.maximum(inverse, 0)) / root, 0)


def _check(model: Any, draw: str, level: float) -> float:
    if not isinstance(model, NMF):
        raise TypeError(
            f"model must be a fitted NMF, got {type(model).__name__}: with a penalty the parts are "
            "drawn to it, and an interval around them would claim too much."
        )
    check_is_fitted(model)
    beta = float(beta_of(model.beta_loss)) if model.beta_loss != "l21" else 0.0
    if beta not in (1.0, 2.0) or model.alpha_W or (model.alpha_H not in (0, 0.0, "same")):
        raise ValueError(
            "bootstrap_intervals needs beta_loss 'frobenius' or 'kullback-leibler' and no "
            f"penalties; got beta_loss={model.beta_loss!r}, alpha_W={model.alpha_W}, "
            f"alpha_H={model.alpha_H}."
        )
    if draw not in ("samples", *KINDS):
        raise ValueError(f"draw must be 'samples', {', '.join(map(repr, KINDS))}; got {draw!r}.")
    if not 0 < level < 1:
        raise ValueError(f"level must be between 0 and 1; got {level!r}.")
    return beta
