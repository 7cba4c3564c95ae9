"""Coordinate descent on one factor with its extrapolation, in one pass over the rows."""

from __future__ import annotations

import numpy as np

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._atomics import registers, wide_vectors
from partwise.backends.numpy.kernels._options import OPTIONS, compiled
from partwise.backends.numpy.kernels.hals import (
    IN_ORDER,
    LANES,
    TERMS,
    _filled_up,
    _from_lanes,
    _to_lanes,
)


@compiled(**IN_ORDER)
def _sweep(z, c, G, inverse):
    """Minimise over each coordinate of the rows: z_j = max(z_j - slope/G_jj, 0).

    Return Σ G_jj (change)² and the change of the objective. A coordinate without curvature does not
    change.
    """
    wide_vectors()
    zero, half = z.dtype.type(0), z.dtype.type(0.5)
    product, far, fall, new = registers(z), registers(z), registers(z), registers(z)
    for t in range(LANES):
        far[t] = zero
        fall[t] = zero
    for j in range(G.shape[0]):
        g, own, cost, h, over = G[j], z[j], c[j], G[j, j], inverse[j]
        for t in range(LANES):  # product = row j of z G; a helper would keep it out of registers
            product[t] = zero
        for o in range(0, len(g), TERMS):
            g0, g1, g2, g3 = g[o], g[o + 1], g[o + 2], g[o + 3]
            z0, z1, z2, z3 = z[o], z[o + 1], z[o + 2], z[o + 3]
            for t in range(LANES):
                product[t] += g0 * z0[t] + g1 * z1[t] + g2 * z2[t] + g3 * z3[t]
        for t in range(LANES):
            slope = product[t] - cost[t]
            x = own[t] - slope * over
            x = zero if x < zero else x  # NaN stays
            step = x - own[t]
            far[t] += step * step * h
            fall[t] += step * (slope + half * h * step)
            new[t] = x
        for t in range(LANES):
            own[t] = new[t]
    moved, fallen = 0.0, 0.0
    for t in range(LANES // 4):
        moved += np.float64(far[t] + far[t + 16] + far[t + 32] + far[t + 48])
        fallen += np.float64(fall[t] + fall[t + 16] + fall[t + 32] + fall[t + 48])
    return moved, fallen


@compiled(**IN_ORDER)
def _change(z, c, G, step):
    """Return ⟨zG - c, step⟩ over the rows in lanes."""
    wide_vectors()
    zero = z.dtype.type(0)
    product, fall = registers(z), registers(z)
    for t in range(LANES):
        fall[t] = zero
    for j in range(G.shape[0]):
        g, own, cost = G[j], step[j], c[j]
        for t in range(LANES):
            product[t] = zero
        for o in range(0, len(g), TERMS):
            g0, g1, g2, g3 = g[o], g[o + 1], g[o + 2], g[o + 3]
            z0, z1, z2, z3 = z[o], z[o + 1], z[o + 2], z[o + 3]
            for t in range(LANES):
                product[t] += g0 * z0[t] + g1 * z1[t] + g2 * z2[t] + g3 * z3[t]
        for t in range(LANES):
            fall[t] += (product[t] - cost[t]) * own[t]
    total = 0.0
    for t in range(LANES // 4):
        total += np.float64(fall[t] + fall[t + 16] + fall[t + 32] + fall[t + 48])
    return total


@compiled(**OPTIONS)
def _half_steps(Y, C, G, inverse, old, weight, sweeps, still, new, beyond, changes, lo, hi):
    """Run `half_step` on blocks lo to hi of LANES rows."""
    wide_vectors()
    k = Y.shape[1]
    apart = 1 + 0 * k  # numba would compile the helpers once more for the literal 1
    zero, half = Y.dtype.type(0), Y.dtype.type(0.5)
    z, far = np.zeros((G.shape[1], LANES), Y.dtype), np.empty((k, LANES), Y.dtype)
    c, step = np.empty((k, LANES), Y.dtype), np.empty((k, LANES), Y.dtype)
    for block in range(lo, hi):
        first = block * LANES
        _to_lanes(Y, z, first, apart)
        _to_lanes(C, c, first, apart)
        _to_lanes(old, step, first, apart)
        start = 0.0
        for sweep in range(sweeps):
            moved, fallen = _sweep(z, c, G, inverse)
            changes[block, 0] += fallen
            if sweep == 0:
                start = moved
            if moved <= still * start:
                break
        _from_lanes(z, new, first, apart)
        for j in range(k):
            for t in range(LANES):
                now = z[j, t]
                x = now + weight * (now - step[j, t])
                x = zero if x < 0 else x
                far[j, t], step[j, t] = x, x - now
                z[j, t] = half * (now + x)  # the slope half-way gives the exact change
        _from_lanes(far, beyond, first, apart)
        changes[block, 1] = _change(z, c, G, step)


def half_step(Y, C, G, old, weight, sweeps, stop, threads=1):
    """Minimise ½ tr(Z G Zᵀ) - ⟨C, Z⟩ over Z >= 0 by coordinate descent from Y, and extrapolate.

    Each block of LANES rows is swept until a sweep moves less than ``stop`` times what the first
    one did, at most ``sweeps`` times.

    Returns
    -------
    new, beyond : (n, k) arrays
        The result of the sweeps, and max(new + weight (new - old), 0).
    changes : (2,) array of float64
        The change of the objective from Y to new, and from new to beyond.
    """
    (n, k), dtype = Y.shape, Y.dtype
    blocks = -(-n // LANES)
    curvature = np.diag(G)
    inverse = np.zeros(k, dtype)
    np.divide(1, curvature, out=inverse, where=curvature > np.finfo(dtype).tiny)
    new, beyond, changes = np.empty_like(Y), np.empty_like(Y), np.zeros((blocks, 2))
    args = (Y, C, _filled_up(G), inverse, old, dtype.type(weight), sweeps, float(stop) ** 2)
    crew.rows(_half_steps, (*args, new, beyond, changes), blocks, 1, threads)
    return new, beyond, changes.sum(axis=0)
