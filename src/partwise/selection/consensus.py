"""Consensus parts, which recur in many random fits, computed by the steps of cNMF."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from partwise.backends import as_data, back_end
from partwise.backends.arrays import AnyArray, float64, numpy_dtype, ratio, to_numpy
from partwise.backends.threads import one_blas_thread
from partwise.estimators.nmf import NMF
from partwise.evaluation.groups import unit_rows
from partwise.evaluation.resampling import check_counts, resample
from partwise.selection.parameters import check_count
from partwise.selection.refits import Refits, dense, rows_of

#: Maximum number of entries of X that are copied to float64 at a time, to save memory.
PIECE = 2**24


@dataclass(frozen=True, eq=False)
class Consensus:
    """Result of `consensus`: k parts, in decreasing order of their use in the samples.

    Fixed parts come before all others.

    Parameters
    ----------
    parts : ndarray of shape (k, n_features)
        Parts in the units of X, fitted to X with the usages fixed.
    usages : ndarray of shape (n_samples, k)
        Part weights of the samples, fitted with the spectra fixed.
    spectra : ndarray of shape (k, n_features)
        Median of each group of parts, in the units of the data that the runs used. The sum of each
        spectrum is one. If some entries are negative, its length is one instead.
    stability : ndarray of shape (k,)
        Mean silhouette of each group: 1 if all runs found the same part. NaN for k = 1.
    pooled : ndarray of shape (n_runs k, n_features)
        Parts of all runs, scaled to length one.
    density : ndarray of shape (n_runs k,)
        Mean distance of each part to its nearest neighbours; infinite for parts of zeros.
    groups : ndarray of shape (n_runs k,)
        Group of each part; -1 if it was removed as an outlier.
    density_threshold : float
        The argument of `consensus`.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import consensus
    >>> X = np.random.default_rng(0).random((40, 2)) @ np.random.default_rng(1).random((2, 20))
    >>> found = consensus(X, 2, n_runs=5, random_state=0)
    >>> found.usages.shape, found.pooled.shape
    ((40, 2), (10, 20))
    """

    parts: AnyArray
    usages: AnyArray
    spectra: AnyArray
    stability: AnyArray
    pooled: AnyArray
    density: AnyArray
    groups: AnyArray
    density_threshold: float


def consensus(
    X: Any,
    k: int,
    *,
    n_runs: int = 100,
    estimator: Any = None,
    y: Any = None,
    density_threshold: float = 0.5,
    neighborhood: float = 0.3,
    unit_variance: bool = True,
    bootstrap: str | None = None,
    random_state: Any = None,
    **fit_params: Any,
) -> Consensus:
    r"""Find parts that recur in many runs from random starts, by the steps of cNMF.

    The parts of all runs are pooled at length one. Parts whose mean distance to their nearest
    ``neighborhood`` · ``n_runs`` others is at least ``density_threshold`` are removed. K-means
    forms k groups of the rest, and the median of each group is a spectrum. Usages solve

    .. math:: \min_{V \ge 0} d_\beta(X', V S)

    with the spectra S fixed and X' the data of the runs, scaled if ``unit_variance``. The parts
    solve :math:`\min_{H \ge 0} d_\beta(X, V H)` with these usages. Both solves use the estimator's
    loss, weights, observed entries, fixed parts and penalties; labels, links and graphs act in the
    runs.

    Parameters
    ----------
    X : {array-like, sparse matrix, tensor, Dask array} of shape (n_samples, n_features)
        Samples. Tensors and Dask arrays stay where they are, and so do the runs' part weights.
    k : int
        Number of parts.
    n_runs : int, default=100
        Number of runs, each from its own start; under the Frobenius loss they run side by side.
    estimator : estimator, default=None
        The model of a run: any of this package with ``n_components``. All its settings apply to
        each run, except ``n_components``, ``random_state`` and ``checkpoint``. None: `NMF` with
        ``tol=1e-3`` in single precision, which ends where scikit-learn's ``tol=1e-4`` does.
    y : array-like, default=None
        Labels, for an estimator that uses them.
    density_threshold : float, default=0.5
        Between 0 and 2; smaller values remove more parts, and 2 removes none.
    neighborhood : float, default=0.3
        Share of the runs in which a part should recur.
    unit_variance : bool, default=True
        Divide each feature by its standard deviation first, as cNMF does. Use False if the loss is
        one of counts. Fixed and seeded parts are divided too, so give them in the units of X.
    bootstrap : {"poisson", "multinomial"}, default=None
        Draw new counts for each run, as for mutational signatures: a part must then recur in other
        counts as well as from other starts. "poisson" draws around each count; "multinomial" keeps
        the total of each sample. X must hold counts.
    random_state : int, RandomState instance or None, default=None
        Random seed.
    **fit_params
        Further arguments of the estimator's ``fit``, for example ``sample_weight``.

    Returns
    -------
    result : Consensus

    References
    ----------
    D. Kotliar et al.: Identifying gene expression programs of cell-type identity and cellular
    activity with single-cell RNA-Seq, eLife 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import consensus
    >>> rng = np.random.default_rng(0)
    >>> X = rng.gamma(0.5, size=(60, 3)) @ rng.gamma(0.3, size=(3, 30))
    >>> found = consensus(X, 3, n_runs=10, random_state=0)
    >>> found.parts.shape, bool(found.stability.min() > 0.9)
    ((3, 30), True)
    """
    _check(k, n_runs, density_threshold, neighborhood)
    model = NMF(tol=1e-3) if estimator is None else estimator
    refits = Refits(model, "consensus", {"y": y, **fit_params}).without_start()
    X, refits = refits.samples(X, tensors=True)
    if refits.n_known > k:
        raise ValueError(
            f"k={k} is the number of all parts, and {refits.n_known} are fixed or seeded already."
        )
    rng = check_random_state(random_state)
    seen, own = scaled(X, refits) if unit_variance else (X, refits)
    if bootstrap is None:
        single = estimator is None and isinstance(seen, np.ndarray | sp.sparray | sp.spmatrix)
        runs = own.runs(seen.astype(np.float32) if single else seen, k, n_runs, rng, rows=None)
    else:
        runs = _runs_of_draws(refits, X, k, n_runs, rng, bootstrap, unit_variance)
    pooled = np.concatenate([H for H, _ in runs])
    return from_runs(
        pooled, seen, k, lambda V: refits.parts(X, V), n_runs=n_runs, neighborhood=neighborhood,
        density_threshold=density_threshold, refits=own, rng=rng,
    )  # fmt: skip


def from_runs(
    pooled: AnyArray,
    seen: Any,
    k: int,
    parts: Callable[[AnyArray], AnyArray],
    *,
    n_runs: int,
    density_threshold: float,
    neighborhood: float,
    refits: Refits,
    rng: np.random.RandomState,
) -> Consensus:
    """Return the consensus of the parts of many runs, filtered and grouped.

    ``pooled`` contains the parts of all runs, with shape (n_runs k, n_features). ``seen`` is the
    scaled X of the runs. ``parts`` is a function that computes the final parts from the usages.
    """
    pooled = unit_rows(pooled)
    density = local_density(pooled, max(1, int(neighborhood * n_runs)))
    groups, kept = np.full(len(pooled), -1), density < density_threshold
    if kept.sum() < k:
        raise ValueError(
            f"only {kept.sum()} of {len(pooled)} parts recur more closely than "
            f"density_threshold={density_threshold:g}; use a larger density_threshold, a smaller k "
            f"than {k}, or a larger n_runs."
        )
    groups[kept] = _grouped(pooled[kept], k, 10, rng)
    if len(np.unique(groups[kept])) < k:
        raise ValueError(f"the runs found fewer than k={k} different parts; use a smaller k.")
    spectra = np.stack([np.median(pooled[groups == j], axis=0) for j in range(k)])
    spectra = unit_rows(spectra) if spectra.min() < 0 else over_sums(spectra)
    usages = rows_of(refits.codes(seen, spectra))
    order = np.argsort(-over_sums(usages).sum(axis=0), kind="stable")
    fixed = getattr(refits.estimator, "fixed_components", None)
    if fixed is not None:
        order = _fixed_first(order, groups, np.asarray(to_numpy(fixed)), k)
    groups[kept] = np.argsort(order)[groups[kept]]
    usages, spectra = usages[:, order], spectra[order]
    if fixed is not None:  # scaled to the units of the fixed entries
        usages[:, : len(fixed)] *= _sizes(spectra[: len(fixed)], np.asarray(to_numpy(fixed)))
    usages = np.ascontiguousarray(usages)
    stability = group_silhouettes(pooled[kept], groups[kept], k)
    return Consensus(
        parts(usages), usages, spectra, stability, pooled, density, groups, density_threshold
    )


def _fixed_first(order: AnyArray, groups: AnyArray, fixed: AnyArray, k: int) -> AnyArray:
    """Return the order of the groups, with those of fixed parts before the others.

    Fixed parts come first in each run, so their positions identify their groups.
    """
    counts = np.zeros((len(fixed), k))
    for part in range(len(fixed)):
        own = groups[part::k]
        counts[part] = np.bincount(own[own >= 0], minlength=k)
    first = linear_sum_assignment(-counts)[1]
    return np.concatenate([first, [j for j in order if j not in first]]).astype(int)


def _sizes(spectra: AnyArray, fixed: AnyArray) -> AnyArray:
    """Return the factors of usages that give the fixed spectra their original scale."""
    known = ~np.isnan(fixed)
    both = (np.where(known, a, 0).sum(axis=1) for a in (spectra, fixed))
    return ratio(*both)


def _runs_of_draws(
    refits: Refits, X: Any, k: int, n_runs: int, rng: np.random.RandomState, kind: str,
    unit_variance: bool,
) -> list[tuple[AnyArray, AnyArray | None]]:  # fmt: skip
    """Return the parts of many fits, each to newly drawn counts."""
    if back_end(X) is not None:
        raise ValueError("bootstrap needs X as a numpy or scipy array.")
    if refits.missing_values == 0:  # a count that is drawn as 0 is observed, not missing
        seen = sp.csr_array((np.ones_like(X.data), X.indices, X.indptr), X.shape)
        weight = refits.given.get("entry_weight")
        given = {"entry_weight": seen if weight is None else sp.csr_array(seen.multiply(weight))}
        refits = refits.with_settings(missing_values=None).with_given(**given)
    check_counts(X, "bootstrap")
    found = []
    for _ in range(n_runs):
        drawn, own = resample(X, kind, rng), refits
        if unit_variance:
            drawn, own = scaled(drawn, refits)
        found += own.runs(drawn, k, 1, rng, rows=None)
    return found


def scaled(X: Any, refits: Refits) -> tuple[Any, Refits]:
    """Return X with each feature divided by its standard deviation.

    Constant features stay the same. Fixed and seeded parts are divided in the same way.
    """
    weights = {name: refits.given.get(name) for name in ("sample_weight", "entry_weight")}
    scale = deviation_scale(X, refits.missing_values, **weights)
    settings = {
        name: to_numpy(H) * scale
        for name in ("fixed_components", "seed_components")
        if (H := getattr(refits.estimator, name, None)) is not None
    }
    return times(X, scale), refits.with_settings(**settings)


def deviation_scale(X: Any, missing: float | None = None, **weights: Any) -> AnyArray:
    """Return the inverse standard deviation of each feature; 1 for constant features."""
    mean, squares = feature_moments(X, missing, **weights)
    variance = squares - mean**2
    spread = variance > 1e-12 * mean**2
    return np.where(spread, 1 / np.sqrt(np.where(spread, variance, 1)), 1)


def times(X: Any, scale: AnyArray) -> Any:
    """Return X with each feature multiplied by a number, in the same kind of array."""
    if back_end(X) is not None:
        return X * as_data(X).small(scale.astype(numpy_dtype(X.dtype)))
    scale = scale.astype(X.dtype)
    return sp.csr_array(X @ sp.diags_array(scale)) if sp.issparse(X) else X * scale


def feature_moments(
    X: Any, missing: float | None = None, *, sample_weight: Any = None, entry_weight: Any = None
) -> tuple[AnyArray, AnyArray]:
    """Return mean and mean square of each feature over observed entries, in float64."""
    if not (missing is None and sample_weight is None and entry_weight is None):
        return _weighted_moments(X, missing, sample_weight, entry_weight)
    if sp.issparse(X):
        both = X.mean(axis=0, dtype=np.float64), X.multiply(X).mean(axis=0, dtype=np.float64)
        return np.asarray(both[0]).ravel(), np.asarray(both[1]).ravel()
    (n, p), total = X.shape, np.zeros((2, X.shape[1]))
    if getattr(X, "is_sparse_csr", False):
        raise ValueError("unit_variance=True needs a dense tensor; scale the features yourself.")
    step = max(1, PIECE // p)
    for start in range(0, n, step):
        block = float64(X[start : start + step])
        total += [to_numpy(block.sum(axis=0)), to_numpy((block * block).sum(axis=0))]
    return total[0] / n, total[1] / n


def _weighted_moments(
    X: Any, missing: float | None, sample_weight: Any, entry_weight: Any
) -> tuple[AnyArray, AnyArray]:
    """Return the weighted mean and mean square of each feature's observed entries."""
    if back_end(X) is not None:
        words = "with missing_values or weights needs X as a numpy or scipy array"
        raise ValueError(f"unit_variance=True {words}; scale the features yourself.")
    (n, p), total = X.shape, np.zeros((3, X.shape[1]))
    by_sample = np.ones(n) if sample_weight is None else np.asarray(sample_weight, float)
    if sp.issparse(X) and entry_weight is None:
        X = sp.csr_array(X)
        weight, values = np.repeat(by_sample, np.diff(X.indptr)), X.data.astype(np.float64)
        gone = np.isnan(values)
        values[gone] = 0
        if missing == 0:
            total[0] = np.bincount(X.indices, weight, p)
        else:
            total[0] = by_sample.sum() - np.bincount(X.indices, weight * gone, p)
        total[1] = np.bincount(X.indices, weight * values, p)
        total[2] = np.bincount(X.indices, weight * values**2, p)
    else:
        step = max(1, PIECE // p)
        for start in range(0, n, step):
            at = slice(start, start + step)
            values, weight = dense(X[at]), by_sample[at, None]
            weight = weight if entry_weight is None else weight * dense(entry_weight[at])
            gone = (values == 0) if missing == 0 else np.isnan(values)
            weight, values = (np.where(gone, 0, a) for a in (weight, values))
            total += [weight.sum(0), (weight * values).sum(0), (weight * values**2).sum(0)]
    return ratio(total[1], total[0]), ratio(total[2], total[0])


def _grouped(pooled: AnyArray, k: int, n_init: int, rng: np.random.RandomState) -> AnyArray:
    """Return the k-means group of each row.

    Only one thread is used, because the products are too small for several.
    """
    from sklearn.cluster import KMeans

    with one_blas_thread, threadpool_limits(1, user_api="openmp"):
        return np.asarray(KMeans(k, n_init=n_init, random_state=rng).fit_predict(pooled))


def stability_of(pooled: AnyArray, k: int, rng: np.random.RandomState) -> float:
    """Return the mean silhouette of the parts of all runs in k groups; NaN for k = 1."""
    pooled = unit_rows(pooled)
    groups = _grouped(pooled, k, 3, rng)
    return float(np.mean(group_silhouettes(pooled, groups, k)))


def over_sums(H: AnyArray) -> AnyArray:
    """Return H with each row divided by its sum; rows of zeros stay zero."""
    return ratio(H, np.broadcast_to(H.sum(axis=1, keepdims=True), H.shape))


def local_density(pooled: AnyArray, neighbors: int) -> AnyArray:
    """Return the mean distance of each row to its nearest rows; inf for zero rows."""
    distances = distances_of_unit(pooled)
    np.fill_diagonal(distances, np.inf)
    nearest = min(neighbors, len(pooled) - 1)
    density = np.partition(distances, nearest - 1, axis=1)[:, :nearest].mean(axis=1)
    density[~pooled.any(axis=1)] = np.inf
    return density


def distances_of_unit(pooled: AnyArray) -> AnyArray:
    """Return the Euclidean distances between all pairs of rows of length one."""
    return np.sqrt(np.maximum(2 - 2 * pooled @ pooled.T, 0))


def group_silhouettes(pooled: AnyArray, groups: AnyArray, k: int) -> AnyArray:
    """Return the mean silhouette of each group; NaN if k = 1.

    The silhouette of a group with one part is zero. All are zero if fewer than two groups have
    parts, or if each part has its own group.
    """
    if k == 1:
        return np.full(1, np.nan)
    found = np.unique(groups).size
    if not 1 < found < len(pooled):
        return np.zeros(k)
    from sklearn.metrics import silhouette_samples

    with one_blas_thread:
        scores = silhouette_samples(pooled, groups)
    return np.array([scores[groups == j].mean() if (groups == j).any() else 0.0 for j in range(k)])


def _check(k: Any, n_runs: Any, threshold: Any, neighborhood: Any) -> None:
    """Raise an error if a numeric argument of `consensus` is out of range."""
    check_count("k", k, 1)
    check_count("n_runs", n_runs, 2)
    limits = (("density_threshold", threshold, 2), ("neighborhood", neighborhood, 1))
    for name, value, most in limits:
        if not isinstance(value, Real) or not 0 < float(value) <= most:
            raise ValueError(f"{name} must be above 0 and at most {most}; got {value!r}.")
