"""Coordinate descent on rows, alone or with a graph between them.

Rows are swept LANES at a time, one SIMD lane each.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from partwise.engine.kernels._options import HELPER, OPTIONS
from partwise.engine.numeric import in_threads

LANES = 64  # rows swept together, one SIMD lane each; 64 measured best for float32 and float64


@nb.njit(**HELPER)
def _pull(Z, C, d, r, indptr, indices, weights, scale, groups, group, first, z, c, own, near):
    """LANES rows of a group: z, and what pulls them, c = C less the gradient of the graph.

    The gradient is summed from differences w (z_i - z_j): D z and W z each are far larger. ``own``
    receives the weight of each row in the loss, its ridge and its curvature.
    """
    n, k = Z.shape
    wide = r.shape[1]
    zero = Z.dtype.type(0)
    for t in range(LANES):
        i = group + (first + t) * groups
        if i >= n:  # idle lanes stand at the solution of an empty problem
            for j in range(k):
                z[j, t] = 0
                c[j, t] = 0
            continue
        for j in range(k):
            near[j] = zero
        degree = zero
        here = Z[i]
        end = indptr[i + 1]
        for edge in range(indptr[i], end, 2):  # two at a time: half the passes over near
            other, last = indices[edge], indices[edge + 1 if edge + 1 < end else edge]
            w = weights[edge]
            more = weights[edge + 1] if edge + 1 < end else zero
            # rows of one group move at once, so an edge between them enters by its bound
            degree += w + w if other % groups == group else w
            degree += more + more if last % groups == group else more
            one, two = Z[other], Z[last]
            for j in range(k):
                near[j] += w * (one[j] - here[j]) + more * (two[j] - here[j])
        at = i if r.shape[0] > 1 else 0
        own[0, t] = d[i] if d.shape[0] > 1 else d[0]
        for j in range(wide):
            own[1 + j, t] = r[at, j]
            own[1 + wide + j, t] = r[at, j] + scale * degree
        for j in range(k):
            z[j, t] = here[j]
            c[j, t] = C[i, j] + scale * near[j]


@nb.njit(**HELPER)
def _follow(Z, G, groups, group, first, z, c, own, g):
    """One sweep of LANES rows of a group from what `_pull` found; returns how far they moved."""
    n, k = Z.shape
    k4 = k - k % 4
    wide = own.shape[0] // 2
    zero = Z.dtype.type(0)
    moved = 0.0
    for j in range(k):
        for t in range(LANES):
            g[t] = zero
        for other in range(0, k4, 4):  # four at a time: g stays in registers
            a0, a1, a2, a3 = G[j, other], G[j, other + 1], G[j, other + 2], G[j, other + 3]
            z0, z1, z2, z3 = z[other], z[other + 1], z[other + 2], z[other + 3]
            for t in range(LANES):
                g[t] += a0 * z0[t] + a1 * z1[t] + a2 * z2[t] + a3 * z3[t]
        for other in range(k4, k):
            a0 = G[j, other]
            for t in range(LANES):
                g[t] += a0 * z[other, t]
        gjj, zj, cj, dj = G[j, j], z[j], c[j], own[0]
        rj = own[1 + (j if wide > 1 else 0)]
        ej = own[1 + wide + (j if wide > 1 else 0)]
        change = zero
        for t in range(LANES):
            h = dj[t] * gjj + ej[t]
            old = zj[t]
            grad = dj[t] * g[t] + rj[t] * old - cj[t]
            new = old - grad / h if h > zero else (zero if grad > zero else old)
            new = max(new, zero)
            change += (new - old) * (new - old) * h
            zj[t] = new
        moved += change
    for t in range(LANES):
        i = group + (first + t) * groups
        if i < n:
            for j in range(k):
                Z[i, j] = z[j, t]
    return moved


@nb.njit(**HELPER)
def _hals_graph(
    Z, C, G, d, r, indptr, indices, weights, scale, groups, rounds, stop, z, c, own, g, near
):
    first = 0.0
    for done in range(rounds):
        moved = 0.0
        for group in range(groups):
            for b in range(z.shape[0]):
                args = (groups, group, b * LANES, z[b], c[b], own[b], near)
                _pull(Z, C, d, r, indptr, indices, weights, scale, *args)
            for b in range(z.shape[0]):
                moved += _follow(Z, G, groups, group, b * LANES, z[b], c[b], own[b], g)
        if done == 0:
            first = moved
        if moved <= stop * stop * first:
            break


def hals_graph(Z, C, G, d, r, indptr, indices, weights, scale, groups, rounds, stop):
    """`hals_rows` with scale/2 tr(ZᵀLZ) added, L the Laplacian of a CSR graph; in place.

    Row i belongs to group i mod ``groups``: rows of a group lie far apart, since neighbours in the
    graph are often neighbours in the array. Groups move one after the other and see where the
    others have gone.
    """
    n, k = Z.shape
    blocks = ((n + groups - 1) // groups + LANES - 1) // LANES
    z, c = np.zeros((blocks, k, LANES), Z.dtype), np.zeros((blocks, k, LANES), Z.dtype)
    own = np.zeros((blocks, 1 + 2 * r.shape[1], LANES), Z.dtype)
    g, near = np.zeros(LANES, Z.dtype), np.zeros(k, Z.dtype)
    graph = (indptr, indices, weights, scale, groups, rounds, stop)
    _hals_graph(Z, C, G, d, r, *graph, z, c, own, g, near)


@nb.njit(parallel=True, **OPTIONS)
def hals_graph_parallel(Z, C, G, d, r, indptr, indices, weights, scale, groups, rounds, stop):
    """`hals_graph` with the blocks of a group in threads."""
    n, k = Z.shape
    blocks = ((n + groups - 1) // groups + LANES - 1) // LANES
    z, c = np.zeros((blocks, k, LANES), Z.dtype), np.zeros((blocks, k, LANES), Z.dtype)
    own = np.zeros((blocks, 1 + 2 * r.shape[1], LANES), Z.dtype)
    g, near = np.zeros((blocks, LANES), Z.dtype), np.zeros((blocks, k), Z.dtype)
    far = np.zeros(blocks)
    first = 0.0
    for done in range(rounds):
        moved = 0.0
        for group in range(groups):
            for b in nb.prange(blocks):
                args = (groups, group, b * LANES, z[b], c[b], own[b], near[b])
                _pull(Z, C, d, r, indptr, indices, weights, scale, *args)
            for b in nb.prange(blocks):
                far[b] = _follow(Z, G, groups, group, b * LANES, z[b], c[b], own[b], g[b])
            for b in range(blocks):
                moved += far[b]
        if done == 0:
            first = moved
        if moved <= stop * stop * first:
            break


@nb.njit(**OPTIONS)
def _hals_range(Z, C, G, d, r, e, sweeps, stop, enough, lo, hi, z, c, own, g):
    """Coordinate descent on rows lo to hi: min ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0.

    LANES rows at once: coordinate j of all lanes moves to its exact minimiser. ``e`` >= r is the
    curvature of a step: what it has beyond r belongs to a bound around where the sweep begins,
    which is why that is for one sweep. Sweeps end early once a sweep changes less than ``stop``
    times what the first one did, or its squared length in the metric of the Hessian is at most
    ``enough``. z, c (k, LANES), own and g are room to work in: in one piece and without arrays of
    its own it compiles in a third of the time.
    """
    k = Z.shape[1]
    k4 = k - k % 4
    wide, broad = r.shape[1], e.shape[1]
    zero = Z.dtype.type(0)
    for start in range(lo, hi, LANES):
        m = hi - start if hi - start < LANES else LANES
        for t in range(m):
            i = start + t
            own[0, t] = d[i if d.shape[0] > 1 else 0]
            for j in range(wide):
                own[1 + j, t] = r[i if r.shape[0] > 1 else 0, j]
            for j in range(broad):
                own[1 + wide + j, t] = e[i if e.shape[0] > 1 else 0, j]
            for j in range(k):
                z[j, t] = Z[i, j]
                c[j, t] = C[i, j]
        for t in range(m, LANES):  # idle lanes stand at the solution of an empty problem
            for j in range(own.shape[0]):
                own[j, t] = 1
            for j in range(k):
                z[j, t] = 0
                c[j, t] = 0
        first = 0.0
        for sweep in range(sweeps):
            moved = 0.0
            for j in range(k):
                for t in range(LANES):
                    g[t] = zero
                for other in range(0, k4, 4):  # four at a time: g stays in registers
                    a0, a1, a2, a3 = G[j, other], G[j, other + 1], G[j, other + 2], G[j, other + 3]
                    z0, z1, z2, z3 = z[other], z[other + 1], z[other + 2], z[other + 3]
                    for t in range(LANES):
                        g[t] += a0 * z0[t] + a1 * z1[t] + a2 * z2[t] + a3 * z3[t]
                for other in range(k4, k):
                    a0 = G[j, other]
                    for t in range(LANES):
                        g[t] += a0 * z[other, t]
                gjj, zj, cj, dj = G[j, j], z[j], c[j], own[0]
                rj = own[1 + (j if wide > 1 else 0)]
                ej = own[1 + wide + (j if broad > 1 else 0)]
                change = zero
                for t in range(LANES):
                    h = dj[t] * gjj + ej[t]
                    old = zj[t]
                    grad = dj[t] * g[t] + rj[t] * old - cj[t]
                    # without curvature it moves only where its linear cost sends it to zero
                    new = old - grad / h if h > zero else (zero if grad > zero else old)
                    new = max(new, zero)
                    change += (new - old) * (new - old) * h
                    zj[t] = new
                moved += change
            if sweep == 0:
                first = moved
            if moved <= stop * stop * first or moved <= enough:
                break
        for t in range(m):
            for j in range(k):
                Z[start + t, j] = z[j, t]


def hals_rows(Z, C, G, d, r, e, sweeps, stop, enough, threads=1):
    """Coordinate descent in place on every row of Z; see `_hals_range`.

    d has length 1 or n, r and e have 1 or n rows and 1 or k columns.
    """
    k, dtype = Z.shape[1], Z.dtype

    def run(lo, hi):
        z, c = np.empty((k, LANES), dtype), np.empty((k, LANES), dtype)
        own = np.empty((1 + r.shape[1] + e.shape[1], LANES), dtype)
        _hals_range(
            Z, C, G, d, r, e, sweeps, stop, enough, lo, hi, z, c, own, np.empty(LANES, dtype)
        )

    in_threads(run, len(Z), LANES, threads)
