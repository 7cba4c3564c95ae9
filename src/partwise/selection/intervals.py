"""Bootstrap confidence intervals for parts and part weights of a fitted NMF."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from scipy.stats import t as student
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from partwise.backends.arrays import AnyArray, to_numpy
from partwise.backends.data_matrix import refuse_anndata
from partwise.estimators.nmf import NMF
from partwise.evaluation.groups import unit_rows
from partwise.evaluation.resampling import KINDS, check_counts, resample
from partwise.fitting import FitInputs, check, described, state
from partwise.model.losses import beta_of
from partwise.selection.parameters import check_count
from partwise.selection.refits import Refits, dense, rows_of

#: Maximum number of array entries that `_curvature` computes at a time, to save memory.
PIECE = 2**22
#: Relative difference between two objectives that rounding errors may cause.
SAME = 1e-3


@dataclass(frozen=True, eq=False)
class Intervals:
    """Result of `bootstrap_intervals`, in the units of the model.

    Parameters
    ----------
    parts, parts_low, parts_high : ndarray of shape (k, n_features)
        Parts of the model, and the lower and upper ends of their intervals.
    codes, codes_low, codes_high : ndarray of shape (n_samples, k)
        Part weights of the model, and the lower and upper ends of their intervals.
    level : float
        As given.
    n_draws : int
        As given.

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
    **fit_params: Any,
) -> Intervals:
    r"""Compute intervals for the parts and part weights of a fitted `NMF`.

    The model is fitted again to resampled data, starting where it ended. The new parts are matched
    to those of the model and scaled to their sums. An interval is the estimate :math:`\pm t\,s`,
    cut at zero. For parts, s is the standard deviation over the draws, and at least the standard
    error from the curvature of the loss with the part weights fixed, since a part that is zero in
    every draw is not certain to be zero. For part weights, :math:`s^2` is the variance over the
    draws plus the squared standard error from the curvature of their own loss. Entries in
    ``fixed_components`` are known, so their intervals have length zero.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        The data that the model was fitted to.
    model : NMF
        Fitted, with ``beta_loss`` "frobenius" or "kullback-leibler", without penalties and links.
    n_draws : int, default=200
        Number of resampled data sets; more of them make the ends of the intervals more certain.
    draw : {"samples", "poisson", "multinomial"}, default="samples"
        "samples" draws as many samples with replacement; use it if your samples come from a larger
        population. The others draw the counts of the same samples again, as in `consensus`.
    level : float, default=0.95
        Confidence level; larger values make intervals longer.
    random_state : int, RandomState instance or None, default=None
        Random seed.
    **fit_params
        ``sample_weight`` and ``entry_weight`` of the model's fit. They are taken as inverse
        variances, up to a constant, under the Frobenius loss and as counts of repetitions under
        Kullback-Leibler.

    Returns
    -------
    found : Intervals

    Notes
    -----
    Noise is taken as independent between samples; under Kullback-Leibler, part weights have the
    noise of Poisson counts. If neither parts nor part weights contain zeros, many factorizations
    fit equally well. The intervals surround one of them, and the true one may be another.

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
    refuse_anndata(X)
    beta = _check(model, draw, level)
    check_count("n_draws", n_draws, 10)
    refits = Refits.of_fitted(model, "bootstrap_intervals", fit_params)
    refits.refuse_arguments(
        "must_link", "cannot_link", because="linked samples are not drawn independently"
    )
    _check_memory(X, len(model.components_))
    X, refits = refits.samples(X)
    V, H = rows_of(model.embedding_).astype(float), to_numpy(model.components_).astype(float)
    fitted = (len(V), H.shape[1])
    if X.shape != fitted:
        raise ValueError(f"X must be the data of the fit, of shape {fitted}; got {X.shape}.")
    weights = _weights(X, V, H, model, refits)
    if draw != "samples":
        check_counts(X, f"draw={draw!r}")
        if refits.missing_values == 0:
            raise ValueError(
                f"draw={draw!r} cannot be used with missing_values=0 and a sparse X, because a "
                "count that is drawn as 0 would be missing; store NaN for missing entries, or use "
                "draw='samples'."
            )
    rng = check_random_state(random_state)
    known = _known(model, H.shape)
    parts, codes = StandardScaler(), StandardScaler()  # used only for running means and variances
    for _ in range(n_draws):
        drawn = _one_draw(X, V, H, draw, rng, refits, known)
        parts.partial_fit(drawn.reshape(1, -1))
        own = rows_of(refits.codes(X, drawn.astype(X.dtype)))
        codes.partial_fit(own.astype(float).reshape(1, -1))
    q = float(student.ppf(0.5 + level / 2, n_draws - 1))
    of_parts, of_codes = _curvature(X, V, H, beta, weights)
    unbiased = n_draws / (n_draws - 1)
    s = np.maximum(np.sqrt(unbiased * parts.var_.reshape(H.shape)), of_parts) * ~known
    r = np.sqrt(unbiased * codes.var_.reshape(V.shape) + of_codes**2)
    return Intervals(
        H, np.maximum(H - q * s, 0), H + q * s, V, np.maximum(V - q * r, 0), V + q * r,
        float(level), int(n_draws),
    )  # fmt: skip


def _known(model: Any, shape: tuple[int, int]) -> AnyArray:
    """Return a boolean mask of the fixed entries of the parts."""
    known = np.zeros(shape, bool)
    if model.fixed_components is not None:
        fixed = np.asarray(to_numpy(model.fixed_components), dtype=float)
        known[: len(fixed)] = ~np.isnan(fixed)
    return known


def _one_draw(
    X: Any, V: AnyArray, H: AnyArray, draw: str, rng: np.random.RandomState, refits: Refits,
    known: AnyArray,
) -> AnyArray:  # fmt: skip
    """Fit resampled data, and return the parts in the order and with the sums of H."""
    n = X.shape[0]
    # Initial values are above zero, because a multiplicative update cannot leave zero.
    W, start = (
        np.maximum(Z, 1e-3 * Z.mean(axis=axis, keepdims=True)).astype(X.dtype)
        for Z, axis in ((V, 0), (H, 1))
    )
    given: dict[str, Any] = {"W": W, "H": start}
    if draw == "samples":
        weight = refits.given.get("sample_weight", 1.0)
        given["sample_weight"] = weight * rng.multinomial(n, np.full(n, 1 / n))
    else:
        X = resample(X, draw, rng)
    settings = {"init": "custom", "n_init": 1, "n_components": len(H), "seed_components": None}
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        model = refits.with_given(**given).fit(X, **settings)
    found = np.asarray(to_numpy(model.components_), dtype=np.float64)
    free = np.flatnonzero(~known.any(axis=1))  # fixed parts keep their position and scale
    order = linear_sum_assignment(-unit_rows(H[free]) @ unit_rows(found[free]).T)[1]
    matched = found[free][order]
    mass = matched.sum(axis=1, keepdims=True)
    wanted = H[free].sum(axis=1, keepdims=True)
    found[free] = matched * np.divide(wanted, mass, out=np.ones_like(mass), where=mass > 0)
    return found


@dataclass(frozen=True, eq=False)
class _Weights:
    """Weights of samples and of entries in a fit; a missing entry has weight zero."""

    samples: AnyArray
    entries: Any
    missing: float | None

    @property
    def by_sample(self) -> bool:
        """True if all entries of a sample have the same weight."""
        return self.entries is None and self.missing is None

    def of(self, x: AnyArray, at: slice) -> AnyArray:
        """Return the entry weights of some samples, not multiplied by sample weights."""
        w = np.ones_like(x) if self.entries is None else dense(self.entries[at])
        if self.missing is None:
            return w
        return np.where((x == 0) if self.missing == 0 else np.isnan(x), 0, w)


def _weights(X: Any, V: AnyArray, H: AnyArray, model: Any, refits: Refits) -> _Weights:
    """Return the weights that the model was fitted with.

    Raise an error if X or the weights differ from those of the fit.
    """
    estimator = refits.copy(n_components=len(H), init="random")
    what = described(estimator)
    checked = check(estimator, what, X, FitInputs(**refits.given))
    problem, root = state(what, checked).model, np.sqrt(checked.factor)
    dtype = problem.data.dtype
    factors = (
        problem.data.rows((V / root).astype(dtype)),
        problem.data.small((H / root).T.astype(dtype)),
    )
    grow = checked.factor**problem.loss.degree * checked.weight_scale
    value, size = problem.exact_value(*factors) * grow, problem.size * grow
    if not abs(value - model.objective_) <= SAME * model.objective_ + 1e-2 * SAME * size:
        raise ValueError(
            "X must be the data that the model was fitted to, with the same weights: the objective "
            f"is {value:.6g} here and was {model.objective_:.6g} in the fit."
        )
    samples = np.ones(len(V)) if checked.weights is None else checked.weights * checked.weight_scale
    entries = refits.given.get("entry_weight")
    entries = sp.csr_array(entries) if sp.issparse(entries) else entries
    return _Weights(samples, entries, refits.missing_values)


def _curvature(
    X: Any, V: AnyArray, H: AnyArray, beta: float, weights: _Weights
) -> tuple[AnyArray, AnyArray]:
    """Return standard errors of parts and part weights, with the other factor fixed.

    For Kullback-Leibler, the covariance is the inverse of Σ x/μ² v vᵀ + diag(g/1.5)². Here g > 0 is
    the slope of the loss at an entry that is zero. The likelihood exp(-g z) of the value z is 0.05
    at z = 3/g, which is two standard errors of 1.5/g. For Frobenius, the covariance is (Σ v vᵀ)⁻¹
    times the residual variance of the feature or sample, with n - k or p - k degrees of freedom.
    All sums are weighted.
    """
    k, p = H.shape
    step = max(1, PIECE // (p * k))
    of_codes, slopes, variance = np.zeros(V.shape), np.zeros((p, k)), np.zeros(p)
    one = beta == 2 and weights.by_sample  # the information matrix is the same for all features
    information, observed = np.zeros((1 if one else p, k, k)), np.zeros(p)
    for start in range(0, len(V), step):
        at = slice(start, start + step)
        v, x, gamma = V[at], dense(X[at]), weights.samples[at, None]
        w, mu = weights.of(x, at), v @ H
        x = np.where(w > 0, x, 0)
        counts = gamma * w > 0
        observed += counts.sum(axis=0)
        if beta == 1:
            ratio = w * np.divide(x, mu, out=np.zeros_like(x), where=x > 0)
            curved = np.divide(ratio, mu, out=np.zeros_like(x), where=ratio > 0)
            slopes += (gamma * (w - ratio)).T @ v
            own = np.einsum("ij,aj,bj->iab", curved, H, H, optimize=True)
            of_codes[at] = _roots(own, (w - ratio) @ H.T)
        else:
            curved, squares = w, w * (x - mu) ** 2
            variance += (gamma * squares).sum(axis=0)
            error = np.sqrt(squares.sum(axis=1) / np.maximum((w > 0).sum(axis=1) - k, 1))
            own = np.einsum("ij,aj,bj->iab", w[:1] if one else w, H, H, optimize=True)
            of_codes[at] = error[:, None] * _roots(own)
        if one:
            information += (gamma * v).T @ v
        else:
            information += np.einsum("ij,ia,ib->jab", gamma * curved, v, v, optimize=True)
    if beta == 1:
        return _roots(information, slopes).T, of_codes
    error = np.sqrt(variance / np.maximum(observed - k, 1))
    return (error[:, None] * _roots(information)).T, of_codes


def _roots(information: AnyArray, slope: AnyArray | float = 0.0) -> AnyArray:
    """Return standard errors: roots of the diagonal of the inverse information matrix.

    An entry without information has standard error 0.
    """
    own = np.diagonal(information, axis1=-2, axis2=-1) + (np.maximum(slope, 0) / 1.5) ** 2
    root = np.sqrt(np.where(own > 0, own, 1))
    alike = information / (root[..., :, None] * root[..., None, :])
    k = own.shape[-1]
    alike[..., np.arange(k), np.arange(k)] = 1 + 1e-9
    inverse = np.diagonal(np.linalg.inv(alike), axis1=-2, axis2=-1)
    return np.where(own > 0, np.sqrt(np.maximum(inverse, 0)) / root, 0)


def _check_memory(X: Any, k: int) -> None:
    """Raise an error for a Dask X, because draws and intervals need X in this process."""
    if not hasattr(X, "to_delayed"):
        return
    n, p = X.shape
    need = 2 * 8 * n * p + 6 * 8 * (n + p) * k
    raise ValueError(
        f"bootstrap_intervals does not support a Dask X: it would need up to {need / 2**30:.3g} "
        "GiB of memory in this process. Pass X.compute(), or fit the model to a sample of rows."
    )


def _check(model: Any, draw: str, level: float) -> float:
    """Return β of the model's loss; raise an error if an argument is not supported."""
    if not isinstance(model, NMF):
        raise TypeError(f"model must be an NMF without penalties, got {type(model).__name__}.")
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
