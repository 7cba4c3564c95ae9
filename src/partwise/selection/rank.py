"""Choice of the number of parts by held-out entries of X and stability of fits."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.cluster.hierarchy import average, cophenet
from scipy.spatial.distance import squareform
from sklearn.utils import check_random_state

from partwise.backends.arrays import AnyArray
from partwise.backends.threads import allowed, side_by_side
from partwise.estimators.nmf import NMF
from partwise.fitting.description import warn
from partwise.fitting.solving import suppress_convergence_warning
from partwise.selection.consensus import stability_of
from partwise.selection.parameters import KEPT, Trial, by_entries, check_count, within_one
from partwise.selection.refits import Refits
from partwise.selection.search_log import Progress, SearchLog
from partwise.solvers.many_starts import ARRAYS

#: Maximum number of samples whose clusters are compared, because the matrix of sample pairs is
#: dense.
COMPARED = 500
#: Number of entries of X from which three splits in single precision are enough for `choose_k`.
LARGE = 1_000_000
#: Number of multiply-adds in a product with X that takes as long as the Python code of an
#: iteration.
ALONE = 2**21
#: Largest number of parts that `choose_k` tries by default.
MOST = 50


@dataclass(frozen=True, eq=False)
class Choice:
    """Result of `choose_k`; arrays have one row per number of parts.

    Parameters
    ----------
    k : int
        The chosen number of parts: the smallest of ``good``.
    good : list of int
        All numbers whose error is within one standard error of the lowest.
    numbers : ndarray of shape (n_numbers,)
        The numbers of parts that were tried.
    errors : ndarray of shape (n_numbers, n_splits)
        Mean loss at the hidden entries.
    excess : ndarray of shape (n_numbers, 2)
        Mean difference to the error of the best number in the same splits, and the standard error
        of that mean.
    stability : ndarray of shape (n_numbers,)
        Mean silhouette of the parts of several runs in k groups; NaN for k = 1.
    cophenetic : ndarray of shape (n_numbers,)
        Cophenetic correlation of how often two samples share their largest part (Brunet et al.
        2004): 1 if all runs form the same clusters. NaN for k = 1.
    most : int
        Largest number of parts that X can have.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import choose_k
    >>> X = np.random.default_rng(0).random((40, 2)) @ np.random.default_rng(1).random((2, 20))
    >>> choice = choose_k(X, [1, 2, 3], n_runs=0, random_state=0)
    >>> choice.k, choice.table().splitlines()[2].endswith("<-")
    (2, True)
    """

    k: int
    good: list[int]
    numbers: AnyArray
    errors: AnyArray
    excess: AnyArray
    stability: AnyArray
    cophenetic: AnyArray
    most: int = 2**31

    @property
    def edge(self) -> str:
        """End of the tried range at which the best number lies, or "" if it is inside.

        The value is "largest" or "smallest"; numbers beyond that end may be better. One part is not
        an end, because no smaller number exists.
        """
        best = int(self.errors.mean(axis=1).argmin())
        if len(self.numbers) - 1 == best > 0 and self.numbers[best] < self.most:
            return "largest"
        low = best == 0 and self.numbers[0] > 1 and len(self.numbers) > 1
        return "smallest" if low else ""

    def remarks(self) -> list[str]:
        """Return warnings about a best number at the end of the range, or a flat curve.

        Returns
        -------
        list of str
            Sentences.
        """
        remarks = []
        if self.edge:
            other = "more" if self.edge == "largest" else "fewer"
            remarks.append(
                f"The lowest error is at {self.numbers[-1 if other == 'more' else 0]}, the "
                f"{self.edge} number tried: {other} parts may be better, so try them."
            )
        if len(self.good) > 1 and len(self.good) >= len(self.numbers) / 2:
            remarks.append(
                f"The curve is flat: {len(self.good)} of {len(self.numbers)} numbers, "
                f"{self.good[0]} to {self.good[-1]}, are as good. Hidden entries do not decide "
                "between them."
            )
        return remarks

    def table(self) -> str:
        """Return a text table with the errors and stabilities of each number of parts.

        Returns
        -------
        str
            Lines to print.
        """
        lines = ["   k       error  above best  +- s.e.  stability  cophenetic"]
        for row, k in enumerate(self.numbers):
            mark = "<-" if k == self.k else "good" if k in self.good else ""
            above, error = self.excess[row]
            stable, alike = _text(self.stability[row]), _text(self.cophenetic[row])
            lines.append(
                f"{k:4d} {self.errors[row].mean():11.5g} {above:11.2g} {error:8.1g} "
                f"{stable:>10} {alike:>11}  {mark}".rstrip()
            )
        return "\n".join([*lines, *self.remarks()])


def choose_k(
    X: Any,
    numbers: Iterable[int] | None = None,
    *,
    estimator: Any = None,
    share: float | None = None,
    n_splits: int | None = None,
    n_runs: int | None = None,
    patience: int | None = None,
    random_state: Any = None,
    results: Any = None,
    progress: Progress | None = None,
    **fit_params: Any,
) -> Choice:
    """Choose the number of parts by how well models predict entries that they did not see.

    In each of ``n_splits`` splits a random ``share`` of the entries is hidden (`metrics.hold_out`),
    the same for every number of parts. The answer is the smallest number whose error is above the
    lowest by at most one standard error of that difference over the splits. Fits that end at
    ``max_iter`` count as they are. A Dask X is fitted chunk by chunk.

    Parameters
    ----------
    X : {array-like, sparse matrix, Dask array} of shape (n_samples, n_features)
        Non-negative samples.
    numbers : iterable of int, default=None
        Numbers of parts to try. None: 1, 2, 3 and so on to 50, with ``patience=4``.
    estimator : estimator, default=None
        The model: any with ``missing_values``. All its settings apply to each fit, except
        ``n_components`` and ``random_state``. If it has a ``checkpoint`` folder and ``results`` is
        None, results are stored in that folder. None: `NMF` with ``tol=1e-3``, in single precision
        if X has a million entries or more.
    share : float, default=None
        Share of the entries to hide. None: a tenth, or less if X is so large that fewer entries
        are enough.
    n_splits : int, default=None
        Number of splits; more splits make the standard errors more certain. None: 5, or 3 if X
        has a million entries or more.
    n_runs : int, default=None
        Number of runs from random starts for the stability and the cophenetic correlation; 0 leaves
        these out. None: 10. If X has a million entries or more and no estimator is given: 5
        runs with ``tol=3e-3`` on a random subset of samples with a million entries.
    patience : int, default=None
        Stop once this many numbers beyond the best are worse by more than one standard error.
    random_state : int, RandomState instance or None, default=None
        Random seed of the splits and fits.
    results : path, default=None
        A file for finished fits, or a folder with a file for each search. The same call continues
        from it after an interruption.
    progress : callable, default=None
        Called as ``progress(done, total, what)`` before each fit.
    **fit_params
        Further arguments of the estimator's ``fit``, for example ``y`` or ``sample_weight``. Sample
        and entry weights also weight the error.

    Returns
    -------
    choice : Choice

    See Also
    --------
    select : The same for any parameter.

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
    refits = Refits(NMF(tol=1e-3) if estimator is None else estimator, "choose_k", fit_params)
    X, refits = refits.without_start().samples(X)
    large = X.shape[0] * X.shape[1] >= LARGE
    plain = large and estimator is None and not refits.given
    short = plain and n_runs is None
    usual = (3, 5) if large else (5, 10)
    n_splits, n_runs = (u if n is None else n for n, u in zip((n_splits, n_runs), usual))
    if numbers is None:
        numbers = range(max(1, refits.n_known), min(MOST, *X.shape) + 1)
        patience = patience or 4
    tried = _check(numbers, n_splits, n_runs, patience, refits.n_known)
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    ks = np.array(tried)
    search = {"X": X, "numbers": ks, "share": share}
    search |= {"n_splits": n_splits, "n_runs": n_runs, **refits.given}
    if estimator is not None:
        search |= {"kind": type(estimator).__name__, "model": estimator.get_params()}
    total = len(tried) * n_splits + int((ks > 1).sum()) * min(n_runs, 1)
    log = SearchLog(refits.results(results), search, seed, total, progress)
    rng = np.random.RandomState(log.seed)
    if plain and _peak(X) < 1e30:
        X = X.astype(np.float32)
    trial = by_entries(X, refits, share, n_splits, rng)
    errors, signs = _measured(X, refits, log, trial, tried, n_splits, n_runs, patience, short)
    found = replace(_decide(ks[: len(errors)], errors, signs), most=min(X.shape))
    if found.edge:
        warn(found.remarks()[0])
    return found


def _measured(
    X: Any, refits: Refits, log: SearchLog, trial: Trial, tried: list[int], n_splits: int,
    n_runs: int, patience: int | None, short: bool,
) -> tuple[AnyArray, AnyArray]:  # fmt: skip
    """Return errors and stabilities, until ``patience`` numbers of parts are worse.

    If ``short`` is true, stabilities come from short fits to a random subset of the samples.
    """
    errors, signs = np.empty((len(tried), n_splits)), np.full((len(tried), 2), np.nan)

    def work(row: int, split: int) -> None:
        """Compute one entry of the results: an error in a split, or the stabilities."""
        k = tried[row]
        if split < n_splits:
            one = partial(trial, {"n_components": k}, split)
            errors[row, split] = log.get(f"{k} / {split}", one, f"k = {k}")[0]
        elif n_runs and k > 1:
            start = np.random.RandomState((log.seed + k) % 2**32)
            some = _some(X, k, start) if short else X
            own = refits.with_settings(tol=3e-3) if short else refits
            both = partial(_stabilities, own, some, k, n_runs, start)
            signs[row] = log.get(f"{k} / runs", both, f"k = {k}")

    patience = len(tried) if patience is None else patience
    done, end = 0, min(1 + patience, len(tried))
    # The rows before `end` are needed whatever their errors are. The longest fits run first.
    while done < end:
        rows, splits = reversed(range(done, end)), reversed(range(n_splits + 1))
        side_by_side(work, list(itertools.product(rows, splits)), at_once(X, max(tried)))
        done, end = end, min(_end(errors[:end], patience), len(tried))
    return errors[:done], signs[:done]


def at_once(X: Any, k: int) -> int:
    """Return how many parallel fits are worthwhile and fit into memory.

    Each fit needs an array as large as X, and factors. A fit of a Dask array uses the whole
    cluster, so such fits run one after the other.
    """
    if hasattr(X, "to_delayed"):
        return 1
    entries = int(X.nnz) if sp.issparse(X) else int(X.size)
    room: int = KEPT // (entries + ARRAYS * sum(X.shape) * k)
    return max(1, min(allowed(), room, 1 + entries * k // ALONE))


def _end(errors: AnyArray, patience: int) -> int:
    """Return how many rows to compute until ``patience`` rows are clearly worse."""
    return int(np.flatnonzero(within_one(errors)[2])[-1]) + 1 + patience


def _decide(tried: AnyArray, errors: AnyArray, signs: AnyArray) -> Choice:
    """Return the `Choice`: the smallest number of parts within one standard error.

    The standard error is that of differences between errors in the same splits.
    """
    _, excess, near = within_one(errors)
    good = [int(k) for k in tried[near]]
    return Choice(min(good), good, tried, errors, excess, signs[:, 0], signs[:, 1])


def _text(value: float) -> str:
    """Return a value as text; NaN, which means that it was not computed, as a dash."""
    return "-" if np.isnan(value) else f"{value:.3f}"


def _peak(X: Any) -> float:
    """Return the largest absolute value of X; Dask computes it chunk by chunk."""
    if not hasattr(X, "to_delayed"):
        return float(abs(X).max())
    import dask

    peak = dask.delayed(_peak, pure=False)
    return float(max(dask.compute(*(peak(chunk) for chunk in X.to_delayed().ravel()))))


def _drawn(n: int, size: int, rng: np.random.RandomState) -> AnyArray:
    """Return random row numbers without repetition, in increasing order."""
    children = np.random.default_rng(rng.randint(2**31 - 1))
    return np.sort(children.choice(n, min(n, size), replace=False, shuffle=False))


def _some(X: Any, k: int, rng: np.random.RandomState) -> Any:
    """Return random samples in memory: a million entries, or twenty samples per part."""
    n, p = X.shape
    X = X[_drawn(n, max(LARGE // p, 20 * k), rng)]
    return X.compute() if hasattr(X, "to_delayed") else X


def _stabilities(
    refits: Refits, X: Any, k: int, n_runs: int, rng: np.random.RandomState
) -> tuple[float, float]:
    """Return the stability of parts and the cophenetic correlation over several runs."""
    some = _drawn(X.shape[0], COMPARED, rng)
    with suppress_convergence_warning():
        found = refits.runs(X, k, n_runs, rng, rows=some)
    stable = stability_of(np.concatenate([H for H, _ in found]), k, rng)
    return stable, cophenetic_correlation([V.argmax(axis=1) for _, V in found if V is not None])


def cophenetic_correlation(clusterings: list[AnyArray]) -> float:
    """Return the cophenetic correlation of several clusterings; 1 if all agree.

    It measures how well a tree describes how often two samples share a cluster.
    """
    together = np.mean([labels[:, None] == labels for labels in clusterings], axis=0)
    apart = squareform(1 - together, checks=False)
    if apart.size < 2 or apart.min() == apart.max():
        return 1.0
    return float(cophenet(average(apart), apart)[0])


def _check(
    numbers: Iterable[Any], n_splits: Any, n_runs: Any, patience: Any, least: int
) -> list[int]:
    """Return the sorted numbers of parts to try, after checking all arguments."""
    tried = list(numbers)
    if not tried or not all(isinstance(k, Integral) and int(k) >= 1 for k in tried):
        raise ValueError(f"numbers must be whole numbers of at least 1; got {tried!r}.")
    check_count("n_splits", n_splits, 2)
    check_count("n_runs", n_runs, 0)
    if patience is not None:
        check_count("patience", patience, 1)
    if n_runs == 1:
        raise ValueError("n_runs must be 0 or at least 2, because stability compares runs.")
    if min(tried) < least:
        raise ValueError(f"numbers must be at least the {least} known parts; got {min(tried)}.")
    return sorted({int(k) for k in tried})
