"""Coordinate descent on rows, alone or with a graph between them.

Rows are swept LANES at a time, one SIMD lane each.
"""

from __future__ import annotations

import os
from functools import cache
from threading import local
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._intrinsics import add as _add
from partwise.backends.numpy.kernels._intrinsics import read as _read
from partwise.backends.numpy.kernels._intrinsics import times as _times
from partwise.backends.numpy.kernels._options import OPTIONS
from partwise.backends.numpy.kernels._writing import Sum, Value, arguments, loop, plainly
from partwise.backends.numpy.kernels.products import gemm

LANES = 64  # rows swept together, one SIMD lane each; 64 measured best for float32 and float64
PITCH = LANES + 16  # between rows of scratch: LANES apart they would share few lines of the cache
AT_ONCE = 256  # bytes of a vector: four registers of 512 bits, eight of 256
PATIENCE = 1000  # looks at a counter before the core is given to others
PIECES = 16  # what rows are cut into whatever the number of threads, so that threads change no sum


def _take_place(typing, counters, at, mark):
    """Whether counters[at] is 0, in one piece; then it is ``mark`` from now on."""

    def generate(context, builder, signature, args):
        counters, at, mark = arguments(context, builder, signature, args)
        place = builder.gep(counters.pointer, [at.value])
        taken = cgutils.alloca_once_value(builder, ir.IntType(1)(0))
        free = builder.icmp_signed("==", builder.load_atomic(place, "acquire", 8), at.value.type(0))
        with builder.if_then(free):  # who only looks leaves the line where it is
            seen = builder.cmpxchg(place, at.value.type(0), mark.value, "seq_cst")
            builder.store(builder.extract_value(seen, 1), taken)
        return builder.load(taken)

    return types.boolean(counters, types.intp, types.int64), generate


def _wait_for(typing, counters, at, goal):
    """Wait until counters[at] is ``goal``, from PATIENCE looks on with the core given to others."""

    def generate(context, builder, signature, args):
        counters, at, goal = arguments(context, builder, signature, args)
        place = builder.gep(counters.pointer, [at.value])
        look, again, on = (builder.append_basic_block() for _ in range(3))
        looks = Sum(builder, ir.IntType(64))
        builder.branch(look)
        builder.position_at_end(look)
        seen = builder.load_atomic(place, "acquire", 8)
        builder.cbranch(builder.icmp_signed("<", seen, goal.value), again, on)
        builder.position_at_end(again)
        looks.add(1)
        if os.name == "posix":
            many = builder.icmp_signed(">", looks.value.value, ir.IntType(64)(PATIENCE))
            kind = ir.FunctionType(ir.IntType(32), [])
            give = cgutils.get_or_insert_function(builder.module, kind, "sched_yield")
            with builder.if_then(many):
                builder.call(give, [])
        builder.branch(look)
        builder.position_at_end(on)
        return context.get_dummy_value()

    return types.void(counters, types.intp, types.int64), generate


def _taken(row, step, end):
    """How many of the rows row, row + step, .. before end LANES hold."""
    lanes = row * 0 + LANES
    count = (end - row + step - 1) / step
    return count.if_above(lanes, lanes, count)


def _rows_to_lanes(typing, z, at, pitch, Z, wide, column, k, row, end):
    """k columns of rows ``row`` to ``end`` of Z to z[at + j pitch + t], LANES of them at most.

    Other lanes are 0. Z has ``wide`` columns.
    """

    def generate(context, builder, signature, args):
        z, at, pitch, Z, wide, column, k, row, end = arguments(context, builder, signature, args)
        count = _taken(row, row * 0 + 1, end)
        with loop(builder, 0, count) as t, loop(builder, 0, k) as j:
            z.store(at + j * pitch + t, Z.load((row + t) * wide + column + j))
        with loop(builder, count, LANES) as t, loop(builder, 0, k) as j:
            z.store(at + j * pitch + t, Value(builder, ir.Constant(z.kind, None)))
        return context.get_dummy_value()

    return types.void(z, *[types.intp] * 2, Z, *[types.intp] * 5), generate


def _lanes_to_rows(typing, z, at, pitch, Z, wide, column, k, row, step, end):
    """z[at + j pitch + t] to k columns of rows row + t step < end of Z, LANES of them at most."""

    def generate(context, builder, signature, args):
        z, at, pitch, Z, wide, column, k, row, step, end = arguments(
            context, builder, signature, args
        )
        with loop(builder, 0, _taken(row, step, end)) as t, loop(builder, 0, k) as j:
            Z.store((row + t * step) * wide + column + j, z.load(at + j * pitch + t))
        return context.get_dummy_value()

    return types.void(z, *[types.intp] * 2, Z, *[types.intp] * 6), generate


def _row_times(builder, G, row, k4, z, at, pitch, wide):
    """Σ_o G[row + o] z[at + o pitch :] over o < k4, four o at a time."""
    total = Sum(builder, z.kind, wide)
    with loop(builder, 0, k4, 4) as o:
        terms = [z.load(at + (o + i) * pitch, wide) * G.load(row + o + i) for i in range(4)]
        total.add(terms[0] + terms[1] + terms[2] + terms[3])
    return total.value


def _in_double(sums):
    """The sum over a vector, as float64."""
    total = sums.value.summed()
    kind = ir.DoubleType()
    same = total.value.type == kind
    return total if same else Value(total.builder, total.builder.fpext(total.value, kind))


def _sweep_of_lanes(typing, z, at, pitch, c, where, G, k, k4, own, of, apart, rs, e0, es):
    """Each coordinate of LANES rows to its minimum; returns how far they moved, squared.

    See `_hals_range`. z begins at ``at``, c ``where``, own ``of``; its rows are so far ``apart``.
    """

    def generate(context, builder, signature, args):
        z, at, pitch, c, where, G, k, k4, own, of, apart, rs, e0, es = arguments(
            context, builder, signature, args
        )
        wide = AT_ONCE // z.size
        zero = Value(builder, ir.Constant(ir.VectorType(z.kind, wide), None))
        moved = Sum(builder, ir.DoubleType())
        with loop(builder, 0, k) as j:
            far, row = Sum(builder, z.kind, wide), j * k4
            for left in range(0, LANES, wide):
                g = _row_times(builder, G, row, k4, z, at + left, pitch, wide)
                d, r, e = (
                    own.load(of + place * apart + left, wide)
                    for place in (j * 0, j * rs + 1, j * es + e0)
                )
                here = at + j * pitch + left
                old = z.load(here, wide)
                h = d * G.load(row + j) + e
                slope = d * g + r * old - c.load(where + j * pitch + left, wide)
                # without curvature it moves only where its linear cost sends it to zero
                new = h.if_above(zero, old - slope / h, slope.if_above(zero, zero, old))
                new = zero.if_above(new, zero, new)  # nan stays
                z.store(here, new, wide)
                far.add((new - old) * (new - old) * h)
            moved.add(_in_double(far))
        return moved.value.value

    place = types.intp
    kinds = (z, place, place, c, place, G, place, place, own, *[place] * 5)
    return types.float64(*kinds), generate


def _plain_sweep_of_lanes(typing, z, c, G, first, k, k4, falls, at):
    """`_sweep_of_lanes` without weights and ridges; falls[at] receives the change of the objective.

    A part without curvature stays.
    """

    def generate(context, builder, signature, args):
        z, c, G, first, k, k4, falls, at = arguments(context, builder, signature, args)
        wide, pitch = AT_ONCE // z.size, k * 0 + PITCH
        zero = Value(builder, ir.Constant(ir.VectorType(z.kind, wide), None))
        moved, fallen = Sum(builder, ir.DoubleType()), Sum(builder, ir.DoubleType())
        with loop(builder, 0, k) as j:
            far, fall = (Sum(builder, z.kind, wide) for _ in range(2))
            row = first + j * k4
            h, none = G.load(row + j), Value(builder, z.kind(0.0))
            low = Value(builder, z.kind(1.2e-38 if z.size == 4 else 2.3e-308))
            # one over less, which is no normal number, may be infinite
            inverse = h.if_above(low, Value(builder, z.kind(1.0)) / h, none)
            for left in range(0, LANES, wide):
                here = j * PITCH + left
                g = _row_times(builder, G, row, k4, z, k * 0 + left, pitch, wide)
                slope, old = g - c.load(here, wide), z.load(here, wide)
                new = old - slope * inverse
                new = zero.if_above(new, zero, new)  # nan stays
                step = new - old
                far.add(step * step * h)
                fall.add(step * (slope + step * (h * 0.5)))
                z.store(here, new, wide)
            moved.add(_in_double(far))
            fallen.add(_in_double(fall))
        falls.store(at, falls.load(at) + fallen.value)
        return moved.value.value

    place = types.intp
    return types.float64(z, c, G, place, place, place, falls, place), generate


def _beyond_of_lanes(
    typing, z, c, G, first, k, k4, far, old, ends, where, w, grams, gram, falls, at
):
    """far = z + w (z - old), >= 0, with its products with itself and the change on the way there.

    ``ends``, of which this begins ``where``, receives z; z has served.
    """

    def generate(context, builder, signature, args):
        z, c, G, first, k, k4, far, old, ends, where, w, grams, gram, falls, at = arguments(
            context, builder, signature, args
        )
        wide, pitch = AT_ONCE // z.size, k * 0 + PITCH
        zero = Value(builder, ir.Constant(ir.VectorType(z.kind, wide), None))
        fallen = Sum(builder, ir.DoubleType())
        with loop(builder, 0, k) as j:
            for left in range(0, LANES, wide):
                here, there = j * PITCH + left, where + j * LANES + left
                now = z.load(here, wide)
                new = now + (now - old.load(there, wide)) * w
                new = zero.if_above(new, zero, new)
                far.store(here, new, wide)
                ends.store(there, now, wide)
                z.store(here, now + new, wide)  # twice the half-way point
        with loop(builder, 0, k) as j:
            fall = Sum(builder, z.kind, wide)
            for left in range(0, LANES, wide):
                here, there = j * PITCH + left, where + j * LANES + left
                g = _row_times(builder, G, first + j * k4, k4, z, k * 0 + left, pitch, wide)
                step = far.load(here, wide) - ends.load(there, wide)
                fall.add((g * 0.5 - c.load(here, wide)) * step)
            fallen.add(_in_double(fall))
            with loop(builder, 0, j + 1) as o:
                product = Sum(builder, z.kind, wide)
                for left in range(0, LANES, wide):
                    product.add(far.load(o * PITCH + left, wide) * far.load(j * PITCH + left, wide))
                place = gram + j * k + o
                grams.store(place, grams.load(place) + _in_double(product))
        falls.store(at, falls.load(at) + fallen.value)
        return context.get_dummy_value()

    place = types.intp
    kinds = (
        z,
        c,
        G,
        place,
        place,
        place,
        far,
        old,
        ends,
        place,
        z.dtype,
        grams,
        place,
        falls,
        place,
    )
    return types.void(*kinds), generate


def _sum_of_shares(typing, c, shares, count, step, at, m, n, k):
    """c[j, t] = Σ_q shares[at + q step + j n + t] over q < count, for t < m; 0 for other lanes."""

    def generate(context, builder, signature, args):
        c, shares, count, step, at, m, n, k = arguments(context, builder, signature, args)
        with loop(builder, 0, k) as j:
            done = Sum(builder, ir.IntType(64))
            for width in (64 // c.size, 1):
                with loop(builder, done.value, m - (width - 1), width) as t:
                    total = Sum(builder, c.kind, width)
                    with loop(builder, 0, count) as q:
                        total.add(shares.load(at + q * step + j * n + t, width))
                    c.store(j * PITCH + t, total.value, width)
                    done.add(width)
            with loop(builder, m, LANES) as t:
                c.store(j * PITCH + t, Value(builder, ir.Constant(c.kind, None)))
        return context.get_dummy_value()

    return types.void(c, shares, *[types.intp] * 6), generate


def _differences(builder, Z, k, i, graph):
    """Runs of columns and Σ_o w_io (z_i - z_o) in each: the first column, the sum, z_i, width."""
    indptr, indices, weights = graph
    begin, end = indptr.load(i), indptr.load(i + 1)
    done = Sum(builder, ir.IntType(64))
    for width in (64 // Z.size, 16 // Z.size, 1):
        with loop(builder, done.value, k - (width - 1), width) as j:
            z, total = Z.load(i * k + j, width), Sum(builder, Z.kind, width)
            with loop(builder, begin, end) as edge:
                other = Z.load(indices.load(edge) * k + j, width)
                total.add((z - other) * weights.load(edge))
            yield j, total.value, z, width
            done.add(width)


def _pull_of_lanes(typing, work, z, c, C, Z, k, row, step, end, scale, indptr, indices, weights):
    """Rows i = row + t step < end of Z, and what pulls them, C_i - scale Σ_o w_io (z_i - z_o).

    Those of lane t and column j come to work[z + j LANES + t] and work[c + j LANES + t], 0 to lanes
    without a row.
    """

    def generate(context, builder, signature, args):
        work, z, c, C, Z, k, row, step, end, scale, *graph = arguments(
            context, builder, signature, args
        )
        count = _taken(row, step, end)
        with loop(builder, 0, count) as t:
            i = row + t * step
            for j, total, own, width in _differences(builder, Z, k, i, graph):
                pull = C.load(i * k + j, width) - total * scale
                for lane in range(width):
                    place = (j + lane) * LANES + t
                    work.store(z + place, own.at(lane))
                    work.store(c + place, pull.at(lane))
        with loop(builder, count, LANES) as t, loop(builder, 0, k) as j:
            for first in (z, c):
                work.store(first + j * LANES + t, Value(builder, ir.Constant(Z.kind, None)))
        return context.get_dummy_value()

    place = types.intp
    kinds = (work, place, place, C, Z, *[place] * 4, Z.dtype, indptr, indices, weights)
    return types.void(*kinds), generate


def _curvature_of_lanes(typing, own, of, e0, row, step, end, scale, indptr, indices, weights):
    """scale Σ_o w_io added to the curvature of rows i = row + t step < end, each in its lane.

    Rows that ``step`` divides the distance of move at once, so an edge between them enters by its
    bound: twice.
    """

    def generate(context, builder, signature, args):
        own, of, e0, row, step, end, scale, indptr, indices, weights = arguments(
            context, builder, signature, args
        )
        with loop(builder, 0, _taken(row, step, end)) as t:
            i, degree = row + t * step, Sum(builder, own.kind)
            with loop(builder, indptr.load(i), indptr.load(i + 1)) as edge:
                away, weight = indices.load(edge) - i, weights.load(edge)
                rest = away - away / step * step
                apart = (rest * rest).if_above(rest * 0, weight, weight + weight)
                degree.add(apart)
            with loop(builder, e0, e0 * 2 - 1) as e:
                place = of + e * LANES + t
                own.store(place, own.load(place) + degree.value * scale)
        return context.get_dummy_value()

    place = types.intp
    return types.void(own, *[place] * 5, own.dtype, indptr, indices, weights), generate


def _laplacian_of_rows(typing, out, Z, k, lo, hi, indptr, indices, weights):
    """out_i = Σ_o w_io (z_i - z_o) for i from lo to hi."""

    def generate(context, builder, signature, args):
        out, Z, k, lo, hi, *graph = arguments(context, builder, signature, args)
        with loop(builder, lo, hi) as i:
            for j, total, _, width in _differences(builder, Z, k, i, graph):
                out.store(i * k + j, total, width)
        return context.get_dummy_value()

    place = types.intp
    return types.void(out, Z, place, place, place, indptr, indices, weights), generate


_take: Any = intrinsic(_take_place)
_wait: Any = intrinsic(_wait_for)
_turn: Any = intrinsic(_rows_to_lanes)
_turn_back: Any = intrinsic(_lanes_to_rows)
_sweep: Any = intrinsic(_sweep_of_lanes)
_plain_sweep: Any = intrinsic(_plain_sweep_of_lanes)
_go_beyond: Any = intrinsic(_beyond_of_lanes)
_sum_shares: Any = intrinsic(_sum_of_shares)
_pull: Any = intrinsic(_pull_of_lanes)
_curve: Any = intrinsic(_curvature_of_lanes)
_laplacian: Any = intrinsic(_laplacian_of_rows)


@nb.njit(**OPTIONS)
def _hals_graph(
    Z, C, G, own, rs, e0, indptr, indices, weights, scale, groups, rounds, stop, share, work, far,
    begun, ended,
):  # fmt: skip
    """`hals_graph` for whoever comes.

    In the first phase of a group each row finds what pulls it, C less the gradient of the graph,
    summed from differences w (z_i - z_j): D z and W z each are far larger. In the second the rows
    move. Each thread takes blocks that nobody has ``begun``, from ``share`` blocks after those of
    the one before on, and goes on when all of a phase have ``ended``: one that never comes, or
    late, holds up nobody. ``far`` says how far each block moved; summed in order, it is the same
    for all.

    ``own`` (groups, blocks, .., LANES) is that of `_hals_range`, to which the curvature of the
    graph is added; ``work`` has a row for each column of G, which are a multiple of four, and of Z.
    """
    plainly()
    n, k = Z.shape
    k4, blocks, size, wide = G.shape[1], own.shape[1], work.shape[1] * LANES, own.shape[2]
    me = _add(ended, 2 * rounds * groups, 1)
    mine, me, first, phase, at = me * share, me + 1, 0.0, 0, 0
    for done in range(rounds):
        for group in range(groups):
            for turn in range(blocks):
                b = mine + turn
                b = b - blocks if b >= blocks else b
                if _take(begun, at + b, me):
                    row, z = group + b * LANES * groups, b * size
                    c = z + k4 * LANES
                    _pull(work, z, c, C, Z, k, row, groups, n, scale, indptr, indices, weights)
                    _add(ended, phase, 1)
            _wait(ended, phase, blocks)
            for b in range(blocks):
                if _read(begun, at + b) == me:
                    row, z = group + b * LANES * groups, b * size
                    c = z + k4 * LANES
                    of = (group * blocks + b) * wide * LANES
                    if done == 0:
                        _curve(own, of, e0, row, groups, n, scale, indptr, indices, weights)
                    far[at + b] = _sweep(
                        work, z, LANES, work, c, G, k, k4, own, of, LANES, rs, e0, rs
                    )
                    _turn_back(work, z, LANES, Z, k, 0, k, row, groups, n)
                    _add(ended, phase + 1, 1)
            _wait(ended, phase + 1, blocks)
            phase, at = phase + 2, at + blocks
        moved = 0.0
        for b in range(at - groups * blocks, at):
            moved += far[b]
        first = moved if done == 0 else first
        if moved <= stop * stop * first:
            break


def hals_graph(Z, C, G, d, r, indptr, indices, weights, scale, groups, rounds, stop, threads=1):
    """`hals_rows` with scale/2 tr(ZᵀLZ) added, L the Laplacian of a CSR graph; in place.

    Row i belongs to group i mod ``groups``: rows of a group lie far apart, since neighbours in the
    graph are often neighbours in the array. Groups move one after the other and see where the
    others have gone.
    """
    n, k = Z.shape
    blocks = ((n + groups - 1) // groups + LANES - 1) // LANES
    G = _filled_up(G[None])[0]
    given = (d[:, None], r, r)
    rows = len(d) if len(d) > 1 else len(r)
    wide = np.concatenate([np.broadcast_to(a, (rows, a.shape[1])) for a in given], axis=1)
    if rows == 1:
        own = np.empty((groups, blocks, wide.shape[1], LANES), Z.dtype)
        own[:] = wide.T
    else:
        own = np.zeros((blocks * LANES * groups, wide.shape[1]), Z.dtype)
        own[:n] = wide
        own = own.reshape(blocks, LANES, groups, -1).transpose(2, 0, 3, 1)
        own = np.ascontiguousarray(own)
    team, steps = max(1, min(threads, blocks)), rounds * groups
    work = np.zeros((blocks, G.shape[1] + k, LANES), Z.dtype)
    far, begun = np.zeros(steps * blocks), np.zeros(steps * blocks, np.int64)
    graph = (indptr, indices, weights, scale, groups, rounds, stop, blocks // team)
    shared = (work, far, begun, np.zeros(2 * steps + 1, np.int64))
    rule = (int(r.shape[1] > 1), 1 + r.shape[1])
    args = (Z, C, G, own, *rule, *graph, *shared)
    crew.run(_hals_graph, args, [()] * team, threads)


@nb.njit(**OPTIONS)
def laplacian(indptr, indices, weights, Z, out, lo, hi):
    """out_i = Σ_j w_ij (z_i - z_j) on rows lo to hi, from differences: D Z - W Z cancels."""
    plainly()
    _laplacian(out, Z, Z.shape[1], lo, hi, indptr, indices, weights)


@nb.njit(**OPTIONS)
def _hals_range(Z, C, G, own, rs, e0, es, sweeps, stop, enough, begun, z, c):
    """Coordinate descent on rows: min ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0.

    LANES rows at once, the next that nobody has ``begun``: coordinate j of all lanes moves to its
    exact minimiser. ``own`` (1 or blocks, .., LANES) holds d, then r (at 1 + j rs) and e >= r (at
    e0 + j es), the curvature of a step: what it has beyond r belongs to a bound around where the
    sweep begins, which is why that is for one sweep. Sweeps end early once a sweep changes less
    than ``stop`` times what the first one did, or its squared length in the metric of the Hessian
    is at most ``enough``. G has columns of zeros up to a multiple of four, as has z rows.
    """
    plainly()
    k, k4, apart = Z.shape[1], G.shape[1], own.shape[2]
    wide = own.shape[1] if own.shape[0] > 1 else 0
    n = Z.shape[0]
    while True:
        start = LANES * _add(begun, 0, 1)
        if start >= n:
            break
        _turn(z, 0, PITCH, Z, k, 0, k, start, n)
        _turn(c, 0, PITCH, C, k, 0, k, start, n)
        first = 0.0
        for sweep in range(sweeps):
            moved = _sweep(z, 0, PITCH, c, 0, G, k, k4, own, start * wide, apart, rs, e0, es)
            first = moved if sweep == 0 else first
            if moved <= stop * stop * first or moved <= enough:
                break
        _turn_back(z, 0, PITCH, Z, k, 0, k, start, 1, n)


@nb.njit(**OPTIONS)
def change_rows(new, old, C, G, d, lo, hi):
    """By how much rows lo to hi of ½ d zᵀGz - cᵀz are higher at new than at old, in float64.

    That is ⟨½ d G (new + old) - c, new - old⟩. d has length 1 or n, C 1 or n rows.
    """
    k = new.shape[1]
    half = new.dtype.type(0.5)
    slope = np.empty(k, new.dtype)
    total = 0.0
    for i in range(lo, hi):
        own, c = half * d[i if d.shape[0] > 1 else 0], C[i if C.shape[0] > 1 else 0]
        for j in range(k):
            slope[j] = 0
        for other in range(k):
            twice, g = new[i, other] + old[i, other], G[other]
            for j in range(k):
                slope[j] += twice * g[j]
        row = 0.0
        for j in range(k):
            row += np.float64(own * slope[j] - c[j]) * np.float64(new[i, j] - old[i, j])
        total += row
    return total


_kept = local()


def _rooms(count, rows, dtype):
    """Room (count, rows, PITCH) to work in, from a cache line on; with what was there before.

    Vectors across two cache lines take up to 1.7 times as long. Each caller keeps its room: at
    small sizes finding a new one takes as long as the sweeps.
    """
    kept, size = getattr(_kept, "room", None), count * rows * PITCH
    if kept is None or kept.dtype != dtype or kept.size < size:
        raw = np.empty(size + 64 // dtype.itemsize, dtype)
        first = -raw.__array_interface__["data"][0] % 64 // dtype.itemsize
        kept = _kept.room = raw[first : first + size]
    return kept[:size].reshape(count, rows, PITCH)


def _in_lanes(parts, n, dtype):
    """Arrays (1 or n, ..) side by side as (blocks, .., LANES); idle lanes are 0."""
    wide, blocks = sum(a.shape[1] for a in parts), -(-n // LANES)
    rows = np.zeros((blocks, LANES, wide), dtype)
    full = [np.broadcast_to(a, (n, a.shape[1])) for a in parts]
    rows.reshape(-1, wide)[:n] = np.concatenate(full, axis=1)
    return np.ascontiguousarray(rows.transpose(0, 2, 1))


def hals_rows(Z, C, G, d, r, e, sweeps, stop, enough, threads=1):
    """Coordinate descent in place on every row of Z; see `_hals_range`.

    d has length 1 or n, r and e have 1 or n rows and 1 or k columns.
    """
    k, dtype = Z.shape[1], Z.dtype
    parts = (d[:, None], r) if e is r else (d[:, None], r, e)
    alike = len(d) == len(r) == len(e) == 1
    given = np.concatenate(parts, axis=1).T if alike else _in_lanes(parts, len(Z), dtype)
    rs, es = int(r.shape[1] > 1), int(e.shape[1] > 1)
    e0 = 1 if e is r else 1 + r.shape[1]
    G = _filled_up(G[None])[0]
    wide = G.shape[1]

    most, more = max(1, min(threads, -(-len(Z) // LANES))), len(given) if alike else 0
    work = _rooms(1, more + most * (wide + k), dtype)[0]
    own, rooms = given, work[more:].reshape(most, -1, PITCH)
    if alike:
        own = work[None, :more]
        own[0] = given
    z, c = rooms[:, :wide], rooms[:, wide:]
    z[:, k:] = 0  # the columns of G that meet these are 0, but 0 times nan is not
    args = (Z, C, G, own, rs, e0, es, sweeps, stop, enough, np.zeros(1, np.int64))
    crew.run(_hals_range, args, [()] * most, threads, own=(z, c))


@nb.njit(**OPTIONS)
def _half_steps(
    Z, C, G, old, ends, weights, beyond, shares, grams, changes, sweeps, ahead, stop, enough, size,
    order, z, c, far,
):  # fmt: skip
    """`half_steps` for whoever comes: each takes the next ``size`` blocks of LANES rows.

    A part without curvature stays. Without ``ahead`` nothing comes after the sweeps. G has columns
    of zeros up to a multiple of four, as has z rows. ``order`` is that of `_order`.

    It is the only kernel that a plain first fit waits for.
    """
    plainly()
    n, runs, k, k4 = Z.shape[0], G.shape[0], G.shape[1], G.shape[2]
    blocks, given, gemm, p_of_X = order[1], order[2], order[3], order[4]
    wide, item = Z.shape[1], Z.itemsize
    while True:
        p = _add(order, 0, 1)
        begin = p * size
        end = begin + size if begin + size < blocks else blocks
        if begin >= end:
            break
        row = begin * LANES
        rows = n - row if n - row < size * LANES else size * LANES
        x, by = order[5] + row * p_of_X * item, row * wide * item
        if order[7]:
            _times(Z, gemm, 0, wide, rows, p_of_X, order[6], wide, x, order[7] + by, wide)
        for b in range(begin, end):
            row = b * LANES
            m = n - row if n - row < LANES else LANES
            for r in range(runs):
                s, at, of = r * k, r * k * k4, ahead * (p * runs + r) * 2
                _turn(z, 0, PITCH, Z, wide, s, k, row, n)
                if given:
                    _sum_shares(c, shares, given, wide * n, s * n + row, m, n, k)
                else:
                    _turn(c, 0, PITCH, C, wide, s, k, row, n)
                first = 0.0
                for sweep in range(sweeps):
                    moved = _plain_sweep(z, c, G, at, k, k4, changes, of)
                    first = moved if sweep == 0 else first
                    if moved <= stop * stop * first or moved <= enough:
                        break
                if ahead:
                    _go_beyond(
                        z, c, G, at, k, k4, far, old, ends, (b * wide + s) * LANES, weights[r],
                        grams, (p * runs + r) * k * k, changes, of + 1,
                    )  # fmt: skip
                _turn_back(far, 0, PITCH, beyond, wide, s, k, row, 1, n)
        if gemm:
            out = order[9] + p * p_of_X * wide * item
            _times(Z, gemm, 1, p_of_X, wide, rows, x, p_of_X, order[8] + by, out, p_of_X)


def _order(blocks, shares, along):
    """What `_half_steps` does beside the sweeps, as numbers.

    They are: the next piece, the blocks, how many ``shares`` C is the sum of; of ``along`` where
    BLAS's product is, the columns of X, then where X, B, C (0 if it is known), ``beyond`` and the
    shares to be made are. Arrays of more kinds would each have to be compiled.
    """
    order = np.zeros(10, np.int64)
    order[1:3] = blocks, 0 if shares is None else len(shares)
    if along is not None:
        order[3:5] = gemm(along[0].dtype)[0], along[0].shape[1]
        places = (0 if a is None else a.__array_interface__["data"][0] for a in along)
        order[5:] = list(places)
    return order


def _run(given, G, sums, rule, order, ahead, most, threads):
    """`_half_steps` of so many; ``given`` is Z, C, old, ends, weights, beyond, shares."""
    Z, C, *rest = given
    k, wide = G.shape[1:]
    work = _rooms(most, 2 * k + wide, Z.dtype)
    if wide > k:
        work[:, k:wide] = 0  # the columns of G that meet these are 0, but 0 times nan is not
    z, c = work[:, :wide], work[:, wide : wide + k]
    far = work[:, wide + k : wide + 2 * k] if ahead else z
    sweeps, stop, enough, size = rule
    args = (Z, C, G, *rest, *sums, sweeps, ahead, stop, enough, size, order)
    crew.run(_half_steps, args, [()] * most, threads, own=(z, c, far))


def _filled_up(G):
    """G (R, k, k) with columns of zeros up to a multiple of four."""
    R, k, _ = G.shape
    if k % 4 == 0:
        return np.ascontiguousarray(G)
    wide = np.zeros((R, k, k + -k % 4), G.dtype)
    wide[:, :, :k] = G
    return wide


@cache
def _below(k):
    """Rows and columns below the diagonal."""
    return np.tril_indices(k, -1)


def blocks_of_a_piece(n, least=1):
    """How many blocks of LANES rows `half_steps` takes together: PIECES of them, or fewer."""
    return max(1, -(-n // (LANES * PIECES)), -(-least // LANES))


def half_steps(
    Z, C, G, old, weights, beyond, sweeps, stop, threads=1, least=1, shares=None, along=None,
    ends=None,
):  # fmt: skip
    """Every run one half-step from Z, and ``weights`` times as far again from ``old``.

    Parameters
    ----------
    Z, C : (n, R k) arrays
        Where the step begins, and what it is drawn to.
    G : (R, k, k) array
    old : (blocks, R k, LANES) array
        Where the last step ended, by blocks of LANES rows.
    weights : (R,) array
    beyond : (n, R k) array
        Receives what is beyond it, >= 0.
    least : int
        The least rows of a piece.
    shares : (any, R k, n) array or None
        Their sum is C, transposed.
    along : tuple of arrays or None
        X (n, p), B (p, R k), C or None, beyond, shares (pieces, R k, p): before rows move C = X B
        is found, unless it is None, and when they have, the share of each piece in beyondᵀX.
    ends : (blocks, R k, LANES) array or None
        Receives where this step ends; None is ``old``.

    Returns
    -------
    gram : (R, k, k) array of float64
        beyondᵀ beyond.
    change : (R, 2) array of float64
        The change of ½ tr(Z G Zᵀ) - ⟨C, Z⟩ up to where the step ends, and from there to
        ``beyond``.
    """
    R, k, _ = G.shape
    sums = grams, changes = np.zeros((PIECES, R, k, k)), np.zeros((PIECES, R, 2))
    blocks, size, G = len(old), blocks_of_a_piece(len(Z), least), _filled_up(G)
    ends = old if ends is None else ends
    C, shares = (a if a is None else np.ascontiguousarray(a) for a in (C, shares))
    given = (Z, C, old, ends, weights, beyond, old if shares is None else shares)
    rule, order = (sweeps, stop, 0.0, size), _order(blocks, shares, along)
    most = min(threads, -(-blocks // size))
    _run(given, G, sums, rule, order, 1, most, threads)
    gram = grams.sum(axis=0)
    low, high = _below(k)
    gram[:, high, low] = gram[:, low, high]
    return gram, changes.sum(axis=0)


def plain_rows(Z, C, G, sweeps, stop, enough, threads=1):
    """`hals_rows` without weights and ridges, by the kernel that a plain fit has compiled."""
    n, k = Z.shape
    flat = np.diag(G) < np.finfo(G.dtype).tiny
    if flat.any():  # without curvature it moves only where its linear cost sends it to zero
        Z[:, flat] *= C[:, flat] >= 0
    none = np.zeros((1, 1, LANES), Z.dtype)
    sums = np.zeros((1, 1, k, k)), np.zeros((1, 1, 2))
    blocks, G = -(-n // LANES), _filled_up(G[None])
    given, rule = (Z, C, none, none, none[0, 0], Z, none), (sweeps, stop, enough, 1)
    order = _order(blocks, None, None)
    _run(given, G, sums, rule, order, 0, min(threads, blocks), threads)
