"""From a method's settings to a representation: estimators by name, and the comparators.

An estimator is looked up in `partwise` when a cell runs, so a protocol may name one that this
installation does not have; the error then says so. Names in lower case are the comparators that
are not factorisations of ours (k-means, PCA, SVD, normalised cut, label spreading).
"""

from __future__ import annotations

import importlib
import inspect
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.apps.papers.protocol import ComparedMethod
from partwise.apps.papers.sampling import Sample

Array = NDArray[np.float64]
DEVICE = "PARTWISE_PAPERS_DEVICE"  # a torch device for large fits: the same numbers, sooner
TRIAL_ITER = 30  # iterations of each of several starts in the laboratory's program
USUAL_STOP = 400  # iterations after which the stopping rule ends most fits, for estimates of time
WORTH_MOVING = 4e6  # multiplications of an iteration; stored entries count for ten others


class MethodUnavailable(ImportError):
    """The installation does not have the estimator that a protocol names."""


@dataclass
class Representation:
    """What a method leaves behind for scoring."""

    embedding: Any  # n x k, what k-means clusters; None where `labels` is the answer already
    seconds: float = 0.0
    components: Array | None = None
    labels: NDArray[np.int64] | None = None
    objective: float | None = None
    n_iter: int | None = None
    history: list[float] = field(default_factory=list)
    weights: Array | None = None  # of the samples, where the method has them


@dataclass(frozen=True)
class FitTask:
    """One fit: the sample, the labels to show, and the settings."""

    sample: Sample
    y: NDArray[np.int64] | None
    k: int
    method: ComparedMethod
    params: dict[str, Any]
    subrun: int = 0
    kmeans: int = 20
    start: int = 0  # the number of the start, where there are several
    graph: Any = None  # where it is known before the fit

    @property
    def seed(self) -> int:
        """An integer seed for the method's own randomness."""
        return self.sample.integer_seed("start", self.start)


def resolve(name: str) -> Any:
    """The estimator class of this name, from `partwise` or ``module:Class``."""
    module_name, _, class_name = name.rpartition(":")
    try:
        module = importlib.import_module(module_name or "partwise")
        return getattr(module, class_name)
    except (ImportError, AttributeError) as error:
        raise MethodUnavailable(
            f"{name} is not available in this installation of partwise ({error}); "
            "leave it out with --methods, or update partwise"
        ) from error


def available(method: ComparedMethod) -> str:
    """Why a method cannot run here; empty where it can."""
    if method.printed_only:
        return f"printed only: {method.printed_only}"
    try:
        if method.estimator not in COMPARATORS:
            resolve(method.estimator)
    except MethodUnavailable as error:
        return str(error)
    return ""


def fit(task: FitTask) -> Representation:
    """Run one method once."""
    task = replace(task, start=task.subrun * task.method.restarts)
    comparator = COMPARATORS.get(task.method.estimator)
    if comparator is not None:
        began = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an iteration limit, a graph in several parts: no news
            fitted = comparator(task)
        fitted.seconds = time.perf_counter() - began
        return fitted
    if task.method.restarts > 1:
        return _best_start(task)
    return _to_the_end(task)


def _to_the_end(task: FitTask) -> Representation:
    """All iterations, or as many as the stopping rule asks for."""
    if not task.method.stop:
        return fit_estimator(task, task.method.estimator, task.params)
    trial = TRIAL_ITER if task.method.restarts > 1 else 1
    if find_spec("sklearn.callback"):
        return fit_estimator(task, task.method.estimator, task.params, StoppingRule(trial))
    # scikit-learn before 1.9 has no callbacks: look for the iteration in longer and longer fits,
    # then fit again with that number, since a fit is deterministic.
    most, spent = int(task.params["max_iter"]), 0.0
    for tried in (USUAL_STOP, 4 * USUAL_STOP, most):
        settings = {**task.params, "max_iter": min(tried, most)}
        fitted = fit_estimator(task, task.method.estimator, settings)
        spent += fitted.seconds
        stop = stopping_iteration(fitted.history, trial)
        if stop < len(fitted.history):
            fitted = fit_estimator(task, task.method.estimator, settings | {"max_iter": stop})
            spent += fitted.seconds
            break
        if tried >= most:
            break
    fitted.seconds = spent
    return fitted


class StoppingRule:
    """The rule of `stopping_iteration`, as a callback of scikit-learn that ends a fit."""

    def __init__(self, trial: int) -> None:
        self.trial, self.n_iter, self.mean = trial, 0, 0.0

    def setup(self, estimator: Any, context: Any) -> None:
        """Begin: nothing to prepare."""

    def teardown(self, estimator: Any, context: Any) -> None:
        """End: nothing to release."""

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        """An iteration begins: nothing to do."""

    def on_fit_task_end(
        self, estimator: Any, context: Any, *, fitted_estimator: Any = None
    ) -> bool:
        """Whether the fit ends after this iteration."""
        if context.task_name != "iteration":
            return False
        value = float(fitted_estimator.objective_)
        self.n_iter += 1
        if self.n_iter <= self.trial:
            self.mean = 10.0 * value
            return False
        self.mean = 0.1 * self.mean + 0.9 * value
        return bool(self.mean - value <= 1e-5 * self.mean)


def stopping_iteration(history: list[float], trial: int) -> int:
    """When GNMF_Multi.m stops without a given number of iterations.

    From iteration ``trial`` on it keeps a mean m <- 0.1 m + 0.9 f of the objective f, which begins
    at 10 f, and ends when (m - f) / m is at most 1e-5; ``history[i]`` is f after i + 1 iterations.
    """
    mean = 10.0 * history[trial - 1]
    for iteration in range(trial, len(history)):
        value = history[iteration]
        mean = 0.1 * mean + 0.9 * value
        if mean - value <= 1e-5 * mean:
            return iteration + 1
    return len(history)


def _best_start(task: FitTask) -> Representation:
    """Try several starts for `TRIAL_ITER` iterations; the one with the lowest objective goes on.

    As in the laboratory's program, the trial starts are compared by the objective of the factors
    as they are, before the columns of U are brought to unit length. The best is run again from its
    start: the same as going on, since a fit is deterministic.
    """
    began = time.perf_counter()
    task = replace(task, graph=_graph(task))  # one search for all of them
    tries = [replace(task, start=task.start + i) for i in range(task.method.restarts)]
    settings = {**task.params, "max_iter": TRIAL_ITER}
    fits = [fit_estimator(t, task.method.estimator, settings) for t in tries]
    spent = time.perf_counter() - began
    reached = [f.history[-1] if f.history else f.objective for f in fits]
    if any(value is None for value in reached):
        raise ValueError(
            f"{task.method.estimator} has no objective_history_, objective_ or "
            f"reconstruction_err_ to compare its {len(fits)} starts by; use restarts = 1"
        )
    fitted = _to_the_end(tries[int(np.argmin(np.asarray(reached, dtype=np.float64)))])
    fitted.seconds += spent
    return fitted


def _graph(task: FitTask) -> Any:
    """The neighbour graph that all starts of a method have in common; None where it has none."""
    from partwise.graph import neighbor_graph

    made = resolve(task.method.estimator)(**task.params).get_params()
    if not made.get("graph_reg"):
        return None
    how = {name: made[name] for name in ("weighting", "bandwidth")}
    return neighbor_graph(task.sample.X, made["n_neighbors"], **how)


def fit_estimator(
    task: FitTask, name: str, params: dict[str, Any], callback: StoppingRule | None = None
) -> Representation:
    """Fit an estimator of the scikit-learn kind, from the cell's shared start if asked to."""
    estimator, call = _estimator(task, name, params)
    if callback is not None:
        estimator.set_callbacks(callback)
    clusters = _is_clusterer(type(estimator))
    do = estimator.fit_predict if clusters else estimator.fit_transform
    with warnings.catch_warnings():
        # A fixed number of iterations is the protocol; that it did not converge is no news.
        warnings.simplefilter("ignore")
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
    objective = getattr(estimator, "objective_", history[-1] if history else None)
    if objective is None:
        objective = getattr(estimator, "reconstruction_err_", None)
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
    """An estimator as a task has it, and what its `fit` is given beside X and y."""
    cls = resolve(name)
    X, k = task.sample.X, task.k
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in params.items()}
    accepted = inspect.signature(cls).parameters
    settings |= {key: k for key in ("n_components", "n_clusters") if key in accepted}
    shared = task.method.start == "shared" and _takes_start(cls)
    if "device" in accepted and getattr(X, "nnz", X.size / 10) * k > WORTH_MOVING:
        settings["device"] = os.environ.get(DEVICE) or None
    if "random_state" in accepted:
        settings["random_state"] = task.seed
    call: dict[str, Any] = {}
    if shared:
        # Uniform on (0, 1), not scaled to the data: the authors' start. Where V alone is penalised
        # its size stays in the result, since a strong graph term keeps the scale of V.
        V0, U0 = task.sample.start(k, task.start)
        settings["init"] = "custom"
        call |= {"W": V0, "H": np.ascontiguousarray(U0.T)}
    weights = sample_weights(X, task.method.weights)
    if weights is not None:
        call["sample_weight"] = weights
    if task.graph is not None:
        call["graph"] = task.graph
    return cls(**settings), call


def _is_clusterer(cls: Any) -> bool:
    """Whether the answer of an estimator is clusters, as that of scikit-learn's KMeans is."""
    accepted = inspect.signature(cls).parameters
    clusters = "n_clusters" in accepted and "n_components" not in accepted
    if clusters or not hasattr(cls, "fit_transform"):
        if not hasattr(cls, "fit_predict"):
            raise TypeError(f"{cls.__name__} needs a method fit_transform or fit_predict")
        return True
    return False


def _takes_start(cls: Any) -> bool:
    """Whether an estimator can begin from given factors, as scikit-learn's NMF does."""
    accepted = inspect.signature(getattr(cls, "fit_transform", cls)).parameters
    return "init" in inspect.signature(cls).parameters and {"W", "H"} <= set(accepted)


def sample_weights(X: Any, kind: str) -> Array | None:
    """Weights of the samples: "ncw" is the normalised cut's, 1 / (X Xᵀ 1), with mean one."""
    if not kind:
        return None
    if kind != "ncw":
        raise ValueError(f"weights must be ncw or empty, got {kind!r}")
    degrees = np.ravel(X @ np.ravel(X.sum(axis=0)))
    weights = np.divide(1.0, degrees, out=np.zeros(len(degrees)), where=degrees > 0)
    return np.asarray(weights / weights.mean())


def _kmeans(task: FitTask) -> Representation:
    from sklearn.cluster import KMeans

    # Elkan's way finds the clusters of Lloyd's; with many of sparse samples in half the time.
    way = "elkan" if hasattr(task.sample.X, "nnz") and task.k >= 10 else "lloyd"
    settings = {"n_init": 20, "random_state": task.seed, "algorithm": way} | task.params
    model = KMeans(task.k, **settings).fit(task.sample.X)
    return Representation(
        None, labels=model.labels_, objective=float(model.inertia_), n_iter=int(model.n_iter_)
    )


def _projection(name: str, task: FitTask) -> Representation:
    """scikit-learn's PCA, or TruncatedSVD of samples that are not centred."""
    import sklearn.decomposition

    model = getattr(sklearn.decomposition, name)(task.k, random_state=task.seed)
    return Representation(model.fit_transform(task.sample.X))


def _ncut(task: FitTask) -> Representation:
    from sklearn.manifold import spectral_embedding

    from partwise.graph import neighbor_graph

    graph = neighbor_graph(task.sample.X, task.params.get("n_neighbors", 5))
    # scikit-learn takes 32-bit indices only.
    graph.indices, graph.indptr = graph.indices.astype(np.int32), graph.indptr.astype(np.int32)
    drop = task.params.get("drop_first", False)
    return Representation(
        spectral_embedding(graph, n_components=task.k, random_state=task.seed, drop_first=drop)
    )


def _labelspreading(task: FitTask) -> Representation:
    from sklearn.semi_supervised import LabelSpreading

    X = task.sample.X
    X = X.toarray() if hasattr(X, "toarray") and X.shape[0] * X.shape[1] < 1e7 else X
    near = task.params.get("n_neighbors", 7)
    model = LabelSpreading(kernel="knn", n_neighbors=near, max_iter=200).fit(X, task.y)
    return Representation(None, labels=np.asarray(model.transduction_))


def _one_loop(task: FitTask) -> Representation:
    """NMF-DC with (15) and (17) read as one loop: a step on each factor, momentum carried on."""
    X, (V0, W) = np.asarray(task.sample.X), task.sample.start(task.k, task.start)
    y = np.full(len(X), -1) if task.y is None else task.y
    rows = np.where(y >= 0, y, task.k - 1 + np.cumsum(y < 0))  # samples of one label share a row
    sizes = np.bincount(rows, minlength=rows.max() + 1).astype(np.float64)
    R, H = np.zeros((len(sizes), X.shape[1])), np.zeros((len(sizes), task.k))
    np.add.at(R, rows, X)
    np.add.at(H, rows, V0)
    H /= np.maximum(sizes, 1.0)[:, None]
    delta = task.params["smoothing"]
    S = (1.0 - delta) * np.eye(task.k) + delta / task.k
    Y, Z, beta, history = H, W, 1.0, []
    for _ in range(task.params["max_iter"]):
        after = 0.5 * (1.0 + np.sqrt(4.0 * beta**2 + 1.0))
        carried, B = (beta - 1.0) / after, W @ S
        G = B.T @ B
        new = np.maximum(Y - (sizes[:, None] * (Y @ G) - R @ B) / (_norm(G) * sizes.max()), 0.0)
        Y, H = new + carried * (new - H), new
        C = H @ S
        G = (C * sizes[:, None]).T @ C
        new = np.maximum(Z - (Z @ G - R.T @ C) / _norm(G), 0.0)
        Z, W, beta = new + carried * (new - W), new, after
        fit = np.sum((R.T @ C) * W) - 0.5 * np.sum(G * (W.T @ W))
        history.append(0.5 * float(np.sum(X**2)) - float(fit))
    return Representation(
        H[rows], components=W.T, objective=history[-1], n_iter=len(history), history=history
    )


def _norm(G: Array) -> float:
    return max(float(np.linalg.norm(G, 2)), np.finfo(float).tiny)


def _classifier(task: FitTask) -> Representation:
    from partwise.apps.papers.classifiers import classify

    return classify(task)


COMPARATORS: dict[str, Callable[[FitTask], Representation]] = {
    "kmeans": _kmeans,
    "pca": partial(_projection, "PCA"),
    "svd": partial(_projection, "TruncatedSVD"),
    "ncut": _ncut,
    "labelspreading": _labelspreading,
    "classifier": _classifier,
    "one loop": _one_loop,
}
