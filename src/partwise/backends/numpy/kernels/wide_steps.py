"""Coordinate descent for many starts side by side: factors (n, R k), Hessians (R, k, k).

`half_steps` does all that the loop asks of a half-step in one pass over the factor: the product
with X, the sweep, the point beyond it, by how much the objective changed, and the Gram matrices of
what comes next. Rows of a dense X are read once an iteration: while they are in the cache, their
share of Xᵀ V is taken too.

Rows are swept LANES at a time and cut into pieces whatever the number of threads, so that threads
change no sum. It is one long function: a helper is compiled alone and once more in its caller, and
this is what a first fit waits for.
"""

from __future__ import annotations

import ctypes

import numba as nb
import numpy as np
from numba.extending import get_cython_function_address

from partwise.backends.numpy.kernels._options import HELPER, OPTIONS
from partwise.backends.numpy.kernels.products import rows_times
from partwise.backends.numpy.kernels.team import share

LANES = 64  # rows swept together, as in `hals`
ROWS = 2 * LANES  # of X that are in the cache for both products
DENSE, READY, SUMS, SPARSE, GIVEN = range(5)  # where C comes from, see `half_steps`
STRIP = 128  # columns that are turned at a time
PITCH = LANES + 16  # between rows of scratch: LANES apart they would share few lines of the cache


@nb.njit(**HELPER)
def _pull(G, r, j, z, at, g):
    """g = G_rj z, on LANES rows; z begins at its row ``at``."""
    k = G.shape[1]
    k4 = k - k % 4
    for t in range(LANES):
        g[t] = 0
    for other in range(0, k4, 4):  # four at a time: g stays in registers
        a0, a1 = G[r, j, other], G[r, j, other + 1]
        a2, a3 = G[r, j, other + 2], G[r, j, other + 3]
        i = at + other
        for t in range(LANES):
            g[t] += a0 * z[i, t] + a1 * z[i + 1, t] + a2 * z[i + 2, t] + a3 * z[i + 3, t]
    for other in range(k4, k):
        a0 = G[r, j, other]
        for t in range(LANES):
            g[t] += a0 * z[at + other, t]


@nb.njit(**HELPER)
def _gemm(blas, turned, m, n, k, A, lda, B, ldb, add, C):
    """C = A B, or C + A B, of arrays as Fortran has them, B ``turned`` or not; ldc is m.

    Arrays are addresses: a read-only X is not another type, for which all is compiled again.
    """
    gemm, letters, factors, integer = blas
    sizes = np.empty(6, integer.dtype)  # BLAS wants the address of each number
    sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], sizes[5] = m, n, k, lda, ldb, m
    at, step, letter, factor = (
        sizes.ctypes.data, sizes.itemsize, letters.ctypes.data, factors.ctypes.data
    )  # fmt: skip
    gemm(
        letter, letter + turned, at, at + step, at + 2 * step, factor + factors.itemsize,
        A, at + 3 * step, B, at + 4 * step, factor + add * factors.itemsize, C, at + 5 * step,
    )  # fmt: skip


@nb.njit(**OPTIONS)
def half_steps(
    board, piece, bounds, how, blas, X, p, sums, indptr, indices, x, B, Z, C, G, old, weights,
    beyond, grams, changes, gram, change, sweeps, stop,
):  # fmt: skip
    """Every run one half-step from Z, and ``weights`` times as far again from ``old``.

    Parameters
    ----------
    board, piece : `team`'s
        A negative piece is all of them.
    bounds : (pieces + 1,) array
        The pieces, in blocks of LANES rows.
    how : int
        DENSE: C = X B. READY: C is X B already. Both then leave beyondᵀ X in pieces, the sums.
        SUMS: Z is the other factor, C their sum. SPARSE: C = X B. GIVEN: C is what it is.
    blas : tuple
        `gemm` of the precision.
    X, p : int
        The address of an (n, p) array as C keeps it, and its columns.
    sums : (pieces, R k, p) array
    indptr, indices, x : arrays
        CSR.
    B : (p, R k) array
    Z, C : (n, R k) arrays
        Where the step begins, and what it is drawn to.
    G : (R, k, k) array
    old : (blocks, R k, LANES) array
        Where the last step ended, by blocks of LANES rows; receives where this one does.
    weights : (R,) array
    beyond : (n, R k) array
        Receives what is beyond it, >= 0.
    grams, changes : (pieces, R, k, k), (pieces, R, 2) arrays of float64
        Room for those of each piece.
    gram : (R, k, k) array
        Receives beyondᵀ beyond.
    change : (R, 2) array
        Receives the change of ½ tr(Z G Zᵀ) - ⟨C, Z⟩ up to where the step ends, and from there to
        ``beyond``.
    """
    if piece < 0:
        args = (
            board, bounds, how, blas, X, p, sums, indptr, indices, x, B, Z, C, G, old, weights,
            beyond, grams, changes, gram, change, sweeps, stop,
        )  # fmt: skip
        share(grams.shape[0], args)
        for r in range(gram.shape[0]):
            for e in range(2):
                change[r, e] = 0
                for run in range(grams.shape[0]):
                    change[r, e] += changes[run, r, e]
            for i in range(gram.shape[1]):
                for j in range(i + 1):
                    total = 0.0
                    for run in range(grams.shape[0]):
                        total += grams[run, r, i, j]
                    gram[r, i, j] = gram[r, j, i] = total
        return
    n, wide, k = C.shape[0], C.shape[1], G.shape[1]
    zero, half = Z.dtype.type(0), Z.dtype.type(0.5)
    most = max(1, STRIP // k) * k
    z, c = np.empty((most, PITCH), Z.dtype), np.empty((most, PITCH), Z.dtype)
    far, g = np.empty((most, PITCH), Z.dtype), np.empty(LANES, Z.dtype)
    for r in range(G.shape[0]):
        changes[piece, r, 0] = changes[piece, r, 1] = 0
        for i in range(k):
            for j in range(k):
                grams[piece, r, i, j] = 0
    begin, end = bounds[piece], bounds[piece + 1]
    for b in range(begin, end):
        lo = b * LANES
        m = min(LANES, n - lo)
        if how == SPARSE:
            rows_times(indptr, indices, x, B, C, lo, lo + m)
        elif how == DENSE and (b - begin) % (ROWS // LANES) == 0:
            ahead = min(n, min(end, b + ROWS // LANES) * LANES) - lo
            rows, out = X + lo * p * C.itemsize, C.ctypes.data + lo * wide * C.itemsize
            _gemm(blas, 0, wide, ahead, p, B.ctypes.data, wide, rows, p, 0, out)
        for s in range(0, wide, most):
            width = min(most, wide - s)
            # LANES rows, transposed; idle lanes are zero and stay there
            for t in range(m):
                for j in range(width):
                    z[j, t] = Z[lo + t, s + j]
                    c[j, t] = C[lo + t, s + j]
            for t in range(m, LANES):
                for j in range(width):
                    z[j, t] = c[j, t] = 0
            if how == SUMS:
                for j in range(width):
                    for t in range(m):
                        g[t] = 0
                    for run in range(sums.shape[0]):
                        for t in range(m):
                            g[t] += sums[run, s + j, lo + t]
                    for t in range(m):
                        c[j, t] = C[lo + t, s + j] = g[t]
            for at in range(0, width, k):
                r, own = (s + at) // k, s + at
                # each coordinate to its minimiser, ½ zᵀGz - cᵀz; the moves are those of
                # `hals._hals_range` without weights and ridges
                first = 0.0
                for sweep in range(sweeps):
                    moved = 0.0
                    for j in range(k):
                        _pull(G, r, j, z, at, g)
                        h, gone, fall = G[r, j, j], zero, zero
                        for t in range(LANES):
                            slope, here = g[t] - c[at + j, t], z[at + j, t]
                            # without curvature it moves only where its linear cost sends it to zero
                            new = here - slope / h if h > zero else (zero if slope > zero else here)
                            new = max(new, zero)
                            step = new - here
                            gone += step * step * h
                            fall += step * (slope + half * h * step)
                            z[at + j, t] = new
                        moved += gone
                        changes[piece, r, 0] += fall
                    if sweep == 0:
                        first = moved
                    if moved <= stop * stop * first:
                        break
                weight = weights[r]
                for j in range(k):
                    for t in range(LANES):
                        here = z[at + j, t]
                        there = max(here + weight * (here - old[b, own + j, t]), zero)
                        old[b, own + j, t] = here
                        far[at + j, t] = there
                        z[at + j, t] = here + there  # twice the half-way point: z has served
                for j in range(k):
                    _pull(G, r, j, z, at, g)
                    gone = zero
                    for t in range(LANES):
                        by = far[at + j, t] - old[b, own + j, t]
                        gone += (half * g[t] - c[at + j, t]) * by
                    changes[piece, r, 1] += gone
                for i in range(k):
                    for j in range(i + 1):
                        product = zero
                        for t in range(LANES):
                            product += far[at + i, t] * far[at + j, t]
                        grams[piece, r, i, j] += product
            for t in range(m):
                for j in range(width):
                    beyond[lo + t, s + j] = far[j, t]
        if how <= READY and ((b + 1 - begin) % (ROWS // LANES) == 0 or b + 1 == end):
            top = begin + (b - begin) // (ROWS // LANES) * (ROWS // LANES)
            lo, add = top * LANES, 1 if top > begin else 0
            rows, mine = X + lo * p * C.itemsize, beyond.ctypes.data + lo * wide * C.itemsize
            out = sums.ctypes.data + piece * wide * p * C.itemsize
            _gemm(blas, 1, p, wide, min(n, (b + 1) * LANES) - lo, rows, p, mine, wide, add, out)


def gemm(dtype):
    """What `_gemm` needs: the function as scipy has it, letters, factors, an integer of its kind.

    An address is an argument, for code that is kept may not name one.
    """
    from scipy.linalg import cython_blas

    name = {4: "sgemm", 8: "dgemm"}[np.dtype(dtype).itemsize]
    types = str(cython_blas.__pyx_capi__[name])
    address = get_cython_function_address("scipy.linalg.cython_blas", name)
    function = ctypes.CFUNCTYPE(None, *[ctypes.c_size_t] * 13)(address)
    integer = np.zeros(1, np.int32 if "char *, int *" in types else np.int64)
    return function, np.frombuffer(b"NT", np.uint8), np.arange(2, dtype=dtype), integer


@nb.njit(**OPTIONS)
def residual_norms(Z, C, G, means, out):
    """Squares of the three norms of `residual.kkt_residual` without terms, run by run.

    Z, C are (n, R k), means the column means of Z, out (R, 3): gradient, C and Z G.
    """
    n, k = Z.shape[0], G.shape[1]
    z, g = np.empty((k, PITCH), Z.dtype), np.empty(LANES, Z.dtype)
    zero, one = Z.dtype.type(0), Z.dtype.type(1)
    for lo in range(0, n, LANES):
        m = min(LANES, n - lo)
        for r in range(G.shape[0]):
            for t in range(LANES):
                for j in range(k):
                    z[j, t] = Z[lo + t, r * k + j] if t < m else zero
            for j in range(k):
                _pull(G, r, j, z, nb.int64(0), g)
                mean = means[r * k + j]
                scale = one / mean if mean > zero else zero
                slopes, minus, plus = zero, zero, zero
                for t in range(m):
                    c = C[lo + t, r * k + j]
                    slope = g[t] - c
                    share_ = min(z[j, t] * scale, one) if slope > zero else one
                    square = share_ * share_
                    slopes += square * slope * slope
                    minus += square * c * c
                    plus += square * g[t] * g[t]
                out[r, 0] += slopes
                out[r, 1] += minus
                out[r, 2] += plus
