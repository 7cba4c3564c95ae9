"""How many parts: entries held out, and whether parts and clusters come back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.cluster.hierarchy import average, cophenet
from scipy.spatial.distance import squareform
from sklearn.base import clone
from sklearn.utils import check_random_state

from partwise.backends import in_memory
from partwise.backends.arrays import AnyArray
from partwise.backends.threads import allowed, side_by_side
from partwise.estimators.nmf import NMF
from partwise.fitting.checking.warning import warn
from partwise.fitting.solving import few_iterations_will_do
from partwise.selection.consensus import runs, stability_of
from partwise.selection.parameters import KEPT, by_entries, check_count, within_one
from partwise.selection.search_log import Ledger, Progress
from partwise.solvers.many_starts import ARRAYS

#: Samples among which clusters are compared; more would make a matrix of their pairs too large.
COMPARED = 500
#: Entries of X from which three splits in float32 do.
LARGE = 1_000_000
#: Multiply-adds of a product with X that take as long as what a fit does in Python beside it.
ALONE = 2**21
#: The largest number that is tried unasked.
MOST = 50


@dataclass(frozen=True, eq=False)
class Choice:
    """What `choose_k` found; arrays have one row for each number tried.

    Parameters
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
    most : int
        The parts that X can have at most.

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
        """ "largest" or "smallest" where the best number is at the end of those tried, else "".

        Numbers beyond may be better. One part is no edge: there are no fewer.
        """
        best = int(self.errors.mean(axis=1).argmin())
        if len(self.numbers) - 1 == best > 0 and self.numbers[best] < self.most:
            return "largest"
        low = best == 0 and self.numbers[0] > 1 and len(self.numbers) > 1
        return "smallest" if low else ""

    def remarks(self) -> list[str]:
        """What to know before the answer is used: the end of the range, and a flat curve.

        Returns
        -------
        list of str
            Sentences.
        """
        said = []
        if self.edge:
            other = "more" if self.edge == "largest" else "fewer"
            said.append(
                f"The lowest error is at {self.numbers[-1 if other == 'more' else 0]}, the "
                f"{self.edge} number tried: {other} parts may be better, try them."
            )
        if len(self.good) > 1 and len(self.good) >= len(self.numbers) / 2:
            said.append(
                f"The curve is flat: {len(self.good)} of {len(self.numbers)} numbers, "
                f"{self.good[0]} to {self.good[-1]}, are as good; hidden entries do not decide "
                "between them."
            )
        return said

    def table(self) -> str:
        """A line for each number: error, excess with its standard error, and the other signs.

        Returns
        -------
        str
            Lines to print.
        """
        lines = ["   k       error  above best  +- s.e.  stability  cophenetic"]
        for row, k in enumerate(self.numbers):
            mark = "<-" if k == self.k else "good" if k in self.good else ""
            above, error = self.excess[row]
            stable, alike = _sign(self.stability[row]), _sign(self.cophenetic[row])
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
    numbers : iterable of int, default=None
        Numbers of parts to try. None: 1, 2, 3 and so on to 50, with ``patience=4``.
    estimator : estimator, default=None
        The model: any with ``missing_values``. None: `NMF` with ``tol=1e-3``, in float32 where X
        has a million entries or more.
    share : float, default=None
        Share of the entries that is hidden. None: a tenth, less where X is so large that fewer
        entries tell a part too many.
    n_splits : int, default=None
        None: 5, or 3 where X has a million entries or more.
    n_runs : int, default=None
        Runs from random starts for stability and cophenetic correlation; 0 leaves these out. None:
        10, or where X has more than a million entries 5 shorter ones (``tol=3e-3``) on as many
        samples, drawn at random, as a million entries are.
    patience : int, default=None
        End once so many numbers beyond the best were worse than it by more than a standard error.
    random_state : int, RandomState instance or None, default=None
    results : path, default=None
        A file that keeps what is done; the same call goes on with it after it was stopped.
    progress : callable, default=None
        Called as ``progress(done, total, what)`` before each fit.

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
    X = in_memory(X)
    large = X.shape[0] * X.shape[1] >= LARGE
    if n_splits is None:
        n_splits = 3 if large else 5
    short = large and n_runs is None and estimator is None
    if n_runs is None:
        n_runs = 5 if large else 10
    if numbers is None:
        numbers, patience = range(1, min(MOST, *X.shape) + 1), patience or 4
    tried = _check(numbers, n_splits, n_runs, patience)
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    search = {"X": X, "numbers": tried, "share": share, "n_splits": n_splits, "n_runs": n_runs}
    if estimator is not None:
        search |= {"kind": type(estimator).__name__, "model": estimator.get_params()}
    total = len(tried) * n_splits + (int((tried > 1).sum()) if n_runs else 0)
    ledger = Ledger(results, search, seed, total, progress)
    rng = np.random.RandomState(ledger.seed)
    if estimator is None and large and float(abs(X).max()) < 1e30:
        X = X.astype(np.float32)
    model = clone(NMF(tol=1e-3) if estimator is None else estimator)
    trial = by_entries(X, model, share, n_splits, rng)
    errors, signs = np.empty((len(tried), n_splits)), np.full((len(tried), 2), np.nan)

    def hide(row: int, split: int) -> None:
        k = int(tried[row])
        one = partial(trial, clone(model).set_params(n_components=k), split)
        errors[row, split] = ledger.get(f"{k} / {split}", one, f"k = {k}")[0]

    def run(row: int) -> None:
        k = int(tried[row])
        start = np.random.RandomState((ledger.seed + k) % 2**32)
        base = clone(model).set_params(tol=3e-3) if short else model
        some = _some(X, k, start) if short else X
        both = partial(_signs, base, some, k, n_runs, start)
        signs[row] = ledger.get(f"{k} / runs", both, f"k = {k}")

    patience = len(tried) if patience is None else patience
    done, end = 0, min(1 + patience, len(tried))
    while done < end:  # rows up to there are tried whatever their errors will be; the longest first
        works: list[Any] = []
        for row in reversed(range(done, end)):
            works += [partial(run, row)] if n_runs and tried[row] > 1 else []
            works += [partial(hide, row, split) for split in range(n_splits)]
        side_by_side(lambda work: work(), [(work,) for work in works], at_once(X, int(tried[-1])))
        done, end = end, min(_end(errors[:end], patience), len(tried))
    tried, errors, signs = tried[:done], errors[:done], signs[:done]
    found = replace(_decide(tried, errors, signs), most=min(X.shape))
    if found.edge:
        warn(found.remarks()[0])
    return found


def at_once(X: Any, k: int) -> int:
    """How many fits go side by side: those that one interpreter keeps busy, and that have room.

    Each holds an array like X, and factors.
    """
    entries = int(X.nnz) if sp.issparse(X) else int(X.size)
    room: int = KEPT // (entries + ARRAYS * sum(X.shape) * k)
    return max(1, min(allowed(), room, 1 + entries * k // ALONE))


def _sign(value: float) -> str:
    """A dash for one part, which has no other to be told from, and where there were no runs."""
    return "-" if np.isnan(value) else f"{value:.3f}"


def _end(errors: AnyArray, patience: int) -> int:
    """How many rows there are at least until ``patience`` ones are clearly worse than the best."""
    near = within_one(errors)[2]
    return int(np.flatnonzero(near)[-1]) + 1 + patience


def _decide(tried: AnyArray, errors: AnyArray, signs: AnyArray) -> Choice:
    """The one-standard-error rule on differences in the same splits."""
    _, excess, near = within_one(errors)
    good = [int(k) for k in tried[near]]
    return Choice(min(good), good, tried, errors, excess, signs[:, 0], signs[:, 1])


def _some(X: Any, k: int, rng: np.random.RandomState) -> Any:
    """Samples with a million entries together, or twenty for each part."""
    n, p = X.shape
    return X[np.sort(rng.permutation(n)[: max(LARGE // p, 20 * k)])]


def _signs(
    model: Any, X: Any, k: int, n_runs: int, rng: np.random.RandomState
) -> tuple[float, float]:
    """Stability of parts and cophenetic correlation of clusters over many runs on all of X."""
    with few_iterations_will_do():
        found = runs(model, X, k, n_runs, rng)
    stable = stability_of(np.concatenate([H for H, _ in found]), k, rng)
    some = rng.permutation(X.shape[0])[:COMPARED]
    return stable, cophenetic_correlation(
        [V[some].argmax(axis=1) for _, V in found if V is not None]
    )


def cophenetic_correlation(clusterings: list[AnyArray]) -> float:
    """How well a tree tells how often two samples share a cluster; 1 where all runs agree."""
    together = np.mean([labels[:, None] == labels for labels in clusterings], axis=0)
    apart = squareform(1 - together, checks=False)
    if apart.size < 2 or apart.min() == apart.max():
        return 1.0
    return float(cophenet(average(apart), apart)[0])


def _check(numbers: Iterable[Any], n_splits: Any, n_runs: Any, patience: Any) -> AnyArray:
    """The numbers to try, in order."""
    tried = list(numbers)
    if not tried or not all(isinstance(k, Integral) and int(k) >= 1 for k in tried):
        raise ValueError(f"numbers must be whole numbers, 1 or more; got {tried!r}.")
    check_count("n_splits", n_splits, 2)
    check_count("n_runs", n_runs, 0)
    if patience is not None:
        check_count("patience", patience, 1)
    if n_runs == 1:
        raise ValueError("n_runs must be 0, or 2 or more: one run has nothing to agree with.")
    return np.unique(np.asarray(tried, dtype=int))
