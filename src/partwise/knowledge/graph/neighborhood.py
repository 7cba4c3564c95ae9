"""What a fit on a neighbour graph leaves behind for samples that come later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from partwise.backends import as_data
from partwise.backends.data_matrix import Swept
from partwise.knowledge.graph import _check_samples, _rows, _sketch, joined, weighted_edges


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """The training samples, their graph, and how its edges were weighed.

    Attributes
    ----------
    graph : csr_array of shape (n_samples, n_samples)
        W of the fit, without labels.
    samples : array or csr_array with a row for each training sample, or None
        What neighbours are searched in: a copy of X, sparse where X is; the memmap itself where X
        is one, read again when it is searched; the projections of X where X lies on a cluster.
        None where the user brought the graph: then there is nothing to search in.
    bandwidth : float
        t of heat weights; 1 for the others.
    directions : ndarray of shape (n_features, 128) or None
        What new samples are projected on, where ``samples`` are projections.
    """

    graph: sp.csr_array
    samples: Any = None
    bandwidth: float = 1.0
    directions: NDArray[Any] | None = None

    def edges(self, X: Any, n_neighbors: int, weighting: str) -> sp.csr_array:
        """Weights between new samples and training samples, (n_new, n_samples).

        A new sample is joined to its ``n_neighbors`` nearest training samples. One that equals a
        training sample is that sample, and has its neighbours.
        """
        if self.directions is not None:
            X = _sketch.project(as_data(X), self.directions)
        stored = self.samples
        if sp.issparse(stored) != sp.issparse(X):
            X = sp.csr_array(X) if sp.issparse(stored) else X.toarray()
        rows, k = np.arange(X.shape[0]), min(n_neighbors, stored.shape[0])
        indices, squares = _rows.search_rows(stored, rows, k, new=X)
        found = weighted_edges(stored, indices, np.sqrt(squares), weighting, self.bandwidth, new=X)
        same = squares[:, 0] == 0
        if same.any():
            free = sp.diags_array((~same).astype(found.dtype))
            at = (np.ones(same.sum(), found.dtype), (rows[same], indices[same, 0]))
            who = sp.csr_array(at, shape=found.shape)
            found = sp.csr_array(free @ found + who @ self.graph)
        found.eliminate_zeros()
        return found


def learn_neighborhood(
    X: Any, n_neighbors: int, weighting: str, bandwidth: float | None, method: Any, seed: int
) -> Neighborhood:
    """The neighbour graph of X, as `neighbor_graph` makes it, with what later samples need."""
    if isinstance(X, Swept):  # on a cluster
        Q = _sketch.directions(X, seed)
        samples = _sketch.project(X, Q)
        few = len(samples) <= _sketch.COMPARE_ALL
        method = "exact" if few else "approximate"
        W, t = joined(samples, n_neighbors, weighting, bandwidth, method, seed)
        return Neighborhood(W.astype(X.dtype), samples, t, Q)
    samples, method, dtype = _check_samples(X, method, seed)
    W, t = joined(samples, n_neighbors, weighting, bandwidth, method, seed)
    if not isinstance(samples, np.memmap) and _shares(samples, X):
        samples = samples.copy()  # the caller may change X
    return Neighborhood(W.astype(dtype, copy=False), samples, t)


def _shares(samples: Any, X: Any) -> bool:
    if sp.issparse(samples):
        return sp.issparse(X) and np.shares_memory(samples.data, X.data)
    return isinstance(X, np.ndarray) and np.shares_memory(samples, X)
