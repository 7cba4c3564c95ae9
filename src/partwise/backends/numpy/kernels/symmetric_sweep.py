"""Coordinate descent on ½‖S - VVᵀ‖², which is a quartic in each entry of V.

The method is that of Vandaele, Gillis, Lei, Zhong & Dhillon (2016). Each entry is set to the
minimum of its quartic. The part of the objective with v = v_ij is 2 (v⁴/4 + a v²/2 + b v). A sweep
costs a product with S, and k² operations per row.
"""

from __future__ import annotations

import numpy as np

from partwise.backends.numpy.kernels._options import HELPER, OPTIONS, compiled


@compiled(**HELPER)
def _quartic(a, b, x):
    return x * (b + x * (0.5 * a + 0.25 * x * x))


@compiled(**HELPER)
def _least(a, b):
    """Minimise x⁴/4 + a x²/2 + b x over x >= 0: 0, or the largest root of x³ + a x + b."""
    if b >= 0 and a >= 0:
        return 0.0
    third = a / 3
    inside = 0.25 * b * b + third * third * third
    if inside > 0:
        if b >= 0:  # the only real root is not positive
            return 0.0
        t = np.cbrt(-0.5 * b + np.sqrt(inside))
        x = t - third / t
    else:
        size = np.sqrt(-third)
        if size == 0:
            return 0.0
        x = 2 * size * np.cos(np.arccos(min(1.0, max(-1.0, -0.5 * b / (size * size * size)))) / 3)
    for _ in range(3):  # Newton's method corrects the cancellation in the formulas above
        slope = 3 * x * x + a
        if slope > 0:
            x -= (x * (x * x + a) + b) / slope
    return x if x > 0 and _quartic(a, b, x) < 0 else 0.0


@compiled(**HELPER)
def _gain(a, b, old, new):
    """Return the quartic at old minus that at new, by its derivatives at new.

    The difference of the two values would lose all digits for steps below √eps.
    """
    d = old - new
    slope = new * (new * new + a) + b
    return d * (slope + d * (0.5 * (3 * new * new + a) + d * (new + 0.25 * d)))


@compiled(**HELPER)
def _row(i, own, V, G, c):
    """Minimise over the entries of row i; return the decrease. c = Σ_{l≠i} s_il v_l."""
    k = len(c)
    v = V[i]
    square = 0.0
    for j in range(k):
        square += v[j] * v[j]
    fall = 0.0
    for j in range(k):
        old = v[j]
        a = square - old * old - own + G[j, j] - old * old
        b = -c[j]
        for m in range(k):
            if m != j:
                b += v[m] * (G[j, m] - old * v[m])
        new = _least(a, b)
        gain = _gain(a, b, old, new)
        if gain > 0:  # rounding may cause a rise at the minimum
            fall += 2 * gain
            for m in range(k):
                if m != j:
                    G[j, m] += (new - old) * v[m]
                    G[m, j] = G[j, m]
            G[j, j] += new * new - old * old
            square += new * new - old * old
            v[j] = new
    return fall


@compiled(**OPTIONS)
def symmetric_rows(indptr, indices, values, V, G):
    """Sweep over V in place and update G = VᵀV; return the decrease of the objective.

    S is given as CSR arrays. For a dense S, ``indices`` are those of one row.
    """
    n, k = V.shape
    c, fall = np.empty(k), 0.0
    for i in range(n):
        c[:] = 0
        own = 0.0
        for at in range(indptr[i], indptr[i + 1]):
            other, s = indices[at % len(indices)], values[at]
            if other == i:
                own += s
            elif s != 0:
                for j in range(k):
                    c[j] += s * V[other, j]
        fall += _row(i, own, V, G, c)
    return fall
