"""Products: BLAS's outside the interpreter, X B and Xᵀ of a sparse X; the systems of a graph."""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path
from threading import local
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import get_cython_function_address, intrinsic

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._intrinsics import times
from partwise.backends.numpy.kernels._options import HELPER, OPTIONS, compiled
from partwise.backends.numpy.kernels._writing import Memory, Sum, Value, arguments, loop

TILE = 8  # columns of a graph's linear system that are solved together
LINE = 64  # bytes of a line of the cache: a vector across two takes twice as long to load or store


@compiled(**HELPER)
def _graph_times(indptr, indices, weights, scale, diagonal, p, out, near):
    """out = diagonal p - scale W p on TILE columns; returns nothing."""
    for i in range(p.shape[0]):
        for t in range(TILE):
            near[t] = 0
        for e in range(indptr[i], indptr[i + 1]):
            w = weights[e]
            row = p[indices[e]]
            for t in range(TILE):
                near[t] += w * row[t]
        for t in range(TILE):
            out[i, t] = diagonal[i, t] * p[i, t] - scale * near[t]


@compiled(**HELPER)
def _conjugate_gradient(indptr, indices, weights, scale, diagonal, c, z, goal, most):
    """(diag(diagonal) - scale W) z = c for TILE columns at once, from z, in place."""
    n = z.shape[0]
    zero = z.dtype.type(0)
    r, p, q = np.empty_like(z), np.empty_like(z), np.empty_like(z)
    near = np.empty(TILE, z.dtype)
    size, left = np.zeros(TILE), np.zeros(TILE)
    product, other = np.zeros(TILE), np.zeros(TILE)
    alpha, beta = np.zeros(TILE, z.dtype), np.zeros(TILE, z.dtype)
    _graph_times(indptr, indices, weights, scale, diagonal, z, r, near)
    for i in range(n):
        for t in range(TILE):
            r[i, t] = c[i, t] - r[i, t]
            p[i, t] = r[i, t] / diagonal[i, t]
            product[t] += r[i, t] * p[i, t]
            size[t] += c[i, t] * c[i, t]
            left[t] += r[i, t] * r[i, t]
    for done in range(most):
        if np.all(left <= goal * goal * size):
            return done
        _graph_times(indptr, indices, weights, scale, diagonal, p, q, near)
        other[:] = 0
        for i in range(n):
            for t in range(TILE):
                other[t] += p[i, t] * q[i, t]
        for t in range(TILE):
            going = left[t] > goal * goal * size[t] and other[t] > 0
            alpha[t] = product[t] / other[t] if going else zero
        other[:] = 0
        left[:] = 0
        for i in range(n):
            for t in range(TILE):
                z[i, t] += alpha[t] * p[i, t]
                r[i, t] -= alpha[t] * q[i, t]
                q[i, t] = r[i, t] / diagonal[i, t]
                other[t] += r[i, t] * q[i, t]
                left[t] += r[i, t] * r[i, t]
        for t in range(TILE):
            beta[t] = other[t] / product[t] if product[t] > 0 else zero
            product[t] = other[t]
        for i in range(n):
            for t in range(TILE):
                p[i, t] = q[i, t] + beta[t] * p[i, t]
    return most


@compiled(**OPTIONS)
def graph_solve(indptr, indices, weights, scale, diagonal, c, z, goal, most, taken, lo, hi):
    """(diag(diagonal) - scale W) z = c for each column of tiles lo to hi of z, (tiles, n, TILE).

    In place, by conjugate gradients with the diagonal as preconditioner, to the relative residual
    ``goal``; ``taken`` receives how many iterations a tile took.
    """
    for j in range(lo, hi):
        taken[j] = _conjugate_gradient(
            indptr, indices, weights, scale, diagonal[j], c[j], z[j], goal, most
        )


def _slabs(k, lines, size):
    """Where slabs of k columns begin, how many are there, and on how many lines of the cache.

    Those are ``lines`` of them, in the last slab fewer, and 1, 2 or 4: gathering three takes longer
    than four.
    """
    with loop(k.builder, 0, k, lines * size) as first:
        left = (k - first).or_less(lines * size)
        on = (left + (size - 1)) / size
        yield first, left, on.if_above(2, on.like(4), on)


def _copy(to, row, count, size):
    """``count`` numbers of a row, by lines and then one by one."""
    whole = count / size * size
    with loop(to.builder, 0, whole, size) as j:
        to.store(j, row.load(j, size), size)
    with loop(to.builder, whole, count) as j:
        to.store(j, row.load(j))


def _filling(typing, B, slabs, rows, k, lines, lo, hi):
    """All of `_fill`."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        B, slabs, rows, k, lines, lo, hi = arguments(context, builder, signature, args)
        size = LINE // B.size
        none = Value(builder, ir.Constant(ir.VectorType(B.kind, size), None))
        for first, left, on in _slabs(k, lines, size):
            with loop(builder, lo, hi) as i:
                to = slabs.after(rows * first + i * on * size)
                with loop(builder, left / size * size, on * size, size) as j:
                    to.store(j, none, size)
                _copy(to, B.after(i * k + first), left, size)
        return context.get_dummy_value()

    return types.void(B, slabs, *[types.intp] * 5), generate


def _gathering(typing, indptr, indices, x, slabs, out, rows, k, lines, lo, hi):
    """All of `_gather`."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        indptr, indices, x, slabs, out, rows, k, lines, lo, hi = arguments(
            context, builder, signature, args
        )
        size = LINE // slabs.size
        for first, left, on in _slabs(k, lines, size):
            slab = slabs.after(rows * first)
            for width in (4 * size, 2 * size, size):
                with (
                    builder.if_then((on * size).compared("==", width)),
                    loop(builder, lo, hi) as i,
                ):
                    # two sums: one alone would wait for itself
                    sums = [Sum(builder, slabs.kind, width) for _ in range(2)]
                    begin, end = indptr.load(i), indptr.load(i + 1)
                    last = begin + (end - begin) / 2 * 2
                    with loop(builder, begin, last, 2) as e:
                        for at, total in enumerate(sums):
                            row = slab.after(indices.load(e + at) * width)
                            total.add(row.load(0, width) * x.load(e + at))
                    with loop(builder, last, end) as e:
                        row = slab.after(indices.load(e) * width)
                        sums[0].add(row.load(0, width) * x.load(e))
                    room = Memory(builder, cgutils.alloca_once(builder, slabs.kind, width))
                    room.store(0, sums[0].value + sums[1].value, width)
                    _copy(out.after(i * k + first), room, left, size)
        return context.get_dummy_value()

    return types.void(indptr, indices, x, slabs, out, *[types.intp] * 5), generate


_fill_rows: Any = intrinsic(_filling)
_gather_rows: Any = intrinsic(_gathering)


@compiled(**OPTIONS)
def _fill(B, slabs, lines, lo, hi):
    """Put rows lo to hi of B into slabs: some columns of all rows, each row on lines of its own."""
    _fill_rows(B, slabs, B.shape[0], B.shape[1], lines, lo, hi)


@compiled(**OPTIONS)
def _gather(indptr, indices, x, slabs, out, rows, lines, lo, hi):
    """`spmm` on rows lo to hi, slab by slab; those have so many ``rows``."""
    _gather_rows(indptr, indices, x, slabs, out, rows, out.shape[1], lines, lo, hi)


#: Room of the last product of each thread, if it has no more bytes than these: pages that the
#: system has given once need not be asked for again.
_own, KEPT = local(), 1 << 25


def spmm(indptr, indices, x, B, lines, runs, threads=1):
    """X B of CSR X, whose rows are cut into ``runs``.

    X is gone through once for each slab of B, ``lines`` of the cache a row: a slab that the cache
    holds is gathered in a fraction of the time, and its rows are sums in registers. No digit
    follows from the lines.
    """
    (rows, k), size = B.shape, LINE // B.itemsize
    wanted = LINE * (rows * (-(-k // size) + 1) + 1)
    # nobody else finds it meanwhile, though a signal's handler may multiply here, too
    raw = vars(_own).pop("room", None)
    if raw is None or raw.size < wanted:
        raw = np.empty(wanted, np.uint8)
    begin = -crew.address(raw) % LINE
    slabs = raw[begin : begin + wanted - LINE].view(B.dtype)
    crew.rows(_fill, (B, slabs, lines), rows, 16, threads)
    out = np.empty((len(indptr) - 1, k), B.dtype)
    crew.run(_gather, (indptr, indices, x, slabs, out, rows, lines), runs, threads)
    if raw.size <= KEPT:
        _own.room = raw
    return out


@compiled(**OPTIONS)
def _transpose_rows(indptr, indices, x, rows, values, write, places, lo, hi):
    """Move the place of a column on with each of its entries in rows lo to hi of CSR X.

    With ``write`` they are put there.
    """
    for i in range(lo, hi):
        for e in range(indptr[i], indptr[i + 1]):
            at = places[indices[e]]
            places[indices[e]] = at + 1
            if write:
                rows[at], values[at] = i, x[e]


def transpose(indptr, indices, x, p, runs, threads):
    """Xᵀ of CSR X with p columns, as its indptr, indices and entries; ``runs`` are of rows.

    Each run counts its entries by column, and so learns where in each row of Xᵀ its own begin.
    """
    rows, values = np.empty_like(indices), np.empty_like(x)
    args, places = (indptr, indices, x, rows, values), np.zeros((len(runs), p), indices.dtype)
    crew.run(_transpose_rows, (*args, 0), runs, threads, [places])
    ends = np.cumsum(places.T.ravel(), dtype=indices.dtype)
    begins = np.append(0, ends).astype(indices.dtype)
    places = np.array(begins[:-1].reshape(p, -1).T, order="C")
    crew.run(_transpose_rows, (*args, 1), runs, threads, [places])
    return begins[:: len(runs)].copy(), rows, values


@cache
def gemm(dtype):
    """Where BLAS's product for this dtype is: numpy's own if it brought one, else scipy's.

    And whether it is numpy's.
    """
    name = "sgemm" if dtype == np.float32 else "dgemm"
    own = Path(np.__file__).parent.with_name("numpy.libs")
    for path in own.glob("*openblas*"):
        library = ctypes.CDLL(str(path))  # it is loaded
        for symbol in (f"scipy_{name}_64_", f"scipy_{name}_"):
            if hasattr(library, symbol):
                return ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value, True
    return get_cython_function_address("scipy.linalg.cython_blas", name), False


@compiled(**OPTIONS)
def _gemm(like, place, turned, m, n, k, a, lda, b, c, ldc):
    times(like, place, turned, m, n, k, a, lda, b, c, ldc)


def blas_products(like, tasks, threads):
    """BLAS's products (turned, m, n, k, a, lda, b, c, ldc), see `times`, in threads."""
    crew.run(_gemm, (like, gemm(like.dtype)[0]), tasks, threads)


@compiled(**OPTIONS)
def _add_up(sums, out, lo, hi):
    """out = Σ_b sums[b]ᵀ on rows lo to hi of it; the first one holds all of it in between."""
    for b in range(1, sums.shape[0]):
        for j in range(out.shape[1]):
            for e in range(lo, hi):
                sums[0, j, e] += sums[b, j, e]
    for e in range(lo, hi):
        for j in range(out.shape[1]):
            out[e, j] = sums[0, j, e]


def add_up(sums, out, threads):
    """out (p, k) = Σ_b sums[b]ᵀ; sums (any, k or more, p) are lost."""
    crew.rows(_add_up, (sums, out), len(out), 16, threads)
