"""Scores: agreement of clusters with known classes, and sparseness of a matrix.

Classes and clusters may be any hashable values; they need not have the same names or types.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from partwise.knowledge.labels import encode_labels

__all__ = [
    "adjusted_rand",
    "clustering_accuracy",
    "labelled_accuracy",
    "normalized_mutual_info",
    "purity",
    "sparseness",
]


def clustering_accuracy(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the accuracy under the best one-to-one map from clusters to classes (AC).

    The best map is found by the Hungarian method. Clusters beyond the number of classes match
    nothing, and neither do classes beyond the number of clusters.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Classes.
    y_pred : array-like of shape (n_samples,)
        Clusters, under any names.

    Returns
    -------
    float
        Between 0 and 1; 1 if both are the same partition.

    Examples
    --------
    >>> from partwise.metrics import clustering_accuracy
    >>> clustering_accuracy(["a", "a", "b", "b"], [1, 1, 0, 1])
    0.75
    """
    from scipy.optimize import linear_sum_assignment

    table = _contingency(y_true, y_pred).toarray()
    rows, columns = linear_sum_assignment(table, maximize=True)
    return float(table[rows, columns].sum() / table.sum())


def labelled_accuracy(estimator: Any, X: Any, y: ArrayLike) -> float:
    """Return the share of labelled samples whose label ``estimator.predict`` returns.

    It is a scorer for scikit-learn: ``GridSearchCV(..., scoring=labelled_accuracy)``. The default
    score of held-out rows favours the smallest penalty, since their part weights are fitted again;
    labels do not.

    Parameters
    ----------
    estimator : fitted estimator with ``predict``
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
    y : array-like of shape (n_samples,)
        Labels; unknown ones (-1, None or NaN) do not count.

    Returns
    -------
    float
        Between 0 and 1; NaN if no label is known.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from partwise import GNMF
    >>> from partwise.metrics import labelled_accuracy
    >>> X, y = load_digits(n_class=3, return_X_y=True)
    >>> model = GNMF(6, random_state=0).fit(X[:300], y[:300])
    >>> labelled_accuracy(model, X[300:], y[300:]) > 0.9
    True
    """
    labels = encode_labels(y, X.shape[0])
    if labels is None or not labels.n_labelled:
        return float("nan")
    predicted = np.asarray(estimator.predict(X))[labels.mask]
    return float(np.mean(predicted == labels.classes[labels.codes[labels.mask]]))


def normalized_mutual_info(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the normalised mutual information of classes and clusters (NMI).

    NMI = I(C; K) / max(H(C), H(K)) for classes C and clusters K, as in the papers. scikit-learn's
    default divides by the mean entropy, so its result is never smaller.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Classes.
    y_pred : array-like of shape (n_samples,)
        Clusters, under any names.

    Returns
    -------
    float
        Between 0 (independent) and 1 (the same partition; also if both have a single group).

    References
    ----------
    Cai, He, Han & Huang (2011), Graph regularized nonnegative matrix factorization, section 4.2.

    Examples
    --------
    >>> from partwise.metrics import normalized_mutual_info
    >>> round(normalized_mutual_info([0, 0, 1, 1], ["x", "x", "y", "z"]), 3)
    0.667
    """
    from sklearn.metrics import normalized_mutual_info_score

    pair = _both(y_true, y_pred)
    return min(float(normalized_mutual_info_score(*pair, average_method="max")), 1.0)


def adjusted_rand(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the adjusted Rand index (ARI): agreement on pairs, corrected for chance.

    ARI = (index - expected) / (maximum - expected), where the index is the number of pairs of
    samples that are in the same group in both partitions.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Classes.
    y_pred : array-like of shape (n_samples,)
        Clusters, under any names.

    Returns
    -------
    float
        1 for the same partition, 0 on average for random ones, and negative if worse than that.

    References
    ----------
    Hubert & Arabie (1985), Comparing partitions, Journal of Classification 2.

    Examples
    --------
    >>> from partwise.metrics import adjusted_rand
    >>> round(adjusted_rand([0, 0, 1, 1], [0, 0, 1, 2]), 3)
    0.571
    """
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(*_both(y_true, y_pred)))


def purity(y_true: ArrayLike, y_pred: ArrayLike) -> float:
    """Return the share of samples that belong to the largest class of their cluster.

    Several clusters may count for one class, so purity grows with the number of clusters.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Classes.
    y_pred : array-like of shape (n_samples,)
        Clusters, under any names.

    Returns
    -------
    float
        Above 0 and at most 1.

    Examples
    --------
    >>> from partwise.metrics import purity
    >>> purity(["a", "a", "b", "b"], [0, 1, 2, 2])
    1.0
    """
    table = _contingency(y_true, y_pred)
    return float(table.max(axis=0).toarray().sum() / table.sum())


def sparseness(
    M: ArrayLike | sp.sparray | sp.spmatrix, axis: int | None = None
) -> float | NDArray[np.float64]:
    """Return Hoyer's sparseness (√n - ‖x‖₁ / ‖x‖₂) / (√n - 1) of the n entries of a matrix.

    0 if all entries are equal, 1 if a single entry is not zero. The sign of entries is ignored.

    Parameters
    ----------
    M : array or scipy sparse array
        Finite values.
    axis : {None, 0, 1}, default=None
        None: one number, with x all entries of M, as in NMF-DC (30). 0: one number for each
        column. 1: one for each row.

    Returns
    -------
    float or ndarray
        Between 0 and 1, or NaN for zero vectors and for a single entry.

    References
    ----------
    Hoyer (2004), Non-negative matrix factorization with sparseness constraints, JMLR 5.
    Yang et al. (2018), NMF-DC, (30).

    Examples
    --------
    >>> from partwise.metrics import sparseness
    >>> sparseness([[0.0, 0.0], [3.0, 0.0]])
    1.0
    >>> sparseness([[1.0, 1.0], [1.0, 0.0]], axis=0).round(3)
    array([0., 1.])
    """
    values: Any = sp.coo_array(M) if sp.issparse(M) else np.asarray(M)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"M must hold real numbers, got dtype {values.dtype}.")
    if axis not in (None, 0, 1) or (axis is not None and values.ndim != 2):
        raise ValueError(
            f"axis must be None, or 0 or 1 for a matrix; got axis={axis} for shape {values.shape}."
        )
    size = int(np.prod(values.shape))
    if size == 0:
        raise ValueError(f"M must have at least one entry, got shape {values.shape}.")
    values = abs(values.astype(np.float64))
    stored = values.data if sp.issparse(values) else values
    if not np.isfinite(stored).all():
        raise ValueError("M must be finite, got NaN or infinity; remove those entries.")
    largest = stored.max(initial=0.0)
    if largest > 0:
        values = values / largest  # avoid overflow and underflow of squares
    first = np.asarray(values.sum(axis=axis))
    second = np.sqrt(np.asarray((values * values).sum(axis=axis)))
    root = np.sqrt(size if axis is None else values.shape[axis])
    with np.errstate(divide="ignore", invalid="ignore"):
        result = np.asarray((root - first / second) / (root - 1))
    result = np.clip(result, 0.0, 1.0)
    return float(result) if axis is None else result


def _contingency(y_true: ArrayLike, y_pred: ArrayLike) -> sp.coo_array:
    """Return the number of samples in each class (row) and cluster (column)."""
    pair = _both(y_true, y_pred)
    table = sp.coo_array((np.ones(pair[0].size, dtype=np.int64), pair))
    table.sum_duplicates()
    return table


def _both(y_true: ArrayLike, y_pred: ArrayLike) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return classes and clusters as integers, also if labels cannot be sorted."""
    classes, clusters = _codes(y_true, "y_true"), _codes(y_pred, "y_pred")
    if classes.size != clusters.size:
        sizes = f"{classes.size} and {clusters.size}"
        raise ValueError(f"y_true and y_pred must have the same length, got {sizes}.")
    return classes, clusters


def _codes(y: ArrayLike, name: str) -> NDArray[np.int64]:
    """Return an integer for each label; raise an error for unknown labels."""
    import pandas as pd

    values = np.asarray(y)
    # keep objects, since numpy would convert None and 1 to text
    if values.dtype.kind not in "biufmM":
        values = np.asarray(y, dtype=object)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values.ravel()
    if values.ndim != 1:
        raise ValueError(f"{name} must have one label per sample, got shape {values.shape}.")
    if values.size == 0:
        raise ValueError(f"{name} must have at least one label, got none.")
    # objects are not sorted, as they may have no order
    codes = pd.factorize(values, sort=values.dtype.kind != "O")[0]
    if codes.min() < 0:
        raise ValueError(f"{name} must have known labels only; it contains None or NaN.")
    return np.asarray(codes, dtype=np.int64)
