"""From a representation to clusters and scores, as the papers do it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from partwise.papers.methods import Fitted, Task


def cluster(fitted: Fitted, task: Task, *, restarts: int) -> NDArray[np.int64]:
    """k-means on the representation, the start with the lowest inertia of ``restarts``."""
    if fitted.labels is not None:
        return np.asarray(fitted.labels, dtype=np.int64)
    from sklearn.cluster import KMeans

    embedding = np.asarray(fitted.embedding, dtype=np.float64)
    if not np.all(np.isfinite(embedding)):
        raise FloatingPointError(f"{task.method.name} returned a representation that is not finite")
    seed = task.sample.integer_seed("kmeans", task.subrun)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fewer distinct points than clusters
        return KMeans(task.k, n_init=restarts, random_state=seed).fit_predict(embedding)


def scores(truth: NDArray[np.int64], found: NDArray[np.int64]) -> dict[str, float]:
    """Accuracy, NMI, ARI and purity in per cent."""
    from partwise.evaluation import metrics

    return {
        "ac": 100.0 * float(metrics.clustering_accuracy(truth, found)),
        "nmi": 100.0 * float(metrics.normalized_mutual_info(truth, found)),
        "ari": 100.0 * float(metrics.adjusted_rand(truth, found)),
        "purity": 100.0 * float(metrics.purity(truth, found)),
    }


def distance_to_centres(components: Any, X: Any, truth: NDArray[np.int64]) -> float:
    """Mean distance of a basis vector to the nearest class mean."""
    centres = np.stack([np.asarray(X[truth == label]).mean(axis=0) for label in np.unique(truth)])
    gaps = np.linalg.norm(np.asarray(components)[:, None, :] - centres, axis=2)
    return float(gaps.min(axis=1).mean())
