"""Sums and second-order sweeps of the Kullback-Leibler divergence, row by row."""

from __future__ import annotations

import math

import numpy as np

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._atomics import add, wide_vectors
from partwise.backends.numpy.kernels._options import HELPER, OPTIONS, compiled
from partwise.backends.numpy.kernels.products import LINE

TINY = 1e-300
TOGETHER = 16  # rows of X that are copied together, since they share cache lines
AT_ONCE = 2 * LINE  # rows are padded to a multiple of this number of bytes


@compiled(**HELPER)
def _model(v, u, tiny):
    """Return y = v·u in float64, since Σ x log y is a difference of large sums."""
    y = np.float64(tiny)
    for j in range(len(v)):
        y += np.float64(v[j]) * np.float64(u[j])
    return y


@compiled(**OPTIONS)
def kl_rows(indptr, indices, x, V, U, out, xlogy, want_log, tiny, lo, hi):
    """Compute (X / VUᵀ) U and Σ_j x_ij log(VUᵀ)_ij over the non-zeros of rows lo to hi.

    The function reads X once and stores no array of size nnz x k.
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


@compiled(**HELPER)
def _root(N, h, a, ridge, old):
    """Solve a + ridge z = p/(q + z), where p/(q + z) has value N and slope -h at ``old``.

    With p = N²/h and q = N/h - old this is a quadratic equation. Without a slope, z becomes zero if
    its linear cost is positive, and does not change otherwise.
    """
    if h <= 0:
        return 0.0 if a + ridge * old > 0 else old
    ratio = N / h
    q = max(ratio - old, 0.0)
    linear, rest = a + ridge * q, N * ratio - a * q
    if rest <= 0:
        return 0.0
    below = linear + math.sqrt(linear * linear + 4.0 * ridge * rest)
    return 2.0 * rest / below if below > 0 else old


@compiled(**HELPER)
def _newton_row(x, y, inv, r, B, m, z, a, ridge, sweeps):
    """Take second-order steps in one coordinate at a time on the KL objective of a row.

    The objective is f(z) = Σ_j (a_j + ½ ridge_j z_j) z_j - Σ_e x_e log y_e. y = B z, inv = 1/y and
    r = x/y are kept up to date, so that only coordinates that move need divisions. B (k, m) is the
    basis at the m non-zeros of the row. With N = Σ x b/y and h = Σ x b²/y² the derivative
    a + ridge z - N(z) is modelled with the hyperbola p/(q + z) that has N's value and slope, and z
    moves to the root of the model. Because 1/N is
    concave in z, the root is never larger than the minimiser. From a larger z, it is closer to the
    minimiser than Newton's step.
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
            new = _root(N, h, a[j], ridge[j], old)
            if new <= 0.0:
                new = 0.0
                if old > 0.0:
                    for e in range(m):
                        # If a coordinate is nearly all of y at e, shrink it, since zero would lead
                        # to log 0.
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


@compiled(**OPTIONS)
def newton_rows(indptr, indices, data, Z, U, cost, ridge, sweeps, xlogy, want_log, tiny, lo, hi):
    """Run Newton coordinate sweeps for KL on rows lo to hi of Z, in place; see `_newton_row`.

    ``cost`` (n, k) is the linear cost d_i Σ_j u_jk plus penalties, and ``ridge`` (n, k) their
    curvature. ``xlogy`` receives Σ_j x_ij log y_ij after the step.
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
        _newton_row(x, y, inv, r, B, m, z, cost[i], ridge[i], sweeps)
        s = 0.0
        if want_log:
            for e in range(m):
                if single:
                    s += x[e] * math.log(_model(z, U[indices[indptr[i] + e]], tiny))
                else:
                    s += x[e] * math.log(max(y[e], tiny))
        xlogy[i] = s


@compiled(**HELPER)
def _fetch(X, turned, first, m, rows):
    """Copy rows ``first`` to first + m - 1 of X, or of its transpose, to ``rows``."""
    if turned:
        for e in range(X.shape[0]):
            for i in range(m):
                rows[i, e] = X[e, first + i]
    else:
        for i in range(m):
            for e in range(X.shape[1]):
                rows[i, e] = X[first + i, e]


@compiled(**HELPER)
def _ratios(x, y, b, change, low, r):
    """Compute y = max(y + change b, low) and r = x / y."""
    wide_vectors()
    one = y.dtype.type(1)
    for e in range(len(y)):
        t = y[e] + change * b[e]
        t = low if low > t else t  # keep NaN
        y[e] = t
        r[e] = x[e] * (one / t)


@compiled(**HELPER)
def _sum(r, b):
    """Return Σ r b."""
    wide_vectors()
    total = r.dtype.type(0)
    for e in range(len(r)):
        total += r[e] * b[e]
    return np.float64(total)


@compiled(**HELPER)
def _sums(x, y, before, change, b, low):
    """Return N = Σ x b / y and h = Σ x b² / y², after y = max(y + change before, low)."""
    wide_vectors()
    zero, one = y.dtype.type(0), y.dtype.type(1)
    N, h = zero, zero
    for e in range(len(y)):
        t = y[e] + change * before[e]
        t = low if low > t else t  # keep NaN
        y[e] = t
        q = b[e] * (one / t)
        s = x[e] * q
        N += s
        h += s * q
    return np.float64(N), np.float64(h)


@compiled(**HELPER)
def _is_nearly_all(x, y, b, part):
    """Return whether ``part`` times b is nearly equal to y at an entry with x > 0."""
    wide_vectors()
    alone, most = x.dtype.type(0), x.dtype.type(1 - 1e-3)
    for e in range(len(x)):
        alone += x[e] if b[e] * part >= y[e] * most else x.dtype.type(0)
    return alone > 0


@compiled(**HELPER)
def _dense_row(x, y, r, z, B, cost, ridge, low, sweeps):
    """Run `_newton_row` on a dense row, with one pass per coordinate.

    The pass updates y for the previous coordinate and computes the sums for the next one. It writes
    only y, since loads and stores cost as much as the division, so r = x/y is not kept up to date.
    For a coordinate at zero, N is known from the start of the sweep. Since then every y kept at
    least the share ``left``, so N has grown by at most 1/left. This bound usually shows that the
    coordinate stays at zero; otherwise another pass decides.
    """
    k, zero = len(z), y.dtype.type(0)
    for e in range(len(y)):
        y[e] = low
    for j in range(k):
        if z[j] != 0:
            own, b = y.dtype.type(z[j]), B[j]
            for e in range(len(y)):
                y[e] += own * b[e]
    change, last = zero, 0
    for _ in range(sweeps):
        _ratios(x, y, B[last], change, low, r)
        change, left = zero, 1.0
        for j in range(k):
            b, old = B[j], np.float64(z[j])
            toll, price = cost[j], ridge[j if len(ridge) > 1 else 0]
            if old == 0:
                N = _sum(r, b)
                if toll * left >= N:
                    continue
                if change != 0 or left < 1:
                    _ratios(x, y, B[last], change, low, r)
                    change, left = zero, 1.0
                    if toll >= _sum(r, b):
                        continue
            N, h = _sums(x, y, B[last], change, b, low)
            new = _root(N, h, toll, price, old)
            if new <= 0:  # nearly all of some y: shrink it, since zero would leave log 0
                new = 0.1 * old if _is_nearly_all(x, y, b, y.dtype.type(old)) else 0.0
            left *= (min(new, old) + TINY) / (old + TINY)  # new / old or one
            change, last = y.dtype.type(new - old), j
            z[j] = new


@compiled(**OPTIONS)
def _newton_dense(X, turned, Z, B, cost, ridge, low, sweeps, begun, room):
    """Run `newton_dense` in one thread, which repeatedly takes the next TOGETHER rows.

    ``begun`` counts the rows taken by all threads. B is the basis as (k, p or more), in a precision
    that may be lower than that of Z. ``room`` (TOGETHER + 2, p or more) first holds rows of X. B
    and ``room`` come from `lined`, so that entries beyond p are zero.
    """
    n = len(Z)
    y, r = room[TOGETHER], room[TOGETHER + 1]
    while True:
        first = TOGETHER * add(begun, 0, 1)
        if first >= n:
            break
        m = min(TOGETHER, n - first)
        _fetch(X, turned, first, m, room)
        for i in range(m):
            row = first + i
            own, price = cost[row if len(cost) > 1 else 0], ridge[row if len(ridge) > 1 else 0]
            _dense_row(room[i], y, r, Z[row], B, own, price, low, sweeps)


def lined(rows, width, dtype):
    """Return zeros for rows that are padded to whole vectors and begin on cache lines."""
    size = -(-width * dtype.itemsize // AT_ONCE) * AT_ONCE + LINE
    room = np.zeros(rows * size + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + rows * size].view(dtype).reshape(rows, -1)


def newton_dense(X, Z, B, cost, ridge, sweeps, low, threads=1):
    """Run `newton_rows` for a dense X, in place.

    B is (p, k); it is used in the precision of ``low``, which may be lower than that of Z.
    """
    turned = not X.flags.c_contiguous and X.flags.f_contiguous
    X = X.T if turned else np.ascontiguousarray(X)
    cost, ridge = (np.ascontiguousarray(a, float) for a in (cost, ridge))
    dtype, (p, k), n = np.dtype(type(low)), B.shape, len(Z)
    basis = lined(k, p, dtype)
    basis[:, :p] = B.T
    most = max(1, min(threads, -(-n // TOGETHER)))
    rooms = lined(most * (TOGETHER + 2), p, dtype)
    rooms = rooms.reshape(most, TOGETHER + 2, rooms.shape[1])
    args = (X, turned, Z, basis, cost, ridge, low, sweeps, np.zeros(1, np.int64))
    crew.run(_newton_dense, args, [()] * most, threads, own=(rooms,))
