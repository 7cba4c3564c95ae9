"""Stability of clusters under a change of the random seed."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.evaluation.kmeans import cluster_representation
from partwise.evaluation.metrics import adjusted_rand
from partwise.knowledge.labels import encode_labels
from partwise.selection.refits import Refits

#: Initialisation methods that hardly depend on the seed, so that other seeds would repeat the same
#: run.
_FIXED_STARTS = {None, "nndsvd", "nndsvda", "nndsvdar"}


@dataclass(frozen=True, eq=False)
class Stability:
    """Agreement of the clusters of runs that differ only in the seed.

    Parameters
    ----------
    names : tuple of str
        Names of the runs: ``"seed 0"``, ..., preceded by ``"this model"`` if it was fitted.
    agreement : ndarray of shape (n_runs, n_runs)
        Adjusted Rand index of each pair of runs; 1 on the diagonal.
    start : str
        Initial values of the runs.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from partwise import GNMF
    >>> from partwise.report import stability
    >>> found = stability(GNMF(3, tol=1e-2), load_iris().data, seeds=2)
    >>> found.names, 0 < found.mean <= 1
    (('seed 0', 'seed 1'), True)
    """

    names: tuple[str, ...]
    agreement: NDArray[np.float64]
    start: str

    @property
    def pairs(self) -> NDArray[np.float64]:
        """Adjusted Rand index of each pair of different runs."""
        return self.agreement[np.triu_indices(len(self.names), 1)]

    @property
    def mean(self) -> float:
        """Mean adjusted Rand index over all pairs of runs, or 1 for a single run."""
        return float(self.pairs.mean()) if self.pairs.size else 1.0

    @property
    def low(self) -> float:
        """Lowest adjusted Rand index of two runs."""
        return float(self.pairs.min(initial=1.0))


def stability(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    seeds: int = 5,
    step: Callable[[int, int], None] = lambda done, total: None,
    **fit_params: Any,
) -> Stability:
    """Fit copies of a model with the seeds 0, 1, ... and compare their clusters.

    If the initial values of the model do not depend on the seed, the copies use random ones.

    Parameters
    ----------
    model : estimator
        Model to copy; it is not changed. If it is fitted to X, its clusters are compared too.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Data.
    y : array-like of shape (n_samples,), default=None
        Labels, as for ``model.fit``.
    seeds : int, default=5
        Number of runs.
    step : callable, optional
        Called as ``step(done, total)`` before each run and at the end.
    **fit_params
        Further arguments of ``model.fit``, for example ``sample_weight``.

    Returns
    -------
    Stability

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from partwise import NMF
    >>> from partwise.report import stability
    >>> found = stability(NMF(3), load_iris().data, seeds=3)
    >>> found.agreement.shape, 0 <= found.low <= found.mean <= 1
    ((3, 3), True)
    """
    from sklearn.exceptions import ConvergenceWarning

    if seeds < 1:
        raise ValueError(f"seeds must be at least 1, got {seeds}.")
    refits = Refits.of_fitted(model, "stability", {"y": y, **fit_params}).without_start()
    names, found = [], []
    if hasattr(model, "embedding_") and len(model.embedding_) == X.shape[0]:
        names.append("this model")
        found.append(clusters_of(model, y))
    settings = {"init": "random"} if getattr(model, "init", "") in _FIXED_STARTS else {}
    for seed in range(seeds):
        step(seed, seeds)
        with warnings.catch_warnings():
            # the first fit has already issued these warnings
            warnings.simplefilter("ignore", ConvergenceWarning)
            warnings.simplefilter("ignore", UserWarning)
            copy = refits.fit(X, random_state=seed, **settings)
        names.append(f"seed {seed}")
        found.append(clusters_of(copy, y))
    step(seeds, seeds)
    table = np.array([[adjusted_rand(a, b) for b in found] for a in found])
    start = str(settings.get("init", getattr(model, "init", "random")))
    return Stability(tuple(names), table, start)


def clusters_of(model: Any, y: Any = None) -> NDArray[Any]:
    """Return ``labels_`` of a model, or k-means clusters of its part weights."""
    if hasattr(model, "labels_"):
        labels: NDArray[Any] = np.asarray(model.labels_)
        return labels
    V = model.embedding_
    known = encode_labels(y, V.shape[0])
    k = known.n_classes if known is not None and known.n_classes else V.shape[1]
    seed = model.random_state if isinstance(model.random_state, int) else 0
    return cluster_representation(V, k, labels=known, random_state=seed).labels
