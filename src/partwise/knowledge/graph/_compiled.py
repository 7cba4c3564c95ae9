"""Compiled loops of the search for neighbours."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace

import numpy as np


@lru_cache(maxsize=1)
def kernels() -> SimpleNamespace:
    from partwise.backends.numpy.kernels._options import OPTIONS, compiled

    plain = {"nogil": True, "cache": OPTIONS["cache"]}
    exact = compiled(**plain)
    # sums may have any order; nan and inf keep their meaning
    loose = compiled(**plain, fastmath={"reassoc", "contract", "nsz"})
    return SimpleNamespace(
        keep_nearest=exact(keep_nearest),
        sparse_products=exact(sparse_products),
        exact_dense=loose(exact_dense),
        exact_sparse=exact(exact_sparse),
    )


def keep_nearest(G, low, a0, b0, best, who, worst):  # type: ignore[no-untyped-def]
    """Insert the values low_i + low_j - 2 G_ij of a block of pairs into sorted lists.

    Row i of ``best`` (n, m) holds the smallest values of sample i, and row i of ``who`` the other
    samples; both are sorted by value, then by index. ``worst`` is the last column of ``best``.
    """
    m = best.shape[1]
    rows, cols = G.shape
    diagonal = a0 == b0
    low_b = low[b0 : b0 + cols]
    worst_b = worst[b0 : b0 + cols]
    for r in range(rows):
        i = a0 + r
        base = low[i]
        for c0 in range(0, cols, 64):
            c1 = min(c0 + 64, cols)
            limit = worst[i]
            hits = 0
            for c in range(c0, c1):  # this loop runs over all pairs, so it contains no branch
                g = G[r, c]
                d = base + (low_b[c] - (g + g))
                hits += (d <= limit) | (d <= worst_b[c])
            if hits == 0:
                continue
            for c in range(c0, c1):
                j = b0 + c
                if diagonal and j <= i:
                    continue
                g = G[r, c]
                d = base + (low_b[c] - (g + g))
                for side in range(2):
                    own, other = (i, j) if side == 0 else (j, i)
                    if d > worst[own] or (d == worst[own] and other > who[own, m - 1]):
                        continue
                    t = m - 1
                    while t > 0 and (
                        best[own, t - 1] > d or (best[own, t - 1] == d and who[own, t - 1] > other)
                    ):
                        best[own, t] = best[own, t - 1]
                        who[own, t] = who[own, t - 1]
                        t -= 1
                    best[own, t] = d
                    who[own, t] = other
                    worst[own] = best[own, m - 1]


def sparse_products(indptr, indices, data, tptr, rows, tdata, a0, out):  # type: ignore[no-untyped-def]
    """Compute out_rc = x_(a0+r) · y_c, with X by rows (csr) and Y by columns (csc)."""
    for r in range(out.shape[0]):
        for c in range(out.shape[1]):
            out[r, c] = 0.0
        for q in range(indptr[a0 + r], indptr[a0 + r + 1]):
            f = indices[q]
            v = data[q]
            for s in range(tptr[f], tptr[f + 1]):
                out[r, rows[s]] += v * tdata[s]


def exact_dense(X, rows, candidates, squares, start, stop):  # type: ignore[no-untyped-def]
    """Compute ‖x_i - x_j‖² for each row i and its candidates j from start to stop."""
    for i in rows:
        for t in range(start, stop):
            j = candidates[i, t]
            total = 0.0
            for f in range(X.shape[1]):
                gap = np.float64(X[i, f]) - np.float64(X[j, f])
                total += gap * gap
            squares[i, t] = total


def exact_sparse(indptr, indices, data, rows, candidates, squares, start, stop):  # type: ignore[no-untyped-def]
    """Compute `exact_dense` for sparse rows, over the union of their entries."""
    for i in rows:
        for t in range(start, stop):
            j = candidates[i, t]
            q, q1 = indptr[i], indptr[i + 1]
            s, s1 = indptr[j], indptr[j + 1]
            total = 0.0
            while q < q1 or s < s1:
                gap = 0.0
                if s >= s1 or (q < q1 and indices[q] < indices[s]):
                    gap = np.float64(data[q])
                    q += 1
                elif q >= q1 or indices[s] < indices[q]:
                    gap = np.float64(data[s])
                    s += 1
                else:
                    gap = np.float64(data[q]) - np.float64(data[s])
                    q += 1
                    s += 1
                total += gap * gap
            squares[i, t] = total
