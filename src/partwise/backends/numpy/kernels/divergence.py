"""Sums and second-order sweeps of the Kullback-Leibler divergence, row by row."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from partwise.backends.numpy.kernels import crew
from partwise.backends.numpy.kernels._intrinsics import blas
from partwise.backends.numpy.kernels._options import HELPER, OPTIONS, compiled
from partwise.backends.numpy.kernels._writing import (
    DOUBLE,
    WORD,
    Sum,
    Value,
    arguments,
    either,
    loop,
    repeat,
    told,
)
from partwise.backends.numpy.kernels.products import LINE, gemm

TINY = 1e-300
LOG2 = math.log(2.0)
TOGETHER = 16  # rows of X that are fetched together: of a column they are a line of the cache


@compiled(**HELPER)
def _model(v, u, tiny):
    """y = v·u in float64: Σ x log y is a difference of large sums away from the loss."""
    y = np.float64(tiny)
    for j in range(len(v)):
        y += np.float64(v[j]) * np.float64(u[j])
    return y


@compiled(**OPTIONS)
def kl_rows(indptr, indices, x, V, U, out, xlogy, want_log, tiny, lo, hi):
    """out = (X / VUᵀ) U and xlogy_i = Σ_j x_ij log(VUᵀ)_ij over the non-zeros of rows lo to hi.

    One pass; nothing of size nnz x k is stored.
    """
    k = V.shape[1]
    single = V.itemsize == 4
    acc = np.zeros(k, V.dtype)
    for i in range(lo, hi):
        acc[:] = 0
        v = V[i]
        s = 0.0
        for e in range(indptr[i], indptr[i + 1]):
            u = U[indices[e]]
            y = tiny
            for other in range(k):
                y += v[other] * u[other]
            q = x[e] / y
            for other in range(k):
                acc[other] += q * u[other]
            if want_log:
                s += x[e] * math.log(_model(v, u, tiny) if single else np.float64(y))
        out[i] = acc
        xlogy[i] = s


def _root_of_model(builder, N, h, a, ridge, old):
    """See `_hyperbola`."""
    zero = N.like(0.0)
    # (a + ridge z)(q + z) = p with p = N²/h, q = N/h - z
    ratio = N / h
    q = ratio - old
    q = q.if_above(zero, q, zero)
    linear, rest = a + ridge * q, N * ratio - a * q
    below = linear + (linear * linear + ridge * 4.0 * rest).root()
    root = below.if_above(zero, rest * 2.0 / below, old)
    found = either(rest.compared("<=", zero), zero, root)
    flat = (a + ridge * old).if_above(zero, zero, old)
    return either(h.compared("<=", zero), flat, found)


def _hyperbola_written(typing, N, h, a, ridge, old):
    """The root of a + ridge z = p/(q + z), where p/(q + z) has value N and slope -h at ``old``."""

    def generate(context, builder, signature, args):
        return _root_of_model(builder, *arguments(context, builder, signature, args)).value

    return types.float64(*[types.float64] * 5), generate


_hyperbola: Any = intrinsic(_hyperbola_written)


@compiled(**HELPER)
def _newton_row(x, y, inv, r, B, m, z, a, ridge, sweeps):
    """One-dimensional second-order steps on f(z) = Σ_j (a_j + ½ ridge_j z_j) z_j - Σ_e x_e log y_e.

    y = B z, inv = 1/y and r = x/y are kept up to date, so that a division is paid for only where a
    coordinate moves. B is (k, m): the basis at the m non-zeros of the row. With
    N = Σ x b/y and h = Σ x b²/y² the derivative a + ridge z - N(z) is modelled with the hyperbola
    p/(q + z) that has N's value and slope, and z moves to the root of the model. Because 1/N is
    concave in z, the root is never right of the minimiser, and from the right it is nearer to it
    than Newton's step.
    """
    k = z.shape[0]
    one = z.dtype.type(1)
    for e in range(m):
        inv[e] = one / y[e]
        r[e] = x[e] * inv[e]
    for _ in range(sweeps):
        for j in range(k):
            b = B[j]
            old = z[j]
            if old == 0.0:
                N = 0.0
                for e in range(m):
                    N += r[e] * b[e]
                if N <= a[j]:
                    continue
            N, h = 0.0, 0.0
            for e in range(m):
                q = r[e] * b[e]
                N += q
                h += q * (inv[e] * b[e])
            new = _hyperbola(N, h, a[j], ridge[j], old)
            if new <= 0.0:
                new = 0.0
                if old > 0.0:
                    for e in range(m):
                        # this coordinate is nearly all there is at e: shrink, do not leave log 0
                        if x[e] > 0 and y[e] - old * b[e] <= 1e-3 * y[e]:
                            new = 0.1 * old
                            break
            change = z.dtype.type(new - old)
            if change != 0:
                for e in range(m):
                    y[e] += change * b[e]
                    inv[e] = one / y[e]
                    r[e] = x[e] * inv[e]
                z[j] = new


@compiled(**HELPER)
def _spread(ridge, i, out):
    """Row i of a (1 or n, 1 or k) array in full."""
    at = 0 if ridge.shape[0] == 1 else i
    for j in range(out.shape[0]):
        out[j] = ridge[at, 0 if ridge.shape[1] == 1 else j]


@compiled(**OPTIONS)
def newton_rows(indptr, indices, data, Z, U, cost, ridge, sweeps, xlogy, want_log, tiny, lo, hi):
    """Newton coordinate sweeps for KL on rows lo to hi of Z, in place; see `_newton_row`.

    ``cost`` (1 or n, k) is the linear cost d_i Σ_j u_jk plus penalties, ``ridge`` (1 or n, 1 or k)
    their curvature; ``xlogy`` receives Σ_j x_ij log y_ij after the step.
    """
    k = Z.shape[1]
    single = Z.itemsize == 4
    width = 0
    for i in range(lo, hi):
        width = max(width, indptr[i + 1] - indptr[i])
    B = np.empty((k, width), Z.dtype)
    y = np.empty(width, Z.dtype)
    x = np.empty(width, Z.dtype)
    inv = np.empty(width, Z.dtype)
    r = np.empty(width, Z.dtype)
    a = np.empty(k, np.float64)
    price = np.empty(k, np.float64)
    for i in range(lo, hi):
        m = indptr[i + 1] - indptr[i]
        z = Z[i]
        for e in range(m):
            u = U[indices[indptr[i] + e]]
            x[e] = data[indptr[i] + e]
            for other in range(k):
                B[other, e] = u[other]
        for e in range(m):
            y[e] = tiny
        for other in range(k):
            zl = z[other]
            b = B[other]
            for e in range(m):
                y[e] += zl * b[e]
        for other in range(k):
            a[other] = cost[0 if cost.shape[0] == 1 else i, other]
        _spread(ridge, i, price)
        _newton_row(x, y, inv, r, B, m, z, a, price, sweeps)
        s = 0.0
        if want_log:
            for e in range(m):
                if single:
                    s += x[e] * math.log(_model(z, U[indices[indptr[i] + e]], tiny))
                else:
                    s += x[e] * math.log(max(y[e], tiny))
        xlogy[i] = s


def _dense_sweeps(typing, X, Z, cost, ridge, order, room):
    """All of `_newton_dense`."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        X, Z, cost, ridge, order, room = arguments(context, builder, signature, args)
        a = told(order, room.kind, *DENSE)
        low, wide, m, pitch = a.low.to(room.kind), AT_ONCE // room.size, a.m, a.pitch
        y, r = (room.after(pitch * (TOGETHER + i)) for i in range(2))
        least = Value(builder, ir.Constant(ir.VectorType(room.kind, wide), None)) + low

        def each():
            return loop(builder, 0, m, wide)

        with repeat(builder) as leave:
            first = order.count(0) * TOGETHER
            leave(first.compared(">=", a.n))
            end = (first + TOGETHER).or_less(a.n)
            _fetch(builder, X, room, first, end, a)
            with loop(builder, first, end) as i:
                x, z = room.after((i - first) * pitch), Z.after(i * a.k)
                paid, price = cost.after(i * a.paid), ridge.after(i * a.curved)
                with each() as e:
                    y.store(e, least, wide)
                with loop(builder, 0, a.k) as j:
                    own = z.load(j).to(room.kind)
                    with builder.if_then(own.compared("!=", 0.0)), each() as e:
                        b = a.B.load(j * pitch + e, wide)
                        y.store(e, y.load(e, wide) + b * own, wide)
                change, last = Sum(builder, room.kind), Sum(builder, WORD)
                left = Sum(builder, DOUBLE)

                def moved(e):
                    t = y.load(e, wide) + a.B.load(last.value + e, wide) * change.value
                    t = least.if_above(t, least, t)  # nan stays
                    y.store(e, t, wide)
                    return t

                with loop(builder, 0, a.sweeps):
                    with each() as e:
                        t = moved(e)
                        r.store(e, x.load(e, wide) * (1.0 / t), wide)
                    change.set(0.0)
                    left.set(1.0)
                    with loop(builder, 0, a.k) as j, repeat(builder, False) as skip:
                        b, old, toll = j * pitch, z.load(j).to(DOUBLE), paid.load(j)
                        with builder.if_then(old.compared("==", 0.0)):
                            N = Sum(builder, room.kind, wide)
                            with each() as e:
                                N.add(r.load(e, wide) * a.B.load(b + e, wide))
                            N = N.value.summed().to(DOUBLE)
                            skip(N.compared("<=", toll * left.value))
                            stale = change.value.compared("!=", 0.0)
                            stale = builder.or_(stale, left.value.compared("<", 1.0))
                            with builder.if_then(stale):
                                N = Sum(builder, room.kind, wide)
                                with each() as e:
                                    q = x.load(e, wide) * (1.0 / moved(e))
                                    r.store(e, q, wide)
                                    N.add(q * a.B.load(b + e, wide))
                                change.set(0.0)
                                left.set(1.0)
                                skip(N.value.summed().to(DOUBLE).compared("<=", toll))
                        N, h = (Sum(builder, room.kind, wide) for _ in range(2))
                        with each() as e:
                            q = a.B.load(b + e, wide) * (1.0 / moved(e))
                            s = x.load(e, wide) * q
                            N.add(s)
                            h.add(s * q)
                        N, h = (value.value.summed().to(DOUBLE) for value in (N, h))
                        root = _root_of_model(builder, N, h, toll, price.load(j * a.by), old)
                        new = Sum(builder, DOUBLE)
                        new.add(root)
                        with builder.if_then(root.compared("<=", 0.0)):
                            # where it is nearly all there is at some e: shrink, do not leave log 0
                            alone = Sum(builder, room.kind, wide)
                            part, none = old.to(room.kind), least.like(0.0)
                            with each() as e:
                                here = x.load(e, wide)
                                rest = y.load(e, wide) * (1 - 1e-3)
                                much = (a.B.load(b + e, wide) * part).compared(">=", rest)
                                alone.add(either(much, here, none))
                            some = alone.value.summed().compared(">", 0.0)
                            new.set(either(some, old * 0.1, old.like(0.0)))
                        # new / old or one
                        lower = new.value.or_less(old) + TINY
                        left.set(left.value * (lower / (old + TINY)))
                        change.set((new.value - old).to(room.kind))
                        last.set(b)
                        z.store(j, new.value.to(Z.kind))
        return context.get_dummy_value()

    return types.void(X, Z, cost, ridge, order, room), generate


def _fetch(builder, X, room, first, end, a):
    """Rows ``first`` to ``end`` of X, or of its transpose, to the first ones of the room."""
    with builder.if_else(a.turned.compared("!=", 0)) as (across, along):
        with across, loop(builder, 0, a.m) as e, loop(builder, first, end) as i:
            room.store((i - first) * a.pitch + e, X.load(e * a.n + i).to(room.kind))
        with along, loop(builder, first, end) as i:
            done = Sum(builder, WORD)
            for width in (LINE // X.size, 1):
                with loop(builder, done.value, a.m - (width - 1), width) as e:
                    x = X.load(i * a.m + e, width).to(room.kind)
                    room.store((i - first) * a.pitch + e, x, width)
                    done.add(width)


DENSE = "begun turned n m k sweeps paid curved by pitch", "low", "B"
AT_ONCE = 2 * LINE  # bytes of a vector
_dense_sweep: Any = intrinsic(_dense_sweeps)


@compiled(**OPTIONS)
def _newton_dense(X, Z, cost, ridge, order, room):
    """`newton_dense` for who comes: each takes the next TOGETHER rows that nobody has ``begun``.

    B is the basis as (k, p or more), contiguous: a change of y and the sums for the next coordinate
    share one pass, in the precision of B, which may be lower than that of Z. That pass writes y
    alone, since loads and stores cost as much as the division. So x/y is not kept up to date: of a
    coordinate at zero N is known as the sweep began. Since then y fell to no less than the share
    ``left`` anywhere (a coordinate that fell to a share of itself took no more of any y), so N is
    at most 1/left as large: mostly enough to see that it stays, else a pass tells.

    ``room`` (TOGETHER + 2, p or more) is room to work in, for rows of X first. It and B are laid
    out by `lined`: what they have beyond p is zero, and enters no sum.
    """
    _dense_sweep(X, Z, cost, ridge, order, room)


def lined(rows, width, dtype):
    """Zeros for so many rows of whole vectors, each on a line, no two alike within a page."""
    size = -(-width * dtype.itemsize // AT_ONCE) * AT_ONCE + LINE
    room = np.zeros(rows * size + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + rows * size].view(dtype).reshape(rows, -1)


def newton_dense(X, Z, B, cost, ridge, sweeps, low, threads=1):
    """`newton_rows` for a dense X, many of whose coordinates move; in place.

    B is (p, k); it is used in the precision of ``low``, which may be lower than that of Z.
    """
    turned = not X.flags.c_contiguous and X.flags.f_contiguous
    X = X.T if turned else np.ascontiguousarray(X)
    cost, ridge = (np.ascontiguousarray(a, float) for a in (cost, ridge))
    dtype, (p, k), n = np.dtype(type(low)), B.shape, len(Z)
    basis = lined(k, p, dtype)
    basis[:, :p] = B.T
    most = max(1, min(threads, -(-n // TOGETHER)))
    rooms = lined(most * (TOGETHER + 2), p, dtype)
    rooms = rooms.reshape(most, TOGETHER + 2, rooms.shape[1])
    by = int(ridge.shape[1] > 1)
    paid, curved = k * (len(cost) > 1), ridge.shape[1] * (len(ridge) > 1)
    shape = (n, p, k, sweeps, paid, curved, by, rooms.shape[2])
    order = crew.numbers(DENSE, basis, 0, turned, *shape, low, basis)
    crew.run(_newton_dense, (X, Z, cost, ridge, order), [()] * most, threads, own=(rooms,))


ROOT = math.sqrt(2.0)
BESIDE = 1 << 15  # entries of VUᵀ that are there at a time
RUNS = 64  # sums over rows, whatever the number of threads


def _log(y):
    """The logarithm of float64 that is positive and normal, alone or in lanes.

    With y = 2ᵉ m, 1/√2 <= m < √2, and f = (m - 1)/(m + 1): log m = 2 (f + f³/3 + f⁵/5 + ..), whose
    terms beyond f²¹ are below the rounding.
    """
    build, kind = y.builder, y.value.type
    width = getattr(kind, "count", 1)
    words = WORD if width == 1 else ir.VectorType(WORD, width)

    def word(number):
        return ir.Constant(words, number if width == 1 else [number] * width)

    bits = build.bitcast(y.value, words)
    # the exponent as a number: in lanes there is no conversion before AVX-512
    high = build.or_(build.lshr(bits, word(52)), word(0x4330000000000000))
    low = build.or_(build.and_(bits, word(0x000FFFFFFFFFFFFF)), word(0x3FF0000000000000))
    e, f = (Value(build, build.bitcast(part, kind)) for part in (high, low))
    e = e - 4503599627371519.0
    over = f.compared(">", ROOT)
    e, f = either(over, e + 1.0, e), either(over, f * 0.5, f)
    f = (f - 1.0) / (f + 1.0)
    s = f * f
    t = s * (1 / 21) + 1 / 19
    for odd in range(17, 1, -2):
        t = t * s + 1 / odd
    return e * LOG2 + (f + f * s * t) * 2.0


def _logs_of_runs(typing, X, order, Y):
    """All of `_xlogy`."""

    def generate(context, builder, signature, args):
        builder.function.attributes.add("optsize")
        X, order, Y = arguments(context, builder, signature, args)
        a = told(order, DOUBLE, *LOGS)
        place = Value(builder, builder.ptrtoint(Y.pointer, WORD))
        widths = (AT_ONCE // 8, 1)
        with repeat(builder) as leave:
            r = order.count(0)
            leave(r.compared(">=", a.runs))
            end = ((r + 1) * a.size).or_less(a.n)
            totals = [Sum(builder, DOUBLE, width) for width in widths]
            with loop(builder, r * a.size, end, a.rows) as lo:
                m, done = (end - lo).or_less(a.rows), Sum(builder, WORD)
                sizes = (lo * 0, a.p, m, a.k, a.U, a.p, a.V + lo * a.k * 8, place, a.p)
                blas(builder, DOUBLE, a.blas.value, *(size.value for size in sizes))
                for width, total in zip(widths, totals):
                    with loop(builder, done.value, m * a.p - (width - 1), width) as e:
                        y, x = Y.load(e, width), X.load(lo * a.p + e, width).to(DOUBLE)
                        least = y.like(a.low)
                        term = x * _log(least.if_above(y, least, y))
                        total.add(either(y.compared("<", math.inf), term, y.like(math.nan)))
                        done.add(width)
            a.sums.store(r, totals[0].value.summed() + totals[1].value)
        return context.get_dummy_value()

    return types.void(X, order, Y), generate


LOGS = "begun n p k size runs rows blas V U", "low", "", "sums"
_all_logs: Any = intrinsic(_logs_of_runs)


@compiled(**OPTIONS)
def _xlogy(X, order, Y):
    """sums[r] = Σ x log y over run r of ``size`` rows, for who comes; Y = VUᵀ, some rows at a time.

    All in lanes, which math.log is not. Where y is infinite or nan, so is the sum.
    """
    _all_logs(X, order, Y)


def xlogy(X, V, U, low, threads=1):
    """Σ x log y of a dense X in float64, y = VUᵀ or at least ``low``."""
    if not X.flags.c_contiguous:
        X, V, U = X.T, U, V
    n, p = X.shape
    X, V, B = (np.ascontiguousarray(a, t) for a, t in ((X, X.dtype), (V, float), (U.T, float)))
    size = -(-n // RUNS)
    sums = np.zeros(-(-n // size) if size else 0)
    most = max(1, min(threads, len(sums)))
    Y = np.empty((most, min(size, 1 + BESIDE // max(1, p)), p))
    given = (n, p, V.shape[1], size, len(sums), Y.shape[1], gemm(V.dtype)[0], V, B)
    order = crew.numbers(LOGS, Y, 0, *given, low, sums)
    crew.run(_xlogy, (X, order), [()] * most, threads, own=(Y,))
    return float(sums.sum())
