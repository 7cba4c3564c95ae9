"""Neighbours of samples with missing values or weights of entries.

Two samples are compared on the features that both have. Each other feature adds the mean squared
difference of two random samples, so that two samples with few common features are rarely
neighbours::

    d_ij² = Σ_f m_if m_jf (x_if - x_jf)² + Σ_f (1 - m_if m_jf) 2 var_f

Here m is 0 for a missing entry and 1 for an observed one. With weights of entries, m is the weight
divided by the largest weight of the row. The sum over shared features is one product of [m x² - m
var, m, -2 m x] and [m, m x² - m var, m x], where x is measured from the mean of its feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from partwise.backends.arrays import to_numpy
from partwise.knowledge.graph._rows import BLOCK, cuts, merge, nearest, pair_blocks

ENTRIES = 2**24  # entries of a block of samples, in float64


@dataclass(frozen=True, eq=False)
class IncompleteSamples:
    """Samples and the weights of their entries.

    Attributes
    ----------
    values : ndarray or csr_array of shape (n_samples, n_features)
        The values m x, which are zero for missing entries.
    entries : ndarray or csr_array of the same shape
        The weights m if ``observed`` is True, otherwise 1 - m.
    observed : bool
    """

    values: Any
    entries: Any
    observed: bool

    @classmethod
    def of(cls, data: Any) -> IncompleteSamples:
        """Return the samples of a `MaskedData` that is in memory."""
        lack = data.lack
        values, entries = (to_numpy(part.whole()) for part in (data.base, lack.entries))
        if lack.d is None:
            return cls(values, entries.astype(bool), lack.seen)
        top = to_numpy(lack.d)[:, None]
        values, entries = (
            sp.csr_array(a.multiply(1 / top)) if sp.issparse(a) else a / top
            for a in (values, entries)
        )
        return cls(values, entries, lack.seen)

    @property
    def shape(self) -> tuple[int, int]:
        return self.values.shape  # type: ignore[no-any-return]

    @property
    def dtype(self) -> Any:
        return self.values.dtype

    def rows(self, at: Any) -> tuple[Any, Any]:
        """Return m x and m of some samples in float64, sparse if both are sparse."""
        F, M = self.values[at].astype(np.float64), self.entries[at].astype(np.float64)
        if self.observed and sp.issparse(F) and sp.issparse(M):
            return F, M
        F, M = (a.toarray() if sp.issparse(a) else a for a in (F, M))
        return F, M if self.observed else 1 - M

    def step(self) -> int:
        """Return the number of samples in a block."""
        return max(1, min(BLOCK, ENTRIES // max(1, self.shape[1])))


def search(
    X: IncompleteSamples, k: int, new: IncompleteSamples | None = None
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the k nearest samples in X, and squared distances, for X or ``new``."""
    mean, twice = _moments(X)
    whole = float(twice.sum())
    # Order equal distances by index, although the products have rounding errors.
    unit = max(whole, np.finfo(np.float64).tiny) * 2.0**-40
    left = X if new is None else new
    n = left.shape[0]
    indices, squares = np.empty((n, k), dtype=np.int64), np.empty((n, k))
    for lo, hi in cuts(n, left.step()):
        mine = np.arange(lo, hi)
        A = _factors(*left.rows(mine), mean, twice)[0]
        best, who = np.full((hi - lo, k), np.inf), np.full((hi - lo, k), -1, dtype=np.int64)
        for a, b in cuts(X.shape[0], X.step()):
            D = A @ _factors(*X.rows(slice(a, b)), mean, twice)[1].T
            D = np.asarray(D.toarray() if sp.issparse(D) else D) + whole
            D = np.rint(np.maximum(D, 0) / unit) * unit
            best, who = merge(best, who, D, mine if new is None else None, a)
        indices[lo:hi], squares[lo:hi] = nearest(who, best, k)
    return indices, squares


def overlaps(
    X: IncompleteSamples, indices: NDArray[np.int64], new: IncompleteSamples | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return Σ m_if m_jf and Σ m_if m_jf x_if x_jf for the neighbours j of each sample i."""
    left, width = X if new is None else new, indices.shape[1]
    shared, dots = np.empty(indices.shape), np.empty(indices.shape)
    for a, b in pair_blocks(X.values, len(indices), width):
        here, there = left.rows(np.repeat(np.arange(a, b), width)), X.rows(indices[a:b].ravel())
        dots[a:b], shared[a:b] = (
            _times(one, other).sum(axis=1).reshape(b - a, width)
            for one, other in zip(here, there, strict=True)
        )
    return shared, dots


def same_rows(
    X: IncompleteSamples, at: NDArray[np.int64], new: IncompleteSamples
) -> NDArray[np.bool_]:
    """Return which new samples equal their match in X, also in missing entries."""
    apart = [
        abs(one - other).sum(axis=1)
        for one, other in zip(new.rows(np.arange(len(at))), X.rows(at), strict=True)
    ]
    return np.asarray(apart[0] + apart[1] == 0).ravel()


def _moments(X: IncompleteSamples) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the weighted mean of each feature, and twice its variance."""
    weight, first, second = np.zeros((3, X.shape[1]))
    for turn in range(2):
        mean = np.divide(first, weight, out=np.zeros_like(first), where=weight > 0)
        for a, b in cuts(X.shape[0], X.step()):
            F, M = X.rows(slice(a, b))
            if turn == 0:
                weight += np.asarray(M.sum(axis=0)).ravel()
                first += np.asarray(F.sum(axis=0)).ravel()
            else:
                second += np.asarray(_squares(F - _times(M, mean), M).sum(axis=0)).ravel()
    return mean, 2 * np.divide(second, weight, out=np.zeros_like(second), where=weight > 0)


def _factors(F: Any, M: Any, mean: NDArray[Any], twice: NDArray[Any]) -> tuple[Any, Any]:
    """Return [P, M, -2F] and [M, P, F] with F from the mean and P = m x² - m var."""
    F = F - _times(M, mean)
    P = _squares(F, M) - _times(M, twice / 2)
    stack: Any = sp.hstack if sp.issparse(F) else np.hstack
    return stack([P, M, -2 * F]), stack([M, P, F])


def _squares(F: Any, M: Any) -> Any:
    """Return F² / M, and zero where M is zero."""
    if not sp.issparse(F):
        return np.divide(F * F, M, out=np.zeros_like(F), where=M > 0)
    inverse = M.copy()
    inverse.data = 1 / inverse.data
    return F.multiply(F).multiply(inverse)


def _times(A: Any, B: Any) -> Any:
    return sp.csr_array(A.multiply(B)) if sp.issparse(A) else A * B
