"""Objectives in float64, computed by the benchmark from the factors that a package returns."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

_BLOCK = 2**22  # maximum number of entries of V Uᵀ in memory at once


def frobenius(X: Any, W: np.ndarray, H: np.ndarray) -> float:
    """Return ½‖X - WH‖²."""
    W, H = W.astype(np.float64, copy=False), H.astype(np.float64, copy=False)
    if sp.issparse(X):  # the squares are expanded, because the residual of sparse X would be dense
        data = X.data.astype(np.float64)
        cross = np.vdot(X.astype(np.float64) @ H.T, W)
        return float(0.5 * data @ data - cross + 0.5 * np.vdot(W.T @ W, H @ H.T))
    total = 0.0
    for rows in _blocks(X):
        residual = X[rows] - W[rows] @ H
        total += float(np.vdot(residual, residual))
    return 0.5 * total


def kullback_leibler(X: Any, W: np.ndarray, H: np.ndarray) -> float:
    """Return Σ x log(x / (WH)) - x + WH, where 0 log 0 = 0."""
    W, H = W.astype(np.float64, copy=False), H.astype(np.float64, copy=False)
    total = float(W.sum(axis=0) @ H.sum(axis=1))
    for rows in _blocks(X):
        if sp.issparse(X):
            part = X[rows].tocoo()
            x = part.data.astype(np.float64)
            fit = _products(W[rows], H, *part.coords)
        else:
            block = X[rows].astype(np.float64, copy=False)
            filled = block > 0
            x, fit = block[filled], (W[rows] @ H)[filled]
        with np.errstate(divide="ignore"):
            total += float(np.sum(x[x > 0] * np.log(x[x > 0] / fit[x > 0])) - x.sum())
    return total


def _products(W: np.ndarray, H: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    """Return the entries (WH)_ij at the given positions, in blocks that fit into memory."""
    out = np.empty(i.size)
    columns = np.ascontiguousarray(H.T)
    size = max(1, _BLOCK // W.shape[1])
    for begin in range(0, i.size, size):
        piece = slice(begin, begin + size)
        out[piece] = np.einsum("ij,ij->i", W[i[piece]], columns[j[piece]])
    return out


def _blocks(X: Any) -> list[slice]:
    rows = max(1, _BLOCK // X.shape[1])
    return [slice(begin, begin + rows) for begin in range(0, X.shape[0], rows)]


OBJECTIVES = {"frobenius": frobenius, "kullback-leibler": kullback_leibler}
