"""Compiled inner loops: plain functions over arrays, compiled by numba on first use.

Importing this module imports numba, so the library does it inside functions. Every kernel has a
naive twin in ``tests/reference.py`` or a numpy expression in the tests. ``parallel`` variants run
the same arithmetic in the same order on each row, so the number of threads changes no result of a
row kernel by more than the last bits (the compiler fuses multiplications and additions as it likes
in each variant); sums over rows are taken per chunk of rows, in order.
"""

from __future__ import annotations

import math
from typing import Any

import numba as nb
import numpy as np

from partwise.engine.numeric import compiled_code_is_kept

# no "nnan" or "ninf": inf and nan keep their meaning
_OPTIONS: dict[str, Any] = {
    "cache": compiled_code_is_kept(),
    "fastmath": {"nsz", "arcp", "contract", "afn", "reassoc"},
    "error_model": "numpy",
    "nogil": True,
}
TILE = 8  # columns of a graph's linear system that are solved together
LANES = 64  # rows swept together, one SIMD lane each; 64 measured best for float32 and float64


@nb.njit(**_OPTIONS)
def _sweep_block(z, c, d, r, e, G, g, sweeps, stop, enough):
    """Coordinate descent on LANES rows at once: min ½ d zᵀGz + ½ r·z² - cᵀz over z >= 0.

    z, c are (k, LANES), r and e that or (1, LANES); coordinate j of all lanes moves to its exact
    minimiser. ``e`` >= r is the curvature of a step: what it has beyond r belongs to a bound
    around where the sweep begins, which is why that is for one sweep. Sweeps end early once a
    sweep changes less than ``stop`` times what the first one did, or its squared length in the
    metric of the Hessian is at most ``enough``. Returns that of the last one.
    """
    k = G.shape[0]
    k4 = k - k % 4
    zero = z.dtype.type(0)
    first, moved = 0.0, 0.0
    for sweep in range(sweeps):
        moved = 0.0
        for j in range(k):
            zj = z[j]
            cj = c[j]
            for t in range(LANES):
                g[t] = zero
            for other in range(0, k4, 4):  # four at a time: g stays in registers
                a0, a1, a2, a3 = G[j, other], G[j, other + 1], G[j, other + 2], G[j, other + 3]
                z0, z1, z2, z3 = z[other], z[other + 1], z[other + 2], z[other + 3]
                for t in range(LANES):
                    g[t] += a0 * z0[t] + a1 * z1[t] + a2 * z2[t] + a3 * z3[t]
            for other in range(k4, k):
                a0 = G[j, other]
                z0 = z[other]
                for t in range(LANES):
                    g[t] += a0 * z0[t]
            gjj = G[j, j]
            rj = r[j if r.shape[0] > 1 else 0]
            ej = e[j if e.shape[0] > 1 else 0]
            change = zero
            for t in range(LANES):
                h = d[t] * gjj + ej[t]
                grad = d[t] * g[t] + rj[t] * zj[t] - cj[t]
                # a coordinate without curvature moves only where its linear cost sends it to zero
                new = zj[t] - grad / h if h > zero else (zero if grad > zero else zj[t])
                new = max(new, zero)
                change += (new - zj[t]) * (new - zj[t]) * h
                zj[t] = new
            moved += change
        if sweep == 0:
            first = moved
        if moved <= stop * stop * first or moved <= enough:
            break
    return moved


@nb.njit(**_OPTIONS)
def _pull(Z, C, r, indptr, indices, weights, scale, groups, group, first, c, rl, el):
    """What LANES rows of a group are pulled by: C less the gradient of the graph, and curvatures.

    The gradient is summed from differences w (z_i - z_j): D z and W z each are far larger.
    """
    n, k = Z.shape
    near = np.empty(k, Z.dtype)
    for t in range(LANES):
        i = group + (first + t) * groups
        if i >= n:  # idle lanes stand at the solution of an empty problem
            c[:, t] = 0
            continue
        near[:] = 0
        degree = Z.dtype.type(0)
        own = Z[i]
        for edge in range(indptr[i], indptr[i + 1]):
            other = indices[edge]
            w = weights[edge]
            # rows of one group move at once, so an edge between them enters by its bound
            degree += w + w if other % groups == group else w
            row = Z[other]
            for j in range(k):
                near[j] += w * (row[j] - own[j])
        at = i if r.shape[0] > 1 else 0
        for j in range(rl.shape[0]):
            rl[j, t] = r[at, j]
            el[j, t] = r[at, j] + scale * degree
        for j in range(k):
            c[j, t] = C[i, j] + scale * near[j]


@nb.njit(**_OPTIONS)
def _follow(Z, d, G, groups, group, first, c, rl, el):
    """One sweep of LANES rows of a group from what `_pull` found; returns how far they moved."""
    n, k = Z.shape
    z = np.zeros((k, LANES), Z.dtype)
    dl = np.ones(LANES, Z.dtype)
    g = np.zeros(LANES, Z.dtype)
    last = min(LANES, (n - group + groups - 1) // groups - first)
    for t in range(last):
        i = group + (first + t) * groups
        dl[t] = d[i] if d.shape[0] > 1 else d[0]
        for j in range(k):
            z[j, t] = Z[i, j]
    moved = _sweep_block(z, c, dl, rl, el, G, g, 1, 0.0, 0.0)
    for t in range(last):
        i = group + (first + t) * groups
        for j in range(k):
            Z[i, j] = z[j, t]
    return moved


@nb.njit(**_OPTIONS)
def hals_graph(Z, C, G, d, r, indptr, indices, weights, scale, groups, rounds, stop):
    """`hals_rows` with scale/2 tr(ZᵀLZ) added, L the Laplacian of a CSR graph; in place.

    Row i belongs to group i mod ``groups``: rows of a group lie far apart, since neighbours in the
    graph are often neighbours in the array. Groups move one after the other and see where the
    others have gone.
    """
    n, k = Z.shape
    blocks = ((n + groups - 1) // groups + LANES - 1) // LANES
    c = np.zeros((blocks, k, LANES), Z.dtype)
    rl = np.zeros((blocks, r.shape[1], LANES), Z.dtype)
    el = np.zeros((blocks, r.shape[1], LANES), Z.dtype)
    first = 0.0
    for done in range(rounds):
        moved = 0.0
        for group in range(groups):
            for b in range(blocks):
                args = (groups, group, b * LANES, c[b], rl[b], el[b])
                _pull(Z, C, r, indptr, indices, weights, scale, *args)
            for b in range(blocks):
                moved += _follow(Z, d, G, groups, group, b * LANES, c[b], rl[b], el[b])
        if done == 0:
            first = moved
        if moved <= stop * stop * first:
            break


@nb.njit(parallel=True, **_OPTIONS)
def hals_graph_parallel(Z, C, G, d, r, indptr, indices, weights, scale, groups, rounds, stop):
    """`hals_graph` with the blocks of a group in threads."""
    n, k = Z.shape
    blocks = ((n + groups - 1) // groups + LANES - 1) // LANES
    c = np.zeros((blocks, k, LANES), Z.dtype)
    rl = np.zeros((blocks, r.shape[1], LANES), Z.dtype)
    el = np.zeros((blocks, r.shape[1], LANES), Z.dtype)
    far = np.zeros(blocks)
    first = 0.0
    for done in range(rounds):
        moved = 0.0
        for group in range(groups):
            for b in nb.prange(blocks):
                args = (groups, group, b * LANES, c[b], rl[b], el[b])
                _pull(Z, C, r, indptr, indices, weights, scale, *args)
            for b in nb.prange(blocks):
                far[b] = _follow(Z, d, G, groups, group, b * LANES, c[b], rl[b], el[b])
            for b in range(blocks):
                moved += far[b]
        if done == 0:
            first = moved
        if moved <= stop * stop * first:
            break


@nb.njit(**_OPTIONS)
def _hals_range(Z, C, G, d, r, e, sweeps, stop, enough, lo, hi):
    k = G.shape[0]
    z = np.zeros((k, LANES), Z.dtype)
    c = np.zeros((k, LANES), Z.dtype)
    dl = np.ones(LANES, Z.dtype)
    rl = np.zeros((r.shape[1], LANES), Z.dtype)
    el = np.zeros((e.shape[1], LANES), Z.dtype)
    g = np.zeros(LANES, Z.dtype)
    for start in range(lo, hi, LANES):
        m = min(LANES, hi - start)
        for t in range(m):
            dl[t] = d[start + t] if d.shape[0] > 1 else d[0]
            for j in range(r.shape[1]):
                rl[j, t] = r[start + t if r.shape[0] > 1 else 0, j]
            for j in range(e.shape[1]):
                el[j, t] = e[start + t if e.shape[0] > 1 else 0, j]
            for j in range(k):
                z[j, t] = Z[start + t, j]
                c[j, t] = C[start + t, j]
        for t in range(m, LANES):  # idle lanes stand at the solution of an empty problem
            for j in range(k):
                z[j, t] = 0
                c[j, t] = 0
        _sweep_block(z, c, dl, rl, el, G, g, sweeps, stop, enough)
        for t in range(m):
            for j in range(k):
                Z[start + t, j] = z[j, t]


@nb.njit(**_OPTIONS)
def hals_rows(Z, C, G, d, r, e, sweeps, stop, enough):
    """Coordinate descent in place on every row of Z; see `_sweep_block`.

    d has length 1 or n, r and e have 1 or n rows and 1 or k columns.
    """
    _hals_range(Z, C, G, d, r, e, sweeps, stop, enough, 0, Z.shape[0])


@nb.njit(parallel=True, **_OPTIONS)
def hals_rows_parallel(Z, C, G, d, r, e, sweeps, stop, enough, chunk):
    """`hals_rows` over chunks of rows in threads; chunk is a multiple of LANES."""
    n = Z.shape[0]
    for b in nb.prange((n + chunk - 1) // chunk):
        _hals_range(Z, C, G, d, r, e, sweeps, stop, enough, b * chunk, min(n, (b + 1) * chunk))


@nb.njit(**_OPTIONS)
def _kl_rows_range(indptr, indices, x, V, U, out, xlogy, want_log, lo, hi, tiny):
    k = V.shape[1]
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
                s += x[e] * math.log(y)
        out[i] = acc
        xlogy[i] = s


@nb.njit(parallel=True, **_OPTIONS)
def kl_rows_parallel(indptr, indices, x, V, U, out, xlogy, want_log, bounds, tiny):
    """out = (X / VUᵀ) U and xlogy_i = Σ_j x_ij log(VUᵀ)_ij over the non-zeros, one pass.

    ``bounds`` cuts the rows into chunks of about equal numbers of non-zeros. Nothing of size
    nnz x k is stored.
    """
    for b in nb.prange(bounds.shape[0] - 1):
        _kl_rows_range(
            indptr, indices, x, V, U, out, xlogy, want_log, bounds[b], bounds[b + 1], tiny
        )


@nb.njit(**_OPTIONS)
def kl_rows(indptr, indices, x, V, U, out, xlogy, want_log, bounds, tiny):
    """`kl_rows_parallel` in one thread."""
    _kl_rows_range(indptr, indices, x, V, U, out, xlogy, want_log, bounds[0], bounds[-1], tiny)


@nb.njit(**_OPTIONS)
def _hyperbola(N, h, a, ridge, old):
    """The root of a + ridge z = p/(q + z), where p/(q + z) has value N and slope -h at ``old``."""
    if h <= 0.0:
        return 0.0 if a + ridge * old > 0.0 else old
    # (a + ridge z)(q + z) = p with p = N²/h, q = N/h - z
    q = max(N / h - old, 0.0)
    linear = a + ridge * q
    rest = N * (N / h) - a * q
    if rest <= 0.0:
        return 0.0
    below = linear + math.sqrt(linear * linear + 4.0 * ridge * rest)
    return 2.0 * rest / below if below > 0.0 else old


@nb.njit(**_OPTIONS)
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
            N = 0.0
            for e in range(m):
                N += r[e] * b[e]
            if old == 0.0 and N <= a[j]:
                continue
            h = 0.0
            for e in range(m):
                h += r[e] * b[e] * (inv[e] * b[e])
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


@nb.njit(**_OPTIONS)
def _spread(ridge, i, out):
    """Row i of a (1 or n, 1 or k) array in full."""
    at = 0 if ridge.shape[0] == 1 else i
    for j in range(out.shape[0]):
        out[j] = ridge[at, 0 if ridge.shape[1] == 1 else j]


@nb.njit(**_OPTIONS)
def _newton_range(indptr, indices, data, Z, U, cost, ridge, sweeps, xlogy, want_log, lo, hi, tiny):
    k = Z.shape[1]
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
                s += x[e] * math.log(max(y[e], tiny))
        xlogy[i] = s


@nb.njit(parallel=True, **_OPTIONS)
def newton_rows_parallel(
    indptr, indices, data, Z, U, cost, ridge, sweeps, xlogy, want_log, bounds, tiny
):
    """Newton coordinate sweeps for KL on each row of Z, in place; see `_newton_row`.

    ``cost`` (1 or n, k) is the linear cost d_i Σ_j u_jk plus penalties, ``ridge`` (1 or n, 1 or k)
    their curvature; ``xlogy`` receives Σ_j x_ij log y_ij after the step.
    """
    for b in nb.prange(bounds.shape[0] - 1):
        _newton_range(
            indptr,
            indices,
            data,
            Z,
            U,
            cost,
            ridge,
            sweeps,
            xlogy,
            want_log,
            bounds[b],
            bounds[b + 1],
            tiny,
        )


@nb.njit(**_OPTIONS)
def newton_rows(indptr, indices, data, Z, U, cost, ridge, sweeps, xlogy, want_log, bounds, tiny):
    """`newton_rows_parallel` in one thread."""
    _newton_range(
        indptr,
        indices,
        data,
        Z,
        U,
        cost,
        ridge,
        sweeps,
        xlogy,
        want_log,
        bounds[0],
        bounds[-1],
        tiny,
    )


@nb.njit(**_OPTIONS)
def _newton_dense_row(x, y, r, B, z, a, ridge, sweeps, low):
    """`_newton_row` where nearly every coordinate moves: its change of y and the sums for the next
    coordinate share one pass, in the precision of B. Two arrays are written in it, not three: more
    would need more alias checks than the compiler makes before it gives up on vectors.
    """
    k, m = B.shape
    zero, one = B.dtype.type(0), B.dtype.type(1)
    near = B.dtype.type(1e-3)
    for e in range(m):
        r[e] = x[e] / y[e]
    change, last = zero, B[0]
    for step in range(sweeps * k):
        j = step % k
        b = B[j]
        old = z[j]
        N, h = zero, zero
        if change != 0:
            for e in range(m):
                t = max(y[e] + change * last[e], low)
                inverse = one / t
                q = x[e] * inverse
                y[e] = t
                r[e] = q
                q *= b[e]
                N += q
                h += q * (inverse * b[e])
            change = zero
            if old == 0.0 and N <= a[j]:
                continue
        else:
            for e in range(m):
                N += r[e] * b[e]
            if old == 0.0 and N <= a[j]:
                continue
            for e in range(m):
                h += r[e] * b[e] * (b[e] / y[e])
        new = _hyperbola(np.float64(N), np.float64(h), a[j], ridge[j], old)
        if new <= 0.0:
            new = 0.0
            if old > 0.0:
                part = B.dtype.type(old)
                for e in range(m):
                    # this coordinate is nearly all there is at e: shrink, do not leave log 0
                    if x[e] > 0 and y[e] - part * b[e] <= near * y[e]:
                        new = 0.1 * old
                        break
        change, last = B.dtype.type(new - old), b
        z[j] = new


@nb.njit(**_OPTIONS)
def _newton_dense_range(X, Z, B, cost, ridge, sweeps, lo, hi, tiny):
    k, m = B.shape
    low = B.dtype.type(tiny)
    x = np.empty(m, B.dtype)
    y = np.empty(m, B.dtype)
    r = np.empty(m, B.dtype)
    a = np.empty(k, np.float64)
    price = np.empty(k, np.float64)
    for i in range(lo, hi):
        z = Z[i]
        for e in range(m):
            x[e] = X[i, e]
            y[e] = low
        for other in range(k):
            zl = B.dtype.type(z[other])
            b = B[other]
            for e in range(m):
                y[e] += zl * b[e]
        for other in range(k):
            a[other] = cost[0 if cost.shape[0] == 1 else i, other]
        _spread(ridge, i, price)
        _newton_dense_row(x, y, r, B, z, a, price, sweeps, low)


@nb.njit(parallel=True, **_OPTIONS)
def newton_dense_parallel(X, Z, B, cost, ridge, sweeps, bounds, tiny):
    """`newton_rows_parallel` for a dense X; B is the basis as (k, p), contiguous.

    Sums over a row are in the precision of B, which may be lower than that of X and Z.
    """
    for b in nb.prange(bounds.shape[0] - 1):
        _newton_dense_range(X, Z, B, cost, ridge, sweeps, bounds[b], bounds[b + 1], tiny)


@nb.njit(**_OPTIONS)
def newton_dense(X, Z, B, cost, ridge, sweeps, bounds, tiny):
    """`newton_dense_parallel` in one thread."""
    _newton_dense_range(X, Z, B, cost, ridge, sweeps, bounds[0], bounds[-1], tiny)


@nb.njit(**_OPTIONS)
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


@nb.njit(**_OPTIONS)
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


@nb.njit(parallel=True, **_OPTIONS)
def graph_solve_parallel(indptr, indices, weights, scale, diagonal, c, z, goal, most, taken):
    """`graph_solve` with the tiles in threads."""
    for j in nb.prange(z.shape[0]):
        taken[j] = _conjugate_gradient(
            indptr, indices, weights, scale, diagonal[j], c[j], z[j], goal, most
        )


@nb.njit(**_OPTIONS)
def graph_solve(indptr, indices, weights, scale, diagonal, c, z, goal, most, taken):
    """(diag(diagonal) - scale W) z = c for each column of each tile of z, (tiles, n, TILE).

    In place, by conjugate gradients with the diagonal as preconditioner, to the relative residual
    ``goal``; ``taken`` receives how many iterations a tile took.
    """
    for j in range(z.shape[0]):
        taken[j] = _conjugate_gradient(
            indptr, indices, weights, scale, diagonal[j], c[j], z[j], goal, most
        )


@nb.njit(**_OPTIONS)
def _spmm_range(indptr, indices, x, B, out, lo, hi):
    k = B.shape[1]
    acc = np.zeros(k, B.dtype)
    for i in range(lo, hi):
        acc[:] = 0
        for e in range(indptr[i], indptr[i + 1]):
            b = B[indices[e]]
            q = x[e]
            for other in range(k):
                acc[other] += q * b[other]
        out[i] = acc


@nb.njit(parallel=True, **_OPTIONS)
def spmm_parallel(indptr, indices, x, B, out, bounds):
    """out = X B for CSR X, rows in threads; scipy's product runs in one."""
    for b in nb.prange(bounds.shape[0] - 1):
        _spmm_range(indptr, indices, x, B, out, bounds[b], bounds[b + 1])


@nb.njit(**_OPTIONS)
def _laplacian_range(indptr, indices, weights, Z, out, lo, hi):
    k = Z.shape[1]
    acc = np.zeros(k, Z.dtype)
    for i in range(lo, hi):
        acc[:] = 0
        own = Z[i]
        for e in range(indptr[i], indptr[i + 1]):
            row = Z[indices[e]]
            w = weights[e]
            for j in range(k):
                acc[j] += w * (own[j] - row[j])
        out[i] = acc


@nb.njit(**_OPTIONS)
def laplacian(indptr, indices, weights, Z, out, bounds):
    """out_i = Σ_j w_ij (z_i - z_j), from differences: D Z - W Z cancels where neighbours agree."""
    _laplacian_range(indptr, indices, weights, Z, out, bounds[0], bounds[-1])


@nb.njit(parallel=True, **_OPTIONS)
def laplacian_parallel(indptr, indices, weights, Z, out, bounds):
    """`laplacian` in threads."""
    for b in nb.prange(bounds.shape[0] - 1):
        _laplacian_range(indptr, indices, weights, Z, out, bounds[b], bounds[b + 1])
