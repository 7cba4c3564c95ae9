"""Coordinate descent on the rows of a factor, for every kind of array.

Each row z of Z is updated towards the minimiser of ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0. Each
coordinate in turn is set to its exact minimiser. numpy arrays have a compiled kernel that works in
place; `sweep_columns` uses functions of the array API standard, for all other arrays. Sweeps end
early if they change little: the kernel decides this for each block of 64 rows, and the others for
all rows together. The results therefore agree to the tolerance of the solver with several sweeps,
and to rounding with one sweep.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import numpy as np

from partwise.backends.arrays import (
    AnyArray,
    Array,
    float64,
    inner64,
    namespace,
    ones,
    spread,
)
from partwise.backends.threads import PASS, by_entry, one_blas_thread, results, threads_for

ROWS = 64  # rows per block of the compiled kernel; ``enough`` is a limit for each block
#: With at least this many components, rows that still change after FEW sweeps are solved by
#: pivoting.
PIVOT, FEW = 32, 10
#: Maximum number of groups of rows that are updated in turn with a graph. Each row then uses the
#: latest values of most of its neighbours.
GROUPS = 32
#: Range of the smallest eigenvalue of the cosines between nearly collinear parts. The number of
#: sweeps is about its inverse; below the lower limit, the eigenvalue is rounding error.
COLLINEAR = (1e-12, 1e-3)


def sweeps_per_product(data: Any, size: int, k: int) -> int:
    """Return the number of sweeps per product with X, for rows of ``size`` entries.

    Sweeps may take half the time of the preceding product (Gillis & Glineur 2012).
    """
    return int(np.clip(1 + 0.5 * data.density * size / k, 1, 10))


def sweep_rows(
    Z: AnyArray, C: AnyArray, G: AnyArray, d: AnyArray | None, r: AnyArray, sweeps: int,
    stop: float, order: AnyArray | None = None, enough: float = 0.0, near: AnyArray | None = None,
) -> Array:  # fmt: skip
    """Return the new Z after at most ``sweeps`` sweeps; an ndarray is overwritten.

    Parameters
    ----------
    Z : (n, k) array
    C : (n, k) or (1, k) array
        Linear term, with a negative sign.
    G : (k, k) array
    d : (n,) array or None
        Weight of each row in the quadratic part; None means ones.
    r : (1 or n, 1 or k) array
        Ridge of each row, column or entry.
    stop : float
        Sweeps end if a sweep changes Z by less than ``stop`` times the change of the first sweep.
    order : (k,) array of int or None
        Order in which the coordinates are updated.
    enough : float
        Sweeps also end if the squared change of 64 rows, weighted by the curvature, is at most
        this.
    near : array like r or None
        Additional curvature of an upper bound around the initial Z, whose slope is contained in C.
        It limits the size of the step, and is supported only for a single sweep.
    """
    assert near is None or sweeps == 1
    G, r = join_ridge(G, d, r)
    e = r if near is None else r + near
    new: Array
    if order is None:
        new = sweep(Z, C, G, d, r, e, sweeps, stop, enough)
        return new
    back = np.argsort(order)
    C, G = spread(C, Z)[:, order], G[order][:, order]
    r, e = (a if a.shape[1] == 1 else a[:, order] for a in (r, e))
    new = sweep(Z[:, order], C, G, d, r, e, sweeps, stop, enough)[:, back]
    return new


@singledispatch
def half_step(
    Y: AnyArray, C: AnyArray, G: AnyArray, old: AnyArray, weight: float, sweeps: int, stop: float
) -> tuple[Array, Array, float, float] | None:
    """Update Y for least squares without penalties, and extrapolate the result.

    Return the new factor, the extrapolation max(new + weight (new - old), 0), and the changes of
    the objective from Y to the new factor and from there to the extrapolation. Return None if there
    is no kernel.
    """
    return None


@half_step.register
def _(
    Y: np.ndarray, C: AnyArray, G: AnyArray, old: AnyArray, weight: float, sweeps: int, stop: float
) -> tuple[Array, Array, float, float]:  # fmt: skip
    from partwise.backends.numpy.kernels import hals

    n, k = Y.shape
    threads = threads_for(float(n) * k * k * (sweeps + 1), True)
    Y, C, old = (np.ascontiguousarray(a, Y.dtype) for a in (Y, C, old))
    new, beyond, change = hals.half_step(Y, C, G, old, weight, sweeps, stop, threads)
    return new, beyond, float(change[0]), float(change[1])


def join_ridge(G: AnyArray, d: AnyArray | None, r: AnyArray) -> tuple[AnyArray, AnyArray]:
    """Add a ridge that has one value per column to G, if it is the same in all rows."""
    if d is not None or r.shape[0] != 1 or r.shape[1] == 1:
        return G, r
    eye = namespace(G).eye(G.shape[0], dtype=G.dtype, device=G.device)
    return G + eye * r, r[:, :1] * 0


@singledispatch
def sweep_graph(
    Z: AnyArray,
    C: AnyArray,
    G: AnyArray,
    d: AnyArray | None,
    r: AnyArray,
    term: Any,
    rounds: int,
    stop: float,
) -> Array | None:
    """Run sweeps with a `Graph` term whose ``edges`` are stored.

    Each row uses the latest values of the other rows.

    Return None if this kind of array has no such sweep; the caller then recomputes the term's
    bound between sweeps.
    """
    return None


@sweep_graph.register
def _(
    Z: np.ndarray, C: AnyArray, G: AnyArray, d: AnyArray | None, r: AnyArray, term: Any,
    rounds: int, stop: float,
) -> Array:  # fmt: skip
    """Sweep in place if rows are contiguous, one row after the other."""
    from partwise.backends.numpy.kernels import hals

    W, scale = term.edges
    n, k = Z.shape
    Z = np.ascontiguousarray(Z)
    G, r = join_ridge(G, d, r)
    C, G = np.ascontiguousarray(C, Z.dtype), np.ascontiguousarray(G, Z.dtype)
    d = np.ones(1, Z.dtype) if d is None else d
    arrays = (W.indptr, W.indices, W.data.astype(Z.dtype, copy=False), Z.dtype.type(scale))
    # number of full blocks, since unused lanes cost time too
    blocks = -(-n // (GROUPS * hals.LANES))
    groups = -(-n // (blocks * hals.LANES)) if blocks else 1
    threads = threads_for(float(n) * k * k * rounds, True)
    ridge = np.ascontiguousarray(r, Z.dtype)
    hals.hals_graph(Z, C, G, d, ridge, *arrays, groups, rounds, stop, threads)
    return Z


@singledispatch
def sweep(
    Z: AnyArray, C: AnyArray, G: AnyArray, d: AnyArray | None, r: AnyArray, e: AnyArray,
    sweeps: int, stop: float, enough: float,
) -> Array:  # fmt: skip
    """Run the sweeps of `sweep_rows` by the version for the array type of Z.

    The gradient contains the ridge r, but a step is divided by a curvature with the ridge e >= r.
    """
    return sweep_columns(Z, C, G, d, r, e, sweeps, stop, enough)


@sweep.register
def _(
    Z: np.ndarray, C: AnyArray, G: AnyArray, d: AnyArray | None, r: AnyArray, e: AnyArray,
    sweeps: int, stop: float, enough: float,
) -> Array:  # fmt: skip
    k = Z.shape[1]
    Z = np.ascontiguousarray(Z)
    C = C if C.shape == Z.shape else np.broadcast_to(C, Z.shape)
    C = np.ascontiguousarray(C, Z.dtype)
    G = np.ascontiguousarray(G, Z.dtype)
    same = e is r
    r = np.ascontiguousarray(r, Z.dtype)
    e = r if same else np.ascontiguousarray(e, Z.dtype)
    d = np.ones(1, Z.dtype) if d is None else d
    if k < PIVOT or sweeps <= FEW:
        _descend(Z, C, G, d, r, e, sweeps, stop, enough)
        return Z
    _descend(Z, C, G, d, r, e, FEW, stop, enough)
    before = Z.copy()
    _descend(Z, C, G, d, r, e, 1, stop, enough)
    far, curve = np.empty(len(Z)), d[:, None] * np.diag(G) + r

    def moved(rows: slice) -> None:
        step = before[rows]
        step -= Z[rows]
        step *= step
        step *= curve if len(curve) == 1 else curve[rows]
        step.sum(axis=1, dtype=np.float64, out=far[rows])

    by_entry(moved, Z, 5)
    of_block = np.add.reduceat(far, np.arange(0, len(far), ROWS)) if len(far) else far
    going = (far > enough / ROWS) & np.repeat(of_block > enough, ROWS)[: len(far)]
    _pivot(Z, C, G, d, r, np.flatnonzero(going), sweeps, stop, enough)
    return Z


def nearly_collinear(G: AnyArray) -> bool:
    """Return whether G is the Gram matrix of nearly, but not exactly, collinear parts."""
    lengths = np.sqrt(np.diag(G))
    if not lengths.all():
        return False
    low, high = COLLINEAR
    return low < float(np.linalg.eigvalsh(G / np.outer(lengths, lengths))[0]) < high


def solve_rows(
    Z: AnyArray, C: AnyArray, G: AnyArray, d: AnyArray | None, r: AnyArray, sweeps: int, stop: float
) -> Array:
    """Return the exact minimum as a new ndarray, for any conditioning of G.

    If G is singular, so that there are many minima, at most ``sweeps`` sweeps find one.
    """
    G, r = join_ridge(G, d, r)
    d = ones(Z, 1) if d is None else d
    new, C, G, r = (np.array(Z, order="C"), *(np.ascontiguousarray(a, Z.dtype) for a in (C, G, r)))
    _descend(new, C, G, d, r, r, FEW, stop, 0.0)
    _pivot(new, C, G, d, r, np.arange(len(new)), sweeps, stop, 0.0, ridge=100.0)
    return new


def _descend(
    Z: AnyArray, C: AnyArray, G: AnyArray, d: AnyArray, r: AnyArray, e: AnyArray, sweeps: int,
    stop: float, enough: float,
) -> None:  # fmt: skip
    """Run coordinate descent in place, in a suitable number of threads."""
    from partwise.backends.numpy.kernels import hals

    n, k = Z.shape
    threads = threads_for(float(n) * k * k * sweeps, True)
    hals.hals_rows(Z, C, G, d, r, e, sweeps, stop, enough, threads)


def _pivot(
    Z: AnyArray, C: AnyArray, G: AnyArray, d: AnyArray, r: AnyArray, rows: AnyArray, sweeps: int,
    stop: float, enough: float, ridge: float = 0.0,
) -> None:  # fmt: skip
    """Set these rows to their minimisers in place, by pivoting or else by sweeps.

    If G is singular, the sweeps start at the minimiser with the ``ridge``, if there is one.
    """
    from partwise.backends.numpy.kernels import pivot

    if not len(rows):
        return
    free = (Z[rows] > 0).sum(axis=1)  # solve systems of similar size together, largest first
    rows = rows[np.argsort(-np.minimum(free, Z.shape[1] - free), kind="stable")]
    low, found = float(np.finfo(Z.dtype).eps), np.zeros(len(rows), bool)
    H, weights, ridges, K = pivot.inverse_of(*(float64(a) for a in (G, d, r)))
    weights, ridges = (a if len(a) == 1 else a[rows] for a in (weights, ridges))
    threads = threads_for(float(len(rows)) * Z.shape[1] ** 3, True)
    with one_blas_thread:
        pivot.pivot_rows(Z, C, rows, H, weights, ridges, K, low, found, threads)
        if ridge and not found.all():
            left = ~found
            weights, ridges = (a if len(a) == 1 else a[left] for a in (weights, ridges))
            ridges = ridges + ridge * low * float(np.diag(H).max())
            some = (rows[left], H, weights, ridges, K[:0], low, np.zeros(int(left.sum()), bool))
            pivot.pivot_rows(Z, C, *some, threads)
    if not found.all():
        rows = rows[~found]
        rest = np.ascontiguousarray(Z[rows])
        d, r = (a if len(a) == 1 else a[rows] for a in (d, r))
        _descend(rest, C[rows], G, d, r, r, sweeps, stop, enough)
        Z[rows] = rest


def sweep_columns(
    Z: AnyArray, C: AnyArray, G: AnyArray, d: AnyArray | None, r: AnyArray, e: AnyArray,
    sweeps: int, stop: float, enough: float,
) -> Array:  # fmt: skip
    """Run `sweep` on all rows together by array operations, and return a new array."""
    xp = namespace(Z)
    z, c = xp.asarray(Z.T, copy=True), spread(C, Z).T
    ridges, steps = (_columns(a, len(z)) for a in (r if bool(r.any()) else None, e))
    curves = [(G[j, j] if d is None else d * G[j, j]) + step for j, step in enumerate(steps)]
    flat = not all(bool((curve > 0).all()) for curve in curves)
    blocks = max(1.0, Z.shape[0] / ROWS)
    first = last = 0.0
    for done in range(sweeps):
        moved = xp.zeros_like(z[0])
        for j, (curve, ridge) in enumerate(zip(curves, ridges)):
            old = z[j]
            gradient = _slope(z, j, c, G, d, ridge)
            new = _bounded(old, gradient, curve) if flat else xp.maximum(old - gradient / curve, 0)
            moved = moved + (new - old) ** 2 * curve
            z[j] = new
        total = float(float64(moved).sum())
        first = first or total
        if total <= stop * stop * first or total <= enough * blocks:
            break
        if done > 20 and total >= last:  # the remaining changes are rounding errors
            break
        last = total
    return z.T


def _columns(a: AnyArray | None, k: int) -> list[Any]:
    """Return k columns of an array: its columns, copies of its only column, or None."""
    return [None if a is None else a.T[j if a.shape[1] > 1 else 0] for j in range(k)]


def _slope(
    z: AnyArray, j: int, c: AnyArray, G: AnyArray, d: AnyArray | None, ridge: AnyArray | None
) -> Array:
    """Return the gradient of coordinate j, whose ridge may be None."""
    pull: Any = G[j] @ z if d is None else d * (G[j] @ z)
    slope: Array = pull - c[j] if ridge is None else pull + ridge * z[j] - c[j]
    return slope


def _bounded(old: AnyArray, gradient: AnyArray, curve: AnyArray) -> Array:
    """Return the minimiser over values >= 0 of one coordinate, for all rows.

    Without curvature, the objective is linear: the coordinate becomes zero or stays as it is.
    """
    xp = namespace(old)
    new = xp.maximum(old - gradient / xp.where(curve > 0, curve, 1.0), 0)
    return xp.where(curve > 0, new, xp.where(gradient > 0, 0.0, old))


# -- changes of the objective ----------------------------------------------------------------------


def row_runs(*arrays: Any) -> Iterator[tuple[Any, ...]]:
    """Yield runs of rows, since temporaries as large as the factors would double the memory.

    A quarter of a megabyte stays in the cache and needs no new allocation by the system.
    """
    if not isinstance(arrays[0], np.ndarray):
        yield arrays
        return
    n, k = arrays[0].shape
    step = max(1, 32768 // k)
    for start in range(0, n, step):
        yield tuple(None if a is None else a[start : start + step] for a in arrays)


@singledispatch
def quadratic_change(
    new: AnyArray, old: AnyArray, C: AnyArray, G: AnyArray, d: AnyArray | None
) -> Any:
    """Return ½ Σ_i d_i z_iᵀ G z_i - ⟨C, Z⟩ at new minus that at old."""
    half = 0.5 * G

    def change(Z: AnyArray, Z0: AnyArray, c: AnyArray, weights: AnyArray | None) -> Any:
        slope = (Z + Z0) @ half
        if weights is not None:
            slope *= weights[:, None]
        slope -= c
        return inner64(slope, Z - Z0)

    runs = list(row_runs(new, old, C, d))
    n, k = new.shape
    with one_blas_thread:
        return sum(results(change, runs, threads_for((PASS + k) * n * k)))
