"""The exact end of a non-negative quadratic problem, row by row: block principal pivoting.

Kim & Park (2011): guess which coordinates are positive, solve for them, exchange those that came
out negative for those whose gradient is, until none is left. Coordinate descent, which needs as
many sweeps as G is badly conditioned, makes the first guess.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from partwise.engine.kernels._options import OPTIONS

ROUNDS = 60  # solves of a row before it is given up


@nb.njit(**OPTIONS)
def _factor(G, d, r, at, m, low, L):
    """Cholesky factor of d G + diag(r) on the m coordinates ``at``; False where it is singular."""
    for i in range(m):
        row = L[i]
        for j in range(i):
            other = L[j]
            s = d * G[at[i], at[j]]
            for t in range(j):
                s -= row[t] * other[t]
            row[j] = s / other[j]
        own = d * G[at[i], at[i]] + r[at[i] if len(r) > 1 else 0]
        s = own
        for t in range(i):
            s -= row[t] * row[t]
        if not s > low * own:
            return False
        row[i] = np.sqrt(s)
    return True


@nb.njit(**OPTIONS)
def _solve(L, m, b):
    """b becomes the solution of L Lᵀ x = b."""
    for i in range(m):
        s = b[i]
        for t in range(i):
            s -= L[i, t] * b[t]
        b[i] = s / L[i, i]
    for i in range(m - 1, -1, -1):
        b[i] /= L[i, i]
        for t in range(i):
            b[t] -= L[i, t] * b[i]


@nb.njit(**OPTIONS)
def _slopes(x, G, c, d, r, y):
    """y = the gradient at x; returns the objective there."""
    k = len(x)
    y[:] = 0
    for i in range(k):
        if x[i] != 0:
            for j in range(k):
                y[j] += x[i] * G[i, j]
    value = 0.0
    for j in range(k):
        y[j] = d * y[j] + r[j if len(r) > 1 else 0] * x[j] - c[j]
        value += 0.5 * x[j] * (y[j] - c[j])
    return value


@nb.njit(**OPTIONS)
def _pivot_row(z, c, d, r, G, low, small, L, at, b, x, y, free):
    """Move z to the minimiser; False where that was not found."""
    k = len(z)
    for j in range(k):
        x[j] = z[j]
        free[j] = z[j] > 0
    before = _slopes(x, G, c, d, r, y)
    least, chances = k + 1, 3
    for _ in range(ROUNDS):
        m = 0
        for j in range(k):
            if free[j]:
                at[m], b[m] = j, c[j]
                m += 1
        if not _factor(G, d, r, at, m, low, L):
            return False
        _solve(L, m, b)
        x[:] = 0
        for i in range(m):
            x[at[i]] = b[i]
        value = _slopes(x, G, c, d, r, y)
        wrong, last = 0, 0
        for j in range(k):
            if (free[j] and x[j] < 0) or (not free[j] and y[j] < -small):
                wrong, last = wrong + 1, j
        if wrong == 0:
            if not value <= before + 1e-12 * abs(before):
                return False
            z[:] = x
            return True
        chances = 3 if wrong < least else chances - 1
        least = min(least, wrong)
        for j in range(k):  # all at once; where that goes round in circles, the last alone
            out = (free[j] and x[j] < 0) or (not free[j] and y[j] < -small)
            if out and (chances >= 0 or j == last):
                free[j] = not free[j]
    return False


@nb.njit(**OPTIONS)
def _pivot_range(Z, C, G, d, r, low, found, lo, hi):
    k = Z.shape[1]
    L = np.empty((k, k))
    at, free = np.empty(k, np.int64), np.empty(k, np.bool_)
    b, x, y = np.empty(k), np.empty(k), np.empty(k)
    for i in range(lo, hi):
        c, rl = C[i], r[i if r.shape[0] > 1 else 0]
        small = 10 * low * np.abs(c).max()
        own = d[i if len(d) > 1 else 0]
        found[i] = _pivot_row(Z[i], c, own, rl, G, low, small, L, at, b, x, y, free)


@nb.njit(parallel=True, **OPTIONS)
def pivot_rows(Z, C, G, d, r, low, found, chunks):
    """Every row of Z, float64, to the minimiser of ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0, in place.

    d has length 1 or n, r has 1 or n rows and 1 or k columns. ``found`` says where; a row whose G
    is singular on its positive coordinates, to the relative precision ``low``, stays as it is.
    """
    n = Z.shape[0]
    for b in nb.prange(chunks):
        _pivot_range(Z, C, G, d, r, low, found, b * n // chunks, (b + 1) * n // chunks)
