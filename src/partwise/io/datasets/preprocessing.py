"""Preparation of images and texts as in the papers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.preprocessing import normalize
from sklearn.utils import check_array, check_random_state


def unit_rows(X: Any) -> Any:
    """Scale every sample to length one; an all-zero sample stays zero.

    Parameters
    ----------
    X : {array-like, sparse matrix} of shape (n_samples, n_features)

    Returns
    -------
    ndarray or sparse matrix
        A new array of the same kind and float type.

    Examples
    --------
    >>> from partwise.datasets import unit_rows
    >>> unit_rows([[3.0, 4.0], [0.0, 0.0]])
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    return normalize(X, norm="l2", axis=1, copy=True)


def tfidf(X: Any) -> Any:
    """Weigh term counts by (1 + log tf) · log(N / df), then scale rows to length one.

    This is the weighting of Deng Cai's script, which the papers use for texts. scikit-learn's
    ``TfidfTransformer`` smooths df and adds one. A term that occurs in every document gets weight
    0, and a document without terms stays zero.

    Parameters
    ----------
    X : array or sparse matrix of counts, shape (n_documents, n_terms)
        Counts are 0, or at least 1: the logarithm of smaller ones is negative.

    Returns
    -------
    csr_array if X is sparse, else ndarray

    Examples
    --------
    >>> from partwise.datasets import tfidf
    >>> tfidf([[2, 1, 0], [1, 0, 1]]).round(2)
    array([[0., 1., 0.],
           [0., 0., 1.]])
    """
    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32])
    counts = sparse.csr_array(X, copy=True)
    counts.sum_duplicates()
    counts.eliminate_zeros()
    if counts.nnz and counts.data.min() < 1:
        raise ValueError(f"tfidf needs counts (0, or at least 1), got {counts.data.min():g}.")
    df = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log(counts.shape[0] / np.maximum(df, 1)).astype(counts.dtype)
    counts.data = (1 + np.log(counts.data)) * idf[counts.indices]
    counts.eliminate_zeros()
    weighted = unit_rows(counts)
    return weighted if sparse.issparse(X) else weighted.toarray()


def keep_labels(y: ArrayLike, per_class: int, *, random_state: Any = None) -> np.ndarray:
    """Keep the labels of `per_class` random samples per class; all others become -1.

    Parameters
    ----------
    y : array of non-negative int, shape (n_samples,)
    per_class : int
        Number of labels per class. A class with fewer samples keeps all labels.
    random_state : int, RandomState or None

    Returns
    -------
    ndarray of shape (n_samples,)

    Examples
    --------
    >>> from partwise.datasets import keep_labels
    >>> y = keep_labels([0, 0, 0, 1, 1, 1], 2, random_state=0)
    >>> int((y == -1).sum())
    2
    """
    y = np.asarray(y)
    if y.ndim != 1 or y.dtype.kind not in "iu" or (y.size and y.min() < 0):
        raise ValueError("keep_labels needs y as a 1-D array of integers >= 0.")
    if per_class < 0:
        raise ValueError(f"keep_labels needs per_class >= 0, got {per_class}.")
    rng = check_random_state(random_state)
    kept = np.full(y.shape, -1, dtype=np.intp)
    for label in np.unique(y):
        members = rng.permutation(np.flatnonzero(y == label))[:per_class]
        kept[members] = label
    return kept
