"""Graphs of spatial neighbours, and their combination with other graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from partwise.knowledge.graph import check_graph


def spatial_graph(
    places: ArrayLike,
    n_neighbors: Any = 6,
    *,
    radius: float | None = None,
    weighting: str = "binary",
    bandwidth: float | None = None,
    samples: Any = None,
) -> sp.csr_array:
    """Return the symmetric graph of spatial neighbours, by a k-d tree.

    ::

        W = max(N, Nᵀ),   N_ij = 1                      "binary"
                                 exp(-d_ij² / (2 t²))   "heat", t the bandwidth

    N_ij is defined for the ``n_neighbors`` places j closest to i, or for all places within
    ``radius``.

    Parameters
    ----------
    places : array-like of shape (n_samples, 2 or 3)
        Coordinates, for example ``obsm["spatial"]``, columns x and y of a table, or `pixel_places`
        of an image.
    n_neighbors : int or None, default=6
        Number of neighbours of each sample, before the graph is made symmetric. None if ``radius``
        is used.
    radius : float, default=None
        Largest distance of neighbours.
    weighting : {"binary", "heat"}, default="binary"
    bandwidth : float, default=None
        Bandwidth t of the heat kernel. None: the mean distance of neighbours.
    samples : array-like of shape (n_samples,), default=None
        The slide or section of each sample. Places on different slides are not neighbours,
        whatever their coordinates.

    Returns
    -------
    csr_array of shape (n_samples, n_samples)

    Examples
    --------
    >>> from partwise.graph import spatial_graph
    >>> spatial_graph([[0, 0], [1, 0], [5, 0]], 1).toarray()
    array([[0., 1., 0.],
           [1., 0., 1.],
           [0., 1., 0.]])
    """
    _check_search(n_neighbors, radius, weighting)
    at = check_places(places)
    n = len(at)
    groups = [np.arange(n)]
    if samples is not None:
        codes = np.unique(np.asarray(samples).astype(str), return_inverse=True)[1]
        if codes.shape != (n,):
            raise ValueError(f"samples must have one entry for each of the {n} places.")
        groups = [np.flatnonzero(codes == code) for code in range(codes.max() + 1)]
    pieces = [_edges(at[own], own, n_neighbors, radius) for own in groups]
    rows, columns, distance = (np.concatenate(part) for part in zip(*pieces, strict=True))
    weights = np.ones(len(rows))
    if weighting == "heat" and len(rows):
        t = float(distance.mean()) if bandwidth is None else float(bandwidth)
        weights = np.exp(-0.5 * (distance / (t if t > 0 else 1.0)) ** 2)
    N = sp.csr_array((weights, (rows, columns)), shape=(n, n))
    W = sp.csr_array(N.maximum(N.T))
    W.eliminate_zeros()
    W.sort_indices()
    return W


def _check_search(n_neighbors: Any, radius: float | None, weighting: str) -> None:
    """Raise an error for settings of `spatial_graph` that define no neighbours."""
    if weighting not in ("binary", "heat"):
        raise ValueError(f"weighting must be 'binary' or 'heat', got {weighting!r}.")
    if n_neighbors is None and radius is None:
        raise ValueError("spatial_graph needs n_neighbors, radius, or both.")
    if n_neighbors is not None and (
        not isinstance(n_neighbors, (int, np.integer)) or n_neighbors < 1
    ):
        raise ValueError(f"n_neighbors must be an integer of at least 1; got {n_neighbors!r}.")
    if radius is not None and not (np.isfinite(radius) and radius > 0):
        raise ValueError(f"radius must be above 0; got {radius!r}.")


def _edges(
    at: NDArray[np.float64], own: NDArray[np.int64], n_neighbors: Any, radius: float | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Return directed edges between the places of one sample, and their lengths."""
    from scipy.spatial import cKDTree

    tree = cKDTree(at)
    if n_neighbors is None:
        found = tree.sparse_distance_matrix(tree, radius, output_type="coo_matrix")
        off = found.row != found.col
        return own[found.row[off]], own[found.col[off]], found.data[off]
    k = min(int(n_neighbors) + 1, len(at))
    distance, index = tree.query(at, k, distance_upper_bound=np.inf if radius is None else radius)
    distance, index = distance.reshape(len(at), -1), index.reshape(len(at), -1)
    row = np.repeat(np.arange(len(at)), index.shape[1]).reshape(index.shape)
    # A place is not its own neighbour. If several places are equal, one of the others may be left
    # out instead.
    itself = index == row
    itself[~itself.any(axis=1), -1] = True
    keep = ~itself & np.isfinite(distance)
    return own[row[keep]], own[index[keep]], distance[keep]


def check_places(
    places: ArrayLike, names: Any = None, source: str = "places"
) -> NDArray[np.float64]:
    """Return coordinates as numbers; raise an error if the row of one is incomplete."""
    at = np.asarray(places, dtype=np.float64)
    if at.ndim != 2 or at.shape[1] not in (2, 3) or not len(at):
        raise ValueError(f"{source} must be x and y (and z) of each sample, got shape {at.shape}.")
    gone = np.flatnonzero(~np.isfinite(at).all(axis=1))
    if gone.size:
        first = f"row {gone[0]}" if names is None else f"{names[gone[0]]!r} (row {gone[0]})"
        raise ValueError(
            f"{source}: {gone.size} of {len(at)} samples have no coordinates, the first is "
            f"{first}; leave them out, or add their coordinates."
        )
    return at


def pixel_places(shape: tuple[int, int]) -> NDArray[np.float64]:
    """Return x and y of each pixel of an image (height, width), stored row by row.

    Parameters
    ----------
    shape : (int, int)
        Height and width.

    Returns
    -------
    ndarray of shape (height width, 2)

    Examples
    --------
    >>> from partwise.graph import pixel_places
    >>> pixel_places((2, 2)).tolist()
    [[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]
    """
    height, width = (int(side) for side in shape)
    y, x = np.divmod(np.arange(height * width), width)
    return np.stack([x, y], axis=1).astype(np.float64)


def join_graphs(a: Any, b: Any, share: float = 0.5) -> sp.csr_array:
    """Return (1 - share) a + share b, after scaling both to the same mean degree.

    Use it to combine a graph of spatial neighbours with a graph of similar expression. Without
    the scaling, the graph with more edges would dominate.

    Parameters
    ----------
    a, b : sparse or dense arrays of shape (n_samples, n_samples)
        Symmetric graphs of the same samples.
    share : float, default=0.5
        Weight of b, from 0 to 1.

    Returns
    -------
    csr_array of shape (n_samples, n_samples)

    Examples
    --------
    >>> from partwise.graph import join_graphs
    >>> join_graphs([[0, 1], [1, 0]], [[0, 3], [3, 0]]).toarray()
    array([[0., 2.],
           [2., 0.]])
    """
    if not 0 <= share <= 1:
        raise ValueError(f"share must be from 0 to 1; got {share!r}.")
    graphs = [check_graph(a, np.shape(a)[0], name="a"), check_graph(b, np.shape(a)[0], name="b")]
    degrees = [W.sum() / W.shape[0] for W in graphs]
    if not all(degrees):
        raise ValueError("a and b must both have edges.")
    mean = sum(degrees) / 2
    W = graphs[0] * ((1 - share) * mean / degrees[0]) + graphs[1] * (share * mean / degrees[1])
    W = sp.csr_array(W)
    W.eliminate_zeros()
    return W


def morans_i(values: ArrayLike, graph: Any) -> NDArray[np.float64]:
    r"""Return Moran's I of each column, which measures spatial autocorrelation.

    It is close to 1 if neighbours have similar values, and about 0 if values do not depend on the
    place.

    .. math:: I = \frac{n}{\sum_{ij} w_{ij}}
              \frac{\sum_{ij} w_{ij} (v_i - \bar v)(v_j - \bar v)}{\sum_i (v_i - \bar v)^2}

    Parameters
    ----------
    values : array-like of shape (n_samples,) or (n_samples, k)
        Values per sample, for example part weights.
    graph : sparse or dense array of shape (n_samples, n_samples)
        Graph of spatial neighbours, for example from `spatial_graph`.

    Returns
    -------
    ndarray of shape (k,)
        NaN for a constant column.

    Examples
    --------
    >>> from partwise.graph import morans_i, pixel_places, spatial_graph
    >>> at = pixel_places((8, 8))
    >>> halves_and_stripes = [[float(x < 4), float(x % 2)] for x, _ in at]
    >>> morans_i(halves_and_stripes, spatial_graph(at, 4)).round(1).tolist()
    [0.9, -0.2]
    """
    V = np.asarray(values, dtype=np.float64)
    V = V[:, None] if V.ndim == 1 else V
    W = check_graph(graph, len(V))
    centred = V - V.mean(axis=0)
    squares = (centred**2).sum(axis=0)
    product = (centred * (W @ centred)).sum(axis=0) * (len(V) / max(float(W.sum()), 1e-300))
    varies = squares > 1e-24 * (V**2).sum(axis=0)
    index: NDArray[np.float64] = np.full(V.shape[1], np.nan)
    np.divide(product, squares, out=index, where=varies)
    return index
