"""Fits of the methods that a table compares.

An estimator is imported from `partwise` when a run needs it. Names in lower case are baselines from
scikit-learn: k-means, PCA, SVD and normalised cut.
"""

from __future__ import annotations

import importlib
import inspect
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.apps.papers.protocol import Method
from partwise.apps.papers.sampling import Sample
from partwise.graph import neighbor_graph

Array = NDArray[np.float64]
TRIAL_ITER = 30  # iterations of each trial start in the program of the GNMF authors


@dataclass
class Representation:
    """Result of one fit: part weights or clusters, and values to report."""

    embedding: Any  # part weights (n, k) that k-means clusters; None if `labels` are the clusters
    seconds: float = 0.0
    components: Array | None = None
    labels: NDArray[np.int64] | None = None
    objective: float | None = None
    n_iter: int | None = None
    history: list[float] = field(default_factory=list)
    weights: Array | None = None  # sample weights, if the method uses them


@dataclass(frozen=True)
class FitTask:
    """Input of one fit: the drawn samples, the visible labels and the settings."""

    sample: Sample
    y: NDArray[np.int64] | None
    k: int
    method: Method
    params: dict[str, Any]
    subrun: int = 0
    start: int = 0  # index of the initial values, if there are several restarts

    @property
    def seed(self) -> int:
        """Integer seed for the random numbers that the method itself draws."""
        return self.sample.integer_seed("start", self.start)


def resolve(name: str) -> Any:
    """Import the estimator class of this name, from `partwise` or ``module:Class``."""
    module_name, _, class_name = name.rpartition(":")
    return getattr(importlib.import_module(module_name or "partwise"), class_name)


def available(method: Method) -> str:
    """Return why a method cannot run with the installed packages, or ""."""
    try:
        if method.estimator not in COMPARATORS:
            resolve(method.estimator)
    except (ImportError, AttributeError) as error:
        return (
            f"{method.estimator} is not available in this installation of Partwise ({error}); "
            "choose other methods with --methods, or update Partwise"
        )
    return ""


def fit(task: FitTask) -> Representation:
    """Return the result of one fit of a method."""
    task = replace(task, start=task.subrun * task.method.restarts)
    comparator = COMPARATORS.get(task.method.estimator)
    if comparator is None:
        return _best_start(task) if task.method.restarts > 1 else _to_the_end(task)
    began = time.perf_counter()
    # Ignore warnings about iteration limits and disconnected graphs.
    with warnings.catch_warnings(action="ignore"):
        fitted = comparator(task)
    fitted.seconds = time.perf_counter() - began
    return fitted


def _to_the_end(task: FitTask) -> Representation:
    """Return a fit that ends after ``max_iter`` iterations or by the stopping rule."""
    if not task.method.stop:
        return fit_estimator(task, task.method.estimator, task.params)
    rule = StoppingRule(TRIAL_ITER if task.method.restarts > 1 else 1)
    if find_spec("sklearn.callback"):
        return fit_estimator(task, task.method.estimator, task.params, rule)
    # scikit-learn before 1.9 has no callbacks. A long fit then shows at which iteration the rule
    # stops, and a second fit ends there. This is equivalent, because a fit is deterministic.
    history = fit_estimator(task, task.method.estimator, task.params).history
    last = next((i for i, value in enumerate(history, 1) if rule.stops(value)), len(history))
    return fit_estimator(task, task.method.estimator, {**task.params, "max_iter": last})


class StoppingRule:
    """Stopping rule of the authors' program GNMF_Multi.m, as a scikit-learn callback.

    From iteration ``trial`` on, the program keeps a running mean m <- 0.1 m + 0.9 f of the
    objective f. The mean begins at 10 f, and the fit ends when (m - f) / m is at most 1e-5.
    """

    def __init__(self, trial: int) -> None:
        self.trial, self.n_iter, self.mean = trial, 0, 0.0

    def stops(self, value: float) -> bool:
        """Return whether the fit ends after an iteration with this objective."""
        self.n_iter += 1
        if self.n_iter <= self.trial:
            self.mean = 10.0 * value
            return False
        self.mean = 0.1 * self.mean + 0.9 * value
        return bool(self.mean - value <= 1e-5 * self.mean)

    def setup(self, estimator: Any, context: Any) -> None:
        """Do nothing before a fit, although scikit-learn's callbacks need this method."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """Do nothing after a fit, although scikit-learn's callbacks need this method."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """Do nothing before an iteration."""

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, fitted_estimator: Any = None
    ) -> bool:
        """Return whether the stopping rule ends the fit after this iteration."""
        return context.task_name == "iteration" and self.stops(float(fitted_estimator.objective_))


def _best_start(task: FitTask) -> Representation:
    """Return the best of several starts, continued to the end of the fit.

    Each start runs `TRIAL_ITER` iterations. As in the authors' program, the start with the lowest
    objective is the best. The objective is computed before the columns of U are scaled to unit
    length. The best fit is run again from its start, which is equivalent to continuing it, since a
    fit is deterministic.
    """
    began = time.perf_counter()
    tries = [replace(task, start=task.start + i) for i in range(task.method.restarts)]
    settings = {**task.params, "max_iter": TRIAL_ITER}
    fits = [fit_estimator(t, task.method.estimator, settings) for t in tries]
    spent = time.perf_counter() - began
    reached = [f.history[-1] if f.history else f.objective for f in fits]
    if any(value is None for value in reached):
        kind = task.method.estimator
        raise ValueError(f"{kind} has no objective_ to choose a start by; use restarts = 1")
    fitted = _to_the_end(tries[int(np.argmin(np.asarray(reached, dtype=np.float64)))])
    fitted.seconds += spent
    return fitted


def fit_estimator(
    task: FitTask, name: str, params: dict[str, Any], callback: StoppingRule | None = None
) -> Representation:
    """Return the result of fitting a scikit-learn compatible estimator."""
    estimator, call = _estimator(task, name, params)
    if callback is not None:
        estimator.set_callbacks(callback)
    clusters = _is_clusterer(type(estimator))
    do = estimator.fit_predict if clusters else estimator.fit_transform
    # The protocol fixes the number of iterations, so a fit may end before it converges.
    with warnings.catch_warnings(action="ignore"):
        began = time.perf_counter()
        embedding = do(task.sample.X, task.y, **call)
        seconds = time.perf_counter() - began
    if clusters:
        return Representation(None, seconds, labels=np.asarray(embedding, dtype=np.int64))
    embedding = np.asarray(getattr(estimator, "embedding_", embedding), dtype=np.float64)
    components = getattr(estimator, "components_", None)
    if components is not None:
        components = np.asarray(components, dtype=np.float64)
        if task.method.unit_basis:
            norms = np.linalg.norm(components, axis=1)
            embedding = embedding * norms
            components = components / np.where(norms > 0, norms, 1.0)[:, None]
    history = [float(v) for v in np.ravel(getattr(estimator, "objective_history_", []))]
    error = history[-1] if history else getattr(estimator, "reconstruction_err_", None)
    objective = getattr(estimator, "objective_", error)
    return Representation(
        embedding,
        seconds,
        components=components,
        objective=None if objective is None else float(objective),
        n_iter=int(getattr(estimator, "n_iter_", 0)),
        history=history,
        weights=call.get("sample_weight"),
    )


def _estimator(task: FitTask, name: str, params: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return an estimator with the task's settings, and other arguments of its `fit`."""
    cls = resolve(name)
    X, k = task.sample.X, task.k
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in params.items()}
    accepted = inspect.signature(cls).parameters
    settings |= {key: k for key in ("n_components", "n_clusters") if key in accepted}
    if "random_state" in accepted:
        settings["random_state"] = task.seed
    call: dict[str, Any] = {}
    if task.method.start == "shared" and _takes_start(cls):
        # As in the papers, initial factors are uniform on (0, 1) and not scaled to the data. Their
        # scale affects the result if only V is penalised, because a strong graph penalty preserves
        # it.
        V0, U0 = task.sample.start(k, task.start)
        settings["init"] = "custom"
        call |= {"W": V0, "H": np.ascontiguousarray(U0.T)}
    weights = sample_weights(X, task.method.weights)
    if weights is not None:
        call["sample_weight"] = weights
    return cls(**settings), call


def _is_clusterer(cls: Any) -> bool:
    """Return whether an estimator clusters, as scikit-learn's KMeans does."""
    accepted = inspect.signature(cls).parameters
    clusters = "n_clusters" in accepted and "n_components" not in accepted
    clusters |= not hasattr(cls, "fit_transform")
    if clusters and not hasattr(cls, "fit_predict"):
        raise TypeError(f"{cls.__name__} needs a method fit_transform or fit_predict")
    return clusters


def _takes_start(cls: Any) -> bool:
    """Return whether an estimator accepts initial factors, as scikit-learn's NMF does."""
    accepted = inspect.signature(getattr(cls, "fit_transform", cls)).parameters
    return "init" in inspect.signature(cls).parameters and {"W", "H"} <= set(accepted)


def sample_weights(X: Any, kind: str) -> Array | None:
    """Return sample weights; "ncw" are normalised-cut weights, 1 / (X Xᵀ 1)."""
    if not kind:
        return None
    if kind != "ncw":
        raise ValueError(f"weights must be ncw or empty, got {kind!r}")
    degrees = np.ravel(X @ np.ravel(X.sum(axis=0)))
    weights = np.divide(1.0, degrees, out=np.zeros(len(degrees)), where=degrees > 0)
    return np.asarray(weights / weights.mean())


def _kmeans(task: FitTask) -> Representation:
    """Return clusters by k-means on the samples."""
    from sklearn.cluster import KMeans

    settings = {"n_init": 20, "random_state": task.seed} | task.params
    model = KMeans(task.k, **settings).fit(task.sample.X)
    return Representation(
        None, labels=model.labels_, objective=float(model.inertia_), n_iter=int(model.n_iter_)
    )


def _projection(name: str, task: FitTask) -> Representation:
    """Return the samples projected by PCA, or by TruncatedSVD without centring."""
    import sklearn.decomposition

    model = getattr(sklearn.decomposition, name)(task.k, random_state=task.seed)
    return Representation(model.fit_transform(task.sample.X))


def _ncut(task: FitTask) -> Representation:
    """Return the spectral embedding of the samples' neighbour graph (normalised cut)."""
    from sklearn.manifold import spectral_embedding

    graph = neighbor_graph(task.sample.X, task.params.get("n_neighbors", 5))
    # scikit-learn accepts only 32-bit indices.
    graph.indices, graph.indptr = graph.indices.astype(np.int32), graph.indptr.astype(np.int32)
    drop = task.params.get("drop_first", False)
    return Representation(
        spectral_embedding(graph, n_components=task.k, random_state=task.seed, drop_first=drop)
    )


COMPARATORS: dict[str, Callable[[FitTask], Representation]] = {
    "kmeans": _kmeans,
    "pca": partial(_projection, "PCA"),
    "svd": partial(_projection, "TruncatedSVD"),
    "ncut": _ncut,
}
