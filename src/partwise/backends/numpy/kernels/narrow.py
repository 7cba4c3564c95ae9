"""X U and Xᵀ V of a large dense X and few columns, for which BLAS has no special kernel.

A few rows of X are multiplied by COLUMNS columns of the factor at a time. The sums (X U) or the
entries of the factor (Xᵀ V) stay in registers, and X is read once for all columns. Sums are split
into TILE terms of X U and PIECE rows of Xᵀ V. The split depends only on the shape, so the number of
threads changes no digit.
"""

from __future__ import annotations

import numpy as np

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._atomics import registers
from partwise.backends.numpy.kernels._options import OPTIONS, compiled
from partwise.backends.numpy.kernels.products import add_up

ROWS, COLUMNS = 5, 5  # 25 sums and their operands fit into the 32 registers of AVX-512
TILE = 2048
DEEP = 6  # rows at a time of Xᵀ V
PIECE = 105 * DEEP
RUNS, LEAST = 32, 84  # runs of rows that have a sum of their own for Xᵀ V; blocks of the least run


@compiled(**OPTIONS)
def _dot(X, B, out, lo, hi):
    """Compute X Bᵀ on rows lo to hi; B is (k, p), k and hi - lo fit COLUMNS and ROWS."""
    p, zero, sums = X.shape[1], X.dtype.type(0), registers(X)
    x, b = X.reshape(-1), B.reshape(-1)
    for left in range(0, p, TILE):
        right = min(p, left + TILE)
        for i in range(lo, hi, ROWS):
            for j in range(0, B.shape[0], COLUMNS):
                for t in range(ROWS * COLUMNS):
                    sums[t] = zero
                first, second = np.uintp(i * p + left), np.uintp(j * p + left)
                for e in range(right - left):
                    for r in range(ROWS):
                        a = x[first + np.uintp(r * p + e)]
                        for c in range(COLUMNS):
                            sums[COLUMNS * r + c] += a * b[second + np.uintp(c * p + e)]
                for r in range(ROWS):
                    for c in range(COLUMNS):
                        before = out[i + r, j + c] if left else zero
                        out[i + r, j + c] = before + sums[COLUMNS * r + c]


@compiled(**OPTIONS)
def _tdot(X, V, size, whole, total, room, run):
    """Compute Vᵀ X of rows of ``run``: ``size`` rows of each piece, at most ``whole`` in all.

    The loops over rows and columns are written out: as loops they take 1.6 to 5 times as long,
    because several rows are written and LLVM cannot prove that they do not overlap.

    total is (k, p); k, size and whole fit COLUMNS and DEEP. ``room`` is another (k, p), used where
    a run has more than one piece.
    """
    p, zero = X.shape[1], X.dtype.type(0)
    end = min(whole, (run + 1) * size)
    for lo in range(run * size, end, PIECE):
        out, hi = (total if lo == run * size else room), min(end, lo + PIECE)
        for j in range(out.shape[0]):
            for e in range(p):
                out[j, e] = zero
        for i in range(lo, hi, DEEP):
            u0, u1, u2, u3, u4, u5 = V[i], V[i + 1], V[i + 2], V[i + 3], V[i + 4], V[i + 5]
            for left in range(0, p, TILE):
                right = min(p, left + TILE)
                x0, x1, x2 = X[i, left:right], X[i + 1, left:right], X[i + 2, left:right]
                x3, x4, x5 = X[i + 3, left:right], X[i + 4, left:right], X[i + 5, left:right]
                for j in range(0, out.shape[0], COLUMNS):
                    o0, o1, o2 = out[j, left:right], out[j + 1, left:right], out[j + 2, left:right]
                    o3, o4 = out[j + 3, left:right], out[j + 4, left:right]
                    v00, v01, v02, v03, v04 = u0[j], u0[j + 1], u0[j + 2], u0[j + 3], u0[j + 4]
                    v10, v11, v12, v13, v14 = u1[j], u1[j + 1], u1[j + 2], u1[j + 3], u1[j + 4]
                    v20, v21, v22, v23, v24 = u2[j], u2[j + 1], u2[j + 2], u2[j + 3], u2[j + 4]
                    v30, v31, v32, v33, v34 = u3[j], u3[j + 1], u3[j + 2], u3[j + 3], u3[j + 4]
                    v40, v41, v42, v43, v44 = u4[j], u4[j + 1], u4[j + 2], u4[j + 3], u4[j + 4]
                    v50, v51, v52, v53, v54 = u5[j], u5[j + 1], u5[j + 2], u5[j + 3], u5[j + 4]
                    for e in range(right - left):
                        a0, a1, a2, a3, a4, a5 = x0[e], x1[e], x2[e], x3[e], x4[e], x5[e]
                        o0[e] += a0 * v00 + a1 * v10 + a2 * v20 + a3 * v30 + a4 * v40 + a5 * v50
                        o1[e] += a0 * v01 + a1 * v11 + a2 * v21 + a3 * v31 + a4 * v41 + a5 * v51
                        o2[e] += a0 * v02 + a1 * v12 + a2 * v22 + a3 * v32 + a4 * v42 + a5 * v52
                        o3[e] += a0 * v03 + a1 * v13 + a2 * v23 + a3 * v33 + a4 * v43 + a5 * v53
                        o4[e] += a0 * v04 + a1 * v14 + a2 * v24 + a3 * v34 + a4 * v44 + a5 * v54
        if lo > run * size:
            for j in range(out.shape[0]):
                for e in range(p):
                    total[j, e] += out[j, e]


def _filled(A, m, k):
    """Return A with zeros below and to the right, (m, k)."""
    if A.shape == (m, k) and A.flags.c_contiguous:
        return A
    out = np.zeros((m, k), A.dtype)
    out[: A.shape[0], : A.shape[1]] = A
    return out


def narrow_dot(X, U, threads=1):
    """Return X U for C-contiguous X (n, p) and U (p, k)."""
    n, k = len(X), U.shape[1]
    wide, whole = k + -k % COLUMNS, n - n % ROWS
    B = _filled(U.T, wide, len(U))
    out = np.empty((whole + ROWS, wide), X.dtype)
    crew.rows(_dot, (X, B, out), whole, ROWS, threads)
    if whole < n:
        _dot(_filled(X[whole:], ROWS, X.shape[1]), B, out[whole:], 0, ROWS)
    return np.ascontiguousarray(out[:n, :k])


def narrow_tdot(X, V, threads=1):
    """Return Xᵀ V for C-contiguous X (n, p) and V (n, k)."""
    (n, p), k = X.shape, V.shape[1]
    wide, whole = k + -k % COLUMNS, n - n % DEEP
    V = _filled(V, n, wide)
    size = DEEP * max(LEAST, -(-n // (DEEP * RUNS)))
    runs = -(-whole // size)
    sums = np.empty((runs + (whole < n), wide, p), X.dtype)
    room = sums if size <= PIECE else np.empty_like(sums)
    crew.run(_tdot, (X, V, size, whole), [(b,) for b in range(runs)], threads, own=(sums, room))
    if whole < n:
        rest = _filled(X[whole:], DEEP, p), _filled(V[whole:], DEEP, wide)
        _tdot(*rest, DEEP, DEEP, sums[runs], sums[runs], 0)
    out = np.empty((p, k), X.dtype)
    add_up(sums, out, threads)
    return out
