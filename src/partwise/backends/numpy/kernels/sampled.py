"""Compiled operations on entries of VUᵀ at the places of a sparse matrix."""

from __future__ import annotations

import numpy as np

from partwise.backends.numpy.kernels._options import HELPER, OPTIONS, compiled
from partwise.backends.numpy.kernels.pivot import Rows, lanes_for, pivot


@compiled(**OPTIONS)
def times_rows(indptr, indices, x, V, U, out, lo, hi):
    """Compute (X ∘ VUᵀ) U over the non-zeros of rows lo to hi of X."""
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


@compiled(**OPTIONS)
def value_rows(indptr, indices, V, U, out, lo, hi):
    """Compute the entries of VUᵀ at the non-zeros of rows lo to hi of a sparse matrix."""
    k = V.shape[1]
    for i in range(lo, hi):
        v = V[i]
        for e in range(indptr[i], indptr[i + 1]):
            u = U[indices[e]]
            y = v[0] * u[0]
            for other in range(1, k):
                y += v[other] * u[other]
            out[e] = y


@compiled(**HELPER)
def _row_gram(H, G, d, U, indices, e, lo, hi, sign):
    """Compute the Hessian H = d G + sign Σ e_j u_j u_jᵀ of a row from its entries."""
    k = G.shape[0]
    for a in range(k):
        for b in range(k):
            H[a, b] = d * G[a, b]
    for place in range(lo, hi):
        u = U[indices[place]]
        w = sign * e[place]
        for a in range(k):  # compute both triangles, since loops of equal length are faster
            wa = w * u[a]
            row = H[a]
            for b in range(k):
                row[b] += wa * u[b]


@compiled(**HELPER)
def _descend_row(z, c, H, least, r, sweeps, stop, enough):
    """Run coordinate descent on ½ zᵀHz + ½ r·z² - cᵀz; return whether it converged."""
    k = len(z)
    first = 0.0
    for sweep in range(sweeps):
        moved = 0.0
        for j in range(k):
            row, ridge = H[j], r[j if len(r) > 1 else 0]
            # A curvature that nearly vanishes is only rounding error.
            h = (row[j] if row[j] > least[j] else 0.0) + ridge
            grad = ridge * z[j] - c[j]
            for other in range(k):
                grad += row[other] * z[other]
            new = z[j] - grad / h if h > 0 else (0.0 if grad > 0 else z[j])
            new = max(new, 0.0)
            moved += (new - z[j]) * (new - z[j]) * h
            z[j] = new
        if sweep == 0:
            first = moved
        if moved <= stop * stop * first or moved <= enough:
            return True
    return False


@compiled(**OPTIONS)
def solve_rows(indptr, indices, e, U, G, d, sign, Z, C, r, sweeps, stop, enough, lo, hi):
    """Move rows lo to hi of Z to their minimisers in place; each row has its own Hessian.

    The objective of row i is ½ zᵀHz + ½ r·z² - cᵀz over z >= 0, with H = d G + sign Σ e_ij u_j u_jᵀ
    over its places.
    d has length 1 or n, r has 1 or n rows and 1 or k columns.
    """
    k = G.shape[0]
    alone, lanes = np.empty((1, k, k)), lanes_for(k)
    H = alone[0]
    end, drawn, least = np.empty((1, k)), np.empty((1, k)), np.empty(k)
    z, c = end[0], drawn[0]
    one, ridge, found = np.ones(1), np.empty((1, r.shape[1])), np.empty(1, np.bool_)
    before = np.empty(1)
    low = float(np.finfo(Z.dtype).eps)
    for i in range(lo, hi):
        di = d[i if d.shape[0] > 1 else 0]
        _row_gram(H, G, di, U, indices, e, indptr[i], indptr[i + 1], sign)
        ri = r[i if r.shape[0] > 1 else 0]
        for j in range(k):
            z[j], c[j], least[j] = Z[i, j], C[i, j], 1e-10 * di * G[j, j]
        # A few sweeps find likely positive coordinates; pivoting then solves regular systems
        # exactly.
        if not _descend_row(z, c, H, least, ri, 3, stop, enough):
            found[0], before[0] = False, 0.0
            for j in range(r.shape[1]):
                ridge[0, j] = ri[j]
            for j in range(k):
                slope = ri[j if len(ri) > 1 else 0] * z[j]
                for other in range(k):
                    slope += H[j, other] * z[other]
                before[0] += z[j] * (0.5 * slope - c[j])
            pivot(Rows(end, drawn, drawn, one, ridge, before, found), alone, low, lanes)
            if not found[0]:
                _descend_row(z, c, H, least, ri, sweeps, stop, enough)
        for j in range(k):
            Z[i, j] = z[j]
