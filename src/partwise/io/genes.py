"""Features that matter: genes that vary more than counting explains, and what sets parts apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

#: Number of genes to keep if there are more than ``MANY``.
GENES = 2000
MANY = 3000
#: Counts of a gene vary by mu + mu² / THETA where cells differ in nothing but their depth.
THETA = 100.0
_BINS = 200


def variable_genes(X: Any, n_genes: int) -> NDArray[np.int64]:
    """Return the genes with the largest variance of Pearson residuals, in their order.

    A residual is (x - mu) / √(mu + mu²/100), where mu is the count that a cell's depth and a gene's
    share of all counts let expect (Lause, Berens & Kobak 2021). Genes that vary only because they
    are abundant have a variance of about one. On worm neurons 2,000 such genes cluster better than
    all 13,488 (accuracy of gnmf 0.66 for 0.52). X holds counts, cells by genes.
    """
    X = sp.csr_array(X)
    n, p = X.shape
    if n_genes >= p:
        return np.arange(p)
    depth = np.asarray(X.sum(axis=1), dtype=np.float64).ravel()
    share = np.asarray(X.sum(axis=0), dtype=np.float64).ravel() / max(depth.sum(), 1.0)
    top = np.sqrt(n)  # residuals are cut there, so that one cell cannot make a gene
    # a zero adds mu / (1 + mu/THETA): by cells of about the same depth, as if all counts were zero
    total = np.zeros(p)
    for cells in np.array_split(np.sort(depth), min(_BINS, n)):
        mu = cells.mean() * share
        total += cells.size * np.minimum(mu / (1 + mu / THETA), top**2)
    # what the counts that are there add beyond that
    rows = np.repeat(np.arange(n), np.diff(X.indptr))
    mu = depth[rows] * share[X.indices]
    spread = np.sqrt(mu + mu**2 / THETA)
    residual = np.clip((X.data - mu) / np.where(spread > 0, spread, 1), -top, top)
    more = residual**2 - np.minimum(mu / (1 + mu / THETA), top**2)
    total += np.bincount(X.indices, weights=more, minlength=p)
    return np.sort(np.argsort(-total, kind="stable")[:n_genes])


def fano_genes(mean: Any, variance: Any, n_genes: int) -> NDArray[np.int64]:
    """Return the genes whose Fano factor exceeds the fit of cNMF most, in their order.

    Expected is slope² · mean + offset: the slope is the least coefficient of variation of the
    twenty genes with the largest mean, the offset the median Fano factor of ordinary genes. Mean
    and variance are those of each gene over the cells, each cell scaled to one total.
    """
    mean, variance = np.asarray(mean, dtype=np.float64), np.asarray(variance, dtype=np.float64)
    there = np.flatnonzero((mean > 0) & (variance > 0))
    mean, variance = mean[there], variance[there]
    if n_genes >= len(there):
        return there
    fano = variance / mean
    slope = (np.sqrt(variance) / mean)[np.argsort(-mean)[:20]].min()
    inner = np.ones(len(mean), bool)
    for value in (fano, mean):
        low, high = np.quantile(value, [0.1, 0.9])
        inner &= (value > low) & (value < high)
    offset = np.median(fano[inner] if inner.any() else fano)
    over = fano / (slope**2 * mean + offset)
    return np.sort(there[np.argsort(-over, kind="stable")[:n_genes]])


def specificity(M: Any) -> NDArray[np.float64]:
    """Return p log(p / q): p is a row's shares of its own sum, q their mean over the rows.

    A feature scores high where a row has much of it and the others have little. Weight alone puts
    the features that are common everywhere at the head of every row. Negative entries count as
    none.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.io.genes import specificity
    >>> M = np.array([[9.0, 3.0, 0.0], [9.0, 0.0, 3.0]])  # the first feature is everywhere
    >>> specificity(M).argmax(axis=1).tolist()
    [1, 2]
    """
    P = np.maximum(np.asarray(M, dtype=np.float64), 0)
    total = P.sum(axis=1, keepdims=True)
    P = P / np.where(total > 0, total, 1)
    if len(P) == 1:
        return P
    mean = P.sum(axis=0) / max(np.count_nonzero(total), 1)  # rows of zeros do not count
    ratio = np.divide(P, mean, out=np.ones_like(P), where=(P > 0) & (mean > 0))
    scores: NDArray[np.float64] = P * np.log(ratio)
    return scores


def top_features(M: Any, names: Sequence[str], most: int = 5) -> list[list[str]]:
    """Return the names of the features that distinguish each row of M, clearest first."""
    scores = specificity(M)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :most]
    return [[str(names[j]) for j in row if score[j] > 0] for row, score in zip(order, scores)]
