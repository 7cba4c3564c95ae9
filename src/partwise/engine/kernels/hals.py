"""Coordinate descent on rows, alone or with a graph between them.

Rows are swept LANES at a time, one SIMD lane each.
"""

from __future__ import annotations

import numba as nb
import numpy as np

from partwise.engine.kernels._options import OPTIONS

LANES = 64  # rows swept together, one SIMD lane each; 64 measured best for float32 and float64


@nb.njit(**OPTIONS)
def _sweep_block(z, c, d, r, e, G, g, sweeps, stop, enough):
    """Coordinate descent on LANES rows at once: min ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0.

    z, c are (k, LANES), r and e that or (1, LANES); coordinate j of all lanes moves to its exact
    minimiser. ``e`` >= r is the curvature of a step: what it has beyond r belongs to a bound
    around where the sweep begins, which is why that is for one sweep. Sweeps end early once a
    sweep changes less than ``stop`` times what the first one did, or its squared length in the
    metric of the Hessian is at most ``enough``. Returns that of the last one.
    """
    k = G.shape[0]
    k4 = k - k % 4
    zero = z.dtype.type(0)
    first, moved = 0.0, 0.0
    for sweep in range(sweeps):
        moved = 0.0
        for j in range(k):
            zj = z[j]
            cj = c[j]
            for t in range(LANES):
                g[t] = zero
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
            gjj = G[j, j]
            rj = r[j if r.shape[0] > 1 else 0]
            ej = e[j if e.shape[0] > 1 else 0]
            change = zero
            for t in range(LANES):
                h = d[t] * gjj + ej[t]
                grad = d[t] * g[t] + rj[t] * zj[t] - cj[t]
                # a coordinate without curvature moves only where its linear cost sends it to zero
                new = zj[t] - grad / h if h > zero else (zero if grad > zero else zj[t])
                new = max(new, zero)
                change += (new - zj[t]) * (new - zj[t]) * h
                zj[t] = new
            moved += change
        if sweep == 0:
            first = moved
        if moved <= stop * stop * first or moved <= enough:
            break
    return moved


@nb.njit(**OPTIONS)
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
        near[:] = 0
        degree = zero
        here = Z[i]
        end = indptr[i + 1]
        for edge in range(indptr[i], end, 2):  # two at a time: half the passes over near
            other, last = indices[edge], indices[min(edge + 1, end - 1)]
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


@nb.njit(**OPTIONS)
def _follow(Z, G, groups, group, first, z, c, own, g):
    """One sweep of LANES rows of a group from what `_pull` found; returns how far they moved."""
    n, k = Z.shape
    wide = own.shape[0] // 2
    moved = _sweep_block(z, c, own[0], own[1 : 1 + wide], own[1 + wide :], G, g, 1, 0.0, 0.0)
    for t in range(min(LANES, (n - group + groups - 1) // groups - first)):
        i = group + (first + t) * groups
        for j in range(k):
            Z[i, j] = z[j, t]
    return moved


@nb.njit(**OPTIONS)
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
    first = 0.0
    for done in range(rounds):
        moved = 0.0
        for group in range(groups):
            for b in range(blocks):
                args = (groups, group, b * LANES, z[b], c[b], own[b], near)
                _pull(Z, C, d, r, indptr, indices, weights, scale, *args)
            for b in range(blocks):
                moved += _follow(Z, G, groups, group, b * LANES, z[b], c[b], own[b], g)
        if done == 0:
            first = moved
        if moved <= stop * stop * first:
            break


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
def _hals_range(Z, C, G, d, r, e, sweeps, stop, enough, lo, hi):
    k = G.shape[0]
    z = np.zeros((k, LANES), Z.dtype)
    c = np.zeros((k, LANES), Z.dtype)
    dl = np.ones(LANES, Z.dtype)
    rl = np.zeros((r.shape[1], LANES), Z.dtype)
    el = np.zeros((e.shape[1], LANES), Z.dtype)
    g = np.zeros(LANES, Z.dtype)
    for start in range(lo, hi, LANES):
        m = min(LANES, hi - start)
        for t in range(m):
            dl[t] = d[start + t] if d.shape[0] > 1 else d[0]
            for j in range(r.shape[1]):
                rl[j, t] = r[start + t if r.shape[0] > 1 else 0, j]
            for j in range(e.shape[1]):
                el[j, t] = e[start + t if e.shape[0] > 1 else 0, j]
            for j in range(k):
                z[j, t] = Z[start + t, j]
                c[j, t] = C[start + t, j]
        for t in range(m, LANES):  # idle lanes stand at the solution of an empty problem
            for j in range(k):
                z[j, t] = 0
                c[j, t] = 0
        _sweep_block(z, c, dl, rl, el, G, g, sweeps, stop, enough)
        for t in range(m):
            for j in range(k):
                Z[start + t, j] = z[j, t]


@nb.njit(**OPTIONS)
def hals_rows(Z, C, G, d, r, e, sweeps, stop, enough):
    """Coordinate descent in place on every row of Z; see `_sweep_block`.

    d has length 1 or n, r and e have 1 or n rows and 1 or k columns.
    """
    _hals_range(Z, C, G, d, r, e, sweeps, stop, enough, 0, Z.shape[0])


@nb.njit(parallel=True, **OPTIONS)
def hals_rows_parallel(Z, C, G, d, r, e, sweeps, stop, enough, chunk):
    """`hals_rows` over chunks of rows in threads; chunk is a multiple of LANES."""
    n = Z.shape[0]
    for b in nb.prange((n + chunk - 1) // chunk):
        _hals_range(Z, C, G, d, r, e, sweeps, stop, enough, b * chunk, min(n, (b + 1) * chunk))
