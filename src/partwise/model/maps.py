"""Linear maps of the model that are applied without building their matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from partwise.backends.arrays import Array


@dataclass
class Smoothing:
    """Smoothing by S = (1-δ) I + δ/k 11ᵀ: entries of a row move to its mean."""

    delta: float = 0.0

    def __call__(self, Z: Array) -> Array:
        if self.delta == 0:
            return Z
        return (1 - self.delta) * Z + self.delta * Z.mean(axis=1, keepdims=True)


class SharedRows:
    """Map V = A Z in which the labelled samples of a class share a row of Z.

    Each row of A (n_samples, n_rows) has a single 1, in column ``index``. So A Z selects rows, AᵀV
    sums the rows of each class, and AᵀA = diag(``counts``). The rows of Z are first the classes,
    then the unlabelled samples, both in their order. If no class has two labelled samples, A would
    only permute the samples. The identity then replaces A, and the methods return their argument.

    Parameters
    ----------
    codes : int ndarray of shape (n_samples,)
        Class of each sample, or -1 if it is unknown.
    n_samples : int
        Number of rows of V.

    Attributes
    ----------
    index : int64 ndarray of shape (n_samples,)
        The row of Z of each sample.
    n_rows : int
        The number of rows of Z.
    counts : float64 ndarray of shape (n_rows,)
        The number of samples that share each row.
    is_identity : bool
        True if no two samples share a row.

    References
    ----------
    Liu & Wu (2010), Constrained nonnegative matrix factorization, (3) and (4).

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.model.maps import SharedRows
    >>> rows = SharedRows(np.array([1, -1, 1, 0]), 4)
    >>> rows.index
    array([1, 2, 1, 0])
    >>> rows.reduce(np.array([[1.0], [10.0], [100.0], [1000.0]])).ravel()
    array([1000.,  101.,   10.])
    """

    def __init__(self, codes: NDArray[np.int64], n_samples: int) -> None:
        if codes.shape != (n_samples,):
            raise ValueError(
                f"labels must have one entry for each of the {n_samples} samples, "
                f"got {codes.shape[0]}."
            )
        present, members = np.unique(codes[codes >= 0], return_counts=True)
        self.n_samples = n_samples
        self.is_identity = bool((members < 2).all())
        if self.is_identity:
            self.n_rows = n_samples
            self.index = np.arange(n_samples, dtype=np.int64)
            self.counts = np.ones(n_samples)
            return
        shared = present.size
        free = np.flatnonzero(codes < 0)
        labelled = np.flatnonzero(codes >= 0)
        self.n_rows = shared + free.size
        self.index = np.empty(n_samples, dtype=np.int64)
        self.index[labelled] = np.searchsorted(present, codes[labelled])
        self.index[free] = np.arange(shared, self.n_rows)
        self.counts = np.ones(self.n_rows)
        self.counts[:shared] = members
        # Sort labelled samples by class, and find the first sample of each class.
        self._shared = shared
        self._free = free
        self._order = labelled[np.argsort(self.index[labelled], kind="stable")]
        ends = np.cumsum(members)
        self._starts = ends - members
        # Store the rows of Aᵀ for the classes as a sparse matrix, whose product is several times
        # faster than np.add.reduceat.
        self._members = sp.csr_array(
            (np.ones(labelled.size, dtype=np.int8), self._order, np.append(0, ends)),
            shape=(shared, n_samples),
        )

    def expand(self, Z: NDArray[Any]) -> NDArray[Any]:
        """Return V = A Z, the row of Z for each sample, or Z itself if A is the identity."""
        if self.is_identity:
            return Z
        V: NDArray[Any] = np.take(Z, self.index, axis=0)
        return V

    def reduce(self, V: NDArray[Any]) -> NDArray[Any]:
        """Return AᵀV, which sums V over samples that share a row; V for the identity."""
        return V if self.is_identity else self._stack(self._members @ V, V)

    def mean(self, V: NDArray[Any]) -> NDArray[Any]:
        """Return the mean of V over samples that share a row: A Z is closest to V.

        If the rows of V are equal within a class, the result is exactly this row. If A is the
        identity, the result is V.
        """
        if self.is_identity:
            return V
        counts = self.counts.astype(V.dtype).reshape((-1,) + (1,) * (V.ndim - 1))
        average = self.reduce(V) / counts
        # Rounding must not change the mean of equal rows, or turn zeros into other values.
        least, most = (
            self._stack(limit.reduceat(V[self._order], self._starts, axis=0), V)
            for limit in (np.minimum, np.maximum)
        )
        Z: NDArray[Any] = average.clip(least, most)
        return Z

    def _stack(self, of_classes: NDArray[Any], V: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of the classes, then those of unlabelled samples from V."""
        Z = np.empty((self.n_rows, *V.shape[1:]), dtype=V.dtype)
        Z[: self._shared] = of_classes
        # mode "clip" needs no buffer
        np.take(V, self._free, axis=0, out=Z[self._shared :], mode="clip")
        return Z


class MixedRows:
    """Map V = A Z in which rows of A are class probabilities.

    The rows of A (n_samples, n_rows) sum to one. A sample with known class probabilities mixes the
    rows of Z for the classes by these probabilities; each other sample has its own row of Z. So AᵀA
    is not diagonal. Since AᵀΓA ≼ diag(Aᵀγ), steps that update rows one by one still decrease the
    objective.

    Parameters
    ----------
    shares : ndarray of shape (n_samples, n_classes)
        Class probabilities; zeros for samples without any.

    Attributes
    ----------
    A : csr_array of shape (n_samples, n_rows)
        The map. Its columns are the classes, then the samples without probabilities.
    counts : float64 ndarray of shape (n_rows,)
        Aᵀ 1.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.model.maps import MixedRows
    >>> rows = MixedRows(np.array([[0.5, 0.5], [0.0, 0.0], [1.0, 0.0]]))
    >>> rows.expand(np.array([[1.0], [3.0], [7.0]])).ravel()
    array([2., 7., 1.])
    """

    is_identity = False

    def __init__(self, shares: NDArray[np.float64]) -> None:
        self.n_samples, n_classes = shares.shape
        free = np.flatnonzero(~shares.any(axis=1))
        own = sp.csr_array(
            (np.ones(free.size), (free, np.arange(free.size))), shape=(len(shares), free.size)
        )
        self.A = sp.csr_array(sp.hstack([sp.csr_array(shares), own]))
        self.n_rows = n_classes + free.size
        self.counts = np.asarray(self.A.sum(axis=0)).ravel()

    def expand(self, Z: NDArray[Any]) -> NDArray[Any]:
        """Return V = A Z."""
        return np.asarray(self.A @ Z, dtype=Z.dtype)

    def reduce(self, V: NDArray[Any]) -> NDArray[Any]:
        """Return Aᵀ V."""
        return np.asarray(self.A.T @ V, dtype=V.dtype)

    def mean(self, V: NDArray[Any]) -> NDArray[Any]:
        """Return the mean of V, weighted by shares in each row, to start Z."""
        counts = np.maximum(self.counts, np.finfo(np.float64).tiny)
        return np.asarray((self.A.T @ V) / counts[:, None], dtype=V.dtype)

    def gram(self, weights: NDArray[Any] | None = None) -> sp.csr_array:
        """Return Aᵀ Γ A."""
        heavy = self.A if weights is None else sp.diags_array(np.asarray(weights)) @ self.A
        return sp.csr_array(self.A.T @ heavy)
