"""The exact end of a non-negative quadratic problem, row by row: block principal pivoting.

Kim & Park (2011): guess which coordinates are positive, solve for them, exchange those that came
out negative for those whose gradient is, until none is left. Coordinate descent, which needs as
many sweeps as G is badly conditioned, makes the first guess.

With K = G⁻¹, which serves all rows, x = K (c + y), y the gradient: zero where x is free. So one may
solve for y where x is held at zero instead, K_hh y_h = -(K c)_h, whichever are fewer.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._intrinsics import add as _add
from partwise.backends.numpy.kernels._intrinsics import times as _product
from partwise.backends.numpy.kernels._options import HELPER, OPTIONS, compiled
from partwise.backends.numpy.kernels._writing import Sum, Value, arguments, loop, plainly
from partwise.backends.numpy.kernels.products import gemm

ROUNDS = 60  # solves of a row before it is given up
REGULAR = 1e-7  # what elimination must leave of each diagonal of G for K to be worth its digits
SIDE = 8  # rows that are eliminated together, one SIMD lane each
SOME = 128  # rows that a thread takes at a time


def _elimination(typing, L, lanes, at, M, begins, k, n):
    """SIDE linear systems of size n at once.

    System l has the matrix M[begins[l] + at[i, l] k + at[j, l]] lanes[1, i, l] off the diagonal and
    lanes[2] on it. lanes[0] has the right sides and receives the solutions, lanes[2] what
    elimination leaves of the diagonals. L (k + 3, k + 3, SIDE) is room to work in.
    """

    def generate(context, builder, signature, args):
        L, lanes, at, M, begins, k, n = arguments(context, builder, signature, args)
        zero = n * 0
        pitch = k + 3  # of L, and rows of lanes
        b, scale, diagonal = zero, pitch * SIDE, pitch * (2 * SIDE)
        begin = begins.load(zero, SIDE)
        one = Value(builder, ir.Constant(ir.VectorType(L.kind, SIDE), [1.0] * SIDE))

        def place(p, t):
            return (p * pitch + t) * SIDE

        with loop(builder, 0, n) as p:
            row, size = begin + at.load(p * SIDE, SIDE) * k, lanes.load(scale + p * SIDE, SIDE)
            with loop(builder, 0, p) as t:
                entries = M.gather(row + at.load(t * SIDE, SIDE))
                L.store(place(p, t), entries * size, SIDE)
        with loop(builder, 0, n) as q:  # column by column: L Lᵀ, and what b is beyond L
            gone, known = Sum(builder, L.kind, SIDE), Sum(builder, L.kind, SIDE)
            with loop(builder, 0, q) as t:
                entry = L.load(place(q, t), SIDE)
                gone.add(entry * entry)
                known.add(entry * lanes.load(b + t * SIDE, SIDE))
            left = lanes.load(diagonal + q * SIDE, SIDE) - gone.value
            lanes.store(diagonal + q * SIDE, left, SIDE)
            inverse = one / left.root()
            L.store(place(q, q), inverse, SIDE)
            rest = lanes.load(b + q * SIDE, SIDE) - known.value
            lanes.store(b + q * SIDE, rest * inverse, SIDE)
            with loop(builder, q + 1, n, 4) as p:  # four at once: a sum alone waits for itself
                sums = [Sum(builder, L.kind, SIDE) for _ in range(4)]
                with loop(builder, 0, q) as t:
                    entry = L.load(place(q, t), SIDE)
                    for i, total in enumerate(sums):
                        total.add(L.load(place(p + i, t), SIDE) * entry)
                for i, total in enumerate(sums):
                    entry = L.load(place(p + i, q), SIDE) - total.value
                    L.store(place(p + i, q), entry * inverse, SIDE)
        with loop(builder, 0, n) as back:
            p = n - 1 - back
            x = lanes.load(b + p * SIDE, SIDE) * L.load(place(p, p), SIDE)
            lanes.store(b + p * SIDE, x, SIDE)
            with loop(builder, 0, p) as t:
                rest = lanes.load(b + t * SIDE, SIDE) - L.load(place(p, t), SIDE) * x
                lanes.store(b + t * SIDE, rest, SIDE)
        return context.get_dummy_value()

    return types.void(L, lanes, at, M, begins, types.intp, types.intp), generate


def _solution_times(typing, y, lanes, a, places, M, begin, k, m):
    """y = Σ_p lanes[0, p, a] M[begin + places[p, a] k :] over p < m."""

    def generate(context, builder, signature, args):
        y, lanes, a, places, M, begin, k, m = arguments(context, builder, signature, args)
        done = Sum(builder, ir.IntType(64))
        for width in (4 * SIDE, SIDE, 1):
            with loop(builder, done.value, k - (width - 1), width) as j:
                total = Sum(builder, y.kind, width)
                with loop(builder, 0, m) as p:
                    row = begin + places.load(p * SIDE + a) * k
                    total.add(M.load(row + j, width) * lanes.load(p * SIDE + a))
                y.store(j, total.value, width)
                done.add(width)
        return context.get_dummy_value()

    return types.void(y, lanes, types.intp, places, M, *[types.intp] * 3), generate


_eliminate: Any = intrinsic(_elimination)
_times: Any = intrinsic(_solution_times)


@compiled(**HELPER)
def _pivot_range(
    Z, C, M, d, r, E, low, before, found, lo, hi, L, lanes, places, at, whole, xy, free
):
    """Move each row to its minimiser; ``found`` is False where that was not found.

    A lane that has ended its row takes the next. M is G, or G and K; E is C K, if there is K;
    ``before`` is where a row may not end above. The others are `pivot_room`.
    """
    plainly()
    k, wide, inverse = Z.shape[1], r.shape[1], M.shape[0] > 1
    x, y = xy[0], xy[1]
    begins, sizes, taken = whole[0], whole[1], whole[2]
    turns, least, chances = whole[3], whole[4], whole[5]
    for a in range(SIDE):
        sizes[a], begins[a], taken[a] = -1, 0, lo
    following, going = lo, 0
    while True:
        for a in range(SIDE):
            if sizes[a] >= 0 or following >= hi:
                continue
            taken[a], following, going = following, following + 1, going + 1
            sizes[a], turns[a], least[a], chances[a] = 0, 0, k + 1, 3
            for j in range(k):
                free[a, j] = Z[taken[a], j] > 0
        if going == 0:
            break
        n = 0
        for a in range(SIDE):
            if sizes[a] < 0:
                continue
            m, dl = 0, d[taken[a] if d.shape[0] > 1 else 0]
            for j in range(k):
                m += free[a, j]
            # solve for the gradient of those at zero, if they are fewer
            held = inverse and dl > 0 and 2 * m > k
            begins[a], sizes[a] = (k * k if held else 0), k - m if held else m
            n, m = max(n, sizes[a]), 0
            for j in range(k):
                at[a, m] = j
                m += free[a, j] != held
        for a in range(SIDE):
            i, m, held = taken[a], sizes[a], begins[a] > 0
            dl, rl = d[i if d.shape[0] > 1 else 0], r[i if r.shape[0] > 1 else 0]
            size, of = 1.0 if held else dl, M[1 if held else 0]
            for p in range(m):
                j = at[a, p]
                ridge = 0.0 if held else rl[j if wide > 1 else 0]
                places[p, a], lanes[1, p, a] = j, size
                lanes[0, p, a] = -E[i, j] if held else C[i, j]
                lanes[2, p, a] = size * of[j, j] + ridge
            for p in range(max(m, 0), n):  # a system of its own, which others do not see
                places[p, a], lanes[0, p, a], lanes[1, p, a], lanes[2, p, a] = 0, 0.0, 0.0, 1.0
        _eliminate(L, lanes, places, M, begins, k, n)
        for a in range(SIDE):
            if sizes[a] < 0:
                continue
            i, m, held = taken[a], sizes[a], begins[a] > 0
            dl, rl = d[i if d.shape[0] > 1 else 0], r[i if r.shape[0] > 1 else 0]
            of, small, regular = M[1 if held else 0], 0.0, True
            for p in range(0 if held else m):
                j = at[a, p]
                diagonal = dl * of[j, j] + rl[j if wide > 1 else 0]
                regular = regular and lanes[2, p, a] > low * diagonal
            for j in range(k):
                small = max(small, abs(C[i, j]))
            small *= 10 * low
            _times(y, lanes, a, places, M, begins[a], k, m)
            for j in range(k):
                x[j] = (E[i, j] + y[j]) / dl if held else 0.0
                y[j] = 0.0 if held else dl * y[j] - C[i, j]
            for p in range(m):
                j, s = at[a, p], lanes[0, p, a]
                x[j] = 0.0 if held else s
                y[j] = s if held else y[j] + rl[j if wide > 1 else 0] * s
            value, wrong, last = 0.0, 0, 0
            for j in range(k):
                value += 0.5 * x[j] * (y[j] - C[i, j])
                if (x[j] if free[a, j] else y[j] + small) < 0:
                    wrong, last = wrong + 1, j
            turns[a] += 1
            if wrong == 0 or not regular or turns[a] == ROUNDS:
                sizes[a], going = -1, going - 1
                if wrong == 0 and regular and value <= before[i] + 1e-12 * abs(before[i]):
                    found[i] = True
                    for j in range(k):
                        Z[i, j] = x[j]
                continue
            chances[a] = 3 if wrong < least[a] else chances[a] - 1
            least[a] = min(least[a], wrong)
            for j in range(k):  # all at once; where that goes round in circles, the last alone
                out = (x[j] if free[a, j] else y[j] + small) < 0
                free[a, j] = free[a, j] != (out and (chances[a] >= 0 or j == last))


@compiled(**HELPER)
def pivot_room(k):
    """Where `_pivot_range` works."""
    return (
        np.zeros((k + 3, k + 3, SIDE)), np.empty((3, k + 3, SIDE)),
        np.empty((k + 3, SIDE), np.int64), np.empty((SIDE, k + 1), np.int64),
        np.empty((6, SIDE), np.int64), np.empty((2, k)), np.empty((SIDE, k), np.bool_),
    )  # fmt: skip


def inverse_of(G, d, r):
    """(G, d, r, K) for `pivot_rows`: d and r in G where rows share them, and the inverse of that.

    K is empty where rows have Hessians of their own, or where it would have few digits.
    """
    if len(d) == len(r) == 1:
        G, d, r = d[0] * G + np.diag(np.broadcast_to(r[0], len(G))), np.ones(1), np.zeros((1, 1))
    try:
        kept = np.diag(np.linalg.cholesky(G)) ** 2 > REGULAR * np.diag(G)
        K = np.linalg.inv(G)  # where this one fails, too
    except np.linalg.LinAlgError:
        kept = np.zeros(1, bool)
    if r.any() or not kept.all():
        return G, d, r, np.empty((0, 0))
    return G, d, r, 0.5 * (K + K.T)


def _each(room, team):
    """Such a room for each of so many."""
    return np.broadcast_to(room, (team, *room.shape)).copy()


@compiled(**OPTIONS)
def _pivot_rows(
    Z, C, rows, M, d, r, low, found, gemm, begun, z, c, e, slope, before, ended, own, ridges, L,
    lanes, places, at, whole, xy, free,
):  # fmt: skip
    """`pivot_rows` for whoever comes: each takes the next SOME rows, to copies of float64."""
    plainly()
    k, inverse = Z.shape[1], M.shape[0] > 1
    while True:
        lo = SOME * _add(begun, 0, 1)
        m = min(SOME, len(rows) - lo)
        if m <= 0:
            break
        for i in range(m):
            row = rows[lo + i]
            for j in range(k):
                z[i, j], c[i, j] = Z[row, j], C[row, j]
        _product(z, gemm, 0, k, m, k, M.ctypes.data, k, z.ctypes.data, slope.ctypes.data, k)
        if inverse:
            K = M[1]
            _product(z, gemm, 0, k, m, k, K.ctypes.data, k, c.ctypes.data, e.ctypes.data, k)
        for i in range(m):
            at_d, at_r = lo + i if len(d) > 1 else 0, lo + i if len(r) > 1 else 0
            own[i], before[i], ended[i] = d[at_d], 0.0, False
            for j in range(r.shape[1]):
                ridges[i, j] = r[at_r, j]
            for j in range(k):
                pull = own[i] * slope[i, j] + ridges[i, j if r.shape[1] > 1 else 0] * z[i, j]
                before[i] += z[i, j] * (0.5 * pull - c[i, j])
        _pivot_range(
            z, c, M, own, ridges, e, low, before, ended, 0, m, L, lanes, places, at, whole, xy, free
        )
        for i in range(m):
            found[lo + i] = ended[i]
            if ended[i]:
                for j in range(k):
                    Z[rows[lo + i], j] = z[i, j]


def pivot_rows(Z, C, rows, G, d, r, K, low, found, threads=1):
    """These rows of Z to the minimiser of ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0, in place.

    d has length 1 or one for each of the rows, r has as many rows and 1 or k columns; with them
    comes K of `inverse_of`. ``found``, False when it comes, says where; a row whose G is singular
    on its positive coordinates, to the relative precision ``low``, stays as it is.
    """
    M, k = np.stack([G, K] if len(K) else [G]), len(G)
    team = max(1, min(threads, -(-len(rows) // SOME)))
    work, numbers = np.empty((4, team, SOME, k)), np.empty((2, team, SOME))
    own = (*work, numbers[0], np.empty((team, SOME), bool), numbers[1])
    own += (np.empty((team, SOME, r.shape[1])), *(_each(a, team) for a in pivot_room.py_func(k)))
    args = (Z, C, rows, M, d, r, low, found, gemm(M.dtype)[0], np.zeros(1, np.int64))
    crew.run(_pivot_rows, args, [()] * team, threads, own)
