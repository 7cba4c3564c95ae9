"""Neighbour graphs: who is close to whom, as a sparse symmetric matrix of weights.

The exact search compares every pair of samples and never holds more than a few blocks of
distances. Large dense data is searched in float32, where every candidate carries a lower bound of
its true distance; the distances of the few kept candidates are then recomputed in float64 by
differences, and a row is accepted only if no rejected sample can be closer. The other rows are
searched again in float64. So the result is that of float64, at the price of float32.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array, check_random_state

from partwise.labels import Labels

__all__ = ["check_graph", "nearest_neighbors", "neighbor_graph", "semi_supervised_graph"]

Weighting = Literal["binary", "heat", "dot"]
Method = Literal["exact", "approximate"]

_SMALL = 2500  # up to here numpy alone is faster than loading compiled code
_BLOCK = 1024  # samples on each side of a block of distances
_SPARE = 4  # candidates kept beyond n_neighbors, so that nearly all rows are settled at once
_FILLED = 0.1  # a sparse X with more non-zeros than this is faster in dense blocks
_SAME = 1e-9  # squared distances this close (relatively) are a tie


def neighbor_graph(
    X: ArrayLike | sp.sparray | sp.spmatrix,
    n_neighbors: int = 5,
    *,
    weighting: Weighting = "binary",
    bandwidth: float | None = None,
    method: Method = "exact",
    random_state: int | np.random.RandomState | None = None,
) -> sp.csr_array:
    """Symmetric neighbour graph: W_ij > 0 where i is a near neighbour of j, or j of i.

    ::

        W = max(N, Nᵀ),   N_ij = 1                      "binary"
                                 exp(-d_ij² / (2 t²))   "heat", d Euclidean, t the bandwidth
                                 x_i · x_j              "dot", at least 0

    for the ``n_neighbors`` samples j closest to i, without i itself, and 0 for all others. The
    diagonal is zero.

    Parameters
    ----------
    X : array or scipy sparse array of shape (n_samples, n_features)
        Finite values of either sign.
    n_neighbors : int, default=5
        Neighbours of each sample before symmetrising. At most ``n_samples - 1`` are used.
    weighting : {"binary", "heat", "dot"}, default="binary"
        The weight of an edge. ``"dot"`` is the cosine for rows of unit length.
    bandwidth : float, optional
        t of the heat kernel; the mean neighbour distance where None. Other weightings ignore it.
    method : {"exact", "approximate"}, default="exact"
        See `nearest_neighbors`.
    random_state : int or RandomState, optional
        For the approximate search.

    Returns
    -------
    csr_array of shape (n_samples, n_samples)
        Of X's floating dtype (float64 for integers), with sorted indices and no stored zeros.

    References
    ----------
    Cai, He, Han & Huang (2011), Graph regularized nonnegative matrix factorization, section 3.1.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.graph import neighbor_graph
    >>> neighbor_graph(np.array([[0.0], [1.0], [5.0]]), n_neighbors=1).toarray()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    if weighting not in ("binary", "heat", "dot"):
        raise ValueError(f"weighting must be 'binary', 'heat' or 'dot', got {weighting!r}.")
    if bandwidth is not None and not (np.isfinite(bandwidth) and bandwidth > 0):
        raise ValueError(
            f"bandwidth must be a positive number, got {bandwidth!r}; "
            "None takes the mean neighbour distance."
        )
    X = _check_samples(X)
    n = X.shape[0]
    indices, distances = nearest_neighbors(X, n_neighbors, method=method, random_state=random_state)
    k = indices.shape[1]
    if weighting == "heat":
        t = float(bandwidth) if bandwidth is not None else (distances.mean() if k else 1.0)
        # t = 0: all neighbours are copies, at distance 0, and exp(-0) = 1
        weights = np.exp(-0.5 * np.square(distances / (t if t > 0 else 1.0)))
    elif weighting == "dot":
        weights = np.maximum(_neighbor_dots(X, indices), 0.0)
    else:
        weights = np.ones(indices.shape)
    starts = np.arange(0, n * k + 1, k) if k else np.zeros(n + 1, dtype=np.int64)
    directed = sp.csr_array(
        (weights.ravel().astype(X.dtype, copy=False), indices.ravel(), starts), shape=(n, n)
    )
    W = sp.csr_array(directed.maximum(directed.T))
    W.eliminate_zeros()
    W.sort_indices()
    return W


def nearest_neighbors(
    X: ArrayLike | sp.sparray | sp.spmatrix,
    n_neighbors: int = 5,
    *,
    method: Method = "exact",
    random_state: int | np.random.RandomState | None = None,
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The ``n_neighbors`` other samples with the smallest ‖x_i - x_j‖₂, nearest first.

    A sample is never its own neighbour: it is left out by its index, so copies of a sample are
    found, at distance 0. Equal distances are ordered by index; which of the samples that tie for
    the last place is kept is not specified, but the same in every run.

    Parameters
    ----------
    X : array or scipy sparse array of shape (n_samples, n_features)
        Finite values.
    n_neighbors : int, default=5
        At most ``n_samples - 1`` are used, with a warning where more are asked for.
    method : {"exact", "approximate"}, default="exact"
        ``"exact"`` compares all pairs in blocks, on as many threads as BLAS may use.
        ``"approximate"`` uses pynndescent (``pip install partwise[graph]``) where there are enough
        samples for that to pay; it may miss some neighbours, but the distances of those it returns
        are exact.
    random_state : int or RandomState, optional
        For the approximate search.

    Returns
    -------
    indices : int64 array of shape (n_samples, n_neighbors)
    distances : float64 array of shape (n_samples, n_neighbors)
        Computed in float64 from differences x_i - x_j, whatever X's dtype.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.graph import nearest_neighbors
    >>> nearest_neighbors(np.array([[0.0], [1.0], [5.0]]), 1)[0].ravel()
    array([1, 0, 1])
    """
    if method not in ("exact", "approximate"):
        raise ValueError(f"method must be 'exact' or 'approximate', got {method!r}.")
    if isinstance(n_neighbors, bool) or not isinstance(n_neighbors, (int, np.integer)):
        raise TypeError(f"n_neighbors must be an integer, got {n_neighbors!r}.")
    if n_neighbors < 1:
        raise ValueError(f"n_neighbors must be at least 1, got {n_neighbors}.")
    X = _check_samples(X)
    n = X.shape[0]
    k = int(n_neighbors)
    if k >= n:
        warnings.warn(
            f"n_neighbors={k} is reduced to {n - 1}: there are {n} samples, and a sample is not "
            "its own neighbour.",
            stacklevel=2,
        )
        k = n - 1
    if method == "approximate":
        indices, squares = _approximate(X, k, random_state)
    elif n <= _SMALL:
        indices, squares = _search_rows(X, np.arange(n), k)
    else:
        indices, squares = _search_all(X, k)
    return indices, np.sqrt(squares)


def check_graph(
    graph: ArrayLike | sp.sparray | sp.spmatrix, n_samples: int, *, name: str = "graph"
) -> sp.csr_array:
    """A user's graph as a symmetric, non-negative csr_array with an empty diagonal.

    Parameters
    ----------
    graph : scipy sparse array or dense array of shape (n_samples, n_samples)
        Weights of the edges. The diagonal is dropped: it has no part in the Laplacian.
    n_samples : int
        The number of rows of X.
    name : str, default="graph"
        The name of the argument in error messages.

    Returns
    -------
    csr_array of shape (n_samples, n_samples)
        A new array, float32 where the graph is, else float64.

    Raises
    ------
    ValueError
        If the graph has another shape, or is not finite, non-negative and symmetric (to rounding).
    """
    if graph is None or isinstance(graph, (str, bytes)):
        raise TypeError(
            f"{name} must be a sparse or dense array of shape ({n_samples}, {n_samples}), "
            f"got {graph!r}."
        )
    given: Any = graph if sp.issparse(graph) else np.asarray(graph)
    if given.ndim != 2 or given.shape[0] != given.shape[1]:
        raise ValueError(
            f"{name} must be square, got shape {given.shape}; give the weights between all "
            f"samples, of shape ({n_samples}, {n_samples})."
        )
    if given.shape[0] != n_samples:
        raise ValueError(
            f"{name} must have one row and one column for each of the {n_samples} samples of X, "
            f"got shape {given.shape}; build it from the same samples."
        )
    if given.dtype.kind not in "biuf":
        raise TypeError(f"{name} must hold real numbers, got dtype {given.dtype}.")
    dtype = given.dtype if given.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    W = sp.coo_array(given, copy=True).astype(dtype)
    if not np.isfinite(W.data).all():
        raise ValueError(f"{name} must be finite, got NaN or infinity; remove those edges.")
    if W.data.size and W.data.min() < 0:
        at = int(W.data.argmin())
        raise ValueError(
            f"{name} must be non-negative, got {W.data[at]:g} at ({W.row[at]}, {W.col[at]}); "
            "use similarities as weights, for example graph.maximum(0)."
        )
    off = W.row != W.col
    W = sp.csr_array((W.data[off], (W.row[off], W.col[off])), shape=given.shape)
    W.sum_duplicates()
    W.eliminate_zeros()
    gap = abs(W - W.T)
    # both triangles may come from different summation orders: some hundred roundings are no error
    if gap.nnz and gap.max() > 200 * np.finfo(dtype).eps * W.max():
        gaps = gap.tocoo()
        at = int(gaps.data.argmax())
        i, j = int(gaps.row[at]), int(gaps.col[at])
        raise ValueError(
            f"{name} must be symmetric, got {W[i, j]:g} at ({i}, {j}) but {W[j, i]:g} at "
            f"({j}, {i}); use graph.maximum(graph.T) for a sparse graph, "
            "np.maximum(graph, graph.T) for a dense one."
        )
    W = sp.csr_array(W.maximum(W.T)) if gap.nnz else W
    W.sort_indices()
    return W


def semi_supervised_graph(W: sp.csr_array, labels: Labels | None) -> sp.csr_array:
    """The edges of W that labels leave undecided: those with an unlabelled sample at an end.

    Two labelled samples are joined with ``label_weight`` if they share a class and not at all
    otherwise, whatever W says. Both are known from the labels, and the cliques of the classes are
    never built, so every edge between two labelled samples is taken out here.

    Parameters
    ----------
    W : csr_array of shape (n_samples, n_samples)
        A symmetric graph, left as it is.
    labels : Labels or None
        From `partwise.labels.encode_labels`; with None nothing is removed.

    Returns
    -------
    csr_array of shape (n_samples, n_samples)
    """
    if labels is None:
        return W
    if labels.codes.shape[0] != W.shape[0]:
        raise ValueError(
            f"labels must have one entry for each of the {W.shape[0]} samples of the graph, "
            f"got {labels.codes.shape[0]}."
        )
    edges = W.tocoo()
    keep = ~(labels.mask[edges.row] & labels.mask[edges.col])
    return sp.csr_array(
        (edges.data[keep], (edges.row[keep], edges.col[keep])), shape=W.shape, dtype=W.dtype
    )


# --- the search -------------------------------------------------------------------------------


def _check_samples(X: Any) -> Any:
    """X as a C-ordered float array, or as a canonical csr_array; the caller's X is not changed."""
    X = check_array(X, accept_sparse="csr", dtype=[np.float64, np.float32], input_name="X")
    if not sp.issparse(X):
        return np.ascontiguousarray(X)
    X = sp.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _search_all(X: Any, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Neighbours of all samples and their squared distances, by compiled code on all threads."""
    n = X.shape[0]
    scattered = sp.issparse(X) and X.nnz <= _FILLED * X.shape[0] * X.shape[1]
    candidates, bounds = (_candidates_sparse if scattered else _candidates_dense)(X, k)
    m = candidates.shape[1]
    squares = np.full(candidates.shape, np.inf)
    rows, done = np.arange(n), 0
    # a row is settled once nothing that is left can be closer than the k-th it has
    while rows.size and done < m:
        upto = min(m, max(k + _SPARE, 2 * done))
        _measure(X, rows, candidates, squares, done, upto)
        last = np.partition(squares[rows], k - 1, axis=1)[:, k - 1]
        rows = rows[(last > bounds[rows, upto - 1]) & (last > 0)]
        done = upto
    indices, squares = _nearest(candidates, squares, k)
    if rows.size and m < n - 1:
        indices[rows], squares[rows] = _search_rows(X, rows, k)
    return indices, squares


def _measure(
    X: Any,
    rows: NDArray[np.int64],
    candidates: NDArray[np.int64],
    squares: NDArray[np.float64],
    start: int,
    stop: int,
) -> None:
    """Fill squares[rows, start:stop] with ‖x_i - x_j‖², by compiled code on all threads."""
    sparse = sp.issparse(X)
    kernel = _kernels().exact_sparse if sparse else _kernels().exact_dense
    fixed = tuple(map(_readonly, (X.indptr, X.indices, X.data) if sparse else (X,)))

    def work(a: int, b: int) -> None:
        kernel(*fixed, rows[a:b], candidates, squares, start, stop)

    _in_threads(work, _cuts(rows.size))


def _candidates_dense(X: Any, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """For each row the samples with the smallest lower bounds of ‖x_i - x_j‖², and these bounds.

    With z = x - mean(x) in float32 and u = 2⁻²⁴, |fl(z_i·z_j) - z_i·z_j| <= (p + 2) u ‖z_i‖‖z_j‖
    for every order of summation, and 2‖z_i‖‖z_j‖ <= ‖z_i‖² + ‖z_j‖². So with c = (p + 10) u

        (1 - c)‖z_i‖² + (1 - c)‖z_j‖² - 2 fl(z_i·z_j)  <=  ‖x_i - x_j‖²,

    where the 8u cover the roundings of the norms and of this sum. It costs what the distance does.
    Where clusters are so tight that too many samples are within c of each other, the same is done
    in float64, with u = 2⁻⁵³.
    """
    n, p = X.shape
    mean = X.mean(axis=0, dtype=np.float64)
    largest = max(float(abs(_dense(X[a:b]) - mean).max()) for a, b in _cuts(n))
    # float32 holds 10^±38 only: entries are brought to at most 1 (a power of two rounds nothing)
    scale = 2.0 ** np.ceil(np.log2(largest)) if largest > 0 else 1.0
    fewest, most = k + _SPARE, 4 * (k + _SPARE) + 64
    for dtype, u in ((np.float32, 2.0**-24), (np.float64, 2.0**-53)):
        Z = np.empty((n, p), dtype=dtype)
        norms = np.empty(n)
        for a, b in _cuts(n):
            block = (_dense(X[a:b]) - mean) / scale
            norms[a:b] = _square_norms(block)
            Z[a:b] = block
        c = (p + 10) * u
        tiny = 16 * p * float(np.finfo(dtype).smallest_normal)  # what underflow can take away
        low = ((1 - c) * norms - tiny).astype(dtype)
        m = _candidates_needed(Z, low, c * norms, k)
        if m <= most:
            break
    m = min(max(m, fewest), most, n - 1)

    def products(a: tuple[int, int], b: tuple[int, int], out: NDArray[Any]) -> None:
        np.dot(Z[slice(*a)], Z[slice(*b)].T, out=out)

    candidates, bounds = _blockwise(products, low, m)
    return candidates, bounds.astype(np.float64) * scale**2


def _candidates_needed(
    Z: NDArray[Any], low: NDArray[Any], error: NDArray[np.float64], k: int
) -> int:
    """How many candidates settle nearly every row, from some rows spread over the samples."""
    n = Z.shape[0]
    rows = np.unique(np.linspace(0, n - 1, min(200, 16 + 2**22 // n)).astype(np.int64))
    bounds = low[rows, None] + low - 2 * (Z[rows] @ Z.T)
    bounds[np.arange(rows.size), rows] = np.inf
    # roundings cancel more often than not: the true distance is near the middle of its interval
    last = np.partition(bounds + (error[rows, None] + error), k - 1, axis=1)[:, k - 1]
    needed = np.count_nonzero(bounds <= last[:, None], axis=1)
    return int(np.quantile(needed, 0.99)) + 1


def _candidates_sparse(X: sp.csr_array, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """As `_candidates_dense`, in float64 and without centring, which would fill X."""
    full = X.astype(np.float64)
    longest = int(np.diff(X.indptr).max(initial=0))
    low = (1 - (longest + 10) * 2.0**-53) * _square_norms(full)
    kernels = _kernels()
    rows = tuple(map(_readonly, (full.indptr, full.indices, full.data)))

    def products(a: tuple[int, int], b: tuple[int, int], out: NDArray[Any]) -> None:
        columns = full[slice(*b)].tocsc()
        parts = map(_readonly, (columns.indptr, columns.indices, columns.data))
        kernels.sparse_products(*rows, *parts, a[0], out)

    return _blockwise(products, low, min(k + _SPARE, X.shape[0] - 1))


def _blockwise(
    products: Callable[[tuple[int, int], tuple[int, int], NDArray[Any]], None],
    low: NDArray[Any],
    m: int,
) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Run over all pairs of blocks, each once: (a, b) serves the rows of a and those of b.

    ``products(a, b, out)`` fills out with z_i·z_j. Returns for each sample the m others with the
    smallest low_i + low_j - 2 z_i·z_j and these values, sorted. Values are compared together with
    the index, so the order in which threads take blocks does not show.
    """
    n = low.shape[0]
    kernels = _kernels()
    cuts = _cuts(n)
    best = np.full((n, m), np.inf, dtype=low.dtype)
    who = np.full((n, m), n, dtype=np.int64)
    worst = np.full(n, np.inf, dtype=low.dtype)
    locks = [threading.Lock() for _ in cuts]
    buffers = threading.local()

    def work(s: int, t: int) -> None:
        a, b = cuts[s], cuts[t]
        if not hasattr(buffers, "out"):
            buffers.out = np.empty(_BLOCK * _BLOCK, dtype=low.dtype)
        rows, cols = a[1] - a[0], b[1] - b[0]
        out = buffers.out[: rows * cols].reshape(rows, cols)
        products(a, b, out)
        with locks[s]:
            if s == t:
                kernels.keep_nearest(out, low, a[0], b[0], best, who, worst)
            else:
                with locks[t]:  # always s < t: no two threads wait for each other
                    kernels.keep_nearest(out, low, a[0], b[0], best, who, worst)

    # by diagonals: tasks that run at the same time seldom need the same rows
    blocks = len(cuts)
    _in_threads(work, [(s, s + step) for step in range(blocks) for s in range(blocks - step)])
    return who, best


def _search_rows(
    X: Any, rows: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Neighbours of some samples and their squared distances, in float64 with numpy alone.

    Candidates come from ‖z_i‖² + ‖z_j‖² - 2 z_i·z_j. Where rounding could hide a closer sample
    (vectors far longer than their differences), the row is searched by differences.
    """
    n, p = X.shape
    m = min(k + _SPARE, n - 1)
    mean = 0.0 if sp.issparse(X) else X.mean(axis=0, dtype=np.float64)
    rounding = (p + 10) * 2.0**-53
    indices = np.empty((rows.size, k), dtype=np.int64)
    squares = np.empty((rows.size, k))
    for lo, hi in _cuts(rows.size):
        mine = rows[lo:hi]
        Zi = X[mine].astype(np.float64)
        if not sp.issparse(X):
            Zi -= mean
        low_i = (1 - rounding) * _square_norms(Zi)
        best = np.full((mine.size, m), np.inf)
        who = np.full((mine.size, m), -1, dtype=np.int64)
        for a, b in _cuts(n):
            Zj = X[a:b].astype(np.float64)
            if sp.issparse(X):
                D = -2.0 * (Zi @ Zj.T).toarray()
            else:
                Zj -= mean
                D = Zi @ Zj.T
                D *= -2.0
            D += low_i[:, None]
            D += (1 - rounding) * _square_norms(Zj)
            best, who = _merge(best, who, D, mine, a)
        exact = _square_distances(X, mine, who)
        indices[lo:hi], squares[lo:hi] = _nearest(who, exact, k)
        if m < n - 1:
            last = squares[lo:hi, -1]
            doubt = np.flatnonzero((last * (1 - _SAME) > best.max(axis=1)) & (last > 0))
            if doubt.size:
                found = _search_by_differences(X, mine[doubt], k)
                indices[lo + doubt], squares[lo + doubt] = found
    return indices, squares


def _search_by_differences(
    X: Any, rows: NDArray[np.int64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The slow and safe way: Σ_f (x_if - x_jf)² for each sample j."""
    from scipy.spatial.distance import cdist

    best = np.full((rows.size, k), np.inf)
    who = np.full((rows.size, k), -1, dtype=np.int64)
    left = _dense(X[rows])
    step = max(1, min(_BLOCK, 2**24 // max(1, X.shape[1])))
    for a, b in _cuts(X.shape[0], step):
        best, who = _merge(best, who, cdist(left, _dense(X[a:b]), "sqeuclidean"), rows, a)
    return _nearest(who, best, k)


def _approximate(
    X: Any, k: int, random_state: int | np.random.RandomState | None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """pynndescent's candidates, with exact distances; rows that it leaves short are searched."""
    try:
        from pynndescent import NNDescent
    except ImportError as error:
        raise ImportError(
            "method='approximate' needs pynndescent: pip install partwise[graph], or use "
            "method='exact'."
        ) from error
    n = X.shape[0]
    if n <= _SMALL:
        return _search_rows(X, np.arange(n), k)
    state = check_random_state(random_state)
    data = sp.csr_matrix(X) if sp.issparse(X) else X
    found, _ = NNDescent(data, n_neighbors=min(k + 1, n), random_state=state).neighbor_graph
    indices = np.asarray(found, dtype=np.int64)
    usable = (indices >= 0) & (indices != np.arange(n)[:, None])
    squares = _square_distances(X, np.arange(n), np.where(usable, indices, 0))
    squares[~usable] = np.inf
    indices, squares = _nearest(indices, squares, k)
    short = np.flatnonzero(~np.isfinite(squares[:, -1]))
    if short.size:
        indices[short], squares[short] = _search_rows(X, short, k)
    return indices, squares


# --- small pieces -----------------------------------------------------------------------------


def _cuts(n: int, step: int = _BLOCK) -> list[tuple[int, int]]:
    """[(0, step), (step, 2 step), ..., (., n)]"""
    return [(a, min(a + step, n)) for a in range(0, n, step)]


def _readonly(a: NDArray[Any]) -> NDArray[Any]:
    """A view that cannot be written: compiled code then has one signature for every caller."""
    view = a.view()
    view.flags.writeable = False
    return view


def _merge(
    best: NDArray[np.float64],
    who: NDArray[np.int64],
    D: NDArray[np.float64],
    rows: NDArray[np.int64],
    start: int,
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The smallest values of [best, D], as many as best has; D's columns begin at ``start``."""
    m = best.shape[1]
    inside = np.flatnonzero((rows >= start) & (rows < start + D.shape[1]))
    D[inside, rows[inside] - start] = np.inf  # not its own neighbour
    if D.shape[1] > m:
        columns = np.argpartition(D, m - 1, axis=1)[:, :m]
        D = np.take_along_axis(D, columns, axis=1)
    else:
        columns = np.broadcast_to(np.arange(D.shape[1]), D.shape)
    values = np.hstack([best, D])
    names = np.hstack([who, columns + start])
    # the finite entries of best come first, so a stable sort keeps the earlier index of equals
    order = np.argsort(values, axis=1, kind="stable")[:, :m]
    return np.take_along_axis(values, order, 1), np.take_along_axis(names, order, 1)


def _nearest(
    candidates: NDArray[np.int64], squares: NDArray[np.float64], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k smallest of each row, ordered by distance and then by index."""
    order = np.lexsort((candidates, squares), axis=1)[:, :k]
    return np.take_along_axis(candidates, order, 1), np.take_along_axis(squares, order, 1)


def _square_norms(Z: Any) -> NDArray[np.float64]:
    if sp.issparse(Z):
        return np.asarray(Z.multiply(Z).sum(axis=1), dtype=np.float64).ravel()
    return np.asarray(np.einsum("ij,ij->i", Z, Z))


def _dense(block: Any) -> NDArray[np.float64]:
    return np.asarray(block.toarray() if sp.issparse(block) else block, dtype=np.float64)


def _pair_blocks(X: Any, rows: int, width: int) -> Iterable[tuple[int, int]]:
    """Ranges of rows whose ``width`` neighbours, gathered, stay in the cache."""
    per_row = (X.nnz / max(1, X.shape[0]) if sp.issparse(X) else X.shape[1]) * max(1, width)
    return _cuts(rows, max(1, int(2**18 / max(1.0, per_row))))


def _square_distances(
    X: Any, rows: NDArray[np.int64], candidates: NDArray[np.int64]
) -> NDArray[np.float64]:
    """‖x_i - x_j‖² from differences, for the candidates j of each row i."""
    squares = np.empty(candidates.shape)
    width = candidates.shape[1]
    for a, b in _pair_blocks(X, rows.size, width):
        i, j = np.repeat(rows[a:b], width), candidates[a:b].ravel()
        gap = X[j].astype(np.float64, copy=False) - X[i].astype(np.float64, copy=False)
        squares[a:b] = _square_norms(gap).reshape(b - a, width)
    return squares


def _neighbor_dots(X: Any, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    """x_i·x_j for the neighbours j of each sample i."""
    dots = np.empty(indices.shape)
    width = indices.shape[1]
    for a, b in _pair_blocks(X, indices.shape[0], width):
        left, right = X[np.repeat(np.arange(a, b), width)], X[indices[a:b].ravel()]
        if sp.issparse(X):
            values = np.asarray(left.multiply(right).sum(axis=1)).ravel()
        else:
            values = np.einsum("ij,ij->i", left, right, dtype=np.float64)
        dots[a:b] = values.reshape(b - a, width)
    return dots


def _in_threads(work: Callable[..., None], tasks: list[tuple[int, int]]) -> None:
    """work(*task) for each task, on as many threads as BLAS may use, with BLAS itself on one.

    Threads of our own keep compiled loops and BLAS from waiting for each other's pools.
    """
    from threadpoolctl import threadpool_info, threadpool_limits

    pools = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    threads = min(len(tasks), max(pools, default=os.cpu_count() or 1))
    with threadpool_limits(limits=1, user_api="blas"), ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(lambda task: work(*task), tasks):
            pass


# --- compiled loops: plain functions, compiled on first use ---------------------------------------


@lru_cache(maxsize=1)
def _kernels() -> SimpleNamespace:
    import numba

    exact = numba.njit(nogil=True, cache=True)
    # sums in any order; nan and inf keep their meaning
    loose = numba.njit(nogil=True, cache=True, fastmath={"reassoc", "contract", "nsz"})
    return SimpleNamespace(
        keep_nearest=exact(_keep_nearest),
        sparse_products=exact(_sparse_products),
        exact_dense=loose(_exact_dense),
        exact_sparse=exact(_exact_sparse),
    )


def _keep_nearest(G, low, a0, b0, best, who, worst):  # type: ignore[no-untyped-def]
    """Offer low_i + low_j - 2 G_ij to the lists of i and of j, over one block of pairs (i, j).

    best (n, m) and who are sorted by value, then index; worst is best's last column.
    """
    m = best.shape[1]
    rows, cols = G.shape
    diagonal = a0 == b0
    low_b = low[b0 : b0 + cols]
    worst_b = worst[b0 : b0 + cols]
    for r in range(rows):
        i = a0 + r
        base = low[i]
        for c0 in range(0, cols, 64):
            c1 = min(c0 + 64, cols)
            limit = worst[i]
            hits = 0
            for c in range(c0, c1):  # no branch: this is the loop that all pairs go through
                g = G[r, c]
                d = base + (low_b[c] - (g + g))
                hits += (d <= limit) | (d <= worst_b[c])
            if hits == 0:
                continue
            for c in range(c0, c1):
                j = b0 + c
                if diagonal and j <= i:
                    continue
                g = G[r, c]
                d = base + (low_b[c] - (g + g))
                for side in range(2):
                    own, other = (i, j) if side == 0 else (j, i)
                    if d > worst[own] or (d == worst[own] and other > who[own, m - 1]):
                        continue
                    t = m - 1
                    while t > 0 and (
                        best[own, t - 1] > d or (best[own, t - 1] == d and who[own, t - 1] > other)
                    ):
                        best[own, t] = best[own, t - 1]
                        who[own, t] = who[own, t - 1]
                        t -= 1
                    best[own, t] = d
                    who[own, t] = other
                    worst[own] = best[own, m - 1]


def _sparse_products(indptr, indices, data, tptr, rows, tdata, a0, out):  # type: ignore[no-untyped-def]
    """out_rc = x_(a0+r) · y_c, X by rows (csr) and Y by columns (csc)."""
    for r in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[r, c] = 0.0
        for q in range(indptr[a0 + r], indptr[a0 + r + 1]):
            f = indices[q]
            v = data[q]
            for s in range(tptr[f], tptr[f + 1]):
                out[r, rows[s]] += v * tdata[s]


def _exact_dense(X, rows, candidates, squares, start, stop):  # type: ignore[no-untyped-def]
    """squares_it = ‖x_i - x_j‖² for j = candidates_it, i in rows, start <= t < stop."""
    for i in rows:
        for t in range(start, stop):
            j = candidates[i, t]
            total = 0.0
            for f in range(X.shape[1]):
                gap = np.float64(X[i, f]) - np.float64(X[j, f])
                total += gap * gap
            squares[i, t] = total


def _exact_sparse(indptr, indices, data, rows, candidates, squares, start, stop):  # type: ignore[no-untyped-def]
    """As `_exact_dense`, over the sorted union of two sparse rows."""
    for i in rows:
        for t in range(start, stop):
            j = candidates[i, t]
            q, q1 = indptr[i], indptr[i + 1]
            s, s1 = indptr[j], indptr[j + 1]
            total = 0.0
            while q < q1 or s < s1:
                gap = 0.0
                if s >= s1 or (q < q1 and indices[q] < indices[s]):
                    gap = np.float64(data[q])
                    q += 1
                elif q >= q1 or indices[s] < indices[q]:
                    gap = np.float64(data[s])
                    s += 1
                else:
                    gap = np.float64(data[q]) - np.float64(data[s])
                    q += 1
                    s += 1
                total += gap * gap
            squares[i, t] = total
