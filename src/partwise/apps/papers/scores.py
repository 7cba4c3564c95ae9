"""Clusters from part weights, and scores, as in the papers.

A *readout* is a method that turns part weights into clusters. One readout takes the largest entry
of each row. The others use k-means, with seeds by k-means++ or drawn from the samples. They cluster
V or, if samples have weights γ, Γ^½V. Every readout of a fit is stored, since the fit takes most of
the time. A variant of a table selects one of them.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from partwise import metrics

if TYPE_CHECKING:
    from partwise.apps.papers.representations import FitTask, Representation

Found = NDArray[np.int64]
LABELS = "labels"  # clusters that the method itself returns
KMEANS = "k-means++"
RANDOM = "random"
ARGMAX = "argmax"
ROOT = "root random"


def readouts(fitted: Representation, task: FitTask, *, restarts: int) -> dict[str, Found]:
    """Return the clusters of a fit by every way of clustering its part weights."""
    if fitted.labels is not None:
        return {LABELS: np.asarray(fitted.labels, dtype=np.int64)}
    V = np.asarray(fitted.embedding, dtype=np.float64)
    found = {seeds: kmeans(V, task, restarts=restarts, seeds=seeds) for seeds in (KMEANS, RANDOM)}
    if fitted.components is not None and V.shape[1] == task.k:
        found[ARGMAX] = V.argmax(axis=1)
    if fitted.weights is not None:
        V = V * np.sqrt(fitted.weights)[:, None]
        found[ROOT] = kmeans(V, task, restarts=restarts, seeds=RANDOM)
    return found


def chosen_readout(wanted: str, present: dict[str, Any]) -> str:
    """Return the name of the readout that a variant of the settings uses."""
    if wanted == ROOT and ROOT not in present:
        wanted = RANDOM
    return wanted if wanted in present else next(iter(present))


def kmeans(V: NDArray[Any], task: FitTask, *, restarts: int, seeds: str = KMEANS) -> Found:
    """Return k-means clusters of the rows of V, the best of ``restarts`` starts."""
    from sklearn.cluster import KMeans

    if not np.all(np.isfinite(V)):
        raise FloatingPointError(f"{task.method.name} returned a representation that is not finite")
    seed = task.sample.integer_seed("kmeans", task.subrun)
    # warnings about fewer distinct points than clusters
    with warnings.catch_warnings(action="ignore"):
        model = KMeans(task.k, init=seeds, n_init=restarts, random_state=seed)
        return np.asarray(model.fit_predict(V), dtype=np.int64)


def scores(truth: Found, found: Found) -> dict[str, float]:
    """Return clustering accuracy, NMI, ARI and purity as percentages."""
    by = {"ac": metrics.clustering_accuracy, "nmi": metrics.normalized_mutual_info}
    by |= {"ari": metrics.adjusted_rand, "purity": metrics.purity}
    return {name: 100.0 * float(score(truth, found)) for name, score in by.items()}


def distance_to_centres(components: Any, X: Any, truth: Found, *, rays: bool = False) -> float:
    """Return the mean distance between a basis vector and the nearest class mean.

    With ``rays`` each basis vector is scaled to the length that brings it nearest to the class
    mean, since methods scale basis vectors differently.
    """
    centres = np.stack([np.asarray(X[truth == label]).mean(axis=0) for label in np.unique(truth)])
    U = np.asarray(components)[:, None, :]
    if rays:
        squared = (U**2).sum(axis=2, keepdims=True)
        U = U * (U * centres).sum(axis=2, keepdims=True) / np.where(squared > 0, squared, 1.0)
    return float(np.linalg.norm(U - centres, axis=2).min(axis=1).mean())


def locality(V: Any, components: Any, X: Any) -> float:
    """Return Σ v_ik ‖u_k - x_i‖² / Σ v_ik, the distance of samples from the parts they use.

    Parts are scaled to unit length like the samples, since methods scale parts differently.
    """
    lengths = np.linalg.norm(components, axis=1)
    weights = np.asarray(V) * lengths
    U = components / np.where(lengths > 0, lengths, 1.0)[:, None]
    squared = (X**2).sum(axis=1)[:, None] + (U**2).sum(axis=1) - 2.0 * (X @ U.T)
    return float((weights * squared).sum() / weights.sum())


def within_classes(V: Any, truth: Found) -> float:
    """Return the share of the scatter of the part weights that lies within classes.

    Each sample's part weights are first scaled to unit length.
    """
    lengths = np.linalg.norm(V, axis=1, keepdims=True)
    Z = np.asarray(V) / np.where(lengths > 0, lengths, 1.0)
    parts = (Z[truth == c] for c in np.unique(truth))
    within = sum(((part - part.mean(axis=0)) ** 2).sum() for part in parts)
    return float(within / ((Z - Z.mean(axis=0)) ** 2).sum())


def own_shares(V: Any, truth: Found, shown: Found) -> dict[str, float]:
    """Return the share of the part weights on the part of a sample's own class.

    The parts are matched to the classes one to one, so that the sum of these shares is largest.
    ``own_V`` is the mean share over samples without a label (negative in ``shown``), and
    ``own_labelled`` over samples with a label. ``largest`` is the percentage of samples without a
    label whose largest part weight is on the part of their class.
    """
    from scipy.optimize import linear_sum_assignment

    V = np.asarray(V, dtype=np.float64)
    sums = V.sum(axis=1, keepdims=True)
    shares = V / np.where(sums > 0, sums, 1.0)
    by_class = np.stack([shares[truth == c].sum(axis=0) for c in np.unique(truth)])
    part = linear_sum_assignment(by_class, maximize=True)[1]
    own = shares[np.arange(len(V)), part[truth]]
    hidden = shown < 0
    right = V.argmax(axis=1) == part[truth]
    found = {"own_V": own[hidden].mean(), "largest": 100.0 * right[hidden].mean()}
    if not hidden.all():
        found["own_labelled"] = own[~hidden].mean()
    return {name: float(value) for name, value in found.items()}
