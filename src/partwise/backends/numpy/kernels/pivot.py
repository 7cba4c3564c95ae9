"""The exact end of a non-negative quadratic problem, row by row: block principal pivoting.

Kim & Park (2011): guess which coordinates are positive, solve for them, exchange those that came
out negative for those whose gradient is, until none is left. Coordinate descent, which needs as
many sweeps as G is badly conditioned, makes the first guess.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from partwise.backends.numpy.kernels._options import HELPER
from partwise.backends.threads import in_threads

ROUNDS = 60  # solves of a row before it is given up


@nb.njit(**HELPER)
def _pivot_range(Z, C, G, d, r, low, found, lo, hi, L, rows, at, free):
    """Move each row to its minimiser; ``found`` is False where that was not found.

    L, rows = (b, x, y), at and free are room to work in: in one piece and without arrays of its
    own it compiles in a third of the time.
    """
    k, wide = Z.shape[1], r.shape[1]
    b, x, y = rows[0], rows[1], rows[2]
    for i in range(lo, hi):
        c, own, rl = C[i], d[i if d.shape[0] > 1 else 0], r[i if r.shape[0] > 1 else 0]
        small = 0.0
        for j in range(k):
            small = max(small, abs(c[j]))
            x[j] = Z[i, j]
            free[j] = x[j] > 0
        small *= 10 * low
        before, least, chances = 0.0, k + 1, 3
        for turn in range(ROUNDS + 1):
            if turn > 0:  # solve for the free coordinates: L Lᵀ = (d G + diag r) on them
                m, regular = 0, True
                for j in range(k):
                    x[j] = 0.0
                    if free[j]:
                        at[m], b[m] = j, c[j]
                        m += 1
                for p in range(m):
                    row = L[p]
                    for q in range(p):
                        other = L[q]
                        s = own * G[at[p], at[q]]
                        for t in range(q):
                            s -= row[t] * other[t]
                        row[q] = s / other[q]
                    diagonal = own * G[at[p], at[p]] + rl[at[p] if wide > 1 else 0]
                    s = diagonal
                    for t in range(p):
                        s -= row[t] * row[t]
                    if not s > low * diagonal:
                        regular = False
                        break
                    row[p] = np.sqrt(s)
                if not regular:
                    break
                for p in range(m):
                    s = b[p]
                    for t in range(p):
                        s -= L[p, t] * b[t]
                    b[p] = s / L[p, p]
                for p in range(m - 1, -1, -1):
                    b[p] /= L[p, p]
                    for t in range(p):
                        b[t] -= L[p, t] * b[p]
                    x[at[p]] = b[p]
            for j in range(k):  # the gradient, and the objective
                y[j] = 0.0
            for p in range(k):
                if x[p] != 0:
                    for j in range(k):
                        y[j] += x[p] * G[p, j]
            value = 0.0
            for j in range(k):
                y[j] = own * y[j] + rl[j if wide > 1 else 0] * x[j] - c[j]
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


def pivot_rows(Z, C, G, d, r, low, found, threads=1):
    """Every row of Z, float64, to the minimiser of ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0, in place.

    d has length 1 or n, r has 1 or n rows and 1 or k columns. ``found``, False when it comes, says
    where; a row whose G is singular on its positive coordinates, to the relative precision
    ``low``, stays as it is.
    """
    k = Z.shape[1]

    def run(lo, hi):
        room = np.empty((k, k)), np.empty((3, k)), np.empty(k, np.int64), np.empty(k, np.bool_)
        _pivot_range(Z, C, G, d, r, low, found, lo, hi, *room)

    in_threads(run, len(Z), 1, threads, uneven=True)
