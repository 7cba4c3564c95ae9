"""Exact solution of non-negative quadratic problems by block principal pivoting.

The algorithm of Kim and Park (2011) guesses the positive coordinates and solves for them. It then
exchanges coordinates with a negative solution for those with a negative gradient until none is
left. Coordinate descent makes the first guess.

With K = G⁻¹, which all rows share, x = K (c + y) with the gradient y, which is zero for free
coordinates. The fixed coordinates follow from K_hh y_h = -(K c)_h. The smaller one of the two
systems is solved.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._atomics import add, registers, wide_vectors
from partwise.backends.numpy.kernels._options import HELPER, OPTIONS, UNROLLED, compiled
from partwise.backends.numpy.kernels.products import gemm, multiply

ROUNDS = 60  # maximum number of solves per row
#: Smallest share of a diagonal entry of G after elimination for which K is accurate.
REGULAR = 1e-7
SIDE = 8  # rows eliminated together, one per lane
TOGETHER = 4  # rows of a matrix that are eliminated together
SOME = 128  # rows that a thread takes at a time
CHANCES = 3  # rounds without fewer wrong coordinates before these change one at a time


class Rows(NamedTuple):
    """Problems min ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0, one per row, in float64.

    Attributes
    ----------
    Z, C : (n, k) arrays
    E : (n, k) array
        C K, where there is an inverse K.
    d, r : (1 or n,) and (1 or n, 1 or k) arrays
    before : (n,) array
        Upper limit of the final objective of each row.
    found : (n,) array of bool
        Receives whether the minimiser was found.
    """

    Z: Any
    C: Any
    E: Any
    d: Any
    r: Any
    before: Any
    found: Any


class Lanes(NamedTuple):
    """Linear systems of SIDE rows, one in each lane of the processor's vectors.

    Attributes
    ----------
    row, which, size : (SIDE,) arrays of int
        The row, or -1; the matrix of its system (0: G, 1: K), and how many unknowns that has.
    turns, least, chances : (SIDE,) arrays of int
        Solves of this row, the fewest wrong coordinates of any, and the `CHANCES` that are left.
    free : (k, SIDE) array of int
        1 for the coordinates that are taken to be positive, else 0.
    places : (k + 3, SIDE) array of int
        The coordinates of the unknowns.
    right, diagonal : (k + 3, SIDE) arrays
        Right sides, which become solutions, and diagonals, which become those after elimination.
    scale : (k + 3, SIDE) array
        The factor of each row of the system off the diagonal.
    L : (k + 3, k + 3, SIDE) array
    x, y : (k,) arrays
        The solution of one row and its gradient.
    """

    row: Any
    which: Any
    size: Any
    turns: Any
    least: Any
    chances: Any
    free: Any
    places: Any
    right: Any
    diagonal: Any
    scale: Any
    L: Any
    x: Any
    y: Any


@compiled(**HELPER)
def lanes_for(k):
    """Return `Lanes` that contain no row yet."""
    numbers, points = np.zeros((2 * k + 9, SIDE), np.int64), np.zeros((2, k))
    room = np.zeros((k + 6, k + 3, SIDE))
    for a in range(SIDE):
        numbers[0, a] = -1
    return Lanes(
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5],
        numbers[6 : 6 + k], numbers[6 + k :], room[0], room[1], room[2], room[3:],
        points[0], points[1],
    )  # fmt: skip


@compiled(**{**UNROLLED, "forceinline": True})
def _eliminate(L, right, scale, diagonal, places, which, M, n):
    """Solve one symmetric system of size n in each lane by Cholesky's method.

    System a has the matrix M[which[a], places[i, a], places[j, a]] scale[i, a] off the diagonal,
    and ``diagonal`` on it. ``right`` receives the solutions, ``diagonal`` that after elimination.
    """
    wide_vectors()
    for p in range(n):
        for a in range(SIDE):
            row, factor = M[which[a], places[p, a]], scale[p, a]
            for t in range(p):
                L[p, t, a] = row[places[t, a]] * factor
    # Each loop over lanes either computes in registers or stores, since LLVM vectorizes only these.
    pivot, known, inverse = registers(right), registers(right), registers(right)
    sums = registers(right)
    for q in range(n):  # column by column: L Lᵀ, and the right sides with it
        for a in range(SIDE):
            pivot[a], known[a] = diagonal[q, a], right[q, a]
        for t in range(q):
            for a in range(SIDE):
                pivot[a] -= L[q, t, a] * L[q, t, a]
                known[a] -= L[q, t, a] * right[t, a]
        for a in range(SIDE):
            inverse[a] = 1.0 / np.sqrt(pivot[a])
        for a in range(SIDE):
            diagonal[q, a] = pivot[a]
        for a in range(SIDE):
            L[q, q, a] = inverse[a]
        for a in range(SIDE):
            right[q, a] = known[a] * inverse[a]
        for p in range(q + 1, n, TOGETHER):  # independent sums hide the latency of additions
            for s in range(TOGETHER):
                for a in range(SIDE):
                    sums[s * SIDE + a] = L[p + s, q, a]
            for t in range(q):
                for s in range(TOGETHER):
                    for a in range(SIDE):
                        sums[s * SIDE + a] -= L[p + s, t, a] * L[q, t, a]
            for s in range(TOGETHER):
                for a in range(SIDE):
                    L[p + s, q, a] = sums[s * SIDE + a] * inverse[a]
    for p in range(n - 1, -1, -1):
        for a in range(SIDE):
            known[a] = right[p, a] * L[p, p, a]
        for a in range(SIDE):
            right[p, a] = known[a]
        for t in range(p):
            for a in range(SIDE):
                pivot[a] = right[t, a] - L[p, t, a] * known[a]
            for a in range(SIDE):
                right[t, a] = pivot[a]


@compiled(**HELPER)
def _begin(lanes, a, Z, i):
    """Put row i into lane a; the first guess is that positive coordinates remain positive."""
    lanes.row[a], lanes.turns[a] = i, 0
    lanes.least[a], lanes.chances[a] = Z.shape[1] + 1, CHANCES
    for j in range(Z.shape[1]):
        lanes.free[j, a] = 1 if Z[i, j] > 0 else 0


@compiled(**HELPER)
def _set_up(lanes, a, rows, M):
    """Write the system of lane a and return its size.

    Its unknowns are the free coordinates, or the gradient of the others if they are fewer.
    """
    i, k, free = lanes.row[a], rows.Z.shape[1], lanes.free
    d, r = rows.d[i if len(rows.d) > 1 else 0], rows.r[i if len(rows.r) > 1 else 0]
    positive = 0
    for j in range(k):
        positive += free[j, a]
    held = len(M) > 1 and d > 0 and 2 * positive > k
    which = 1 if held else 0
    matrix, scale, m = M[which], 1.0 if held else d, 0
    for j in range(k):
        if free[j, a] != which:
            ridge = 0.0 if held else r[j if len(r) > 1 else 0]
            lanes.places[m, a], lanes.scale[m, a] = j, scale
            lanes.right[m, a] = -rows.E[i, j] if held else rows.C[i, j]
            lanes.diagonal[m, a] = scale * matrix[j, j] + ridge
            m += 1
    lanes.which[a], lanes.size[a] = which, m
    return m


@compiled(**HELPER)
def _fill_up(lanes, a, n):
    """Pad the system of lane a to n unknowns, with zeros that affect no other unknown."""
    for p in range(lanes.size[a] if lanes.row[a] >= 0 else 0, n):
        lanes.places[p, a], lanes.right[p, a] = 0, 0.0
        lanes.scale[p, a], lanes.diagonal[p, a] = 0.0, 1.0


@compiled(**HELPER)
def _is_regular(lanes, a, M, d, r, low):
    """Return whether each diagonal of a system of G exceeds rounding after elimination."""
    for p in range(lanes.size[a]):
        j = lanes.places[p, a]
        ridge = r[j if len(r) > 1 else 0]
        if lanes.diagonal[p, a] <= low * (d * M[0, j, j] + ridge):
            return False
    return True


@compiled(**HELPER)
def _point(lanes, a, rows, M, d, r):
    """Return x and its gradient y from the solution of lane a."""
    i, m, which, x, y = lanes.row[a], lanes.size[a], lanes.which[a], lanes.x, lanes.y
    for j in range(len(x)):
        y[j] = 0.0
    for p in range(m):
        s, row = lanes.right[p, a], M[which, lanes.places[p, a]]
        for j in range(len(x)):
            y[j] += s * row[j]
    for j in range(len(x)):
        x[j] = (rows.E[i, j] + y[j]) / d if which else 0.0
        y[j] = 0.0 if which else d * y[j] - rows.C[i, j]
    for p in range(m):
        j, s = lanes.places[p, a], lanes.right[p, a]
        if which:
            x[j], y[j] = 0.0, s
        else:
            x[j] = s
            y[j] += r[j if len(r) > 1 else 0] * s


@compiled(**HELPER)
def _end_turn(lanes, a, rows, M, low):
    """Check the solution of lane a; return whether its row is finished.

    If not, all wrong coordinates are exchanged. If this does not reduce their number, only the last
    one is exchanged, which prevents cycles.
    """
    i, k, x, y = lanes.row[a], len(lanes.x), lanes.x, lanes.y
    d, r = rows.d[i if len(rows.d) > 1 else 0], rows.r[i if len(rows.r) > 1 else 0]
    regular = lanes.which[a] == 1 or _is_regular(lanes, a, M, d, r, low)
    _point(lanes, a, rows, M, d, r)
    small, value, wrong, last = 0.0, 0.0, 0, 0
    for j in range(k):
        small = max(small, 10 * low * abs(rows.C[i, j]))
        value += 0.5 * x[j] * (y[j] - rows.C[i, j])
    for j in range(k):
        if (x[j] if lanes.free[j, a] else y[j] + small) < 0:
            wrong, last = wrong + 1, j
    lanes.turns[a] += 1
    if wrong == 0 or not regular or lanes.turns[a] == ROUNDS:
        if wrong == 0 and regular and value <= rows.before[i] + 1e-12 * abs(rows.before[i]):
            rows.found[i] = True
            for j in range(k):
                rows.Z[i, j] = x[j]
        return True
    lanes.chances[a] = CHANCES if wrong < lanes.least[a] else lanes.chances[a] - 1
    lanes.least[a] = min(lanes.least[a], wrong)
    for j in range(k):
        out = (x[j] if lanes.free[j, a] else y[j] + small) < 0
        if out and (lanes.chances[a] >= 0 or j == last):
            lanes.free[j, a] = 1 - lanes.free[j, a]
    return False


@compiled(**HELPER)
def pivot(rows, M, low, lanes):
    """Set each row to its minimiser; ``found`` stays False if it was not found.

    M is G, or G and K = G⁻¹. A lane whose row is finished takes the next one. A diagonal below the
    relative precision ``low`` counts as rounding error.
    """
    n = len(rows.Z)
    none = 0 * n  # numba would compile again for a literal
    following, going = none, none
    while True:
        size = none
        for a in range(SIDE):
            if lanes.row[a] < 0 and following < n:
                _begin(lanes, a, rows.Z, following)
                following, going = following + 1, going + 1
            if lanes.row[a] >= 0:
                size = max(size, _set_up(lanes, a, rows, M))
        if going == 0:
            break
        for a in range(SIDE):
            _fill_up(lanes, a, size)
        _eliminate(
            lanes.L, lanes.right, lanes.scale, lanes.diagonal, lanes.places, lanes.which, M, size
        )
        for a in range(SIDE):
            if lanes.row[a] >= 0 and _end_turn(lanes, a, rows, M, low):
                lanes.row[a], going = -1, going - 1


def inverse_of(G, d, r):
    """Return (G, d, r, K) for `pivot_rows`: G includes shared d and r, and K is its inverse.

    K is empty if rows have different Hessians, or if it would have few correct digits.
    """
    if len(d) == len(r) == 1:
        G, d, r = d[0] * G + np.diag(np.broadcast_to(r[0], len(G))), np.ones(1), np.zeros((1, 1))
    try:
        kept = np.diag(np.linalg.cholesky(G)) ** 2 > REGULAR * np.diag(G)
        K = np.linalg.inv(G)  # raises LinAlgError if G is singular
    except np.linalg.LinAlgError:
        kept = np.zeros(1, bool)
    if r.any() or not kept.all():
        return G, d, r, np.empty((0, 0))
    return G, d, r, 0.5 * (K + K.T)


@compiled(**OPTIONS)
def _pivot_rows(Z, C, rows, M, d, r, low, found, gemm, begun):
    """Run `pivot_rows` in one thread, which repeatedly takes the next SOME rows."""
    k = Z.shape[1]
    room, before, lanes = np.empty((4, SOME, k)), np.empty(SOME), lanes_for(k)
    z, c, e, slope = room[0], room[1], room[2], room[3]
    while True:
        lo = SOME * add(begun, 0, 1)
        m = min(SOME, len(rows) - lo)
        if m <= 0:
            break
        for i in range(m):
            row = rows[lo + i]
            for j in range(k):
                z[i, j], c[i, j] = Z[row, j], C[row, j]
        multiply(gemm, z[:m], M[0], slope[:m])
        if len(M) > 1:
            multiply(gemm, c[:m], M[1], e[:m])
        own, ridges = d[lo : lo + m] if len(d) > 1 else d, r[lo : lo + m] if len(r) > 1 else r
        for i in range(m):
            weight, ridge = own[i if len(d) > 1 else 0], ridges[i if len(r) > 1 else 0]
            before[i] = 0.0
            for j in range(k):
                pull = weight * slope[i, j] + ridge[j if len(ridge) > 1 else 0] * z[i, j]
                before[i] += z[i, j] * (0.5 * pull - c[i, j])
        ended = found[lo : lo + m]
        pivot(Rows(z[:m], c, e, own, ridges, before, ended), M, low, lanes)
        for i in range(m):
            for j in range(k if ended[i] else 0):
                Z[rows[lo + i], j] = z[i, j]


def pivot_rows(Z, C, rows, G, d, r, K, low, found, threads=1):
    """Set rows of Z to the minimiser of ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0, in place.

    d has one number or one per row, and r has as many rows and 1 or k columns; K is that of
    `inverse_of`. ``found`` must be False and becomes True for rows whose minimiser was found. A row
    stays unchanged if G is singular on its positive coordinates, to the relative precision ``low``.
    """
    M = np.stack([G, K] if len(K) else [G])
    args = (Z, C, rows, M, d, r, low, found, gemm(M.dtype)[0], np.zeros(1, np.int64))
    crew.run(_pivot_rows, args, [()] * max(1, min(threads, -(-len(rows) // SOME))), threads)
