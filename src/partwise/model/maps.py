"""The linear maps of the model that are never built as matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from partwise.backends.arrays import Array


class Smoothing:
    """S = (1-δ) I + δ/k 11ᵀ, applied from the right: Z S mixes each row with its mean."""

    def __init__(self, delta: float = 0.0) -> None:
        self.delta = delta

    def __call__(self, Z: Array) -> Array:
        if self.delta == 0:
            return Z
        return (1 - self.delta) * Z + self.delta * Z.mean(axis=1, keepdims=True)


class SharedRows:
    """V = A Z without A: labelled samples of one class share a row of Z, others have their own.

    A (n_samples, n_rows) has a single 1 in each row, at ``index``; so A Z is an index, Aᵀ V sums
    the rows of each class, and Aᵀ A = diag(``counts``). Rows of Z: the classes, in order, then the
    unlabelled samples, in order. If no class has two labelled samples, A would be a permutation;
    it is then the identity, with Z in the order of the samples, and the methods return what they
    are given.

    Parameters
    ----------
    codes : int ndarray of shape (n_samples,)
        The class of each sample, or -1 if unknown.
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
        # labelled samples class by class, and where each class begins
        self._shared = shared
        self._free = free
        self._order = labelled[np.argsort(self.index[labelled], kind="stable")]
        ends = np.cumsum(members)
        self._starts = ends - members
        # the rows of Aᵀ for the classes: a sparse product sums several times faster than reduceat
        self._members = sp.csr_array(
            (np.ones(labelled.size, dtype=np.int8), self._order, np.append(0, ends)),
            shape=(shared, n_samples),
        )

    def expand(self, Z: NDArray[Any]) -> NDArray[Any]:
        """Return V = A Z: each sample's row of Z, or Z itself if A is the identity."""
        if self.is_identity:
            return Z
        V: NDArray[Any] = np.take(Z, self.index, axis=0)
        return V

    def reduce(self, V: NDArray[Any]) -> NDArray[Any]:
        """Return Aᵀ V, the sum over the samples of each row of Z, or V if A is the identity."""
        return V if self.is_identity else self._stack(self._members @ V, V)

    def mean(self, V: NDArray[Any]) -> NDArray[Any]:
        """Return the Z with A Z closest to V: the average of V over the samples of each row.

        Rows of V that are equal within a class give exactly that row. V itself where A is the
        identity.
        """
        if self.is_identity:
            return V
        counts = self.counts.astype(V.dtype).reshape((-1,) + (1,) * (V.ndim - 1))
        average = self.reduce(V) / counts
        # rounding must not leave the range: equal rows stay equal, and zeros stay zeros
        least, most = (
            self._stack(limit.reduceat(V[self._order], self._starts, axis=0), V)
            for limit in (np.minimum, np.maximum)
        )
        Z: NDArray[Any] = average.clip(least, most)
        return Z

    def _stack(self, of_classes: NDArray[Any], V: NDArray[Any]) -> NDArray[Any]:
        """Return the rows of the classes, then V's rows of the unlabelled samples."""
        Z = np.empty((self.n_rows, *V.shape[1:]), dtype=V.dtype)
        Z[: self._shared] = of_classes
        np.take(V, self._free, axis=0, out=Z[self._shared :], mode="clip")  # clip: no buffer
        return Z


class MixedRows:
    """V = A Z where samples mix the rows of their classes by probability, others have their own.

    A (n_samples, n_rows) has rows that add up to one: the probabilities of the classes where they
    are known, else a single 1. So Aᵀ A is not diagonal among the classes; since rows of A add up
    to one, Aᵀ Γ A ≼ diag(Aᵀ γ), by which steps that take rows one by one descend all the same.

    Parameters
    ----------
    shares : ndarray of shape (n_samples, n_classes)
        Probabilities; zeros where nothing is known.

    Attributes
    ----------
    A : csr_array of shape (n_samples, n_rows)
        Rows of Z: the classes, then the samples of which nothing is known.
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
        """Return a start for Z: the mean of V over samples, weighted by their share in a row."""
        counts = np.maximum(self.counts, np.finfo(np.float64).tiny)
        return np.asarray((self.A.T @ V) / counts[:, None], dtype=V.dtype)

    def gram(self, weights: NDArray[Any] | None = None) -> sp.csr_array:
        """Return Aᵀ Γ A."""
        heavy = self.A if weights is None else sp.diags_array(np.asarray(weights)) @ self.A
        return sp.csr_array(self.A.T @ heavy)
