"""Search for neighbours of some rows of X, or of new samples, with numpy alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from partwise.backends.arrays import forget

BLOCK = 1024  # samples on each side of a block of distances
SPARE = 4  # additional candidates, so that nearly all rows need no second search
SAME = 1e-9  # squared distances with a smaller relative difference count as equal


def search_rows(
    X: Any, rows: NDArray[np.int64], k: int, new: Any = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the neighbours of some samples in X, and squared distances in float64.

    The samples are ``X[rows]``, which are not their own neighbours, or ``new[rows]``.

    Candidates are found by ‖z_i‖² + ‖z_j‖² - 2 z_i·z_j. If vectors are far longer than their
    differences, rounding could hide a closer sample. Such rows are searched by differences.
    """
    n, p = X.shape
    source, others = (X, n - 1) if new is None else (new, n)
    m = min(k + SPARE, others)
    mean: Any = 0.0
    if not sp.issparse(X):
        mean = np.asarray(sum(dense(X[a:b]).sum(axis=0) for a, b in cuts(n)) / n)
    rounding = (p + 10) * 2.0**-53
    indices = np.empty((rows.size, k), dtype=np.int64)
    squares = np.empty((rows.size, k))
    for lo, hi in cuts(rows.size):
        mine = rows[lo:hi]
        Zi = source[mine].astype(np.float64)
        if not sp.issparse(X):
            Zi -= mean
        low_i = (1 - rounding) * square_norms(Zi)
        best = np.full((mine.size, m), np.inf)
        who = np.full((mine.size, m), -1, dtype=np.int64)
        for a, b in cuts(n):
            Zj = X[a:b].astype(np.float64)
            if sp.issparse(X):
                D = -2.0 * (Zi @ Zj.T).toarray()
            else:
                Zj -= mean
                D = Zi @ Zj.T
                D *= -2.0
            D += low_i[:, None]
            D += (1 - rounding) * square_norms(Zj)
            if isinstance(X, np.memmap):
                forget(X)
            best, who = merge(best, who, D, mine if new is None else None, a)
        exact = square_distances(X, mine, who, new)
        indices[lo:hi], squares[lo:hi] = nearest(who, exact, k)
        if m < others:
            last = squares[lo:hi, -1]
            doubt = np.flatnonzero((last * (1 - SAME) > best.max(axis=1)) & (last > 0))
            if doubt.size:
                found = search_by_differences(X, mine[doubt], k, new)
                indices[lo + doubt], squares[lo + doubt] = found
    return indices, squares


def search_by_differences(
    X: Any, rows: NDArray[np.int64], k: int, new: Any = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Search neighbours by Σ_f (x_if - x_jf)² for all samples j; slow, but exact."""
    from scipy.spatial.distance import cdist

    best = np.full((rows.size, k), np.inf)
    who = np.full((rows.size, k), -1, dtype=np.int64)
    left = dense((X if new is None else new)[rows])
    step = max(1, min(BLOCK, 2**24 // max(1, X.shape[1])))
    for a, b in cuts(X.shape[0], step):
        D = cdist(left, dense(X[a:b]), "sqeuclidean")
        best, who = merge(best, who, D, rows if new is None else None, a)
    return nearest(who, best, k)


def merge(
    best: NDArray[np.float64],
    who: NDArray[np.int64],
    D: NDArray[np.float64],
    rows: NDArray[np.int64] | None,
    start: int,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the smallest distances per row, and their samples, after a further block of distances.

    Parameters
    ----------
    best, who : (r, m) arrays
        The smallest distances of each row so far, and the indices of their samples.
    D : (r, c) array
        Distances to the samples ``start`` to ``start + c - 1``. It is changed in place.
    rows : (r,) array or None
        Index of the sample of each row, so that no sample is its own neighbour. None if the rows
        are new samples.
    start : int
    """
    m = best.shape[1]
    if rows is not None:
        inside = np.flatnonzero((rows >= start) & (rows < start + D.shape[1]))
        D[inside, rows[inside] - start] = np.inf  # a sample is not its own neighbour
    if D.shape[1] > m:
        columns = np.argpartition(D, m - 1, axis=1)[:, :m]
        D = np.take_along_axis(D, columns, axis=1)
    else:
        columns = np.broadcast_to(np.arange(D.shape[1]), D.shape)
    values = np.hstack([best, D])
    names = np.hstack([who, columns + start])
    # A stable sort keeps the smaller index first among equal values, since the finite entries of
    # best are sorted.
    order = np.argsort(values, axis=1, kind="stable")[:, :m]
    return np.take_along_axis(values, order, 1), np.take_along_axis(names, order, 1)


def nearest(
    candidates: NDArray[np.int64], squares: NDArray[np.float64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the k smallest values of each row, ordered by distance and then by index."""
    order = np.lexsort((candidates, squares), axis=1)[:, :k]
    return np.take_along_axis(candidates, order, 1), np.take_along_axis(squares, order, 1)


def square_distances(
    X: Any, rows: NDArray[np.int64], candidates: NDArray[np.int64], new: Any = None
) -> NDArray[np.float64]:
    """Return ‖x_i - x_j‖² from differences, for the candidates j of each row i."""
    source = X if new is None else new
    squares = np.empty(candidates.shape)
    width = candidates.shape[1]
    for a, b in pair_blocks(X, rows.size, width):
        i, j = np.repeat(rows[a:b], width), candidates[a:b].ravel()
        gap = X[j].astype(np.float64, copy=False) - source[i].astype(np.float64, copy=False)
        squares[a:b] = square_norms(gap).reshape(b - a, width)
        if isinstance(X, np.memmap):
            forget(X)
    return squares


def neighbor_dots(X: Any, indices: NDArray[np.int64], new: Any = None) -> NDArray[np.float64]:
    """Return x_i·x_j for the neighbours j of each sample i of X, or of ``new``."""
    source = X if new is None else new
    dots = np.empty(indices.shape)
    width = indices.shape[1]
    for a, b in pair_blocks(X, indices.shape[0], width):
        left, right = source[np.repeat(np.arange(a, b), width)], X[indices[a:b].ravel()]
        if sp.issparse(X):
            values = np.asarray(left.multiply(right).sum(axis=1)).ravel()
        else:
            values = np.einsum("ij,ij->i", left, right, dtype=np.float64)
        dots[a:b] = values.reshape(b - a, width)
        forget(X)
    return dots


# --- small pieces -----------------------------------------------------------------------------


def cuts(n: int, step: int = BLOCK) -> list[tuple[int, int]]:
    """Return the ranges [(0, step), (step, 2 step), ..., (., n)]."""
    return [(a, min(a + step, n)) for a in range(0, n, step)]


def square_norms(Z: Any) -> NDArray[np.float64]:
    if sp.issparse(Z):
        return np.asarray(Z.multiply(Z).sum(axis=1), dtype=np.float64).ravel()
    return np.asarray(np.einsum("ij,ij->i", Z, Z))


def dense(block: Any) -> NDArray[np.float64]:
    if isinstance(block, np.memmap):
        copy = np.array(block, dtype=np.float64, subok=False)
        forget(block)
        return copy
    return np.asarray(block.toarray() if sp.issparse(block) else block, dtype=np.float64)


def pair_blocks(X: Any, rows: int, width: int) -> Iterable[tuple[int, int]]:
    """Return ranges of rows whose ``width`` neighbours fit into the cache."""
    per_row = (X.nnz / max(1, X.shape[0]) if sp.issparse(X) else X.shape[1]) * max(1, width)
    return cuts(rows, max(1, int(2**18 / max(1.0, per_row))))
