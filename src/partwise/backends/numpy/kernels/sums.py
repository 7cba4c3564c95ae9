"""What a fit sums once: the extremes and products of arrays, the norms of a KKT residual.

Each is an array or two read once. Threads of Python would wait for the interpreter longer than that
takes.
"""

from __future__ import annotations

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
    loop,
    repeat,
    told,
)
from partwise.backends.numpy.kernels.products import gemm
from partwise.backends.threads import pieces

AT_ONCE = 128  # bytes of a vector
PIECES, LEAST = 64, 1024  # of an array, whatever the number of threads; vectors of the least one
SOME = 128  # rows that a thread takes at a time
BESIDE = 1 << 18  # entries of the model that are there at a time


def _look_at_vectors(typing, a, b, found, lo, hi):
    """All of `_overview`."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        a, b, found, lo, hi = arguments(context, builder, signature, args)
        wide = AT_ONCE // a.size
        least, most = (Sum(builder, a.kind, wide) for _ in range(2))
        total = Sum(builder, DOUBLE, wide)
        for sides in (least, most):
            sides.set(a.load(lo * wide, wide))
        with loop(builder, lo, hi) as i:
            x = a.load(i * wide, wide)
            least.set(x.or_less(least.value))
            most.set(x.if_above(most.value, x, most.value))
            total.add(x.to(DOUBLE) * b.load(i * wide, wide).to(DOUBLE))
        for at, sides in enumerate((least, most, total)):
            found.store(at * wide, sides.value.to(DOUBLE), wide)
        return context.get_dummy_value()

    return types.void(a, b, found, types.intp, types.intp), generate


def _kkt_of_rows(typing, Z, order, room):
    """All of `_kkt_rows`."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        Z, order, room = arguments(context, builder, signature, args)
        a = told(order, Z.kind, *KKT)
        widths = (AT_ONCE // Z.size, 1)
        with repeat(builder) as leave:
            piece = order.count(0)
            lo = piece * SOME
            leave(lo.compared(">=", a.n))
            m = (a.n - lo).or_less(lo * 0 + SOME)
            here = _place(Z) + lo * a.k * Z.size
            sizes = (lo * 0, a.k, m, a.k, _place(a.G), a.k, here, _place(room), a.k)
            blas(builder, Z.kind, a.gemm.value, *(size.value for size in sizes))
            sums = [[Sum(builder, DOUBLE, width) for _ in range(3)] for width in widths]
            with loop(builder, 0, m) as i:
                done = Sum(builder, WORD)
                for width, totals in zip(widths, sums):
                    with loop(builder, done.value, a.k - (width - 1), width) as j:
                        here = (lo + i) * a.k + j
                        z, c = Z.load(here, width), a.C.load(here, width)
                        pull = room.load(i * a.k + j, width)
                        none = Value(builder, ir.Constant(z.value.type, None))
                        slope, one = pull - c, none.like(1.0)
                        share = slope.if_above(none, (z * a.scale.load(j, width)).or_less(one), one)
                        for total, part in zip(totals, (slope, c, pull)):
                            own = (part * share).to(DOUBLE)
                            total.add(own * own)
                        done.add(width)
            for at, (wide, narrow) in enumerate(zip(*sums)):
                a.sums.store(piece * 3 + at, wide.value.summed() + narrow.value)
        return context.get_dummy_value()

    return types.void(Z, order, room), generate


def _residual_of_rows(typing, X, order, room):
    """All of `_residual_rows`."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        X, order, room = arguments(context, builder, signature, args)
        a = told(order, X.kind, *RESIDUAL)
        widths = (AT_ONCE // X.size, 1)
        with repeat(builder) as leave:
            piece = order.count(0)
            lo = piece * a.size
            leave(lo.compared(">=", a.n))
            m = (a.n - lo).or_less(a.size)
            here = a.V + lo * a.k * X.size
            sizes = (lo * 0, a.p, m, a.k, a.B, a.p, here, _place(room), a.p)
            blas(builder, X.kind, a.gemm.value, *(size.value for size in sizes))
            sums, done = [Sum(builder, DOUBLE, width) for width in widths], Sum(builder, WORD)
            for width, total in zip(widths, sums):
                with loop(builder, done.value, m * a.p - (width - 1), width) as e:
                    left = (room.load(e, width) - X.load(lo * a.p + e, width)).to(DOUBLE)
                    total.add(left * left)
                    done.add(width)
            a.sums.store(piece, sums[0].value.summed() + sums[1].value)
        return context.get_dummy_value()

    return types.void(X, order, room), generate


def _place(memory):
    """Its address."""
    return Value(memory.builder, memory.builder.ptrtoint(memory.pointer, WORD))


KKT = "begun n k gemm", "", "C G scale", "sums"
RESIDUAL = "begun n p k size gemm V B", "", "", "sums"
_vectors: Any = intrinsic(_look_at_vectors)
_kkt: Any = intrinsic(_kkt_of_rows)
_residual: Any = intrinsic(_residual_of_rows)


@compiled(**OPTIONS)
def _overview(a, b, found, lo, hi):
    """Of vectors lo to hi of a, lane by lane: the least, the largest, and Σ a b, to ``found``."""
    _vectors(a, b, found, lo, hi)


@compiled(**OPTIONS)
def _kkt_rows(Z, order, room):
    """`kkt_squares` for whoever comes: each takes the next SOME rows."""
    _kkt(Z, order, room)


@compiled(**OPTIONS)
def _residual_rows(X, order, room):
    """`residual_squares` for whoever comes: each takes the next ``size`` rows."""
    _residual(X, order, room)


def overview(a, b, threads=1):
    """The least and the largest entry of a, and Σ a b in float64; both without gaps, of one dtype.

    Where an entry of a is nan so is the sum, if b is a, and the others may be anything.
    """
    a, b = a.reshape(-1), b.reshape(-1)
    wide = AT_ONCE // a.itemsize
    whole = a.size // wide
    parts = pieces(whole, LEAST, PIECES) if whole else []
    found = np.empty((len(parts), 3, wide))
    if parts:
        crew.run(_overview, (a, b), parts, threads, own=(found,))
    x, y = (s[whole * wide :].astype(float) for s in (a, b))
    least = min(s.min(initial=np.inf) for s in (found[:, 0], x))
    most = max(s.max(initial=-np.inf) for s in (found[:, 1], x))
    return float(least), float(most), float(found[:, 2].sum() + x @ y)


def kkt_squares(Z, C, G, scale, threads=1):
    """‖s ∘ (ZG - C)‖², ‖s ∘ C‖² and ‖s ∘ ZG‖², s = 1 where ZG <= C, else min(1, Z scale).

    Z, C (n, k), G (k, k) and scale (k,) are of one dtype.
    """
    n, k = Z.shape
    sums = np.zeros((-(-n // SOME), 3))
    most = max(1, min(threads, len(sums)))
    order = crew.numbers(KKT, Z, 0, n, k, gemm(Z.dtype)[0], C, G, scale, sums)
    crew.run(_kkt_rows, (Z, order), [()] * most, threads, own=(np.empty((most, SOME, k), Z.dtype),))
    return sums.sum(axis=0)


def residual_squares(X, V, B, threads=1):
    """‖X - V B‖² in float64, its differences in the precision of X; arrays without gaps."""
    (n, p), k = X.shape, V.shape[1]
    size = 1 + BESIDE // max(1, p)
    sums = np.zeros(-(-n // size))
    most = max(1, min(threads, len(sums)))
    order = crew.numbers(RESIDUAL, X, 0, n, p, k, size, gemm(X.dtype)[0], V, B, sums)
    room = np.empty((most, min(n, size), p), X.dtype)
    crew.run(_residual_rows, (X, order), [()] * most, threads, own=(room,))
    return float(sums.sum())
