"""K-means clusters of part weights, matched with classes as in the papers."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from partwise.backends.arrays import squares_in_range
from partwise.backends.compressed import check_array
from partwise.evaluation.linkage import linked_clusters
from partwise.knowledge.labels import Labels
from partwise.knowledge.links import Links

__all__ = ["Clustering", "cluster_representation"]

#: Number of multiplications in a k-means iteration above which several threads are faster.
_MIN_PARALLEL_WORK = 2**25


@dataclass(frozen=True, eq=False)
class Clustering:
    """Clusters of samples, labelled by classes if these are known.

    Parameters
    ----------
    centers : ndarray of shape (n_clusters, n_components)
        Means of the clusters.
    names : ndarray of shape (n_clusters,)
        The class that each cluster was matched with, or a new label.
    labels : ndarray of shape (n_samples,)
        The label of the cluster of each training sample.
    unit : bool
        If True, rows are scaled to length one before distances are computed.
    lengths : ndarray of shape (n_components,) or None
        Factors that multiply the columns before that scaling, if components differ in length.

    Examples
    --------
    >>> from partwise.cluster import cluster_representation
    >>> found = cluster_representation([[0, 1], [0, 2], [9, 0], [8, 0]], 2, random_state=0)
    >>> bool(found.labels[0] == found.labels[1] == found.predict([[0, 1.5]])[0])
    True
    >>> found.confidence([[0, 1.5]])
    array([1.])
    """

    centers: NDArray[Any]
    names: NDArray[Any]
    labels: NDArray[Any]
    unit: bool = False
    lengths: NDArray[Any] | None = None

    def check(self) -> None:
        """Raise ValueError if arrays from a file are not a valid clustering."""
        check_array(self.centers, "f", 2)
        if np.shape(self.names) != self.centers.shape[:1] or np.ndim(self.labels) != 1:
            raise ValueError("the clusters do not fit each other")
        if self.lengths is not None and np.shape(self.lengths) != self.centers.shape[1:]:
            raise ValueError("the lengths of the clusters do not fit them")

    def predict(self, V: ArrayLike) -> NDArray[Any]:
        """Return the label of the closest centre for each row of V.

        Parameters
        ----------
        V : array-like of shape (n_samples, n_components)

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        names: NDArray[Any] = self.names[self._distances(V).argmin(axis=1)]
        return names

    def confidence(self, V: ArrayLike) -> NDArray[np.float64]:
        """Return (d₂ - d₁) / (d₂ + d₁) for the distances to the two closest centres.

        It is 1 at a centre, 0 half-way between two, and 1 for a single cluster. It orders samples
        by how clearly they belong to their cluster; it is not a probability.

        Parameters
        ----------
        V : array-like of shape (n_samples, n_components)

        Returns
        -------
        ndarray of shape (n_samples,)
            Between 0 and 1.
        """
        D = self._distances(V)
        if D.shape[1] == 1:
            return np.ones(D.shape[0])
        nearest, second = np.partition(D, 1, axis=1)[:, :2].T
        total = nearest + second
        margin: NDArray[np.float64] = np.zeros_like(total)
        np.divide(second - nearest, total, out=margin, where=total > 0)
        return margin

    def _distances(self, V: ArrayLike) -> NDArray[np.float64]:
        """Return the distance of each row of V to each cluster centre, after scaling."""
        if self.lengths is not None:
            V = _as_rows(V) * self.lengths
        return _distances(_unit(_as_rows(V)) if self.unit else V, self.centers)


def cluster_representation(
    V: ArrayLike,
    n_clusters: int,
    *,
    labels: Labels | None = None,
    links: Links | None = None,
    n_init: int = 20,
    unit: bool = False,
    random_state: int | np.random.RandomState | None = None,
) -> Clustering:
    """Cluster the rows of V by k-means and match clusters with classes.

    The objective is Σ_i min_c ‖v_i - m_c‖²; the best of ``n_init`` starts is kept. With labels,
    classes and clusters are matched one to one so that as many labelled samples as possible lie in
    the cluster of their class (Hungarian method). If none of a class's samples is in its cluster,
    the class gets no cluster. Other clusters are labelled ``"cluster 1"``, ... if classes are
    strings, and by the integers after the largest class if they are numbers. Without labels, they
    are labelled 0, 1, ...

    Parameters
    ----------
    V : array-like of shape (n_samples, n_components)
        The part weights, or another representation of the samples.
    n_clusters : int
        Fewer clusters are returned if V has fewer distinct rows.
    labels : Labels, optional
        From `partwise.knowledge.labels.encode_labels`. They do not change the clusters.
    links : Links, optional
        From `partwise.knowledge.links.check_links`. Agglomerative clustering then keeps them
        (`partwise.evaluation.linkage.linked_clusters`).
    n_init : int, default=20
        Number of k-means starts, as in the papers.
    unit : bool, default=False
        Scale the rows of V to length one first, so that only the proportions of the parts count.
        Without this, most short texts end in a cluster near zero, because their part weights are
        small.
    random_state : int or RandomState, optional
        Seed of k-means; an integer gives reproducible clusters.

    Returns
    -------
    Clustering

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.cluster import cluster_representation
    >>> from partwise.knowledge.labels import encode_labels
    >>> V = np.array([[0.0], [0.1], [5.0], [5.1]])
    >>> known = encode_labels(["near", None, None, None], 4)
    >>> cluster_representation(V, 2, labels=known, random_state=0).labels.tolist()
    ['near', 'near', 'cluster 1', 'cluster 1']
    """
    if isinstance(n_clusters, bool) or not isinstance(n_clusters, (int, np.integer)):
        raise TypeError(f"n_clusters must be an integer, got {n_clusters!r}.")
    if n_clusters < 1:
        raise ValueError(f"n_clusters must be at least 1, got {n_clusters}.")
    V = _as_rows(V)
    if labels is not None and len(labels.codes) != len(V):
        raise ValueError(f"labels must have {len(V)} entries like V, got {len(labels.codes)}.")
    if unit:
        V = _unit(V)
    size = min(int(n_clusters), V.shape[0])
    if links is None:
        centers = _kmeans(V, size, n_init, random_state)
        closest = _distances(V, centers).argmin(axis=1)
        # remove duplicate centres, which have no rows
        used, closest = np.unique(closest, return_inverse=True)
        centers = centers[used]
    else:
        closest = linked_clusters(V, size, links, random_state=random_state)
        centers = np.array([V[closest == c].mean(axis=0) for c in range(closest.max() + 1)])
    if labels is None:
        names: NDArray[Any] = np.arange(len(centers))
    else:
        names = _names(labels.classes, _match(labels, closest, len(centers)))
    return Clustering(centers=centers, names=names, labels=names[closest], unit=unit)


def _unit(V: NDArray[Any]) -> NDArray[Any]:
    """Return V with each row scaled to length one; rows of zeros stay zero."""
    length = np.linalg.norm(V, axis=1, keepdims=True)
    return V / np.where(length > 0, length, 1)


def _kmeans(
    V: NDArray[Any], n_clusters: int, n_init: int, random_state: int | np.random.RandomState | None
) -> NDArray[Any]:
    """Return the cluster centres of scikit-learn's k-means."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning
    from threadpoolctl import threadpool_limits

    model = KMeans(n_clusters, n_init=n_init, random_state=random_state)
    # A small iteration takes less time than starting threads. With one thread, sums also have a
    # fixed order.
    threads = 1 if V.size * n_clusters < _MIN_PARALLEL_WORK else None
    # k-means warns if rows of V are equal; the caller removes the empty clusters
    quiet = warnings.catch_warnings(action="ignore", category=ConvergenceWarning)
    with threadpool_limits(limits=threads, user_api="openmp"), quiet:
        return np.asarray(model.fit(V).cluster_centers_)


def _match(labels: Labels, closest: NDArray[np.int64], n_clusters: int) -> NDArray[np.int64]:
    """Return the class of each cluster in the best one-to-one matching.

    A cluster without a class has -1.
    """
    from scipy.optimize import linear_sum_assignment

    table = np.zeros((labels.n_classes, n_clusters), dtype=np.int64)
    np.add.at(table, (labels.codes[labels.mask], closest[labels.mask]), 1)
    classes, clusters = linear_sum_assignment(table, maximize=True)
    shared = table[classes, clusters] > 0
    owner = np.full(n_clusters, -1, dtype=np.int64)
    owner[clusters[shared]] = classes[shared]
    return owner


def _names(classes: NDArray[Any], owner: NDArray[np.int64]) -> NDArray[Any]:
    """Return the label of each cluster: its class, or a new label without a class."""
    if classes.size == 0:
        return np.arange(owner.size)
    kind, free = classes.dtype.kind, np.flatnonzero(owner < 0)
    if not free.size:
        return classes[owner]
    if kind in "iuf":
        names = classes.astype(classes.dtype if kind == "f" else np.int64)[owner]
        names[free] = int(np.floor(classes.max())) + 1 + np.arange(free.size)
        return names
    taken = {str(name) for name in classes}
    numbered = (f"cluster {i}" for i in range(1, free.size + len(taken) + 1))
    names = classes.astype(object)[owner]
    names[free] = [name for name in numbered if name not in taken][: free.size]
    return names.astype(str) if kind == "U" else names


def _as_rows(V: ArrayLike) -> NDArray[Any]:
    """Return V as a matrix of floats, after checking its values and shape."""
    rows = np.asarray(V)
    if rows.dtype.kind not in "biuf":
        raise TypeError(f"V must hold real numbers, got dtype {rows.dtype}.")
    if rows.ndim != 2 or 0 in rows.shape:
        raise ValueError(f"V must be a matrix with one row per sample, got shape {rows.shape}.")
    if rows.dtype not in (np.float32, np.float64):
        rows = rows.astype(np.float64)
    if not np.isfinite(rows).all():
        raise ValueError("V must be finite, got NaN or infinity; check how it was fitted.")
    return np.asarray(squares_in_range(rows))


def _distances(V: ArrayLike, centers: NDArray[Any]) -> NDArray[np.float64]:
    """Return Euclidean distances between rows and centres in float64."""
    from scipy.spatial.distance import cdist

    rows = _as_rows(V)
    wanted = centers.shape[1]
    if rows.shape[1] != wanted:
        raise ValueError(f"V must have {wanted} columns, as in the fit; got {rows.shape[1]}.")
    distances: NDArray[np.float64] = cdist(rows, centers)
    return distances
