"""The exact end of a non-negative quadratic problem, row by row: block principal pivoting.

Kim & Park (2011): guess which coordinates are positive, solve for them, exchange those that came
out negative for those whose gradient is, until none is left. Coordinate descent, which needs as
many sweeps as G is badly conditioned, makes the first guess.

With K = G⁻¹, which serves all rows, x = K (c + y), y the gradient: zero where x is free. So one may
solve for y where x is held at zero instead, K_hh y_h = -(K c)_h, whichever are fewer.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from partwise.backends.numpy.kernels._options import HELPER

ROUNDS = 60  # solves of a row before it is given up
REGULAR = 1e-7  # what elimination must leave of each diagonal of G for K to be worth its digits


@nb.njit(**HELPER)
def _pivot_range(Z, C, G, d, r, K, E, low, found, lo, hi, L, rows, at, free):
    """Move each row to its minimiser; ``found`` is False where that was not found.

    E is C K; K has no rows where there is none. L, rows = (b, x, y), at and free are room to work
    in: in one piece and without arrays of its own it compiles in a third of the time.
    """
    k, wide, inverse = Z.shape[1], r.shape[1], K.shape[0] > 0
    b, x, y = rows[0], rows[1], rows[2]
    for i in range(lo, hi):
        c, own, rl = C[i], d[i if d.shape[0] > 1 else 0], r[i if r.shape[0] > 1 else 0]
        either = inverse and own > 0
        small = 0.0
        for j in range(k):
            small = max(small, abs(c[j]))
            free[j] = Z[i, j] > 0
        small *= 10 * low
        before, least, chances = 0.0, k + 1, 3
        for turn in range(ROUNDS + 1):
            m = 0
            for j in range(k):
                m += free[j]
            # solve for the gradient of those at zero, if they are fewer; the first turn takes Z
            held, n, regular = either and 2 * m > k and turn > 0, 0, True
            size = 1.0 if held else own
            for j in range(k):
                if free[j] != held:
                    at[n], b[n] = j, Z[i, j] if turn == 0 else (-E[i, j] if held else c[j])
                    n += 1
            for p in range(n if turn > 0 else 0):  # L Lᵀ, and what b is beyond L
                row, of, s = L[p], K[at[p]] if held else G[at[p]], b[p]
                left = diagonal = size * of[at[p]] + (0.0 if held else rl[at[p] if wide > 1 else 0])
                for q in range(p):
                    other, f = L[q], size * of[at[q]]
                    for t in range(q):
                        f -= row[t] * other[t]
                    row[q] = f / other[q]
                for t in range(p):
                    left -= row[t] * row[t]
                    s -= row[t] * b[t]
                if not (held or left > low * diagonal):
                    regular = False
                    break
                row[p] = np.sqrt(left)
                b[p] = s / row[p]
            if not regular:
                break
            for p in range(n - 1 if turn > 0 else -1, -1, -1):
                row = L[p]
                b[p] /= row[p]
                s = b[p]
                for t in range(p):
                    b[t] -= row[t] * s
            for j in range(k):
                y[j] = 0.0
            for p in range(n):
                s, of = b[p], K[at[p]] if held else G[at[p]]
                for j in range(k):
                    y[j] += s * of[j]
            for j in range(k):
                x[j] = (E[i, j] + y[j]) / own if held else 0.0
                y[j] = 0.0 if held else own * y[j] - c[j]
            for p in range(n):
                j, s = at[p], b[p]
                x[j] = 0.0 if held else s
                y[j] = s if held else y[j] + rl[j if wide > 1 else 0] * s
            value = 0.0
            for j in range(k):
                value += 0.5 * x[j] * (y[j] - c[j])
            if turn == 0:
                before = value
                continue
            wrong, last = 0, 0
            for j in range(k):
                if (free[j] and x[j] < 0) or (not free[j] and y[j] < -small):
                    wrong, last = wrong + 1, j
            if wrong == 0:
                if value <= before + 1e-12 * abs(before):
                    found[i] = True
                    for j in range(k):
                        Z[i, j] = x[j]
                break
            if wrong < least:
                chances, least = 3, wrong
            else:
                chances -= 1
            for j in range(k):  # all at once; where that goes round in circles, the last alone
                out = (free[j] and x[j] < 0) or (not free[j] and y[j] < -small)
                if out and (chances >= 0 or j == last):
                    free[j] = not free[j]


def inverse_of(G, d, r):
    """(G, d, r, K) for `pivot_rows`: d and r in G where rows share them, and the inverse of that.

    K is empty where rows have Hessians of their own, or where it would have few digits.
    """
    if len(d) == len(r) == 1:
        G, d, r = d[0] * G + np.diag(np.broadcast_to(r[0], len(G))), np.ones(1), np.zeros((1, 1))
    try:
        kept = np.diag(np.linalg.cholesky(G)) ** 2 > REGULAR * np.diag(G)
        K = np.linalg.inv(G)  # where this one fails, too
    except np.linalg.LinAlgError:
        kept = np.zeros(1, bool)
    if r.any() or not kept.all():
        return G, d, r, np.empty((0, 0))
    return G, d, r, 0.5 * (K + K.T)


def pivot_rows(Z, C, G, d, r, K, low, found):
    """Every row of Z, float64, to the minimiser of ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0, in place.

    d has length 1 or n, r has 1 or n rows and 1 or k columns; with them comes K of `inverse_of`.
    ``found``, False when it comes, says where; a row whose G is singular on its positive
    coordinates, to the relative precision ``low``, stays as it is.
    """
    k = Z.shape[1]
    room = np.empty((k, k)), np.empty((3, k)), np.empty(k, np.int64), np.empty(k, np.bool_)
    _pivot_range(Z, C, G, d, r, K, C @ K if len(K) else C, low, found, 0, len(Z), *room)
