"""Labels in doubt: probabilities of classes, and their spread on a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import cg

from partwise.knowledge.labels import Labels, encode_labels

__all__ = ["propagate", "read_labels"]

#: How far from one the probabilities of a sample may add up: people round to three digits.
SLACK = 1e-3


def read_labels(y: Any, n_samples: int) -> Labels | None:
    """Labels as `encode_labels` has them, or probabilities of classes.

    Parameters
    ----------
    y : array-like of shape (n_samples,) or (n_samples, n_classes), or None
        Of two columns or more: each row the probabilities of the classes, which add up to one; a
        row of NaN where nothing is known. Classes are 0, 1, ... or the columns of a DataFrame; one
        that no sample may have is left out.
    n_samples : int

    Raises
    ------
    ValueError
        If y has another length, is negative or infinite somewhere, has a row that does not add up
        to one, or one of which only some entries are NaN.

    Examples
    --------
    >>> from partwise.knowledge.probabilities import read_labels
    >>> labels = read_labels([[0.9, 0.1], [float("nan")] * 2, [0.0, 1.0]], 3)
    >>> labels.codes.tolist(), labels.shares.tolist()
    ([0, -1, 1], [[0.9, 0.1], [0.0, 0.0], [0.0, 1.0]])
    """
    columns = getattr(y, "columns", None)
    shape = _shape(y)
    if len(shape) != 2 or shape[1] < 2:
        return encode_labels(y, n_samples)
    names = np.arange(shape[1]) if columns is None else np.asarray(columns)
    try:
        P = np.array(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"y of shape {shape} must hold probabilities of {shape[1]} classes, got dtype "
            f"{np.asarray(y).dtype}; give one label a sample, or numbers that add up to one."
        ) from None
    if len(P) != n_samples:
        raise ValueError(
            f"y must have a row for each of the {n_samples} samples of X, got {len(P)}; mark "
            "samples of which nothing is known with a row of NaN."
        )
    known = _check_rows(P)
    P[known] /= P[known].sum(axis=1, keepdims=True)
    P[~known] = 0.0
    occur = P.any(axis=0)
    P, names = np.ascontiguousarray(P[:, occur]), names[occur]
    codes = np.where(known, P.argmax(axis=1) if occur.any() else 0, -1).astype(np.int64)
    certain = bool((P.max(axis=1, initial=0.0)[known] == 1).all())
    return Labels(names, codes, None if certain else P)


def _shape(y: Any) -> tuple[int, ...]:
    """The shape of y; none for a nested sequence of different lengths."""
    try:
        return np.asarray(y).shape
    except ValueError:
        return ()


def _check_rows(P: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows are known; the first that is no set of probabilities is named."""
    gaps = np.isnan(P)
    known: NDArray[np.bool_] = np.logical_not(gaps.all(axis=1))
    bad = np.flatnonzero(known & gaps.any(axis=1))
    if bad.size:
        raise ValueError(
            f"y has NaN in a part of row {bad[0]}; give all probabilities of a sample, or a row of "
            "NaN where nothing is known."
        )
    low = P.min(axis=1, initial=0.0)
    bad = np.flatnonzero(known & ~((low >= 0) & np.isfinite(P).all(axis=1)))
    if bad.size:
        raise ValueError(
            f"y must hold probabilities, got {P[bad[0]].tolist()} in row {bad[0]}; none may be "
            "negative or infinite."
        )
    total = P.sum(axis=1)
    bad = np.flatnonzero(known & ~(np.abs(total - 1) <= SLACK * (1 + 1e-9)))
    if bad.size:
        raise ValueError(
            f"probabilities in y must add up to one, got {total[bad[0]]:g} in row {bad[0]}; divide "
            "each row by its sum."
        )
    return known


def propagate(W: sp.csr_array, labels: Labels) -> Labels:
    """Labels spread over a graph: those that are not known become the mean of their neighbours'.

    F with F_i = Σ_j w_ij F_j / Σ_j w_ij for all samples without a label, and those with one as
    they are (X. Zhu, Z. Ghahramani, J. Lafferty 2003). Samples that no label reaches stay unknown.

    Parameters
    ----------
    W : csr_array of shape (n_samples, n_samples)
        Symmetric and >= 0.
    labels : Labels

    Returns
    -------
    Labels
        With ``shares``; ``codes`` are -1 only where nothing reaches a sample.
    """
    P = labels.probabilities.copy()
    _, part = connected_components(W, directed=False)
    reached = np.isin(part, part[labels.mask])
    free = np.flatnonzero(reached & ~labels.mask)
    if free.size:
        W = sp.csr_array(W, dtype=np.float64)
        among, given = W[free][:, free], W[free] @ P
        degrees = np.asarray(W[free].sum(axis=1)).ravel()
        system = sp.csr_array(sp.diags_array(degrees) - among)
        by_degree = sp.diags_array(1 / degrees)
        for c in range(P.shape[1]):
            P[free, c] = cg(system, given[:, c], rtol=1e-10, maxiter=1000, M=by_degree)[0]
        # far from every label all may be below what is solved for: then it says nothing
        P[free] = np.maximum(P[free], 1e-12)
        P[free] /= P[free].sum(axis=1, keepdims=True)
    codes = np.where(reached, P.argmax(axis=1), -1).astype(np.int64)
    return Labels(labels.classes, codes, P)
