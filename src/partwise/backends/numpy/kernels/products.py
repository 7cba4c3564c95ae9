"""Products: BLAS's outside the interpreter, X B and Xᵀ of a sparse X; the systems of a graph."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import numba as nb
import numpy as np
from numba.extending import get_cython_function_address

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._intrinsics import times
from partwise.backends.numpy.kernels._options import HELPER, OPTIONS

TILE = 8  # columns of a graph's linear system that are solved together


@nb.njit(**HELPER)
def _graph_times(indptr, indices, weights, scale, diagonal, p, out, near):
    """out = diagonal p - scale W p on TILE columns; returns nothing."""
    for i in range(p.shape[0]):
        for t in range(TILE):
            near[t] = 0
        for e in range(indptr[i], indptr[i + 1]):
            w = weights[e]
            row = p[indices[e]]
            for t in range(TILE):
                near[t] += w * row[t]
        for t in range(TILE):
            out[i, t] = diagonal[i, t] * p[i, t] - scale * near[t]


@nb.njit(**HELPER)
def _conjugate_gradient(indptr, indices, weights, scale, diagonal, c, z, goal, most):
    """(diag(diagonal) - scale W) z = c for TILE columns at once, from z, in place."""
    n = z.shape[0]
    zero = z.dtype.type(0)
    r, p, q = np.empty_like(z), np.empty_like(z), np.empty_like(z)
    near = np.empty(TILE, z.dtype)
    size, left = np.zeros(TILE), np.zeros(TILE)
    product, other = np.zeros(TILE), np.zeros(TILE)
    alpha, beta = np.zeros(TILE, z.dtype), np.zeros(TILE, z.dtype)
    _graph_times(indptr, indices, weights, scale, diagonal, z, r, near)
    for i in range(n):
        for t in range(TILE):
            r[i, t] = c[i, t] - r[i, t]
            p[i, t] = r[i, t] / diagonal[i, t]
            product[t] += r[i, t] * p[i, t]
            size[t] += c[i, t] * c[i, t]
            left[t] += r[i, t] * r[i, t]
    for done in range(most):
        if np.all(left <= goal * goal * size):
            return done
        _graph_times(indptr, indices, weights, scale, diagonal, p, q, near)
        other[:] = 0
        for i in range(n):
            for t in range(TILE):
                other[t] += p[i, t] * q[i, t]
        for t in range(TILE):
            going = left[t] > goal * goal * size[t] and other[t] > 0
            alpha[t] = product[t] / other[t] if going else zero
        other[:] = 0
        left[:] = 0
        for i in range(n):
            for t in range(TILE):
                z[i, t] += alpha[t] * p[i, t]
                r[i, t] -= alpha[t] * q[i, t]
                q[i, t] = r[i, t] / diagonal[i, t]
                other[t] += r[i, t] * q[i, t]
                left[t] += r[i, t] * r[i, t]
        for t in range(TILE):
            beta[t] = other[t] / product[t] if product[t] > 0 else zero
            product[t] = other[t]
        for i in range(n):
            for t in range(TILE):
                p[i, t] = q[i, t] + beta[t] * p[i, t]
    return most


@nb.njit(**OPTIONS)
def graph_solve(indptr, indices, weights, scale, diagonal, c, z, goal, most, taken, lo, hi):
    """(diag(diagonal) - scale W) z = c for each column of tiles lo to hi of z, (tiles, n, TILE).

    In place, by conjugate gradients with the diagonal as preconditioner, to the relative residual
    ``goal``; ``taken`` receives how many iterations a tile took.
    """
    for j in range(lo, hi):
        taken[j] = _conjugate_gradient(
            indptr, indices, weights, scale, diagonal[j], c[j], z[j], goal, most
        )


@nb.njit(**OPTIONS)
def spmm(indptr, indices, x, B, out, lo, hi):
    """out = X B on rows lo to hi of CSR X; where B is wide twice as fast as scipy's."""
    for i in range(lo, hi):
        row, end = out[i], indptr[i + 1]
        for j in range(row.shape[0]):
            row[j] = 0
        four = end - (end - indptr[i]) % 4
        for e in range(indptr[i], four, 4):  # four at a time: a quarter of the passes over the row
            q0, q1, q2, q3 = x[e], x[e + 1], x[e + 2], x[e + 3]
            b0, b1 = B[indices[e]], B[indices[e + 1]]
            b2, b3 = B[indices[e + 2]], B[indices[e + 3]]
            for j in range(row.shape[0]):
                row[j] += q0 * b0[j] + q1 * b1[j] + q2 * b2[j] + q3 * b3[j]
        for e in range(four, end):
            q, b = x[e], B[indices[e]]
            for j in range(row.shape[0]):
                row[j] += q * b[j]


@nb.njit(**OPTIONS)
def _scatter(indptr, indices, x, V, out, lo, hi):
    """out = Xᵀ V of rows lo to hi of CSR X."""
    for j in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[j, c] = 0
    for i in range(lo, hi):
        v = V[i]
        for e in range(indptr[i], indptr[i + 1]):
            row, q = out[indices[e]], x[e]
            for c in range(row.shape[0]):
                row[c] += q * v[c]


@nb.njit(**OPTIONS)
def _sum_runs(sums, out, lo, hi):
    """out = Σ_r sums[r] on rows lo to hi."""
    for j in range(lo, hi):
        for c in range(out.shape[1]):
            out[j, c] = sums[0, j, c]
        for r in range(1, sums.shape[0]):
            for c in range(out.shape[1]):
                out[j, c] += sums[r, j, c]


def scatter(indptr, indices, x, V, p, runs, threads):
    """Xᵀ V of CSR X with p columns, without its transpose; each run of rows has a sum."""
    sums, out = np.empty((len(runs), p, V.shape[1]), V.dtype), np.empty((p, V.shape[1]), V.dtype)
    crew.run(_scatter, (indptr, indices, x, V), runs, threads, own=(sums,))
    crew.rows(_sum_runs, (sums, out), p, 16, threads)
    return out


@nb.njit(**OPTIONS)
def _transpose_rows(indptr, indices, x, rows, values, write, places, lo, hi):
    """Move the place of a column on with each of its entries in rows lo to hi of CSR X.

    With ``write`` they are put there.
    """
    for i in range(lo, hi):
        for e in range(indptr[i], indptr[i + 1]):
            at = places[indices[e]]
            places[indices[e]] = at + 1
            if write:
                rows[at], values[at] = i, x[e]


def transpose(indptr, indices, x, p, runs, threads):
    """Xᵀ of CSR X with p columns, as its indptr, indices and entries; ``runs`` are of rows.

    Each run counts its entries by column, and so learns where in each row of Xᵀ its own begin.
    """
    rows, values = np.empty_like(indices), np.empty_like(x)
    args, places = (indptr, indices, x, rows, values), np.zeros((len(runs), p), indices.dtype)
    crew.run(_transpose_rows, (*args, 0), runs, threads, [places])
    ends = np.cumsum(places.T.ravel(), dtype=indices.dtype)
    begins = np.append(0, ends).astype(indices.dtype)
    places = np.array(begins[:-1].reshape(p, -1).T, order="C")
    crew.run(_transpose_rows, (*args, 1), runs, threads, [places])
    return begins[:: len(runs)].copy(), rows, values


@cache
def gemm(dtype):
    """Where BLAS's product for this dtype is: numpy's own if it brought one, else scipy's.

    And whether it is numpy's.
    """
    name = "sgemm" if dtype == np.float32 else "dgemm"
    own = Path(np.__file__).parent.with_name("numpy.libs")
    for path in own.glob("*openblas*"):
        library = ctypes.CDLL(str(path))  # it is loaded
        for symbol in (f"scipy_{name}_64_", f"scipy_{name}_"):
            if hasattr(library, symbol):
                return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value, True
    return get_cython_function_address("scipy.linalg.cython_blas", name), False


@nb.njit(**OPTIONS)
def _gemm(like, place, turned, m, n, k, a, lda, b, c, ldc):
    times(like, place, turned, m, n, k, a, lda, b, c, ldc)


def blas_products(like, tasks, threads):
    """BLAS's products (turned, m, n, k, a, lda, b, c, ldc), see `times`, in threads."""
    crew.run(_gemm, (like, gemm(like.dtype)[0]), tasks, threads)


@nb.njit(**OPTIONS)
def _add_up(sums, out, lo, hi):
    """out = Σ_b sums[b]ᵀ on rows lo to hi of it; the first one holds all of it in between."""
    for b in range(1, sums.shape[0]):
        for j in range(out.shape[1]):
            for e in range(lo, hi):
                sums[0, j, e] += sums[b, j, e]
    for e in range(lo, hi):
        for j in range(out.shape[1]):
            out[e, j] = sums[0, j, e]


def add_up(sums, out, threads):
    """out (p, k) = Σ_b sums[b]ᵀ; sums (any, k or more, p) are lost."""
    crew.rows(_add_up, (sums, out), len(out), 16, threads)
