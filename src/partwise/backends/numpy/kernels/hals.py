"""Coordinate descent on rows, alone or with a graph between them.

Rows are swept LANES at a time, one SIMD lane each. Kernels are written as a whole (`_writing`), and
are told where their arrays are and how large by numbers: numba takes from 5 to 10 ms for a line or
an argument of its own.
"""

from __future__ import annotations

from threading import local
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._intrinsics import blas
from partwise.backends.numpy.kernels._options import OPTIONS, compiled
from partwise.backends.numpy.kernels._writing import (
    DOUBLE,
    WORD,
    Sum,
    Value,
    arguments,
    either,
    let_others,
    loop,
    plainly,
    repeat,
    told,
)
from partwise.backends.numpy.kernels.products import gemm
from partwise.backends.threads import pieces

LANES = 64  # rows swept together, one SIMD lane each; 64 measured best for float32 and float64
PITCH = LANES + 16  # between rows of scratch: LANES apart they would share few lines of the cache
AT_ONCE = 256  # bytes of a vector: four registers of 512 bits, eight of 256
PATIENCE = 1000  # looks at a counter before the core is given to others
PIECES = 16  # what rows are cut into whatever the number of threads, so that threads change no sum


def _wait(counters, at, goal):
    """Wait until counters[at] is ``goal``, from PATIENCE looks on with the core given to others."""
    builder, looks = counters.builder, Sum(counters.builder, WORD)
    with repeat(builder) as leave:
        leave(counters.read(at).compared(">=", goal))
        looks.add(1)
        with builder.if_then(looks.value.compared(">", PATIENCE)):
            let_others(builder)


def _taken(row, step, end):
    """How many of the rows row, row + step, .. before end LANES hold."""
    return ((end - row + step - 1) / step).or_less(row * 0 + LANES)


def _turn(builder, z, Z, wide, column, k, row, end, pitch=PITCH):
    """k columns of rows ``row`` to ``end`` of Z to z[j pitch + t], LANES of them at most.

    Other lanes are 0. Z has ``wide`` columns.
    """
    count = _taken(row, row * 0 + 1, end)
    with loop(builder, 0, count) as t, loop(builder, 0, k) as j:
        z.store(j * pitch + t, Z.load((row + t) * wide + column + j))
    with loop(builder, count, LANES) as t, loop(builder, 0, k) as j:
        z.store(j * pitch + t, Value(builder, ir.Constant(z.kind, None)))


def _turn_back(builder, z, pitch, Z, wide, column, k, row, step, end):
    """z[j pitch + t] to k columns of rows row + t step < end of Z, LANES of them at most."""
    with loop(builder, 0, _taken(row, step, end)) as t, loop(builder, 0, k) as j:
        Z.store((row + t * step) * wide + column + j, z.load(j * pitch + t))


def _row_times(builder, G, row, k4, z, left, pitch, wide):
    """Σ_o G[row + o] z[o pitch + left :] over o < k4, four o at a time."""
    total = Sum(builder, z.kind, wide)
    with loop(builder, 0, k4, 4) as o:
        terms = [z.load((o + i) * pitch + left, wide) * G.load(row + o + i) for i in range(4)]
        total.add(terms[0] + terms[1] + terms[2] + terms[3])
    return total.value


def _in_double(sums):
    """The sum over a vector, as float64."""
    return sums.value.summed().to(DOUBLE)


def _sweep(builder, z, pitch, c, G, k, k4, own, apart, rs, e0, es):
    """Each coordinate of LANES rows to its minimum; returns how far they moved, squared.

    See `_hals_range`. Rows of z and c are ``pitch`` numbers apart, those of own ``apart``.
    """
    wide = AT_ONCE // z.size
    zero = Value(builder, ir.Constant(ir.VectorType(z.kind, wide), None))
    moved = Sum(builder, DOUBLE)
    with loop(builder, 0, k) as j:
        far, row = Sum(builder, z.kind, wide), j * k4
        for left in range(0, LANES, wide):
            g = _row_times(builder, G, row, k4, z, left, pitch, wide)
            d, r, e = (
                own.load(place * apart + left, wide) for place in (j * 0, j * rs + 1, j * es + e0)
            )
            here = j * pitch + left
            old = z.load(here, wide)
            h = d * G.load(row + j) + e
            slope = d * g + r * old - c.load(here, wide)
            # without curvature it moves only where its linear cost sends it to zero
            new = h.if_above(zero, old - slope / h, slope.if_above(zero, zero, old))
            new = zero.if_above(new, zero, new)  # nan stays
            z.store(here, new, wide)
            far.add((new - old) * (new - old) * h)
        moved.add(_in_double(far))
    return moved.value


def _plain_sweep(builder, z, c, G, k, k4, falls, at):
    """`_sweep` without weights and ridges; falls[at] receives the change of the objective.

    A part without curvature stays.
    """
    wide, pitch = AT_ONCE // z.size, k * 0 + PITCH
    zero = Value(builder, ir.Constant(ir.VectorType(z.kind, wide), None))
    moved, fallen = Sum(builder, DOUBLE), Sum(builder, DOUBLE)
    with loop(builder, 0, k) as j:
        far, fall = (Sum(builder, z.kind, wide) for _ in range(2))
        row = j * k4
        h, none = G.load(row + j), Value(builder, z.kind(0.0))
        low = Value(builder, z.kind(1.2e-38 if z.size == 4 else 2.3e-308))
        # one over less, which is no normal number, may be infinite
        inverse = h.if_above(low, Value(builder, z.kind(1.0)) / h, none)
        for left in range(0, LANES, wide):
            here = j * PITCH + left
            g = _row_times(builder, G, row, k4, z, left, pitch, wide)
            slope, old = g - c.load(here, wide), z.load(here, wide)
            new = old - slope * inverse
            new = zero.if_above(new, zero, new)  # nan stays
            step = new - old
            far.add(step * step * h)
            fall.add(step * (slope + step * (h * 0.5)))
            z.store(here, new, wide)
        moved.add(_in_double(far))
        fallen.add(_in_double(fall))
    falls.add(at, fallen.value)
    return moved.value


def _go_beyond(builder, z, c, G, k, k4, far, old, ends, w, gram, falls, at):
    """far = z + w (z - old), >= 0; its products with itself and the change on the way there.

    ``gram`` and falls[at] receive these; ``ends`` receives z, which has served.
    """
    wide, pitch = AT_ONCE // z.size, k * 0 + PITCH
    zero = Value(builder, ir.Constant(ir.VectorType(z.kind, wide), None))
    fallen = Sum(builder, DOUBLE)
    with loop(builder, 0, k) as j:
        for left in range(0, LANES, wide):
            here, there = j * PITCH + left, j * LANES + left
            now = z.load(here, wide)
            new = now + (now - old.load(there, wide)) * w
            new = zero.if_above(new, zero, new)
            far.store(here, new, wide)
            ends.store(there, now, wide)
            z.store(here, now + new, wide)  # twice the half-way point
    with loop(builder, 0, k) as j:
        fall = Sum(builder, z.kind, wide)
        for left in range(0, LANES, wide):
            here, there = j * PITCH + left, j * LANES + left
            g = _row_times(builder, G, j * k4, k4, z, left, pitch, wide)
            step = far.load(here, wide) - ends.load(there, wide)
            fall.add((g * 0.5 - c.load(here, wide)) * step)
        fallen.add(_in_double(fall))
        with loop(builder, 0, j + 1) as o:
            product = Sum(builder, z.kind, wide)
            for left in range(0, LANES, wide):
                product.add(far.load(o * PITCH + left, wide) * far.load(j * PITCH + left, wide))
            gram.add(j * k + o, _in_double(product))
    falls.add(at, fallen.value)


def _sum_grams(builder, grams, out, pieces, runs, k, j):
    """Row j of Σ_q grams[q, r] to out[r], for each run r; what is above the diagonal, too."""
    with loop(builder, 0, runs) as r:
        of, done = r * k * k, Sum(builder, WORD)
        for width in (8, 1):
            with loop(builder, done.value, j + (2 - width), width) as o:
                total = Sum(builder, DOUBLE, width)
                with loop(builder, 0, pieces) as q:
                    total.add(grams.load(q * runs * k * k + of + j * k + o, width))
                out.store(of + j * k + o, total.value, width)
                for lane in range(width):
                    out.store(of + (o + lane) * k + j, total.value.at(lane))
                done.add(width)


def _sum_shares(builder, c, shares, count, step, m, n, k):
    """c[j, t] = Σ_q shares[q step + j n + t] over q < count, for t < m; 0 for other lanes."""
    with loop(builder, 0, k) as j:
        done = Sum(builder, WORD)
        for width in (64 // c.size, 1):
            with loop(builder, done.value, m - (width - 1), width) as t:
                total = Sum(builder, c.kind, width)
                with loop(builder, 0, count) as q:
                    total.add(shares.load(q * step + j * n + t, width))
                c.store(j * PITCH + t, total.value, width)
                done.add(width)
        with loop(builder, m, LANES) as t:
            c.store(j * PITCH + t, Value(builder, ir.Constant(c.kind, None)))


def _differences(builder, Z, k, i, graph):
    """Runs of columns and Σ_o w_io (z_i - z_o) in each: the first column, the sum, z_i, width."""
    indptr, indices, weights = graph
    begin, end = indptr.load(i), indptr.load(i + 1)
    done = Sum(builder, WORD)
    for width in (64 // Z.size, 16 // Z.size, 1):
        with loop(builder, done.value, k - (width - 1), width) as j:
            z, total = Z.load(i * k + j, width), Sum(builder, Z.kind, width)
            with loop(builder, begin, end) as edge:
                other = Z.load(indices.load(edge) * k + j, width)
                total.add((z - other) * weights.load(edge))
            yield j, total.value, z, width
            done.add(width)


def _pull(builder, z, c, C, Z, k, row, step, end, scale, graph):
    """Rows i = row + t step < end of Z, and what pulls them, C_i - scale Σ_o w_io (z_i - z_o).

    Those of lane t and column j come to z[j LANES + t] and c[j LANES + t], 0 to lanes without a
    row.
    """
    count = _taken(row, step, end)
    with loop(builder, 0, count) as t:
        i = row + t * step
        for j, total, own, width in _differences(builder, Z, k, i, graph):
            pull = C.load(i * k + j, width) - total * scale
            for lane in range(width):
                place = (j + lane) * LANES + t
                z.store(place, own.at(lane))
                c.store(place, pull.at(lane))
    with loop(builder, count, LANES) as t, loop(builder, 0, k) as j:
        for lanes in (z, c):
            lanes.store(j * LANES + t, Value(builder, ir.Constant(Z.kind, None)))


def _curve(builder, own, e0, row, step, end, scale, graph):
    """scale Σ_o w_io added to the curvature of rows i = row + t step < end, each in its lane.

    Rows that ``step`` divides the distance of move at once, so an edge between them enters by its
    bound: twice.
    """
    indptr, indices, weights = graph
    with loop(builder, 0, _taken(row, step, end)) as t:
        i, degree = row + t * step, Sum(builder, own.kind)
        with loop(builder, indptr.load(i), indptr.load(i + 1)) as edge:
            away, weight = indices.load(edge) - i, weights.load(edge)
            rest = away - away / step * step
            apart = (rest * rest).if_above(rest * 0, weight, weight + weight)
            degree.add(apart)
        with loop(builder, e0, e0 * 2 - 1) as e:
            own.add(e * LANES + t, degree.value * scale)


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


def _until_still(builder, sweep, rule):
    """``sweep`` so often, or until it moves no more than the first by a factor, or ``enough``."""
    done, first = Sum(builder, WORD), Sum(builder, DOUBLE)
    with repeat(builder) as leave:
        leave(done.value.compared(">=", rule.sweeps))
        moved = sweep()
        with builder.if_then(done.value.compared("==", 0)):
            first.add(moved)
        done.add(1)
        still = moved.compared("<=", rule.still * first.value)
        leave(builder.or_(still, moved.compared("<=", rule.enough)))


def _graph_sweeps(typing, Z, order, indptr, indices, weights):
    """All of `_hals_graph`."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        Z, order, *graph = arguments(context, builder, signature, args)
        a = told(order, Z.kind, *GRAPH)
        scale, first, phase, at = (
            a.scale.to(Z.kind),
            *(Sum(builder, kind) for kind in (DOUBLE, WORD, WORD)),
        )
        size, e0, n = (a.k4 + a.k) * LANES, a.e0, a.n
        me = a.ended.count(a.rounds * a.groups * 2)
        mine, me = me * a.share, me + 1
        done = Sum(builder, WORD)
        with repeat(builder) as leave:
            leave(done.value.compared(">=", a.rounds))
            with loop(builder, 0, a.groups) as group:
                now, here = phase.value, at.value

                def lanes(b):
                    z = a.work.after(b * size)
                    return group + b * LANES * a.groups, z, z.after(a.k4 * LANES)

                with loop(builder, 0, a.blocks) as turn:
                    b = mine + turn
                    b = b.if_above(a.blocks - 1, b - a.blocks, b)
                    with builder.if_then(a.begun.take(here + b, me)):
                        row, z, c = lanes(b)
                        _pull(builder, z, c, a.C, Z, a.k, row, a.groups, n, scale, graph)
                        a.ended.count(now)
                _wait(a.ended, now, a.blocks)
                with (
                    loop(builder, 0, a.blocks) as b,
                    builder.if_then(a.begun.read(here + b).compared("==", me)),
                ):
                    row, z, c = lanes(b)
                    own = a.own.after((group * a.blocks + b) * a.wide * LANES)
                    with builder.if_then(done.value.compared("==", 0)):
                        _curve(builder, own, e0, row, a.groups, n, scale, graph)
                    pitch = b * 0 + LANES
                    rule = (own, pitch, a.rs, e0, a.rs)
                    far = _sweep(builder, z, pitch, c, a.G, a.k, a.k4, *rule)
                    a.far.store(here + b, far)
                    _turn_back(builder, z, pitch, Z, a.k, b * 0, a.k, row, a.groups, n)
                    a.ended.count(now + 1)
                _wait(a.ended, now + 1, a.blocks)
                phase.add(2)
                at.add(a.blocks)
            moved = Sum(builder, DOUBLE)
            with loop(builder, at.value - a.groups * a.blocks, at.value) as b:
                moved.add(a.far.load(b))
            with builder.if_then(done.value.compared("==", 0)):
                first.add(moved.value)
            done.add(1)
            leave(moved.value.compared("<=", a.still * first.value))
        return context.get_dummy_value()

    return types.void(Z, order, indptr, indices, weights), generate


def _row_sweeps(typing, Z, order, room):
    """All of `_hals_range`."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        Z, order, room = arguments(context, builder, signature, args)
        a = told(order, Z.kind, *WEIGHTED)
        none, pitch = a.n * 0, a.n * 0 + PITCH
        z, c = room, room.after(a.k4 * PITCH)
        with repeat(builder) as leave:
            start = order.count(0) * LANES
            leave(start.compared(">=", a.n))
            own = a.own.after(start * a.wide)
            _turn(builder, z, Z, a.k, none, a.k, start, a.n)
            _turn(builder, c, a.C, a.k, none, a.k, start, a.n)
            rule = (own, a.apart, a.rs, a.e0, a.es)
            _until_still(builder, lambda: _sweep(builder, z, pitch, c, a.G, a.k, a.k4, *rule), a)
            _turn_back(builder, z, pitch, Z, a.k, none, a.k, start, none + 1, a.n)
        return context.get_dummy_value()

    return types.void(Z, order, room), generate


def _plain_steps(typing, Z, order, room, mine):
    """All of `_half_steps`."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        Z, order, room, mine = arguments(context, builder, signature, args)
        a = told(order, Z.kind, *PLAIN)
        none, pitch, k, k4, wide, n = a.n * 0, a.n * 0 + PITCH, a.k, a.k4, a.wide, a.n
        z, c = room, room.after(k4 * PITCH)
        far = room.after((k4 + k) * PITCH * a.ahead)

        def times(*words):
            blas(builder, Z.kind, a.gemm.value, *(word.value for word in words))

        pieces = (a.blocks + a.size - 1) / a.size
        with loop(builder, 0, pieces) as turn:
            p = mine + turn
            p = p.if_above(pieces - 1, p - pieces, p)
            with builder.if_then(a.begun.take(p, p + 1)):
                with builder.if_then(a.ahead.compared("!=", 0)):
                    sums, changed = a.runs * k * k, a.runs * 2
                    for numbers, size in ((a.grams, sums), (a.changes, changed)):
                        with loop(builder, p * size, (p + 1) * size) as at:
                            numbers.store(at, Value(builder, DOUBLE(0.0)))
                begin = p * a.size
                row, item = begin * LANES, Z.size
                rows = (n - row).or_less(a.size * LANES)
                x, by = a.X + row * a.p * item, row * wide * item
                with builder.if_then(a.product.compared("!=", 0)):
                    across = a.across.compared("!=", 0)
                    at_hand = (rows, wide, a.p, a.X + row * item, n, a.B, a.product + row * item, n)
                    along = (wide, rows, a.p, a.B, wide, x, a.product + by, wide)
                    times(a.across, *(either(across, *both) for both in zip(at_hand, along)))
                with loop(builder, begin, (begin + a.size).or_less(a.blocks)) as b:
                    row = b * LANES
                    with loop(builder, 0, a.runs) as r:
                        s, G, run = r * k, a.G.after(r * k * k4), p * a.runs + r
                        of = run * 2 * a.ahead
                        _turn(builder, z, Z, wide, s, k, row, n)
                        with builder.if_else(a.given.compared("!=", 0)) as (then, otherwise):
                            with then:
                                m = (n - row).or_less(none + LANES)
                                shares = a.shares.after(s * n + row)
                                _sum_shares(builder, c, shares, a.given, wide * n, m, n, k)
                            with otherwise:
                                _turn(builder, c, a.C, wide, s, k, row, n)
                        _until_still(
                            builder, lambda: _plain_sweep(builder, z, c, G, k, k4, a.changes, of), a
                        )
                        with builder.if_then(a.ahead.compared("!=", 0)):
                            place = (b * wide + s) * LANES
                            old, ends = a.old.after(place), a.ends.after(place)
                            w, gram = a.weights.load(r), a.grams.after(run * k * k)
                            _go_beyond(
                                builder, z, c, G, k, k4, far, old, ends, w, gram, a.changes, of + 1
                            )
                        _turn_back(builder, far, pitch, a.beyond, wide, s, k, row, none + 1, n)
                with builder.if_then(a.made.compared("!=", 0)):
                    out = a.made + p * a.p * wide * item
                    times(none + 1, a.p, wide, rows, x, a.p, a.moved + by, out, a.p)
                a.begun.count(pieces)
        with builder.if_then(a.ahead.compared("!=", 0)):
            _wait(a.begun, pieces, pieces)
            with loop(builder, 0, k) as turn:
                j = mine * k / pieces + turn
                j = j.if_above(k - 1, j - k, j)
                with builder.if_then(a.begun.take(pieces + 1 + j, pieces)):
                    _sum_grams(builder, a.grams, a.gram, pieces, a.runs, k, j)
        return context.get_dummy_value()

    return types.void(Z, order, room, types.intp), generate


def _change_of_rows(typing, new, old, C, G, d, k, drawn, weighed, lo, hi):
    """All of `change_rows`; rows of C and numbers of d are ``drawn`` and ``weighed`` apart."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        new, old, C, G, d, k, drawn, weighed, lo, hi = arguments(context, builder, signature, args)
        total = Sum(builder, DOUBLE)
        with loop(builder, lo, hi) as i:
            half, done = d.load(i * weighed) * 0.5, Sum(builder, WORD)
            for width in (AT_ONCE // 2 // new.size, 16 // new.size, 1):
                with loop(builder, done.value, k - (width - 1), width) as j:
                    slope = Sum(builder, new.kind, width)
                    with loop(builder, 0, k) as o:
                        twice = new.load(i * k + o) + old.load(i * k + o)
                        slope.add(G.load(o * k + j, width) * twice)
                    slope = slope.value * half - C.load(i * drawn + j, width)
                    step = new.load(i * k + j, width) - old.load(i * k + j, width)
                    total.add((slope.to(DOUBLE) * step.to(DOUBLE)).summed())
                    done.add(width)
        return total.value.value

    place = types.intp
    return types.float64(new, old, C, G, d, *[place] * 5), generate


def _blocks_turned(typing, Z, old, n, wide, column, k, back, lo, hi):
    """All of `_turn_blocks`."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        Z, old, n, wide, column, k, back, lo, hi = arguments(context, builder, signature, args)
        with loop(builder, lo, hi) as b:
            mine, row = old.after((b * wide + column) * LANES), b * LANES
            with builder.if_else(back.compared("!=", 0)) as (to_rows, to_blocks):
                with to_rows:
                    _turn_back(builder, mine, LANES, Z, wide, column, k, row, row * 0 + 1, n)
                with to_blocks:
                    _turn(builder, mine, Z, wide, column, k, row, n, LANES)
        return context.get_dummy_value()

    return types.void(Z, old, *[types.intp] * 7), generate


#: What the kernels are told, by `crew.numbers`: whole numbers, others, arrays like Z, of float64,
#: and counters.
GRAPH = (
    "n k k4 wide blocks rs e0 groups rounds share", "scale still", "C G own work", "far",
    "begun ended",
)  # fmt: skip
WEIGHTED = "begun n k k4 wide apart rs e0 es sweeps", "still enough", "C G own"
PLAIN = (
    "n wide runs k k4 blocks size sweeps ahead given gemm p X B product across moved made",
    "still enough", "C G old ends weights beyond shares", "grams changes gram", "begun",
)  # fmt: skip


_graph_sweep: Any = intrinsic(_graph_sweeps)
_row_sweep: Any = intrinsic(_row_sweeps)
_plain_step: Any = intrinsic(_plain_steps)
_laplacian: Any = intrinsic(_laplacian_of_rows)
_change: Any = intrinsic(_change_of_rows)
_turned: Any = intrinsic(_blocks_turned)


@compiled(**OPTIONS)
def _hals_graph(Z, order, indptr, indices, weights):
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
    _graph_sweep(Z, order, indptr, indices, weights)


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
    ended, rule = np.zeros(2 * steps + 1, np.int64), (int(r.shape[1] > 1), 1 + r.shape[1])
    order = crew.numbers(
        GRAPH, Z, n, k, G.shape[1], wide.shape[1], blocks, *rule, groups, rounds, blocks // team,
        scale, float(stop) ** 2, C, G, own, work, far, begun, ended,
    )  # fmt: skip
    crew.run(_hals_graph, (Z, order, indptr, indices, weights), [()] * team, threads)


@compiled(**OPTIONS)
def laplacian(indptr, indices, weights, Z, out, lo, hi):
    """out_i = Σ_j w_ij (z_i - z_j) on rows lo to hi, from differences: D Z - W Z cancels."""
    plainly()
    _laplacian(out, Z, Z.shape[1], lo, hi, indptr, indices, weights)


@compiled(**OPTIONS)
def _hals_range(Z, order, room):
    """Coordinate descent on rows: min ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0.

    LANES rows at once, the next that nobody has ``begun``: coordinate j of all lanes moves to its
    exact minimiser. ``own`` (1 or blocks, .., LANES) holds d, then r (at 1 + j rs) and e >= r (at
    e0 + j es), the curvature of a step: what it has beyond r belongs to a bound around where the
    sweep begins, which is why that is for one sweep. Sweeps end early once a sweep changes less
    than ``stop`` times what the first one did, or its squared length in the metric of the Hessian
    is at most ``enough``. G has columns of zeros up to a multiple of four, as has ``room`` rows:
    those for z, then those for c.
    """
    _row_sweep(Z, order, room)


@compiled(**OPTIONS)
def change_rows(new, old, C, G, d, found, lo, hi):
    """By how much rows lo to hi of ½ d zᵀGz - cᵀz are higher at new than at old, to found[0].

    That is ⟨½ d G (new + old) - c, new - old⟩, in float64. d has length 1 or n, C 1 or n rows.
    """
    k = new.shape[1]
    found[0] = _change(new, old, C, G, d, k, k * (C.shape[0] > 1), d.shape[0] > 1, lo, hi)


@compiled(**OPTIONS)
def _turn_blocks(Z, old, column, k, back, lo, hi):
    """`turn_blocks` for blocks lo to hi."""
    _turned(Z, old, Z.shape[0], Z.shape[1], column, k, back, lo, hi)


def turn_blocks(Z, old, column, k, threads=1, *, back=False):
    """k columns of Z (n, wide) from ``column`` on to those of old (blocks, wide, LANES).

    Those are blocks of LANES rows, each transposed, the last one filled with zeros; or ``back``.
    """
    tasks = pieces(len(old), 1, 4 * threads)
    crew.run(_turn_blocks, (Z, old, column, k, int(back)), tasks, threads)


_own = local()


def _rooms(count, rows, dtype):
    """Room (count, rows, PITCH) to work in, from a cache line on; with what was there before.

    Vectors across two cache lines take up to 1.7 times as long. Each caller keeps its room: at
    small sizes finding a new one takes as long as the sweeps.
    """
    kept, size = getattr(_own, "room", None), count * rows * PITCH
    if kept is None or kept.dtype != dtype or kept.size < size:
        raw = np.empty(size + 64 // dtype.itemsize, dtype)
        first = -raw.__array_interface__["data"][0] % 64 // dtype.itemsize
        kept = _own.room = raw[first : first + size]
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
    rooms[:, k:wide] = 0  # the columns of G that meet these are 0, but 0 times nan is not
    order = crew.numbers(
        WEIGHTED, Z, 0, len(Z), k, wide, 0 if alike else own.shape[1], own.shape[2], rs, e0, es,
        sweeps, float(stop) ** 2, enough, C, G, own,
    )  # fmt: skip
    crew.run(_hals_range, (Z, order), [()] * most, threads, own=(rooms,))


@compiled(**OPTIONS)
def _half_steps(Z, order, room, mine):
    """`half_steps` for whoever comes: each takes pieces, ``size`` blocks of LANES rows, from its
    own on, unless somebody has ``begun`` them.

    A part without curvature stays. Without ``ahead`` nothing comes after the sweeps. G has columns
    of zeros up to a multiple of four, as has ``room`` rows: those for z, then c, then what is
    beyond it. X has products beside it, unless they are 0: ``product`` = X B, which is transposed
    where columns of X lie one after the other, and ``made``, the share of each piece in that of
    what has ``moved``. C is the sum of ``given`` shares, if there are any.

    It is the only kernel that a plain first fit waits for.
    """
    _plain_step(Z, order, room, mine)


def _run(Z, C, G, rest, sums, rule, ahead, shares=None, along=None, threads=1):
    """`_half_steps`; ``rest`` is old, ends, weights, beyond, ``rule`` blocks, size, sweeps, ..."""
    runs, k, k4 = G.shape
    blocks, size, sweeps, stop, enough = rule
    count = -(-blocks // size)
    most = min(threads, count)
    room = _rooms(most, 2 * k + k4, Z.dtype)
    if k4 > k:
        room[:, k:k4] = 0  # the columns of G that meet these are 0, but 0 times nan is not
    begun = np.zeros(count + 1 + k, np.int64)  # pieces, how many have ended, rows of their sum
    given, shares = (0, 0) if shares is None else (len(shares), shares)
    beside = [0] * 8
    if along is not None:
        beside = [gemm(Z.dtype)[0], len(along[1]), *(0 if a is None else a for a in along)]
    order = crew.numbers(
        PLAIN, Z, *Z.shape, runs, k, k4, blocks, size, sweeps, ahead, given, *beside,
        float(stop) ** 2, enough, C, G, *rest, shares, *sums, begun,
    )  # fmt: skip
    tasks = [(count * t // most,) for t in range(most)]
    crew.run(_half_steps, (Z, order), tasks, threads, own=(room,))


def _filled_up(G):
    """G (R, k, k) with columns of zeros up to a multiple of four."""
    R, k, _ = G.shape
    if k % 4 == 0:
        return np.ascontiguousarray(G)
    wide = np.zeros((R, k, k + -k % 4), G.dtype)
    wide[:, :, :k] = G
    return wide


def blocks_of_a_piece(n, least=1):
    """How many blocks of LANES rows `half_steps` takes together: PIECES of them, or fewer."""
    return max(1, -(-n // (LANES * PIECES)), -(-least // LANES))


def half_steps(
    Z, C, G, old, weights, beyond, sweeps, stop, threads=1, least=1, shares=None, along=None,
    ends=None, grams=None,
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
    along : tuple or None
        X (n, p), B (p, R k), C or None, 0, beyond, shares (pieces, R k, p): before rows move C =
        X B is found, unless it is None, and when they have, the share of each piece in beyondᵀX,
        unless both are None. Or X as (p, n), B, C as (R k, n) and 1.
    ends : (blocks, R k, LANES) array or None
        Receives where this step ends; None is ``old``.
    grams : (pieces, R, k, k) array of float64 or None
        Room for the Gram matrix of each piece.

    Returns
    -------
    gram : (R, k, k) array of float64
        beyondᵀ beyond.
    change : (R, 2) array of float64
        The change of ½ tr(Z G Zᵀ) - ⟨C, Z⟩ up to where the step ends, and from there to
        ``beyond``.
    """
    R, k, _ = G.shape
    blocks, size, G = len(old), blocks_of_a_piece(len(Z), least), _filled_up(G)
    count = -(-blocks // size)
    if grams is None:
        grams = np.empty((count, R, k, k))
    gram, changes = np.zeros((R, k, k)), np.empty((count, R, 2))
    ends = old if ends is None else ends
    C, shares = (a if a is None else np.ascontiguousarray(a) for a in (C, shares))
    rest, rule = (old, ends, weights, beyond), (blocks, size, sweeps, stop, 0.0)
    _run(Z, C, G, rest, (grams, changes, gram), rule, 1, shares, along, threads)
    return gram, changes.sum(axis=0)


def plain_rows(Z, C, G, sweeps, stop, enough, threads=1):
    """`hals_rows` without weights and ridges, by the kernel that a plain fit has compiled."""
    n = len(Z)
    flat = np.diag(G) < np.finfo(G.dtype).tiny
    if flat.any():  # without curvature it moves only where its linear cost sends it to zero
        Z[:, flat] *= C[:, flat] >= 0
    rule, G = (-(-n // LANES), 1, sweeps, stop, enough), _filled_up(G[None])
    _run(Z, C, G, (0, 0, 0, Z), (0, np.zeros(2), 0), rule, 0, threads=threads)
