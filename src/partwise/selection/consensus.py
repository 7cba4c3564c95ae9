"""Parts that come back: many runs, pooled, and what they have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from partwise.backends import as_data, back_end, in_memory
from partwise.backends.arrays import AnyArray, float64, numpy_dtype, ratio, to_numpy
from partwise.backends.data_matrix import Swept
from partwise.backends.threads import one_blas_thread
from partwise.estimators._base import Factorizer
from partwise.estimators.nmf import NMF, non_negative_factorization
from partwise.evaluation.groups import unit_rows
from partwise.evaluation.resampling import check_counts, resample
from partwise.fitting import every_start
from partwise.model.factor_model import FactorModel
from partwise.model.losses import beta_of, make_loss
from partwise.model.subproblems import Quadratic
from partwise.solvers.codes import solve_parts, solve_quadratic

#: Entries of X whose float64 copies are made at a time.
PIECE = 2**24


@dataclass(frozen=True, eq=False)
class Consensus:
    """What `consensus` found; k parts in the order of how much they are used.

    Parameters
    ----------
    parts : ndarray of shape (k, n_features)
        In the units of X, fitted to it with the usages fixed.
    usages : ndarray of shape (n_samples, k)
        Codes of the samples with the spectra fixed.
    spectra : ndarray of shape (k, n_features)
        The medians of the groups, of sum one, in the units in which the runs saw X.
    stability : ndarray of shape (k,)
        Mean silhouette of each group: 1 means that all runs found the same part. NaN for k = 1.
    pooled : ndarray of shape (n_runs k, n_features)
        The parts of all runs at length one.
    density : ndarray of shape (n_runs k,)
        Mean distance of each to its nearest ones; infinite for parts of zeros.
    groups : ndarray of shape (n_runs k,)
        The part that each belongs to; -1: removed as an outlier.
    density_threshold : float

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
) -> Consensus:
    r"""Parts that come back in many runs from random starts, by the steps of cNMF.

    The parts of all runs are pooled at length one. Those whose mean distance to their nearest
    ``neighborhood`` · ``n_runs`` others is ``density_threshold`` or more are removed; k-means makes
    k groups of the rest, and the median of each group is a spectrum. Usages solve

    .. math:: \min_{V \ge 0} d_\beta(X', V S)

    with the spectra S fixed and X' what the runs saw, and the parts
    :math:`\min_{H \ge 0} d_\beta(X, V H)` with these usages.

    Parameters
    ----------
    X : {array-like, sparse matrix, tensor} of shape (n_samples, n_features)
        Non-negative samples. A tensor stays on its device; codes of the runs never leave it.
    k : int
        Number of parts.
    n_runs : int, default=100
        Runs, each from a start of its own; under the Frobenius loss they are fitted side by side.
    estimator : estimator, default=None
        The model of a run: any of this package with ``n_components``. None: `NMF` with
        ``tol=1e-3`` in single precision, which is where scikit-learn's ``tol=1e-4`` ends, too.
    y : array-like, default=None
        Labels, for an estimator that takes them.
    density_threshold : float, default=0.5
        Between 0 and 2; 2 removes nothing.
    neighborhood : float, default=0.3
        The share of the runs in which a part that counts is expected to come back.
    unit_variance : bool, default=True
        Divide each feature by its standard deviation first, as cNMF does. Say False where the
        loss is one of counts.
    bootstrap : {"poisson", "multinomial"}, default=None
        Draw the counts anew for each run, as is done for mutational signatures: a part must then
        survive other counts as well as other starts. "poisson": around each count;
        "multinomial": each sample keeps its total. X must hold counts.
    random_state : int, RandomState instance or None, default=None

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
    served = back_end(X)
    checked = in_memory(X) if served is None else served.check(X, "consensus")
    X = X if isinstance(checked, Swept) else checked  # a Dask array goes on as it is
    rng = check_random_state(random_state)
    model = clone(NMF(tol=1e-3) if estimator is None else estimator)
    loss = getattr(model, "beta_loss", "frobenius")
    seen = over_deviation(X) if unit_variance else X
    if bootstrap is None:
        plain = estimator is None and back_end(X) is None
        single = seen.astype(np.float32) if plain else seen
        found = runs(model, single, k, n_runs, rng, codes=False, y=y)
    else:
        found = _runs_of_draws(model, X, k, n_runs, rng, bootstrap, unit_variance, y)
    pooled = np.concatenate([H for H, _ in found])
    return from_runs(
        pooled, seen, k, lambda V: parts_of(X, V, loss), n_runs=n_runs, neighborhood=neighborhood,
        density_threshold=density_threshold, loss=loss, rng=rng,
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
    loss: Any = "frobenius",
    rng: np.random.RandomState,
) -> Consensus:
    """What many runs have in common; their parts (n_runs k, n_features) come from wherever.

    ``seen`` is what the runs saw, and ``parts`` makes the parts of the usages.
    """
    pooled = unit_rows(pooled)
    density = local_density(pooled, max(1, int(neighborhood * n_runs)))
    groups, kept = np.full(len(pooled), -1), density < density_threshold
    if kept.sum() < k:
        raise ValueError(
            f"only {kept.sum()} of {len(pooled)} parts come back more closely than "
            f"density_threshold={density_threshold:g}; raise it, lower k={k}, or raise n_runs."
        )
    groups[kept] = _grouped(pooled[kept], k, 10, rng)
    if len(np.unique(groups[kept])) < k:
        raise ValueError(f"the runs found fewer than k={k} different parts; lower k.")
    spectra = over_sums(np.stack([np.median(pooled[groups == j], axis=0) for j in range(k)]))
    usages = to_numpy(codes_of(seen, spectra, loss))
    order = np.argsort(-over_sums(usages).sum(axis=0), kind="stable")
    groups[kept] = np.argsort(order)[groups[kept]]
    usages = np.ascontiguousarray(usages[:, order])
    stability = group_silhouettes(pooled[kept], groups[kept], k)
    return Consensus(
        parts(usages), usages, spectra[order], stability, pooled, density, groups,
        density_threshold,
    )  # fmt: skip


def runs(
    model: Any,
    X: Any,
    k: int,
    n_runs: int,
    rng: np.random.RandomState,
    *,
    codes: bool = True,
    **given: Any,
) -> list[tuple[AnyArray, AnyArray | None]]:
    """(parts, codes) of each of many runs from random starts, side by side where that is done.

    Without ``codes`` those are None: on a device they are as large as X and stay there.
    """
    given = {name: value for name, value in given.items() if value is not None}
    model = clone(model).set_params(n_components=k)
    if "init" in model.get_params() and model.init is None:
        model.set_params(init="random")
    what = model._describe() if isinstance(model, Factorizer) else None
    if what is not None and not (what.own_fit or what.printed):
        model.set_params(n_init=n_runs, random_state=rng.randint(2**31 - 1))
        ends = every_start(model, X, **given)
        return [(to_numpy(H), to_numpy(V) if codes else None) for V, H in ends]
    found: list[tuple[AnyArray, AnyArray | None]] = []
    for seed in rng.randint(2**31 - 1, size=n_runs):
        one = clone(model).set_params(random_state=int(seed)).fit(X, **given)
        found.append((to_numpy(one.components_), to_numpy(one.embedding_)))
    return found


def _runs_of_draws(
    model: Any, X: Any, k: int, n_runs: int, rng: np.random.RandomState, kind: str,
    unit_variance: bool, y: Any,
) -> list[tuple[AnyArray, AnyArray | None]]:  # fmt: skip
    """Runs that each see the counts drawn anew."""
    if back_end(X) is not None:
        raise ValueError("bootstrap needs X as a numpy or scipy array.")
    check_counts(X, "bootstrap")
    found = []
    for _ in range(n_runs):
        drawn = resample(X, kind, rng)
        seen = over_deviation(drawn) if unit_variance else drawn
        found += runs(model, seen, k, 1, rng, codes=False, y=y)
    return found


def over_deviation(X: Any) -> Any:
    """X with each feature divided by its standard deviation; constant ones stay."""
    mean, squares = feature_moments(X)
    variance = squares - mean**2
    spread = variance > 1e-12 * mean**2
    scale = np.where(spread, 1 / np.sqrt(np.where(spread, variance, 1)), 1)
    if back_end(X) is not None:
        return X * as_data(X).small(scale.astype(numpy_dtype(X.dtype)))
    scale = scale.astype(X.dtype)
    return sp.csr_array(X @ sp.diags_array(scale)) if sp.issparse(X) else X * scale


def feature_moments(X: Any) -> tuple[AnyArray, AnyArray]:
    """Mean and mean square of each feature, in float64."""
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


def _grouped(pooled: AnyArray, k: int, n_init: int, rng: np.random.RandomState) -> AnyArray:
    """K-means; what it does at a time is too small for many threads, of BLAS or its own."""
    from sklearn.cluster import KMeans

    with one_blas_thread, threadpool_limits(1, user_api="openmp"):
        return np.asarray(KMeans(k, n_init=n_init, random_state=rng).fit_predict(pooled))


def stability_of(pooled: AnyArray, k: int, rng: np.random.RandomState) -> float:
    """Mean silhouette of the parts of all runs in k groups, outliers and all; NaN for k = 1."""
    pooled = unit_rows(pooled)
    groups = _grouped(pooled, k, 3, rng)
    return float(np.mean(group_silhouettes(pooled, groups, k)))


def over_sums(H: AnyArray) -> AnyArray:
    """Rows of sum one; zeros stay."""
    return ratio(H, np.broadcast_to(H.sum(axis=1, keepdims=True), H.shape))


def local_density(pooled: AnyArray, neighbors: int) -> AnyArray:
    """Mean distance of each row to its nearest others; infinite for a row of zeros."""
    distances = distances_of_unit(pooled)
    np.fill_diagonal(distances, np.inf)
    nearest = min(neighbors, len(pooled) - 1)
    density = np.partition(distances, nearest - 1, axis=1)[:, :nearest].mean(axis=1)
    density[~pooled.any(axis=1)] = np.inf
    return density


def distances_of_unit(pooled: AnyArray) -> AnyArray:
    """Euclidean distances between rows of length one."""
    return np.sqrt(np.maximum(2 - 2 * pooled @ pooled.T, 0))


def group_silhouettes(pooled: AnyArray, groups: AnyArray, k: int) -> AnyArray:
    """Mean silhouette of each group; NaN for k = 1, where there is nothing to be told from.

    Zero, as for a group of one, where fewer groups than two have parts, or every part is alone.
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


def codes_of(X: Any, H: AnyArray, loss: Any) -> AnyArray:
    """The V >= 0 that fits X ≈ V H best."""
    H = np.ascontiguousarray(H, dtype=numpy_dtype(X.dtype))
    return non_negative_factorization(X, H=H, update_H=False, beta_loss=loss)[0]


def parts_of(X: Any, V: AnyArray, loss: Any) -> AnyArray:
    """The H >= 0 that fits X ≈ V H best, k-by-p."""
    if beta_of(loss) != 2 and back_end(X) is None:
        return np.ascontiguousarray(codes_of(X.T, V.T, loss).T)
    data = as_data(X)
    F = data.rows(V.astype(data.dtype))
    start = data.small(np.zeros((data.shape[1], V.shape[1]), data.dtype))
    if beta_of(loss) != 2:  # no row block or device has room for another copy of X
        found = solve_parts(FactorModel(data, make_loss(loss)), F, start + _typical(data, V))
        return np.ascontiguousarray(to_numpy(found).T)
    sub = Quadratic(data.tdot(F), F.T @ F)
    scale = float(data.row_sq_norms().sum())
    return np.ascontiguousarray(to_numpy(solve_quadratic(sub, start, 1e-4, scale)).T)


def _typical(data: Any, V: AnyArray) -> Any:
    """The entry of constant parts with the sum of X, where they begin."""
    mean = float(data.row_sums().sum()) / data.shape[1]
    return data.dtype.type(mean / max(float(V.sum()), 1e-300))


def _check(k: Any, n_runs: Any, threshold: Any, neighborhood: Any) -> None:
    for name, value, least in (("k", k, 1), ("n_runs", n_runs, 2)):
        if not isinstance(value, Integral) or value < least:
            raise ValueError(f"{name} must be a whole number, {least} or more; got {value!r}.")
    for name, value, most in (
        ("density_threshold", threshold, 2),
        ("neighborhood", neighborhood, 1),
    ):
        if not isinstance(value, Real) or not 0 < float(value) <= most:
            raise ValueError(f"{name} must be above 0 and at most {most}; got {value!r}.")
