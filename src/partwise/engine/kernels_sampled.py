"""Compiled products of a model's own entries at the places that a sparse matrix names."""

from __future__ import annotations

import numba as nb
import numpy as np

from partwise.engine.kernels import OPTIONS


@nb.njit(**OPTIONS)
def _times_range(indptr, indices, x, V, U, out, lo, hi):
    k = V.shape[1]
    acc = np.empty(k, dtype=V.dtype)
    for i in range(lo, hi):
        v = V[i]
        acc[:] = 0
        for e in range(indptr[i], indptr[i + 1]):
            u = U[indices[e]]
            y = v[0] * u[0]
            for other in range(1, k):
                y += v[other] * u[other]
            y *= x[e]
            for other in range(k):
                acc[other] += y * u[other]
        out[i] = acc


@nb.njit(**OPTIONS)
def times_rows(indptr, indices, x, V, U, out, bounds):
    """out = (X ∘ VUᵀ) U over the non-zeros of X."""
    _times_range(indptr, indices, x, V, U, out, bounds[0], bounds[-1])


@nb.njit(parallel=True, **OPTIONS)
def times_rows_parallel(indptr, indices, x, V, U, out, bounds):
    """`times_rows` in threads; ``bounds`` cuts the rows into chunks of about equal work."""
    for b in nb.prange(bounds.shape[0] - 1):
        _times_range(indptr, indices, x, V, U, out, bounds[b], bounds[b + 1])


@nb.njit(**OPTIONS)
def _squares_range(indptr, indices, x, V, U, out, lo, hi):
    k = V.shape[1]
    for i in range(lo, hi):
        v = V[i]
        total = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            u = U[indices[e]]
            y = v[0] * u[0]
            for other in range(1, k):
                y += v[other] * u[other]
            total += x[e] * y * y
        out[i] = total


@nb.njit(**OPTIONS)
def square_rows(indptr, indices, x, V, U, out, bounds):
    """out_i = Σ_j x_ij (VUᵀ)_ij² over the non-zeros of X."""
    _squares_range(indptr, indices, x, V, U, out, bounds[0], bounds[-1])


@nb.njit(parallel=True, **OPTIONS)
def square_rows_parallel(indptr, indices, x, V, U, out, bounds):
    """`square_rows` in threads."""
    for b in nb.prange(bounds.shape[0] - 1):
        _squares_range(indptr, indices, x, V, U, out, bounds[b], bounds[b + 1])
