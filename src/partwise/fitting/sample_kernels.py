"""Kernels (inner products of samples) for concept factorization, CF and LCF."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import scipy.sparse as sp

from partwise.backends import as_data
from partwise.backends.arrays import AnyArray
from partwise.fitting.description import warn
from partwise.model.concept_model import DenseGram, Gram, LinearGram

KERNELS = {"linear", "rbf", "poly", "cosine", "precomputed"}
#: Size of a kernel matrix in bytes above which a warning announces it.
ANNOUNCE_BYTES = 500_000_000


@dataclass(frozen=True)
class Kernel:
    """Kernel function k(x, y), given as a name in `KERNELS` or as a Python function."""

    kind: str | Callable[..., Any]
    gamma: float | None = None

    def matrix(self, X: Any, Y: Any) -> AnyArray:
        """Return the matrix of k(x, y) for all pairs of rows of X and Y."""
        from sklearn.metrics.pairwise import pairwise_kernels

        need = X.shape[0] * Y.shape[0] * X.dtype.itemsize
        if need > ANNOUNCE_BYTES:
            warn(
                f"kernel={self.kind!r} needs {need / 1e9:.1f} GB for a "
                f"{X.shape[0]} x {Y.shape[0]} matrix; a linear kernel needs none.",
                ResourceWarning,
            )
        gamma = {"gamma": self.gamma} if self.kind in ("rbf", "poly") else {}
        K = pairwise_kernels(X, Y, metric=self.kind, **gamma)
        return np.asarray(K, dtype=X.dtype)

    def diagonal(self, X: Any) -> AnyArray:
        """Return k(x, x) for each row x of X."""
        rows = [self.matrix(X[i : i + 1], X[i : i + 1])[0, 0] for i in range(X.shape[0])]
        return np.asarray(rows, dtype=X.dtype)

    def gram(self, X: Any) -> Gram:
        """Return the kernel matrix K of the training samples, as an operator.

        For a linear kernel, products with K use X, and the matrix is never stored.
        """
        if self.kind == "precomputed":
            if sp.issparse(X):
                X = X.toarray()
            if X.shape[0] != X.shape[1]:
                raise ValueError(
                    f"kernel='precomputed' needs a square kernel matrix, got shape {X.shape}."
                )
            return DenseGram(_checked(X, "the precomputed kernel"))
        if self.kind != "linear":
            return DenseGram(_checked(self.matrix(X, X), f"kernel={self.kind!r}"))
        low = X.data.min(initial=0) if sp.issparse(X) else X.min(initial=0)
        if low >= 0:
            return LinearGram(as_data(X), None, None)
        positive = X.maximum(0) if sp.issparse(X) else np.maximum(X, 0)
        return LinearGram(as_data(X), as_data(positive), as_data(positive - X))

    def refuse(self, objective: float) -> NoReturn:
        """Raise an error, because the kernel is not positive semi-definite.

        With a valid kernel, the objective ‖φ(X) - V Cᵀ φ(X)‖² is never negative.
        """
        raise ValueError(
            f"kernel={self.kind!r} is not positive semi-definite: the objective fell to "
            f"{objective:g}; use a matrix of inner products."
        )


def _checked(K: AnyArray, name: str) -> AnyArray:
    """Return K if it can be a kernel: symmetric, and k(x, y)² <= k(x, x) k(y, y)."""
    own = np.sqrt(np.maximum(np.diag(K), 0))
    if not (np.diag(K) >= 0).all():
        raise ValueError(
            f"{name} is not positive semi-definite: k(x, x) = {np.diag(K).min():g} for a sample; "
            "use a matrix of inner products."
        )
    slack = 1e4 * np.finfo(K.dtype).eps * float(own.max(initial=0)) ** 2
    for first in range(0, len(K), 256):  # some rows at a time, to save memory
        rows = slice(first, first + 256)
        gap = float(np.abs(K[rows] - K[:, rows].T).max())
        if not gap <= slack:
            raise ValueError(
                f"{name} must be symmetric, got entries that differ by {gap:g}; use (K + K.T) / 2."
            )
        if not (np.abs(K[rows]) <= np.outer(own[rows], own) + slack).all():
            raise ValueError(
                f"{name} is not positive semi-definite: k(x, y)² exceeds k(x, x) k(y, y) for some "
                "pair; use a matrix of inner products."
            )
    return K
