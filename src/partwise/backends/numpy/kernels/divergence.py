"""Sums and second-order sweeps of the Kullback-Leibler divergence, row by row."""

from __future__ import annotations

import math

import numba as nb
import numpy as np

from partwise.backends.numpy.kernels._options import HELPER, OPTIONS

TINY = 1e-300


@nb.njit(**HELPER)
def _model(v, u, tiny):
    """y = v·u in float64: Σ x log y is a difference of large sums away from the loss."""
    y = np.float64(tiny)
    for j in range(len(v)):
        y += np.float64(v[j]) * np.float64(u[j])
    return y


@nb.njit(**OPTIONS)
def kl_rows(indptr, indices, x, V, U, out, xlogy, want_log, tiny, lo, hi):
    """out = (X / VUᵀ) U and xlogy_i = Σ_j x_ij log(VUᵀ)_ij over the non-zeros of rows lo to hi.

    One pass; nothing of size nnz x k is stored.
    """
    k = V.shape[1]
    single = V.itemsize == 4
    acc = np.zeros(k, V.dtype)
    for i in range(lo, hi):
        acc[:] = 0
        v = V[i]
        s = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            u = U[indices[e]]
            y = tiny
            for other in range(k):
                y += v[other] * u[other]
            q = x[e] / y
            for other in range(k):
                acc[other] += q * u[other]
            if want_log:
                s += x[e] * math.log(_model(v, u, tiny) if single else np.float64(y))
        out[i] = acc
        xlogy[i] = s


@nb.njit(**HELPER)
def _hyperbola(N, h, a, ridge, old):
    """The root of a + ridge z = p/(q + z), where p/(q + z) has value N and slope -h at ``old``."""
    if h <= 0.0:
        return 0.0 if a + ridge * old > 0.0 else old
    # (a + ridge z)(q + z) = p with p = N²/h, q = N/h - z
    q = max(N / h - old, 0.0)
    linear = a + ridge * q
    rest = N * (N / h) - a * q
    if rest <= 0.0:
        return 0.0
    below = linear + math.sqrt(linear * linear + 4.0 * ridge * rest)
    return 2.0 * rest / below if below > 0.0 else old


@nb.njit(**HELPER)
def _newton_row(x, y, inv, r, B, m, z, a, ridge, sweeps):
    """One-dimensional second-order steps on f(z) = Σ_j (a_j + ½ ridge_j z_j) z_j - Σ_e x_e log y_e.

    y = B z, inv = 1/y and r = x/y are kept up to date, so that a division is paid for only where a
    coordinate moves. B is (k, m): the basis at the m non-zeros of the row. With
    N = Σ x b/y and h = Σ x b²/y² the derivative a + ridge z - N(z) is modelled with the hyperbola
    p/(q + z) that has N's value and slope, and z moves to the root of the model. Because 1/N is
    concave in z, the root is never right of the minimiser, and from the right it is nearer to it
    than Newton's step.
    """
    k = z.shape[0]
    one = z.dtype.type(1)
    for e in range(m):
        inv[e] = one / y[e]
        r[e] = x[e] * inv[e]
    for _ in range(sweeps):
        for j in range(k):
            b = B[j]
            old = z[j]
            if old == 0.0:
                N = 0.0
                for e in range(m):
                    N += r[e] * b[e]
                if N <= a[j]:
                    continue
            N, h = 0.0, 0.0
            for e in range(m):
                q = r[e] * b[e]
                N += q
                h += q * (inv[e] * b[e])
            new = _hyperbola(N, h, a[j], ridge[j], old)
            if new <= 0.0:
                new = 0.0
                if old > 0.0:
                    for e in range(m):
                        # this coordinate is nearly all there is at e: shrink, do not leave log 0
                        if x[e] > 0 and y[e] - old * b[e] <= 1e-3 * y[e]:
                            new = 0.1 * old
                            break
            change = z.dtype.type(new - old)
            if change != 0:
                for e in range(m):
                    y[e] += change * b[e]
                    inv[e] = one / y[e]
                    r[e] = x[e] * inv[e]
                z[j] = new


@nb.njit(**HELPER)
def _spread(ridge, i, out):
    """Row i of a (1 or n, 1 or k) array in full."""
    at = 0 if ridge.shape[0] == 1 else i
    for j in range(out.shape[0]):
        out[j] = ridge[at, 0 if ridge.shape[1] == 1 else j]


@nb.njit(**OPTIONS)
def newton_rows(indptr, indices, data, Z, U, cost, ridge, sweeps, xlogy, want_log, tiny, lo, hi):
    """Newton coordinate sweeps for KL on rows lo to hi of Z, in place; see `_newton_row`.

    ``cost`` (1 or n, k) is the linear cost d_i Σ_j u_jk plus penalties, ``ridge`` (1 or n, 1 or k)
    their curvature; ``xlogy`` receives Σ_j x_ij log y_ij after the step.
    """
    k = Z.shape[1]
    single = Z.itemsize == 4
    width = 0
    for i in range(lo, hi):
        width = max(width, indptr[i + 1] - indptr[i])
    B = np.empty((k, width), Z.dtype)
    y = np.empty(width, Z.dtype)
    x = np.empty(width, Z.dtype)
    inv = np.empty(width, Z.dtype)
    r = np.empty(width, Z.dtype)
    a = np.empty(k, np.float64)
    price = np.empty(k, np.float64)
    for i in range(lo, hi):
        m = indptr[i + 1] - indptr[i]
        z = Z[i]
        for e in range(m):
            u = U[indices[indptr[i] + e]]
            x[e] = data[indptr[i] + e]
            for other in range(k):
                B[other, e] = u[other]
        for e in range(m):
            y[e] = tiny
        for other in range(k):
            zl = z[other]
            b = B[other]
            for e in range(m):
                y[e] += zl * b[e]
        for other in range(k):
            a[other] = cost[0 if cost.shape[0] == 1 else i, other]
        _spread(ridge, i, price)
        _newton_row(x, y, inv, r, B, m, z, a, price, sweeps)
        s = 0.0
        if want_log:
            for e in range(m):
                if single:
                    s += x[e] * math.log(_model(z, U[indices[indptr[i] + e]], tiny))
                else:
                    s += x[e] * math.log(max(y[e], tiny))
        xlogy[i] = s


@nb.njit(**OPTIONS)
def newton_dense(X, Z, B, cost, ridge, sweeps, low, room):
    """`newton_rows` for rows of a dense X, many of whose coordinates move; in place.

    B is the basis as (k, p or more), contiguous: a change of y and the sums for the next coordinate
    share one pass, in the precision of B, which may be lower than that of Z. That pass writes y
    alone, since loads and stores cost as much as the division. So x/y is not kept up to date: of a
    coordinate at zero N is known as the sweep began. Since then y fell to no less than the share
    ``left`` anywhere (a coordinate that fell to a share of itself took no more of any y), so N is
    at most 1/left as large: mostly enough to see that it stays, else a pass tells.

    ``room`` (3, p or more) is room to work in. It and B are best laid out by `lined`.
    """
    k, m = B.shape[0], X.shape[1]
    zero, one, near = B.dtype.type(0), B.dtype.type(1), B.dtype.type(1 - 1e-3)
    x, y, r = room[0], room[1], room[2]
    for i in range(Z.shape[0]):
        z = Z[i]
        paid, curved = i if cost.shape[0] > 1 else 0, i if ridge.shape[0] > 1 else 0
        for e in range(m):
            x[e] = X[i, e]
            y[e] = low
        for j in range(k):
            own, b = B.dtype.type(z[j]), B[j]
            if own != 0:
                for e in range(m):
                    y[e] += own * b[e]
        change, last = zero, B[0]
        for _ in range(sweeps):
            for e in range(m):
                t = max(y[e] + change * last[e], low)
                y[e] = t
                r[e] = x[e] / t
            change, left = zero, 1.0
            for j in range(k):
                b, old, a = B[j], z[j], cost[paid, j]
                if old == 0.0:
                    N = zero
                    for e in range(m):
                        N += r[e] * b[e]
                    if N <= a * left:
                        continue
                    if change != 0 or left < 1.0:
                        N, left = zero, 1.0
                        for e in range(m):
                            t = max(y[e] + change * last[e], low)
                            y[e] = t
                            q = x[e] / t
                            r[e] = q
                            N += q * b[e]
                        change = zero
                        if N <= a:
                            continue
                N, h = zero, zero
                for e in range(m):
                    t = max(y[e] + change * last[e], low)
                    y[e] = t
                    q = b[e] * (one / t)
                    s = x[e] * q
                    N += s
                    h += s * q
                price = ridge[curved, j if ridge.shape[1] > 1 else 0]
                new = _hyperbola(np.float64(N), np.float64(h), a, price, np.float64(old))
                if new <= 0.0:
                    part, alone = B.dtype.type(old), 0
                    for e in range(m):
                        alone += (x[e] > 0) & (part * b[e] >= near * y[e])
                    # it is nearly all there is at some e: shrink, do not leave log 0
                    new = 0.1 * old if alone else 0.0
                # new / old or one; a branch that is as often taken as not would cost more
                left *= (min(new, old) + TINY) / (old + TINY)
                change, last = B.dtype.type(new - old), b
                z[j] = new
