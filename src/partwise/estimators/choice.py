"""How many parts: entries held out, and whether parts and clusters come back."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import average, cophenet
from scipy.spatial.distance import squareform
from sklearn.base import clone
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_random_state

from partwise.engine.numeric import Array
from partwise.estimators.consensus import group_silhouettes, runs, unit_rows
from partwise.estimators.nmf import NMF
from partwise.evaluation.held_out import hold_out

#: Samples among which clusters are compared; more would make a matrix of their pairs too large.
COMPARED = 500


@dataclass(frozen=True, eq=False)
class Choice:
    """What `choose_k` found; arrays have one row for each number tried.

    Attributes
    ----------
    k : int
        The answer: the smallest of ``good``.
    good : list of int
        All numbers whose error is within one standard error of the lowest.
    numbers : ndarray of shape (n_numbers,)
    errors : ndarray of shape (n_numbers, n_splits)
        The loss at the hidden entries, mean over them.
    excess : ndarray of shape (n_numbers, 2)
        By how much the error is above that of the best number, in the same splits: mean, and the
        standard error of that mean.
    stability : ndarray of shape (n_numbers,)
        Mean silhouette of the parts of many runs, in k groups; NaN for k = 1.
    cophenetic : ndarray of shape (n_numbers,)
        Cophenetic correlation of how often two samples share their largest part (Brunet et al.
        2004): 1 means that all runs make the same clusters. NaN for k = 1.
    """

    k: int
    good: list[int]
    numbers: Array
    errors: Array
    excess: Array
    stability: Array
    cophenetic: Array

    def table(self) -> str:
        """A line for each number: error, excess with its standard error, and the other signs."""
        lines = ["   k       error  above best  +- s.e.  stability  cophenetic"]
        for row, k in enumerate(self.numbers):
            mark = "<-" if k == self.k else "good" if k in self.good else ""
            above, error = self.excess[row]
            lines.append(
                f"{k:4d} {self.errors[row].mean():11.5g} {above:11.2g} {error:8.1g} "
                f"{self.stability[row]:10.3f} {self.cophenetic[row]:11.3f}  {mark}".rstrip()
            )
        return "\n".join(lines)


def choose_k(
    X: Any,
    numbers: Iterable[int],
    *,
    estimator: Any = None,
    share: float = 0.1,
    n_splits: int = 5,
    n_runs: int = 10,
    random_state: Any = None,
    verbose: int = 0,
) -> Choice:
    """How many parts X has, by how well models tell entries that they did not see.

    In each of ``n_splits`` splits a random ``share`` of the entries is hidden (`metrics.hold_out`),
    the same for every number of parts. The number with the lowest mean error is the best; the
    answer is the smallest whose error is above it by no more than one standard error of that
    difference over the splits. Too few splits make that standard error itself uncertain. Fits that
    end at ``max_iter`` count as they are.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Non-negative samples.
    numbers : iterable of int
        Numbers of parts to try.
    estimator : estimator, default=None
        The model: any with ``missing_values``. None: `NMF`.
    share : float, default=0.1
        Share of the entries that is hidden.
    n_splits : int, default=5
    n_runs : int, default=10
        Runs from random starts for stability and cophenetic correlation; 0 leaves these out.
    random_state : int, RandomState instance or None, default=None
    verbose : int, default=0
        Print a line for each number.

    Returns
    -------
    choice : Choice

    References
    ----------
    S. Wold: Cross-validatory estimation of the number of components, Technometrics 1978.
    J.-P. Brunet et al.: Metagenes and molecular pattern discovery using matrix factorization,
    PNAS 2004.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import choose_k
    >>> rng = np.random.default_rng(0)
    >>> X = rng.poisson(5 * rng.gamma(0.5, size=(100, 3)) @ rng.gamma(0.3, size=(3, 40)))
    >>> choose_k(X, range(1, 6), n_runs=0, random_state=0).k
    3
    """
    tried = _check(numbers, n_splits, n_runs)
    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
    rng = check_random_state(random_state)
    model = clone(NMF() if estimator is None else estimator)
    if "missing_values" not in model.get_params():
        raise ValueError(f"estimator must have missing_values; {type(model).__name__} has not.")
    splits = [hold_out(X, share, random_state=rng) for _ in range(n_splits)]
    seeds = rng.randint(2**31 - 1, size=n_splits)
    errors = np.empty((len(tried), n_splits))
    signs = np.full((len(tried), 2), np.nan)
    for row, k in enumerate(tried):
        model.set_params(n_components=int(k))
        with warnings.catch_warnings():  # max_iter is the same for all: part of the comparison
            warnings.simplefilter("ignore", ConvergenceWarning)
            for column, (held, seed) in enumerate(zip(splits, seeds, strict=True)):
                one = clone(model).set_params(missing_values=np.nan, random_state=int(seed))
                errors[row, column] = held.error(one.fit(held.X))
            if n_runs and k > 1:
                signs[row] = _signs(model, X, int(k), n_runs, rng)
        if verbose:
            print(f"k = {k}: error {errors[row].mean():.5g}, stability {signs[row, 0]:.3f}")
    return _decide(tried, errors, signs)


def _decide(tried: Array, errors: Array, signs: Array) -> Choice:
    """The one-standard-error rule on differences in the same splits."""
    best = int(errors.mean(axis=1).argmin())
    above = errors - errors[best]
    error = above.std(axis=1, ddof=1) / np.sqrt(errors.shape[1])
    excess = np.stack([above.mean(axis=1), error], axis=1)
    good = [int(k) for k in tried[excess[:, 0] <= error]]
    return Choice(min(good), good, tried, errors, excess, signs[:, 0], signs[:, 1])


def _signs(
    model: Any, X: Any, k: int, n_runs: int, rng: np.random.RandomState
) -> tuple[float, float]:
    """Stability of parts and cophenetic correlation of clusters over many runs on all of X."""
    found = runs(model, X, k, n_runs, rng)
    pooled = unit_rows(np.concatenate([H for H, _ in found]))
    groups = KMeans(k, n_init=3, random_state=rng).fit_predict(pooled)
    stable = float(np.nanmean(group_silhouettes(pooled, groups, k)))
    some = rng.permutation(X.shape[0])[:COMPARED]
    return stable, cophenetic_correlation(
        [V[some].argmax(axis=1) for _, V in found if V is not None]
    )


def cophenetic_correlation(clusterings: list[Array]) -> float:
    """How well a tree tells how often two samples share a cluster; 1 where all runs agree."""
    together = np.mean([labels[:, None] == labels for labels in clusterings], axis=0)
    apart = squareform(1 - together, checks=False)
    if apart.size < 2 or apart.min() == apart.max():
        return 1.0
    return float(cophenet(average(apart), apart)[0])


def _check(numbers: Iterable[Any], n_splits: Any, n_runs: Any) -> Array:
    """The numbers to try, in order."""
    tried = list(numbers)
    if not tried or not all(isinstance(k, Integral) and int(k) >= 1 for k in tried):
        raise ValueError(f"numbers must be whole numbers, 1 or more; got {tried!r}.")
    for name, value, least in (("n_splits", n_splits, 2), ("n_runs", n_runs, 0)):
        if not isinstance(value, Integral) or value < least:
            raise ValueError(f"{name} must be a whole number, {least} or more; got {value!r}.")
    if n_runs == 1:
        raise ValueError("n_runs must be 0, or 2 or more: one run has nothing to agree with.")
    return np.unique(np.asarray(tried, dtype=int))
