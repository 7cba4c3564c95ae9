"""Which parameters: by pairs or labels held out where there are some, else by entries held out."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from numbers import Integral
from threading import Lock
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import ParameterGrid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_random_state

from partwise.backends import in_memory
from partwise.backends.arrays import AnyArray, to_numpy
from partwise.backends.data_matrix import refuse_anndata
from partwise.evaluation.groups import unit_rows
from partwise.evaluation.held_out import HeldOut, hold_out, label_folds
from partwise.evaluation.linkage import linked_clusters
from partwise.fitting.solving import few_iterations_will_do
from partwise.knowledge.graph import check_graph
from partwise.knowledge.labels import encode_labels
from partwise.knowledge.links import Links, check_links
from partwise.selection.search_log import Ledger, Progress

#: Entries of X above which its splits are made again each time instead of being kept.
KEPT = 2**27
#: Entries that a split should hide: enough to see one part too many (see `hidden_share`).
ENOUGH = 20_000


@dataclass(frozen=True, eq=False)
class Selection:
    """What `select` found; arrays have one row for each point of the grid.

    Parameters
    ----------
    best : dict
        The parameters with the lowest mean error; of equal ones those that come first in the grid,
        so that it pays to list the plainest value first.
    good : list of dict
        All whose error is within one standard error of the lowest, ``best`` among them.
    grid : list of dict
        All that were tried.
    errors : ndarray of shape (n_points, n_splits)
        The share of wrong names or broken pairs, or the loss at hidden entries.
    excess : ndarray of shape (n_points, 2)
        By how much the error is above that of the best point, in the same splits: mean, and the
        standard error of that mean.
    by : {"links", "labels", "entries"}
        What was hidden.

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
        """A line for each point: parameters, error, excess with its standard error.

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
) -> Selection:
    """Which parameters suit X, by pairs or labels that a model did not see, or else by entries.

    With pairs, each model is fitted without them, its codes are merged to clusters as those of a
    fit with links are, and the error is the mean of two shares: of must-linked pairs that its
    clusters part, and of cannot-linked ones that they join. Fit the best point with the pairs then.

    With labels in ``y`` each of ``n_splits`` folds hides some of them, the model is fitted to all
    samples with the others, and the error is the share of hidden labels that it does not name.
    Without, a random ``share`` of the entries is hidden, the same for every point of the grid, and
    the error is the loss there. The best point has the lowest mean error; as good are all whose
    error is above it by at most one standard error of that difference over the splits.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Non-negative samples, or what the estimator takes.
    estimator : estimator
        Any of this package; without labels one with ``missing_values``. One that does not name
        samples itself (`NMF`) is scored by logistic regression on its codes.
    grid : dict of str to list, or list of such dicts
        Values to try for each parameter, in all combinations.
    y : array-like of shape (n_samples,), default=None
        Labels; -1, None or NaN where unknown.
    must_link, cannot_link : array-like of shape (n_pairs, 2), default=None
        Positions of samples of one group, and of different ones; not together with ``y``.
    graph : sparse matrix of shape (n_samples, n_samples), default=None
        A neighbour graph for every fit, such as one of places.
    share : float, default=None
        Share of the entries that is hidden; None: what `choose_k` says.
    n_splits : int, default=5
    random_state : int, RandomState instance or None, default=None
    results : path, default=None
        A file that keeps what is done; the same call goes on with it after it was stopped.
    progress : callable, default=None
        Called as ``progress(done, total, what)`` before each fit.

    Returns
    -------
    found : Selection

    See Also
    --------
    choose_k : The number of parts, with stability beside it.
    partwise.plot.selection : Its picture.

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
    named = labels is not None and labels.n_labelled > 0
    links = check_links(must_link, cannot_link, X.shape[0])
    if links is not None and named:
        raise ValueError("give select labels (y) or pairs of samples, not both.")
    seed = int(check_random_state(random_state).randint(2**31 - 1))
    kind = type(estimator).__name__
    search = {"X": X, "y": y, "kind": kind, "model": estimator.get_params(), "grid": points}
    search.update(share=share, n_splits=n_splits)
    more = {} if graph is None else {"graph": check_graph(graph, X.shape[0])}
    if more:
        search.update(graph=more["graph"])
    if links is not None:
        search.update(must_link=links.must.tolist(), cannot_link=links.cannot.tolist())
    ledger = Ledger(results, search, seed, len(points) * n_splits, progress)
    rng = np.random.RandomState(ledger.seed)
    if links is not None:
        trial = _by_links(X, links, n_splits, rng, more)
    elif named:
        trial, n_splits = _by_labels(X, y, labels, n_splits, rng, more)
        ledger.total = len(points) * n_splits
    else:
        X = in_memory(X)
        trial = by_entries(X, estimator, share, n_splits, rng, **more)
    errors = np.empty((len(points), n_splits))
    for row, point in enumerate(points):
        what = ", ".join(f"{name} = {value}" for name, value in point.items())
        model = clone(estimator).set_params(**point)
        for split in range(n_splits):
            one = partial(trial, model, split)
            errors[row, split] = ledger.get(f"{what} / {split}", one, what)[0]
    lowest, excess, near = within_one(errors)
    good = [points[row] for row in np.flatnonzero(near)]
    by = "links" if links is not None else "labels" if named else "entries"
    return Selection(points[lowest], good, points, errors, excess, by)


def within_one(errors: AnyArray) -> tuple[int, AnyArray, AnyArray]:
    """The row of lowest mean, excess over it with its standard error, and who is that close."""
    best = int(errors.mean(axis=1).argmin())
    above = errors - errors[best]
    error = above.std(axis=1, ddof=1) / np.sqrt(errors.shape[1])
    excess = np.stack([above.mean(axis=1), error], axis=1)
    return best, excess, excess[:, 0] <= error


def by_entries(
    X: Any,
    estimator: Any,
    share: float | None,
    n_splits: int,
    rng: np.random.RandomState,
    **more: Any,
) -> Callable[[Any, int], float]:
    """``trial(model, split)``: the loss at entries that this split hides."""
    if "missing_values" not in estimator.get_params():
        raise ValueError(
            f"estimator must have missing_values, to hide entries from it; "
            f"{type(estimator).__name__} has not."
        )
    part = hidden_share(X.shape, n_splits) if share is None else share
    seeds = rng.randint(2**31 - 1, size=(n_splits, 2))
    room = max(1, KEPT // (X.shape[0] * X.shape[1])) if hasattr(X, "__array__") else n_splits

    lock = Lock()

    @lru_cache(maxsize=min(room, n_splits))
    def made(number: int) -> HeldOut:
        return hold_out(X, part, random_state=int(seeds[number, 0]))

    def split(number: int) -> HeldOut:
        with lock:  # once, where several models are fitted to it side by side
            return made(number)

    # what NNDSVD's filled zeros say in the gaps may be far off, and stay so
    start = {"init": "random"} if estimator.get_params().get("init", "") is None else {}

    def trial(model: Any, number: int) -> float:
        seed = int(seeds[number, 1])
        model = clone(model).set_params(missing_values=np.nan, random_state=seed, **start)
        held = split(number)
        with few_iterations_will_do():  # max_iter is the same for all: part of the comparison
            return held.error(model.fit(held.X, **more))

    split(0)  # a share that cannot be says so before any work
    return trial


def hidden_share(shape: tuple[int, int], n_splits: int) -> float:
    """The share of entries to hide: a tenth, or as few as do.

    One part too many has n + p numbers, which raise the error at an entry by q = (n + p) / np of
    the noise, give or take twice the root of 2q: to see that at three standard errors takes 72/q
    entries. Ours are 200/q in all splits together, and 20,000 in each.
    """
    n, p = shape
    return min(0.1, max(200 / ((n + p) * n_splits), ENOUGH / (n * p)))


def _by_links(
    X: Any, links: Links, n_splits: int, rng: np.random.RandomState, more: dict[str, Any]
) -> Callable[[Any, int], float]:
    """``trial(model, fold)``: what this fold of the pairs has of the error, times the folds."""
    pairs = [links.must, links.cannot]
    weight = np.concatenate([np.full(len(some), 1 / len(some)) for some in pairs if len(some)])
    weight /= weight.sum()
    fold = np.concatenate([rng.permutation(len(some)) % n_splits for some in pairs])
    broken: dict[str, AnyArray] = {}
    nothing = Links(links.must[:0], links.cannot[:0], links.n_samples)

    def trial(model: Any, number: int) -> float:
        key = repr(model.get_params())
        if key not in broken:
            with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
                fitted = clone(model).fit(X, **more)
            V = unit_rows(fitted.embedding_)
            k = getattr(fitted, "n_clusters_", fitted.n_components_)
            clusters = linked_clusters(V, k, nothing, random_state=0)
            same = [clusters[some[:, 0]] == clusters[some[:, 1]] for some in pairs]
            broken[key] = np.concatenate([~same[0], same[1]])
        hit = broken[key] & (fold == number)
        return float(n_splits * weight[hit].sum())

    return trial


def _by_labels(
    X: Any,
    y: Any,
    labels: Any,
    n_splits: int,
    rng: np.random.RandomState,
    more: dict[str, Any],
) -> tuple[Callable[[Any, int], float], int]:
    """``trial(model, fold)``: the share of this fold's labels that are not named; the folds."""
    fold = np.full(len(labels.codes), -1)
    fold[labels.mask] = label_folds(labels.codes[labels.mask], n_splits, rng)
    n_folds = int(fold.max()) + 1
    if n_folds < 2:
        raise ValueError("y needs two labels or more of some class, to hide one of them.")
    names = labels.classes[np.maximum(labels.codes, 0)].astype(object)
    seed = int(rng.randint(2**31 - 1))

    def trial(model: Any, number: int) -> float:
        hidden = fold == number
        known = labels.mask & ~hidden
        if "random_state" in model.get_params():
            model = clone(model).set_params(random_state=seed)
        with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
            model.fit(X, np.where(known, names, None), **more)
        if hasattr(model, "labels_"):
            found = np.asarray(model.labels_, dtype=object)[hidden]
        else:
            codes = to_numpy(model.embedding_)
            judge = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
            found = judge.fit(codes[known], names[known].astype(str)).predict(codes[hidden])
        return float(np.mean([str(a) != str(b) for a, b in zip(found, names[hidden])]))

    return trial, n_folds


def _points(grid: Any, estimator: Any) -> list[dict[str, Any]]:
    """The grid point by point, in the order given."""
    grids = [grid] if isinstance(grid, Mapping) else list(grid)
    points: list[dict[str, Any]] = []
    for one in grids:
        single = [n for n, v in one.items() if isinstance(v, str) or not isinstance(v, Iterable)]
        if single:
            raise ValueError(f"grid must give a list of values for {single[0]!r}.")
        points += [{name: point[name] for name in one} for point in ParameterGrid(one)]
    known = estimator.get_params()
    unknown = sorted({name for point in points for name in point if name not in known})
    if unknown:
        raise ValueError(
            f"{type(estimator).__name__} has no parameter {unknown[0]!r}; it has "
            f"{', '.join(sorted(known))}."
        )
    if len(points) < 2:
        raise ValueError(f"grid must have two points or more, got {len(points)}.")
    return points


def check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, Integral) or int(value) < least:
        raise ValueError(f"{name} must be a whole number, {least} or more; got {value!r}.")
