"""Coordinate descent on the rows of a factor, for every kind of array.

Every row z of Z moves towards the minimiser of ½ d zᵀGz + ½ r zᵀz - cᵀz over z >= 0, coordinate by
coordinate, each to its exact minimiser. ndarrays have a compiled kernel that works in place;
`sweep_columns` is written in terms of the array API standard and serves all others. Sweeps end
early once they move little: the kernel ends for each block of 64 rows, the others for all rows
together, so with several sweeps they agree to the solver's own accuracy and with one sweep to
rounding.
"""

from __future__ import annotations

from functools import singledispatch

import numpy as np

from partwise.engine.arrays import Array, float64, namespace, ones, spread
from partwise.engine.numeric import threads_for

ROWS = 64  # rows of a block of the compiled kernel, whose share ``enough`` is


def sweep_rows(
    Z: Array, C: Array, G: Array, d: Array | None, r: Array, sweeps: int, stop: float,
    order: Array | None = None, enough: float = 0.0,
) -> Array:  # fmt: skip
    """The new Z after at most ``sweeps`` sweeps; an ndarray is written to.

    Parameters
    ----------
    Z : (n, k) array
    C : (n, k) or (1, k) array
        What Z is drawn to.
    G : (k, k) array
    d : (n,) array or None
        Weight of each row in the quadratic part; None means ones.
    r : (1,) or (n,) array
        Ridge of each row.
    stop : float
        Sweeps end once one moves less than ``stop`` times what the first one did,
    order : (k,) array of int or None
        In which order the coordinates move.
    enough : float
        or once 64 rows move no more than this, squared, in the metric of the Hessian.
    """
    if order is None:
        return sweep(Z, C, G, d, r, sweeps, stop, enough)
    back = np.argsort(order)
    new = sweep(Z[:, order], C[:, order], G[order][:, order], d, r, sweeps, stop, enough)
    return new[:, back]


@singledispatch
def sweep(
    Z: Array, C: Array, G: Array, d: Array | None, r: Array, sweeps: int, stop: float,
    enough: float,
) -> Array:  # fmt: skip
    """`sweep_rows` by the kind of Z."""
    return sweep_columns(Z, C, G, d, r, sweeps, stop, enough)


@sweep.register
def _(
    Z: np.ndarray, C: Array, G: Array, d: Array | None, r: Array, sweeps: int, stop: float,
    enough: float,
) -> Array:  # fmt: skip
    from partwise.engine import kernels

    n, k = Z.shape
    Z = np.ascontiguousarray(Z)
    C = np.ascontiguousarray(np.broadcast_to(C, Z.shape), Z.dtype)
    G = np.ascontiguousarray(G, Z.dtype)
    args = (C, G, ones(Z, 1) if d is None else d, r.astype(Z.dtype), sweeps, stop, enough)
    threads = threads_for(float(n) * k * k * sweeps)
    if threads == 1:
        kernels.hals_rows(Z, *args)
        return Z
    blocks = -(-n // kernels.LANES)
    kernels.hals_rows_parallel(Z, *args, -(-blocks // (4 * threads)) * kernels.LANES)
    return Z


def sweep_columns(
    Z: Array, C: Array, G: Array, d: Array | None, r: Array, sweeps: int, stop: float,
    enough: float,
) -> Array:  # fmt: skip
    """`sweep` with all rows at once, one operation after the other; Z stays as it is."""
    xp = namespace(Z)
    z, c = xp.asarray(Z.T, copy=True), spread(C, Z).T
    r = r.T if r.ndim == 2 else r[None, :]
    ridges = [r[j if r.shape[0] > 1 else 0] for j in range(len(z))]
    plain = not bool(r.any())
    curves = [(G[j, j] if d is None else d * G[j, j]) + ridge for j, ridge in enumerate(ridges)]
    flat = not all(bool((curve > 0).all()) for curve in curves)
    blocks = max(1.0, Z.shape[0] / ROWS)
    first = last = 0.0
    for done in range(sweeps):
        moved = xp.zeros_like(z[0])
        for j, (curve, ridge) in enumerate(zip(curves, ridges)):
            old = z[j]
            gradient = G[j] @ z if d is None else d * (G[j] @ z)
            gradient = gradient - c[j] if plain else gradient + ridge * old - c[j]
            if flat:  # without curvature it moves only where its linear cost sends it to zero
                still = xp.where(gradient > 0, 0.0, old)
                new = old - gradient / xp.where(curve > 0, curve, 1.0)
                new = xp.where(curve > 0, xp.maximum(new, 0), still)
            else:
                new = xp.maximum(old - gradient / curve, 0)
            moved = moved + (new - old) ** 2 * curve
            z[j] = new
        total = float(float64(moved).sum())
        first = total if done == 0 else first
        if total <= stop * stop * first or total <= enough * blocks:
            break
        if done > 20 and total >= last:  # rounding is all that still moves
            break
        last = total
    return z.T
