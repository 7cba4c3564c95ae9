"""Coordinate descent for many starts side by side: factors (n, R k), Hessians (R, k, k).

`half_steps` does all that the loop asks of a half-step in one pass over the factor: the sweep, the
point beyond it, by how much the objective changed, and the Gram matrices of what comes next. Rows
are swept LANES at a time and cut into PIECES whatever the number of threads, so that threads change
no sum.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from partwise.backends.numpy.kernels._options import HELPER, OPTIONS

LANES = 64  # rows swept together, as in `hals`
PIECES = 16
STRIP = 128  # columns that are turned at a time
PITCH = LANES + 16  # between rows of scratch: LANES apart they would share few lines of the cache


@nb.njit(**HELPER)
def _pull(G, j, z, g):
    """g = G_j z, on LANES rows."""
    k = G.shape[0]
    k4 = k - k % 4
    for t in range(LANES):
        g[t] = 0
    for other in range(0, k4, 4):  # four at a time: g stays in registers
        a0, a1, a2, a3 = G[j, other], G[j, other + 1], G[j, other + 2], G[j, other + 3]
        z0, z1, z2, z3 = z[other], z[other + 1], z[other + 2], z[other + 3]
        for t in range(LANES):
            g[t] += a0 * z0[t] + a1 * z1[t] + a2 * z2[t] + a3 * z3[t]
    for other in range(k4, k):
        a0 = G[j, other]
        z0 = z[other]
        for t in range(LANES):
            g[t] += a0 * z0[t]


@nb.njit(**HELPER)
def _sweep(z, c, G, g, sweeps, stop):
    """Each coordinate of LANES rows to its minimiser, ½ zᵀGz - cᵀz; returns the change of that.

    The moves are those of `hals._hals_range` without weights and ridges.
    """
    zero, half = z.dtype.type(0), z.dtype.type(0.5)
    first, total = 0.0, 0.0
    for sweep in range(sweeps):
        moved = 0.0
        for j in range(G.shape[0]):
            _pull(G, j, z, g)
            zj, cj, h = z[j], c[j], G[j, j]
            far, fall = zero, zero
            for t in range(LANES):
                slope = g[t] - cj[t]
                # without curvature it moves only where its linear cost sends it to zero
                new = zj[t] - slope / h if h > zero else (zero if slope > zero else zj[t])
                new = max(new, zero)
                step = new - zj[t]
                far += step * step * h
                fall += step * (slope + half * h * step)
                zj[t] = new
            moved += far
            total += fall
        if sweep == 0:
            first = moved
        if moved <= stop * stop * first:
            break
    return total


@nb.njit(**HELPER)
def _read(rows, lo, s, z):
    """z = the transpose of LANES rows from column s on; idle lanes are zero, and stay there."""
    wide, m = z.shape[0], min(LANES, rows.shape[0] - lo)
    for t in range(m):
        row = rows[lo + t, s : s + wide]
        for j in range(wide):
            z[j, t] = row[j]
    for t in range(m, LANES):
        for j in range(wide):
            z[j, t] = 0


@nb.njit(**HELPER)
def _write(z, rows, lo, s):
    """`_read` the other way."""
    wide = z.shape[0]
    for t in range(min(LANES, rows.shape[0] - lo)):
        row = rows[lo + t, s : s + wide]
        for j in range(wide):
            row[j] = z[j, t]


@nb.njit(**HELPER)
def _half_step(z, c, b, g, G, old, weight, gram, change, sweeps, stop):
    """One run's half-step on LANES rows, from z to b; all are (k, LANES), see `half_steps`."""
    k = G.shape[0]
    zero, half = z.dtype.type(0), z.dtype.type(0.5)
    change[0] += _sweep(z, c, G, g, sweeps, stop)
    for j in range(k):
        here, last, far = z[j], old[j], b[j]
        for t in range(LANES):
            far[t] = max(here[t] + weight * (here[t] - last[t]), zero)
            last[t] = here[t]
            here[t] += far[t]  # twice the half-way point: z has served
    for j in range(k):
        _pull(G, j, z, g)
        moved, last, far, cj = zero, old[j], b[j], c[j]
        for t in range(LANES):
            moved += (half * g[t] - cj[t]) * (far[t] - last[t])
        change[1] += moved
    for i in range(k):
        bi = b[i]
        for j in range(i + 1):
            product, bj = zero, b[j]
            for t in range(LANES):
                product += bi[t] * bj[t]
            gram[i, j] += product


@nb.njit(**HELPER)
def _half_steps_piece(Z, C, G, old, weights, beyond, grams, changes, sweeps, stop, first, last):
    """Blocks first to last of `half_steps`."""
    wide, k = C.shape[1], G.shape[1]
    most = max(1, STRIP // k) * k
    z, c = np.empty((most, PITCH), Z.dtype), np.empty((most, PITCH), Z.dtype)
    far, g = np.empty((most, PITCH), Z.dtype), np.empty(LANES, Z.dtype)
    for b in range(first, last):
        for s in range(0, wide, most):
            width = min(most, wide - s)
            _read(Z, b * LANES, s, z[:width])
            _read(C, b * LANES, s, c[:width])
            for at in range(0, width, k):
                own, r = slice(at, at + k), (s + at) // k
                _half_step(
                    z[own], c[own], far[own], g, G[r], old[b, s + at : s + at + k], weights[r],
                    grams[r], changes[r], sweeps, stop,
                )  # fmt: skip
            _write(far[:width], beyond, b * LANES, s)


@nb.njit(**OPTIONS)
def half_steps(Z, C, G, old, weights, beyond, grams, changes, sweeps, stop, first, last):
    """Every run one half-step from Z, and ``weights`` times as far again from ``old``.

    Pieces first to last, of PIECES; each has sums of its own.

    Parameters
    ----------
    Z, C : (n, R k) arrays
        Where the step begins, and what it is drawn to.
    G : (R, k, k) array
    old : (blocks, R k, LANES) array
        Where the last step ended, by blocks of LANES rows; receives where this one does.
    weights : (R,) array
    beyond : (n, R k) array
        Receives what is beyond it, >= 0.
    grams : (PIECES, R, k, k) array of float64
        Receives beyondᵀ beyond, below the diagonal, in pieces to be summed.
    changes : (PIECES, R, 2) array of float64
        Receives the change of ½ tr(Z G Zᵀ) - ⟨C, Z⟩ up to where the step ends, and from there to
        ``beyond``.
    """
    size = (old.shape[0] + PIECES - 1) // PIECES
    for p in range(first, last):
        bounds = min(old.shape[0], p * size), min(old.shape[0], (p + 1) * size)
        args = (Z, C, G, old, weights, beyond, grams[p], changes[p], sweeps, stop)
        _half_steps_piece(*args, bounds[0], bounds[1])


@nb.njit(**OPTIONS)
def residual_norms(Z, C, G, means, out):
    """Squares of the three norms of `residual.kkt_residual` without terms, run by run.

    Z, C are (n, R k), means the column means of Z, out (R, 3): gradient, C and Z G.
    """
    wide, k = C.shape[1], G.shape[1]
    z, c, g = np.empty((k, PITCH), Z.dtype), np.empty((k, PITCH), Z.dtype), np.empty(LANES, Z.dtype)
    zero, one = Z.dtype.type(0), Z.dtype.type(1)
    for lo in range(0, Z.shape[0], LANES):
        for s in range(0, wide, k):
            _read(Z, lo, s, z)
            _read(C, lo, s, c)
            for j in range(k):
                _pull(G[s // k], j, z, g)
                zj, cj, mean = z[j], c[j], means[s + j]
                scale = one / mean if mean > zero else zero
                slopes, minus, plus = zero, zero, zero
                for t in range(LANES):
                    slope = g[t] - cj[t]
                    share = min(zj[t] * scale, one) if slope > zero else one
                    square = share * share
                    slopes += square * slope * slope
                    minus += square * cj[t] * cj[t]
                    plus += square * g[t] * g[t]
                out[s // k, 0] += slopes
                out[s // k, 1] += minus
                out[s // k, 2] += plus
