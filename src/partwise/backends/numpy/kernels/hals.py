"""Coordinate descent on rows that are independent or coupled by a graph.

The problem of row z with the linear cost c, the weight d and the ridge r is

    min ½ d zᵀGz + ½ Σ_j r_j z_j² - cᵀz  over z >= 0.

Each step sets coordinate j to its exact minimiser, z_j = max(z_j - slope / curvature, 0) with the
slope d (Gz)_j + r_j z_j - c_j and the curvature d G_jj + r_j. LANES rows are updated together, so
that the inner loop runs over rows and uses the vectors of the processor.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._atomics import (
    add,
    compare_exchange,
    load,
    registers,
    wide_vectors,
)
from partwise.backends.numpy.kernels._options import HELPER, OPTIONS, UNROLLED, compiled

LANES = 64  # rows that are updated together; 64 was the fastest for float32 and float64
TERMS = 4  # number of terms of a sum that are added in one step
IN_ORDER = {**HELPER, "fastmath": UNROLLED["fastmath"]}  # otherwise additions form one long chain
PATIENCE = 1000  # number of reads of a counter after which a thread yields its core


@compiled(**HELPER)
def _to_lanes(Z, lanes, first, step):
    """Copy Z[first + t step, j] to lanes[j, t], and 0 beyond the last row of Z."""
    n, k = Z.shape
    m = min(LANES, (n - first + step - 1) // step)
    if m == LANES:  # a loop of constant length is faster
        for t in range(LANES):
            for j in range(k):
                lanes[j, t] = Z[first + t * step, j]
        return
    for t in range(m):
        for j in range(k):
            lanes[j, t] = Z[first + t * step, j]
    for j in range(k):
        for t in range(m, LANES):
            lanes[j, t] = 0


@compiled(**HELPER)
def _from_lanes(lanes, Z, first, step):
    """Copy lanes back to the rows of Z."""
    n, k = Z.shape
    for t in range(min(LANES, (n - first + step - 1) // step)):
        row = Z[first + t * step]
        for j in range(k):
            row[j] = lanes[j, t]


@compiled(**HELPER)
def _inverse_curvature(own, G, inverse):
    """Compute 1 / (d G_jj + e_j) in each lane, and 0 where there is no curvature; see `_owned`.

    The limit is the smallest normal number, since the reciprocal of a smaller one may overflow.
    """
    wide_vectors()
    zero, one = own.dtype.type(0), own.dtype.type(1)
    least = own.dtype.type(1.2e-38 if own.itemsize == 4 else 2.3e-308)
    ridges = len(own) // 2
    for j in range(G.shape[0]):
        d, e, h = own[0], own[1 + ridges + (j if ridges > 1 else 0)], G[j, j]
        for t in range(LANES):
            curve = d[t] * h + e[t]
            inverse[j, t] = one / curve if curve > least else zero


@compiled(**IN_ORDER)
def _sweep(z, c, G, own, inverse):
    """Move each coordinate of the rows in lanes once.

    Return Σ curvature (new - old)² and the change of the objective. Without ``own``, d is 1 and r
    is 0 in all rows, and ``inverse`` has one column. With ``own``, the first result is
    Σ slope (old - new), which is equal if new > 0, and the second is 0. A coordinate without
    curvature becomes zero if its slope is positive and ``own`` is given, and does not change
    otherwise. G has columns of zeros up to a multiple of TERMS, and z rows of zeros.
    """
    wide_vectors()
    zero, half = z.dtype.type(0), z.dtype.type(0.5)
    product, new, far, fall = registers(z), registers(z), registers(z), registers(z)
    for t in range(LANES):
        far[t] = zero
        fall[t] = zero
    for j in range(G.shape[0]):
        g, old, cost = G[j], z[j], c[j]
        for t in range(LANES):  # product = row j of z G; a helper would keep it out of registers
            product[t] = zero
        for o in range(0, len(g), TERMS):
            g0, g1, g2, g3 = g[o], g[o + 1], g[o + 2], g[o + 3]
            z0, z1, z2, z3 = z[o], z[o + 1], z[o + 2], z[o + 3]
            for t in range(LANES):
                product[t] += g0 * z0[t] + g1 * z1[t] + g2 * z2[t] + g3 * z3[t]
        if own is None:
            h, over = G[j, j], inverse[j, 0]
            for t in range(LANES):
                slope = product[t] - cost[t]
                x = old[t] - slope * over
                x = zero if x < zero else x  # NaN stays
                step = x - old[t]
                far[t] += step * step * h
                fall[t] += step * (slope + half * h * step)
                new[t] = x
        else:
            d, r = own[0], own[1 + (j if len(own) > 3 else 0)]
            for t in range(LANES):
                share = inverse[j, t]
                slope = d[t] * product[t] + r[t] * old[t] - cost[t]
                x = zero if share <= zero and slope > zero else old[t] - slope * share
                x = zero if x < zero else x  # NaN stays
                far[t] += slope * (old[t] - x)
                new[t] = x
        for t in range(LANES):
            old[t] = new[t]
    moved, fallen = 0.0, 0.0
    for t in range(LANES // 4):
        moved += np.float64(far[t] + far[t + 16] + far[t + 32] + far[t + 48])
        fallen += np.float64(fall[t] + fall[t + 16] + fall[t + 32] + fall[t + 48])
    return moved, fallen


@compiled(**OPTIONS)
def _hals_blocks(Z, C, G, own, step, sweeps, still, enough, lo, hi):
    """Run `hals_rows` on blocks lo to hi of LANES rows; ``step`` is 1."""
    wide_vectors()
    k, wide = G.shape
    room = np.empty((wide + 2 * k, LANES), Z.dtype)
    z, c, inverse = room[:wide], room[wide : wide + k], room[wide + k :]
    for j in range(k, wide):
        for t in range(LANES):
            z[j, t] = 0
    for block in range(lo, hi):
        mine = own[block if len(own) > 1 else 0]
        if block == lo or len(own) > 1:
            _inverse_curvature(mine, G, inverse)
        _to_lanes(Z, z, LANES * block, step)
        _to_lanes(C, c, LANES * block, step)
        first = 0.0
        for sweep in range(sweeps):
            moved, _ = _sweep(z, c, G, mine, inverse)
            if sweep == 0:
                first = moved
            if moved <= still * first or moved <= enough:
                break
        _from_lanes(z, Z, LANES * block, step)


def _owned(d, r, e, n, blocks, groups=1, *, always=False):
    """Return d, r and e of the rows as (blocks, 3 or 1 + 2 k, LANES), with 0 in unused lanes.

    If all rows share these numbers, there is one block, unless ``always`` is set. Row i is in group
    i mod ``groups``, and blocks are ordered by group.
    """
    width = max(r.shape[1], e.shape[1])
    parts = (d[:, None], *(np.broadcast_to(a, (len(a), width)) for a in (r, e)))
    if len(d) == len(r) == len(e) == 1 and not always:
        return np.repeat(np.concatenate(parts, axis=1)[..., None], LANES, axis=2)
    columns = 1 + 2 * width
    rows = np.zeros((blocks * LANES * groups, columns), d.dtype)
    full = [np.broadcast_to(a, (n, a.shape[1])) for a in parts]
    np.concatenate(full, axis=1, out=rows[:n])
    lanes = rows.reshape(blocks, LANES, groups, columns).transpose(2, 0, 3, 1)
    return np.ascontiguousarray(lanes).reshape(blocks * groups, columns, LANES)


def _filled_up(G):
    """Return G with columns of zeros up to a multiple of TERMS."""
    k = len(G)
    wide = np.zeros((k, k + -k % TERMS), G.dtype)
    wide[:, :k] = G
    return wide


def hals_rows(Z, C, G, d, r, e, sweeps, stop, enough, threads=1):
    """Run at most ``sweeps`` sweeps over every row of Z, in place.

    d has length 1 or n; r and e >= r have 1 or n rows and 1 or k columns. The curvature of a step
    is d G_jj + e_j. The excess of e over r belongs to a bound around the first Z, which holds
    for one sweep. Each block of LANES rows stops once the change of a sweep, in the metric of the
    Hessian, is below ``stop`` times that of the first sweep, or at most ``enough``.
    """
    blocks = -(-len(Z) // LANES)
    own = _owned(d, r, e, len(Z), blocks)
    args = (Z, C, _filled_up(G), own, 1, sweeps, float(stop) ** 2, float(enough))
    crew.rows(_hals_blocks, args, blocks, 1, threads)


@compiled(**HELPER)
def _wait(counters, at, goal):
    """Wait until another thread has set counters[at] to ``goal``."""
    reads = 0
    while load(counters, at) < goal:
        reads += 1
        if reads > PATIENCE:
            crew.give_way()


@compiled(**HELPER)
def _differences(indptr, indices, weights, Z, i, out):
    """Compute Σ_o w_io (z_i - z_o) from differences, since Σ w z_i and Σ w z_o are far larger."""
    own = Z[i]
    for j in range(len(out)):
        out[j] = 0
    for edge in range(indptr[i], indptr[i + 1]):
        w, other = weights[edge], Z[indices[edge]]
        for j in range(len(out)):
            out[j] += w * (own[j] - other[j])


@compiled(**HELPER)
def _pull(indptr, indices, weights, Z, C, scale, z, c, pull, first, step):
    """Copy rows of Z and their linear terms c_i - scale Σ_o w_io (z_i - z_o) into lanes."""
    n, k = Z.shape
    _to_lanes(Z, z, first, step)
    _to_lanes(C, c, first, step)
    for t in range(min(LANES, (n - first + step - 1) // step)):
        _differences(indptr, indices, weights, Z, first + t * step, pull)
        for j in range(k):
            c[j, t] -= scale * pull[j]


@compiled(**HELPER)
def _add_degrees(indptr, indices, weights, scale, n, own, first, step):
    """Add scale Σ_o w_io to the curvature of the rows in lanes.

    Rows that are a multiple of ``step`` apart are updated together. An edge between two of them is
    replaced by its bound, which counts the edge twice.
    """
    ridges = len(own) // 2
    for t in range(min(LANES, (n - first + step - 1) // step)):
        i, degree = first + t * step, own.dtype.type(0)
        for edge in range(indptr[i], indptr[i + 1]):
            w = weights[edge]
            degree += w + w if (indices[edge] - i) % step == 0 else w
        for j in range(1 + ridges, len(own)):
            own[j, t] += scale * degree


@compiled(**OPTIONS)
def _hals_graph(
    Z, C, G, own, indptr, indices, weights, scale, groups, rounds, still,
    z, c, far, begun, ended, share,
):  # fmt: skip
    """Run `hals_graph` in one of the threads.

    The rows of a group are updated in two phases. In the first, each block of rows computes its
    linear terms; in the second, the rows are updated. A thread takes blocks that no thread has
    ``begun``, starting ``share`` blocks after the previous thread, and continues when all blocks
    have ``ended`` the phase. A late or missing thread therefore delays no other. ``far`` receives
    the change of each block; the changes are added in order, so the sum is the same in all threads.
    """
    wide_vectors()
    (n, k), blocks = Z.shape, len(z)
    inverse, pull = np.empty((k, LANES), Z.dtype), np.empty(k, Z.dtype)
    seat = add(ended, 2 * rounds * groups, 1)
    start = 0.0
    for turn in range(rounds * groups):
        group, at = turn % groups, turn * blocks
        for number in range(blocks):
            b = (seat * share + number) % blocks
            if load(begun, at + b) == 0 and compare_exchange(begun, at + b, 0, seat + 1):
                first = group + b * LANES * groups
                _pull(indptr, indices, weights, Z, C, scale, z[b], c[b], pull, first, groups)
                add(ended, 2 * turn, 1)
        _wait(ended, 2 * turn, blocks)
        for b in range(blocks):
            if load(begun, at + b) == seat + 1:
                first, mine = group + b * LANES * groups, own[group * blocks + b]
                if turn < groups:
                    _add_degrees(indptr, indices, weights, scale, n, mine, first, groups)
                _inverse_curvature(mine, G, inverse)
                far[at + b], _ = _sweep(z[b], c[b], G, mine, inverse)
                _from_lanes(z[b], Z, first, groups)
                add(ended, 2 * turn + 1, 1)
        _wait(ended, 2 * turn + 1, blocks)
        if group == groups - 1:
            moved = 0.0
            for b in range(at + blocks - groups * blocks, at + blocks):
                moved += far[b]
            if turn == group:
                start = moved
            if moved <= still * start:
                break


def hals_graph(Z, C, G, d, r, indptr, indices, weights, scale, groups, rounds, stop, threads=1):
    """Run `hals_rows` with the term scale/2 tr(ZᵀLZ), with the Laplacian L of a CSR graph.

    Row i belongs to group i mod ``groups``. Rows of a group are far apart, since neighbours in the
    graph are often neighbours in the array. Groups are updated one after the other, each with the
    latest values of the others.
    """
    (n, k), G = Z.shape, _filled_up(G)
    blocks = -(-n // (groups * LANES))
    z, c = np.zeros((blocks, G.shape[1], LANES), Z.dtype), np.empty((blocks, k, LANES), Z.dtype)
    own = _owned(d, r, r, n, blocks, groups, always=True)
    turns, team = rounds * groups, max(1, min(threads, blocks))
    far, begun = np.zeros(turns * blocks), np.zeros(turns * blocks, np.int64)
    args: tuple[Any, ...] = (Z, C, G, own, indptr, indices, weights, scale, groups, rounds)
    args += (float(stop) ** 2, z, c, far, begun)
    args += (np.zeros(2 * turns + 1, np.int64), blocks // team)
    if team == 1:
        _hals_graph(*args)
    else:
        crew.run(_hals_graph, args, [()] * team, threads)


@compiled(**OPTIONS)
def laplacian(indptr, indices, weights, Z, out, lo, hi):
    """Compute the product with the Laplacian of a graph for rows lo to hi.

    Row i of the result is Σ_j w_ij (z_i - z_j), from differences.
    """
    for i in range(lo, hi):
        _differences(indptr, indices, weights, Z, i, out[i])


# -- one half-step: sweeps and extrapolation in one pass over the rows ----------------------------


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
            moved, fallen = _sweep(z, c, G, None, inverse)
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
    inverse = np.zeros((k, 1), dtype)
    np.divide(1, curvature, out=inverse[:, 0], where=curvature > np.finfo(dtype).tiny)
    new, beyond, changes = np.empty_like(Y), np.empty_like(Y), np.zeros((blocks, 2))
    args = (Y, C, _filled_up(G), inverse, old, dtype.type(weight), sweeps, float(stop) ** 2)
    crew.rows(_half_steps, (*args, new, beyond, changes), blocks, 1, threads)
    return new, beyond, changes.sum(axis=0)
