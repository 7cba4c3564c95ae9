"""Coordinate descent on rows, alone or with a graph between them.

Rows are swept LANES at a time, one SIMD lane each.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from threading import local
from typing import Any

import numba as nb
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import get_cython_function_address, intrinsic

from partwise.backends.numpy.kernels._options import OPTIONS
from partwise.backends.threads import each, in_threads

LANES = 64  # rows swept together, one SIMD lane each; 64 measured best for float32 and float64
PITCH = LANES + 16  # between rows of scratch: LANES apart they would share few lines of the cache
AT_ONCE = 256  # bytes of a vector: four registers of 512 bits, eight of 256
APART = 32  # numbers between what two threads write to: lines of the cache come in pairs
PATIENCE = 1000  # looks at a counter before the core is given to others
PIECES = 16  # what rows are cut into whatever the number of threads, so that threads change no sum


def _atomic_add(typing, counters, at, value):
    """counters[at] += value in one piece, whatever other threads do; returns what it was."""

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = cgutils.get_item_pointer(
            context, builder, signature.args[0], array, [args[1]], wraparound=False
        )
        return builder.atomic_rmw("add", place, args[2], "seq_cst")

    return types.int64(counters, types.intp, types.int64), generate


def _atomic_load(typing, counters, at):
    """counters[at] as other threads have left it."""

    def generate(context, builder, signature, args):
        array = context.make_array(signature.args[0])(context, builder, args[0])
        place = cgutils.get_item_pointer(
            context, builder, signature.args[0], array, [args[1]], wraparound=False
        )
        return builder.load_atomic(place, "acquire", 8)

    return types.int64(counters, types.intp), generate


def _yield(typing):
    """Give the core to a thread that waits for one."""

    def generate(context, builder, signature, args):
        if os.name == "posix":
            kind = ir.FunctionType(ir.IntType(32), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "sched_yield"), [])
        return context.get_dummy_value()

    return types.void(), generate


def _on_the_stack(typing, like):
    """LANES numbers of the dtype of ``like``, of which LLVM knows that no other array holds them.

    Without that each pass of 64 additions begins with a test of what overlaps with what.
    """
    kind = types.Array(like.dtype, 1, "C")

    def generate(context, builder, signature, args):
        number = context.get_data_type(like.dtype)
        with builder.goto_entry_block():
            room = builder.alloca(ir.ArrayType(number, LANES))
            room.align = 64
        array = context.make_array(kind)(context, builder)
        length, size = (
            context.get_constant(types.intp, n) for n in (LANES, like.dtype.bitwidth // 8)
        )
        context.populate_array(
            array,
            data=builder.bitcast(room, number.as_pointer()),
            shape=cgutils.pack_array(builder, [length]),
            strides=cgutils.pack_array(builder, [size]),
            itemsize=size,
            meminfo=None,
        )
        return array._getvalue()

    return kind(like), generate


def _sum_of_rows(typing, g, G, at, z, first, pitch, count):
    """g = Σ_o G[at + o] z[first + o pitch : + LANES], by their places in memory; four o at a time.

    As vectors: loops over lanes take longer to compile, and LLVM makes them of half the width where
    the processor has 512 bits.
    """
    size = g.dtype.bitwidth // 8
    wide = AT_ONCE // size

    def generate(context, builder, signature, args):
        to, of, rows = (
            context.make_array(signature.args[i])(context, builder, args[i]).data for i in (0, 1, 3)
        )
        at, begin, between, end = (args[i] for i in (2, 4, 5, 6))
        lanes = ir.VectorType(context.get_data_type(g.dtype), wide)
        nothing, fused = ir.Constant(lanes, ir.Undefined), ("contract", "nsz")
        everywhere = ir.Constant(ir.VectorType(ir.IntType(32), wide), [0] * wide)

        def whole(number):
            return context.get_constant(types.intp, number)

        def vector(pointer, place):
            return builder.bitcast(builder.gep(pointer, [place]), lanes.as_pointer())

        def times(o, left):
            a = builder.load(builder.gep(of, [builder.add(at, o)]))
            a = builder.insert_element(nothing, a, ir.Constant(ir.IntType(32), 0))
            place = builder.add(builder.add(begin, whole(left)), builder.mul(o, between))
            row = builder.load(vector(rows, place), align=size)
            return builder.fmul(builder.shuffle_vector(a, nothing, everywhere), row, flags=fused)

        for left in range(0, LANES, wide):
            total = cgutils.alloca_once_value(builder, ir.Constant(lanes, [0.0] * wide))
            with cgutils.for_range_slice(builder, whole(0), end, whole(4), inc=True) as (o, _):
                part = times(o, left)
                for more in range(1, 4):
                    term = times(builder.add(o, whole(more)), left)
                    part = builder.fadd(part, term, flags=fused)
                builder.store(builder.fadd(builder.load(total), part, flags=fused), total)
            builder.store(builder.load(total), vector(to, whole(left)), align=size)
        return context.get_dummy_value()

    place = types.intp
    return types.void(g, G, place, z, place, place, place), generate


def _product(typing, like, gemm, turned, m, n, k, a, b, c):
    """BLAS's c = a bᵀ if ``turned``, else a b, at these addresses, columns first, without gaps.

    ``gemm`` is the address of the function for the dtype of ``like``. Its sizes have 32 or 64 bits:
    the lower half comes first.
    """

    def generate(context, builder, signature, args):
        number, byte = context.get_data_type(like.dtype), ir.IntType(8)
        plain, other = (ir.Constant(byte, ord(letter)) for letter in "NT")
        turn = builder.trunc(args[2], ir.IntType(1))
        beside = builder.select(turn, args[4], args[5])
        one, zero = (ir.Constant(number, value) for value in (1.0, 0.0))
        values = (plain, builder.select(turn, other, plain), *args[3:6], one, beside, zero)
        letter, second, m, n, k, one, beside, zero = (
            cgutils.alloca_once_value(builder, value) for value in values
        )
        a, b, c = (builder.inttoptr(place, number.as_pointer()) for place in args[6:])
        given = (letter, second, m, n, k, one, a, m, b, beside, zero, c, m)
        kind = ir.FunctionType(ir.VoidType(), [value.type for value in given])
        builder.call(builder.inttoptr(args[1], kind.as_pointer()), given)
        return context.get_dummy_value()

    return types.void(like, *[types.intp] * 8), generate


_times: Any = intrinsic(_product)
_sum_rows: Any = intrinsic(_sum_of_rows)
_add: Any = intrinsic(_atomic_add)
_read: Any = intrinsic(_atomic_load)
_let_others: Any = intrinsic(_yield)
_lanes: Any = intrinsic(_on_the_stack)


@nb.njit(**OPTIONS)
def _hals_graph(
    Z, C, G, d, r, indptr, indices, weights, scale, groups, rounds, stop, z, c, own, near, far,
    begun, ended, mine,
):  # fmt: skip
    """`hals_graph` for whoever comes: as many threads as ``mine`` has rows may be in here together.

    Each takes blocks that nobody has ``begun``, first those that it always takes (its cache has
    their room), then what others have not come to, and goes on when all of a phase have ``ended``:
    one that never comes, or late, holds up nobody. ``far`` (rounds, groups, blocks)
    says how far each block moved; summed in order, it is the same for all.

    In the first phase of a group each row finds what pulls it, c = C less the gradient of the
    graph, summed from differences w (z_i - z_j): D z and W z each are far larger. ``own`` receives
    the weight of each row in the loss, its ridge and its curvature. In the second the rows move.
    G has columns of zeros up to a multiple of four, as has z rows. It is in one piece, which halves
    the time to compile.
    """
    n, k = Z.shape
    k4, wide = G.shape[1], r.shape[1]
    blocks, team = z.shape[0], mine.shape[0]
    zero = Z.dtype.type(0)
    first, phase = 0.0, 0
    g = _lanes(Z)
    me = _add(ended, 2 * rounds * groups, 1)
    for done in range(rounds):
        for group in range(groups):
            taken, turn = 0, 0
            while turn < team:
                owner = (me + turn) % team
                at = owner * (begun.size // team) + phase // 2
                b = blocks
                if turn == 0 or owner + _read(begun, at) * team < blocks:
                    b = owner + _add(begun, at, 1) * team
                if b >= blocks:
                    turn += 1
                    continue
                mine[me, taken] = b
                taken += 1
                for t in range(LANES):
                    i = group + (b * LANES + t) * groups
                    if i >= n:  # idle lanes stand at the solution of an empty problem
                        for j in range(k):
                            z[b, j, t] = zero
                            c[b, j, t] = zero
                        continue
                    for j in range(k):
                        near[b, j] = zero
                    degree = zero
                    end = indptr[i + 1]
                    for edge in range(indptr[i], end, 2):  # two at a time: half the passes
                        other, last = indices[edge], indices[edge + 1 if edge + 1 < end else edge]
                        w = weights[edge]
                        more = weights[edge + 1] if edge + 1 < end else zero
                        # rows of one group move at once, so an edge between them enters by its
                        # bound
                        degree += w + w if other % groups == group else w
                        degree += more + more if last % groups == group else more
                        for j in range(k):
                            here = Z[i, j]
                            near[b, j] += w * (Z[other, j] - here) + more * (Z[last, j] - here)
                    row = i if r.shape[0] > 1 else 0
                    own[b, 0, t] = d[i] if d.shape[0] > 1 else d[0]
                    for j in range(wide):
                        own[b, 1 + j, t] = r[row, j]
                        own[b, 1 + wide + j, t] = r[row, j] + scale * degree
                    for j in range(k):
                        z[b, j, t] = Z[i, j]
                        c[b, j, t] = C[i, j] + scale * near[b, j]
                _add(ended, phase, 1)
            tries = 0
            while _read(ended, phase) < blocks:
                tries += 1
                if tries > PATIENCE:
                    _let_others()
            phase += 1
            for place in range(taken):
                b = mine[me, place]
                moved = 0.0
                for j in range(k):
                    _sum_rows(g, G, j * k4, z, b * k4 * LANES, LANES, k4)
                    gjj, rj = G[j, j], 1 + (j if wide > 1 else 0)
                    change = zero
                    for t in range(LANES):
                        h = own[b, 0, t] * gjj + own[b, rj + wide, t]
                        old = z[b, j, t]
                        grad = own[b, 0, t] * g[t] + own[b, rj, t] * old - c[b, j, t]
                        new = old - grad / h if h > zero else (zero if grad > zero else old)
                        new = max(new, zero)
                        change += (new - old) * (new - old) * h
                        z[b, j, t] = new
                    moved += change
                for t in range(LANES):
                    i = group + (b * LANES + t) * groups
                    if i < n:
                        for j in range(k):
                            Z[i, j] = z[b, j, t]
                far[done, group, b] = moved
                _add(ended, phase, 1)
            tries = 0
            while _read(ended, phase) < blocks:
                tries += 1
                if tries > PATIENCE:
                    _let_others()
            phase += 1
        moved = 0.0
        for group in range(groups):
            for b in range(blocks):
                moved += far[done, group, b]
        if done == 0:
            first = moved
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
    z, c = (np.zeros((blocks, width, LANES), Z.dtype) for width in (G.shape[1], k))
    own = np.zeros((blocks, 1 + 2 * r.shape[1], LANES), Z.dtype)
    team, steps = max(1, min(threads, blocks)), rounds * groups
    # what threads write to often is APART: two on one line of the cache would wait for each other
    near = np.zeros((blocks, k + -k % APART + APART), Z.dtype)
    far, begun = np.zeros((rounds, groups, blocks)), np.zeros(team * (steps + APART), np.int64)
    ended, mine = np.zeros(2 * steps + 1, np.int64), np.zeros((team, blocks + APART), np.int64)
    graph = (indptr, indices, weights, scale, groups, rounds, stop)
    args = (Z, C, G, d, r, *graph, z, c, own, near, far, begun, ended, mine)
    _each_comes(lambda: _hals_graph(*args), team, threads)


@nb.njit(**OPTIONS)
def _hals_range(Z, C, G, own, rs, e0, es, sweeps, stop, enough, lo, hi, z, c):
    """Coordinate descent on rows lo to hi: min ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0.

    LANES rows at once: coordinate j of all lanes moves to its exact minimiser. ``own`` (1 or
    blocks, .., LANES) holds d, then r (at 1 + j rs) and e >= r (at e0 + j es), the curvature of a
    step: what it has beyond r belongs to a bound around where the sweep begins, which is why that
    is for one sweep. Sweeps end early once a sweep changes less than ``stop`` times what the first
    one did, or its squared length in the metric of the Hessian is at most ``enough``. G has columns
    of zeros up to a multiple of four, as has z rows. It is the first thing that a process without a
    cache waits for: no views, few loops, no arrays of its own, which halves the time to compile.
    """
    k, k4 = Z.shape[1], G.shape[1]
    zero = Z.dtype.type(0)
    g = _lanes(Z)
    for start in range(lo, hi, LANES):
        m = hi - start if hi - start < LANES else LANES
        for t in range(m):
            for j in range(k):
                z[j, t] = Z[start + t, j]
                c[j, t] = C[start + t, j]
        for t in range(m, LANES):  # idle lanes stand at the solution of an empty problem
            for j in range(k):
                z[j, t] = zero
                c[j, t] = zero
        at = start // LANES if own.shape[0] > 1 else 0
        first = 0.0
        for sweep in range(sweeps):
            moved = 0.0
            for j in range(k):
                _sum_rows(g, G, j * k4, z, 0, PITCH, k4)
                gjj, rj, ej = G[j, j], 1 + j * rs, e0 + j * es
                change = zero
                for t in range(LANES):
                    h = own[at, 0, t] * gjj + own[at, ej, t]
                    old = z[j, t]
                    grad = own[at, 0, t] * g[t] + own[at, rj, t] * old - c[j, t]
                    # without curvature it moves only where its linear cost sends it to zero
                    new = old - grad / h if h > zero else (zero if grad > zero else old)
                    new = zero if new < zero else new  # nan stays
                    change += (new - old) * (new - old) * h
                    z[j, t] = new
                moved += change
            if sweep == 0:
                first = moved
            if moved <= stop * stop * first or moved <= enough:
                break
        for t in range(m):
            for j in range(k):
                Z[start + t, j] = z[j, t]


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


def _room(rows, dtype):
    """Room (rows, PITCH) to work in, from a cache line on; what is in it is left from before.

    Vectors across two cache lines take up to 1.7 times as long. Each thread keeps its room: at
    small sizes finding a new one takes as long as the sweeps.
    """
    kept = getattr(_kept, "room", None)
    if kept is None or kept.dtype != dtype or len(kept) < rows:
        size = rows * PITCH
        raw = np.empty(size + 64 // dtype.itemsize, dtype)
        first = -raw.__array_interface__["data"][0] % 64 // dtype.itemsize
        kept = _kept.room = raw[first : first + size].reshape(rows, PITCH)
    return kept


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

    def run(lo, hi):
        own, end = given, wide + k
        work = _room(end + (len(given) if alike else 0), dtype)
        if alike:
            own = work[None, end : end + len(given)]
            own[0] = given
        z, c = work[:wide], work[wide:end]
        z[k:] = 0  # the columns of G that meet these are 0, but 0 times nan is not
        _hals_range(Z, C, G, own, rs, e0, es, sweeps, stop, enough, lo, hi, z, c)

    in_threads(run, len(Z), LANES, threads)


@nb.njit(**OPTIONS)
def _half_steps(
    Z, C, G, old, weights, beyond, shares, grams, changes, sweeps, ahead, stop, enough, size, order,
    z, c, far,
):  # fmt: skip
    """`half_steps` for whoever comes: each takes the next ``size`` blocks of LANES rows.

    A part without curvature stays. Without ``ahead`` nothing comes after the sweeps. G has columns
    of zeros up to a multiple of four, as has z rows. ``order`` is that of `_order`.

    It is the only kernel that a plain first fit waits for: in one piece, without views, arrays of
    its own and branches in a loop over rows, each of which LLVM compiles again for each case.
    """
    n, k, k4 = Z.shape[0], G.shape[1], G.shape[2]
    zero, one, half = Z.dtype.type(0), Z.dtype.type(1), Z.dtype.type(0.5)
    g = _lanes(Z)
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
            _times(Z, gemm, 0, wide, rows, p_of_X, order[6], x, order[7] + by)
        for b in range(begin, end):
            row = b * LANES
            m = n - row if n - row < LANES else LANES
            for r in range(G.shape[0]):
                s = r * k
                for j in range(k):
                    for t in range(m):
                        z[j, t] = Z[row + t, s + j]
                    for t in range(m, LANES):  # idle lanes are zero, and stay there
                        z[j, t] = zero
                    for t in range(LANES):
                        c[j, t] = zero
                if given:
                    for q in range(given):
                        for j in range(k):
                            for t in range(m):
                                c[j, t] += shares[q, s + j, row + t]
                else:
                    for j in range(k):
                        for t in range(m):
                            c[j, t] = C[row + t, s + j]
                first, total = 0.0, 0.0
                for sweep in range(sweeps):
                    moved = 0.0
                    for j in range(k):
                        _sum_rows(g, G, (r * k + j) * k4, z, 0, PITCH, k4)
                        h, far_off, fall = G[r, j, j], zero, zero
                        inv = one / h if h > zero else zero
                        for t in range(LANES):
                            slope = g[t] - c[j, t]
                            here = z[j, t]
                            new = here - slope * inv
                            new = zero if new < zero else new  # nan stays
                            step = new - here
                            far_off += step * step * h
                            fall += step * (slope + half * h * step)
                            z[j, t] = new
                        moved += far_off
                        total += fall
                    first = moved if sweep == 0 else first
                    if moved <= stop * stop * first or moved <= enough:
                        break
                if ahead:
                    changes[p, r, 0] += total
                    total, w = 0.0, weights[r]
                    for j in range(k):
                        for t in range(LANES):
                            here = z[j, t]
                            new = here + w * (here - old[b, s + j, t])
                            new = zero if new < zero else new
                            far[j, t] = new
                            old[b, s + j, t] = here
                            z[j, t] = here + new  # twice the half-way point: z has served
                    for j in range(k):
                        _sum_rows(g, G, (r * k + j) * k4, z, 0, PITCH, k4)
                        fall = zero
                        for t in range(LANES):
                            fall += (half * g[t] - c[j, t]) * (far[j, t] - old[b, s + j, t])
                        total += fall
                        for o in range(j + 1):
                            product = zero
                            for t in range(LANES):
                                product += far[o, t] * far[j, t]
                            grams[p, r, j, o] += product
                    changes[p, r, 1] += total
                for o in range(k):
                    for t in range(m):
                        beyond[row + t, s + o] = far[o, t]
        if gemm:
            out = order[9] + p * p_of_X * wide * item
            _times(Z, gemm, 1, p_of_X, wide, rows, x, order[8] + by, out)


@cache
def _gemm(dtype):
    """Where BLAS's product for this dtype is: numpy's own if it brought one, else scipy's."""
    name = "sgemm" if dtype == np.float32 else "dgemm"
    own = Path(np.__file__).parent.with_name("numpy.libs")
    for path in own.glob("*openblas*"):
        library = ctypes.CDLL(str(path))  # it is loaded
        for symbol in (f"scipy_{name}_64_", f"scipy_{name}_"):
            if hasattr(library, symbol):
                return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value
    return get_cython_function_address("scipy.linalg.cython_blas", name)


def _order(blocks, shares, along):
    """What `_half_steps` does beside the sweeps, as numbers.

    They are: the next piece, the blocks, how many ``shares`` C is the sum of; of ``along`` where
    BLAS's product is, the columns of X, then where X, B, C (0 if it is known), ``beyond`` and the
    shares to be made are. Arrays of more kinds would each have to be compiled.
    """
    order = np.zeros(10, np.int64)
    order[1:3] = blocks, 0 if shares is None else len(shares)
    if along is not None:
        order[3:5] = _gemm(along[0].dtype), along[0].shape[1]
        places = (0 if a is None else a.__array_interface__["data"][0] for a in along)
        order[5:] = list(places)
    return order


def _each_comes(run, most, threads):
    """run() in at most so many of the threads, unless it has ended before one comes."""
    over: list[bool] = []

    def once():
        if not over:
            run()
            over.append(True)

    each(once, [()] * most, threads)


def _run(given, G, sums, rule, order, ahead):
    """`_half_steps` in this thread's room; ``given`` is Z, C, old, weights, beyond, shares."""
    Z, C, *rest = given
    k, wide = G.shape[1:]
    work = _room(2 * k + wide, Z.dtype)
    if wide > k:
        work[k:wide] = 0  # the columns of G that meet these are 0, but 0 times nan is not
    z, c = work[:wide], work[wide : wide + k]
    far = work[wide + k : wide + 2 * k] if ahead else z
    sweeps, stop, enough, size = rule
    rule = (sweeps, ahead, stop, enough, size)
    _half_steps(Z, C, G, *rest, *sums, *rule, order, z, c, far)


def _filled_up(G):
    """G (R, k, k) with columns of zeros up to a multiple of four."""
    R, k, _ = G.shape
    if k % 4 == 0:
        return G
    wide = np.zeros((R, k, k + -k % 4), G.dtype)
    wide[:, :, :k] = G
    return wide


def blocks_of_a_piece(n, least=1):
    """How many blocks of LANES rows `half_steps` takes together: PIECES of them, or fewer."""
    return max(1, -(-n // (LANES * PIECES)), -(-least // LANES))


def half_steps(
    Z, C, G, old, weights, beyond, sweeps, stop, threads=1, least=1, shares=None, along=None
):
    """Every run one half-step from Z, and ``weights`` times as far again from ``old``.

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
    least : int
        The least rows of a piece.
    shares : (any, R k, n) array or None
        Their sum is C, transposed.
    along : tuple of arrays or None
        X (n, p), B (p, R k), C or None, beyond, shares (pieces, R k, p): before rows move C = X B
        is found, unless it is None, and when they have, the share of each piece in beyondᵀX.

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
    given = (Z, C, old, weights, beyond, old if shares is None else shares)
    rule, order = (sweeps, stop, 0.0, size), _order(blocks, shares, along)
    most = min(threads, -(-blocks // size))
    _each_comes(lambda: _run(given, G, sums, rule, order, 1), most, threads)
    gram = grams.sum(axis=0)
    return gram + np.tril(gram, -1).transpose(0, 2, 1), changes.sum(axis=0)


def plain_rows(Z, C, G, sweeps, stop, enough, threads=1):
    """`hals_rows` without weights and ridges, by the kernel that a plain fit has compiled."""
    n, k = Z.shape
    flat = np.diag(G) <= 0
    if flat.any():  # without curvature it moves only where its linear cost sends it to zero
        Z[:, flat] *= C[:, flat] >= 0
    none = np.zeros((1, 1, LANES), Z.dtype)
    sums = np.zeros((1, 1, k, k)), np.zeros((1, 1, 2))
    blocks, G = -(-n // LANES), _filled_up(G[None])
    given, rule = (Z, C, none, none[0, 0], Z, none), (sweeps, stop, enough, 1)
    order = _order(blocks, None, None)
    _each_comes(lambda: _run(given, G, sums, rule, order, 0), min(threads, blocks), threads)
