"""Choice of parameters by cross-validation on labels, links or entries of X."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from numbers import Integral
from threading import Lock
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from partwise.backends.arrays import AnyArray
from partwise.backends.data_matrix import refuse_anndata
from partwise.evaluation.groups import unit_rows
from partwise.evaluation.held_out import HeldOut, hold_out, label_folds
from partwise.evaluation.linkage import linked_clusters
from partwise.fitting.solving import suppress_convergence_warning
from partwise.knowledge.graph import check_graph
from partwise.knowledge.labels import encode_labels
from partwise.knowledge.links import Links, check_links
from partwise.selection.refits import Refits, rows_of
from partwise.selection.search_log import Progress, SearchLog

#: Number of entries of X above which a split is not kept in memory, but computed again for each
#: fit.
KEPT = 2**27
#: Minimum number of entries that a split hides; see `hidden_share`.
ENOUGH = 20_000

#: Function that fits the model with given parameters, and returns its error in one split.
Trial = Callable[[Mapping[str, Any], int], float]


@dataclass(frozen=True, eq=False)
class Selection:
    """Result of `select`; arrays have one row per combination of parameters.

    Parameters
    ----------
    best : dict
        The parameters with the lowest mean error. Of equal ones, the first in the grid, so list the
        simplest value first.
    good : list of dict
        All combinations whose error is within one standard error of the lowest, including ``best``.
    grid : list of dict
        All combinations of parameters, called points.
    errors : ndarray of shape (n_points, n_splits)
        The share of wrong labels or of violated links, or the loss at hidden entries.
    excess : ndarray of shape (n_points, 2)
        Mean difference to the error of the best point in the same splits, and the standard error
        of that mean.
    by : {"links", "labels", "entries"}
        What was held out.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise import NMF, select
    >>> X = np.random.default_rng(0).random((40, 2)) @ np.random.default_rng(1).random((2, 20))
    >>> select(X, NMF(), {"n_components": [1, 2]}, random_state=0).best
    {'n_components': 2}
    """

    best: dict[str, Any]
    good: list[dict[str, Any]]
    grid: list[dict[str, Any]]
    errors: AnyArray
    excess: AnyArray
    by: str

    def table(self) -> str:
        """Return a text table of all points with their errors.

        Returns
        -------
        str
            Lines to print.
        """
        names = list(self.grid[0])
        heads = [f"{name:>12}" for name in names]
        lines = [" ".join([*heads, f"{'error':>11} {'above best':>11} {'+- s.e.':>8}"])]
        for row, point in enumerate(self.grid):
            mark = "<-" if point == self.best else "good" if point in self.good else ""
            above, error = self.excess[row]
            values = [f"{point[name]!s:>12}" for name in names]
            numbers = f"{self.errors[row].mean():11.5g} {above:11.2g} {error:8.1g}  {mark}"
            lines.append(" ".join([*values, numbers]).rstrip())
        return "\n".join(lines)


def select(
    X: Any,
    estimator: Any,
    grid: Any,
    *,
    y: Any = None,
    must_link: Any = None,
    cannot_link: Any = None,
    graph: Any = None,
    share: float | None = None,
    n_splits: int = 5,
    random_state: Any = None,
    results: Any = None,
    progress: Progress | None = None,
    **fit_params: Any,
) -> Selection:
    """Choose parameters by the error on held-out labels, pairs or entries of X.

    The grid contains points, which are combinations of parameters. With labels in ``y``, each of
    ``n_splits`` folds hides some of them. The model is fitted to all samples with the other labels,
    and the error is the share of hidden labels that it predicts wrongly. With pairs, each model is
    fitted without them, and its part weights are clustered. The error is the mean of two shares: of
    must-linked pairs in different clusters, and of cannot-linked pairs in the same cluster.
    Otherwise a random ``share`` of the entries is hidden, the same for every point, and the error
    is the loss at them.

    The best point has the lowest mean error. Points are as good if their error is higher by at
    most one standard error of that difference over the splits. A Dask X is fitted chunk by chunk.

    Parameters
    ----------
    X : {array-like, sparse matrix, Dask array} of shape (n_samples, n_features)
        Non-negative samples, or what the estimator accepts.
    estimator : estimator
        Any estimator of this package; without labels and pairs one with ``missing_values``. All its
        settings apply to each fit, except ``random_state``. An estimator that predicts no labels
        (`NMF`) is scored by logistic regression on its part weights. If it has a ``checkpoint``
        folder and ``results`` is None, results are stored in that folder.
    grid : dict of str to list, or list of such dicts
        Values to try for each parameter, in all combinations.
    y : array-like of shape (n_samples,), default=None
        Labels; -1, None or NaN where unknown.
    must_link, cannot_link : array-like of shape (n_pairs, 2), default=None
        Positions of samples of the same group, and of different ones; not together with ``y``.
        Fit the best point with all pairs afterwards.
    graph : sparse matrix of shape (n_samples, n_samples), default=None
        A neighbour graph for every fit.
    share : float, default=None
        Share of the entries to hide. None: as in `choose_k`.
    n_splits : int, default=5
        Number of splits; more splits make the standard errors more certain.
    random_state : int, RandomState instance or None, default=None
        Random seed of the splits and fits.
    results : path, default=None
        A file for finished fits, or a folder with a file for each search. The same call continues
        from it after an interruption.
    progress : callable, default=None
        Called as ``progress(done, total, what)`` before each fit.
    **fit_params
        Further arguments of the estimator's ``fit``, for example ``sample_weight``. Sample and
        entry weights also weight the error at hidden entries.

    Returns
    -------
    found : Selection

    See Also
    --------
    choose_k : The number of parts, with the stability of parts and clusters.
    partwise.plot.selection : A plot of the errors.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import GNMF, select
    >>> X, y = load_digits(n_class=4, return_X_y=True)
    >>> y[100:] = -1
    >>> found = select(X, GNMF(8, tol=1e-2), {"graph_reg": [0, 10]}, y=y, random_state=0)
    >>> found.by, found.best
    ('labels', {'graph_reg': 10})
    """
    refuse_anndata(X)
    points = _points(grid, estimator)
    check_count("n_splits", n_splits, 2)
    labels = encode_labels(y, X.shape[0])
    labelled = labels is not None and labels.n_labelled > 0
    links = check_links(must_link, cannot_link, X.shape[0])
    if links is not None and labelled:
        raise ValueError("select takes labels (y) or pairs of samples, not both.")
    graph = None if graph is None else check_graph(graph, X.shape[0])
    refits = Refits(estimator, "select", {"graph": graph, **fit_params})
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    kind = type(estimator).__name__
    search = {"X": X, "y": y, "kind": kind, "model": estimator.get_params(), "grid": points}
    search |= {"share": share, "n_splits": n_splits, **refits.given}
    if links is not None:
        search.update(must_link=links.must.tolist(), cannot_link=links.cannot.tolist())
    log = SearchLog(refits.results(results), search, seed, len(points) * n_splits, progress)
    rng = np.random.RandomState(log.seed)
    if links is not None:
        trial = _by_links(X, links, n_splits, rng, refits)
    elif labelled:
        trial, n_splits = _by_labels(X, labels, n_splits, rng, refits)
        log.total = len(points) * n_splits
    else:
        trial = by_entries(*refits.samples(X), share, n_splits, rng)
    errors = np.empty((len(points), n_splits))
    for row, point in enumerate(points):
        what = ", ".join(f"{name} = {value}" for name, value in point.items())
        for split in range(n_splits):
            one = partial(trial, point, split)
            errors[row, split] = log.get(f"{what} / {split}", one, what)[0]
    lowest, excess, near = within_one(errors)
    good = [points[row] for row in np.flatnonzero(near)]
    by = "links" if links is not None else "labels" if labelled else "entries"
    return Selection(points[lowest], good, points, errors, excess, by)


def within_one(errors: AnyArray) -> tuple[int, AnyArray, AnyArray]:
    """Return the best row, all excess errors, and the rows within one standard error.

    The excess is the mean difference to the best row's error, with its standard error.
    """
    best = int(errors.mean(axis=1).argmin())
    above = errors - errors[best]
    error = above.std(axis=1, ddof=1) / np.sqrt(errors.shape[1])
    excess = np.stack([above.mean(axis=1), error], axis=1)
    return best, excess, excess[:, 0] <= error


def by_entries(
    X: Any, refits: Refits, share: float | None, n_splits: int, rng: np.random.RandomState
) -> Trial:
    """Return a function that fits a model and returns its loss at hidden entries of X."""
    if "missing_values" not in refits.estimator.get_params():
        kind = type(refits.estimator).__name__
        raise ValueError(f"{refits.caller} hides entries, but {kind} has no missing_values.")
    share = hidden_share(X.shape, n_splits) if share is None else share
    seeds = rng.randint(2**31 - 1, size=(n_splits, 2))
    dense = isinstance(X, np.ndarray)
    kept = max(1, KEPT // (X.shape[0] * X.shape[1])) if dense else n_splits
    weights = {name: refits.given.get(name) for name in ("sample_weight", "entry_weight")}
    lock = Lock()

    @lru_cache(maxsize=min(kept, n_splits))
    def hidden(number: int) -> HeldOut:
        """Return the entries that a split hides, computed from its seed."""
        seed, missing = int(seeds[number, 0]), refits.missing_values
        return hold_out(X, share, missing_values=missing, random_state=seed, **weights)

    def split(number: int) -> HeldOut:
        """Return the entries that a split hides, from the cache if possible."""
        with lock:  # compute a split once, even if several threads need it
            return hidden(number)

    def trial(settings: Mapping[str, Any], number: int) -> float:
        """Return the loss of a fitted model at the entries that a split hides."""
        held = split(number)
        model = refits.copy(**settings)
        more: dict[str, Any] = {"missing_values": held.missing_values}
        more["random_state"] = int(seeds[number, 1])
        if getattr(model, "init", "") is None:
            # NNDSVD begins with filled-in values at the hidden entries, which could bias the fit
            # there.
            more["init"] = "random"
        # `max_iter` is the same for all models and part of the comparison
        with suppress_convergence_warning():
            return held.error(refits.fit(held.X, **{**settings, **more}))

    split(0)  # raise an error for an impossible share before any fit
    return trial


def hidden_share(shape: tuple[int, int], n_splits: int) -> float:
    """Return the share of entries to hide in each split: 10%, or less for a large X.

    One part too many adds n + p numbers to the model. They raise the error at an entry by q = (n +
    p) / np of the noise variance, with a standard error of √(2q). Detecting this at three standard
    errors takes 72/q entries. All splits together hide 200/q entries, and each hides at least
    20,000.
    """
    n, p = shape
    return min(0.1, max(200 / ((n + p) * n_splits), ENOUGH / (n * p)))


def _by_links(
    X: Any, links: Links, n_splits: int, rng: np.random.RandomState, refits: Refits
) -> Trial:
    """Return a function that fits a model and returns its share of violated links.

    The links of one fold count, times the number of folds.
    """
    pairs = [links.must, links.cannot]
    weight = np.concatenate([np.full(len(some), 1 / len(some)) for some in pairs if len(some)])
    weight /= weight.sum()
    fold = np.concatenate([rng.permutation(len(some)) % n_splits for some in pairs])
    violated: dict[str, AnyArray] = {}
    nothing = Links(links.must[:0], links.cannot[:0], links.n_samples)

    def trial(settings: Mapping[str, Any], number: int) -> float:
        """Return the share of violated links of a fold, times the number of folds."""
        key = repr(settings)
        if key not in violated:
            with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
                fitted = refits.fit(X, **settings)
            V = unit_rows(rows_of(fitted.embedding_))
            k = getattr(fitted, "n_clusters_", fitted.n_components_)
            clusters = linked_clusters(V, k, nothing, random_state=0)
            same = [clusters[some[:, 0]] == clusters[some[:, 1]] for some in pairs]
            violated[key] = np.concatenate([~same[0], same[1]])
        hit = violated[key] & (fold == number)
        return float(n_splits * weight[hit].sum())

    return trial


def _by_labels(
    X: Any, labels: Any, n_splits: int, rng: np.random.RandomState, refits: Refits
) -> tuple[Trial, int]:
    """Return a function for a model's held-out label error, and the number of folds.

    The error is the share of the labels in one fold that the model predicts wrongly.
    """
    fold = np.full(len(labels.codes), -1)
    fold[labels.mask] = label_folds(labels.codes[labels.mask], n_splits, rng)
    n_folds = int(fold.max()) + 1
    if n_folds < 2:
        raise ValueError("y needs two labels of one class, to hold one out.")
    names = labels.classes[np.maximum(labels.codes, 0)].astype(object)
    seed = int(rng.randint(2**31 - 1))
    random = "random_state" in refits.estimator.get_params()

    def trial(settings: Mapping[str, Any], number: int) -> float:
        """Return the share of labels in a fold that the fitted model predicts wrongly."""
        hidden = fold == number
        known = labels.mask & ~hidden
        more = {"random_state": seed} if random else {}
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            own = refits.with_given(y=np.where(known, names, None))
            model = own.fit(X, **{**settings, **more})
        if hasattr(model, "labels_"):
            found = np.asarray(model.labels_, dtype=object)[hidden]
        else:
            seen, unseen = (rows_of(model.embedding_, np.flatnonzero(at)) for at in (known, hidden))
            judge = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
            found = judge.fit(seen, names[known].astype(str)).predict(unseen)
        return float(np.mean([str(a) != str(b) for a, b in zip(found, names[hidden])]))

    return trial, n_folds


def _points(grid: Any, estimator: Any) -> list[dict[str, Any]]:
    """Return all combinations of parameters in the grid, in the given order."""
    grids = [grid] if isinstance(grid, Mapping) else list(grid)
    points: list[dict[str, Any]] = []
    for one in grids:
        single = [n for n, v in one.items() if isinstance(v, str) or not isinstance(v, Iterable)]
        if single:
            raise ValueError(f"grid must give a list of values for {single[0]!r}.")
        points += [{name: point[name] for name in one} for point in ParameterGrid(one)]
    known, names = estimator.get_params(), {name for point in points for name in point}
    for name in sorted(names):
        if name not in known:
            kind, listed = type(estimator).__name__, ", ".join(sorted(known))
            raise ValueError(f"{kind} has no parameter {name!r}; it has {listed}.")
        if name in ("random_state", "missing_values", "checkpoint"):
            raise ValueError(f"grid cannot contain {name!r}, which select sets itself.")
    if len(points) < 2:
        raise ValueError(f"grid must have at least two points, got {len(points)}.")
    return points


def check_count(name: str, value: Any, least: int) -> None:
    """Raise an error if a count is not an integer of at least ``least``."""
    if not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} must be a whole number of at least {least}; got {value!r}.")
