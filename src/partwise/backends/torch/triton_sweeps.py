"""Triton kernels for GPUs: coordinate sweeps, changes of the objective, and KL products.

`sweep` gives each thread one row: its registers hold the k coordinates, so a sum over them needs
no other thread. Factors are passed and returned transposed, (k, n), so that neighbouring threads
read neighbouring numbers. `ratio_dot` and `ratio_tdot` read X once and keep VUᵀ and X/VUᵀ on the
chip.

Importing this needs Triton; compiling happens at the first call for each k.
"""

# Triton compiles the kernels from their source, which mypy cannot check as typed Python.
# mypy: disable-error-code="assignment, misc"
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

Tensor = Any
_SPLITS = 16  # runs of rows that `ratio_tdot` sums separately
#: Largest k of `graph_sweep`: a row's coordinates and their slopes stay in registers.
WIDEST_GRAPH = 64


# Triton must not specialise on strides divisible by 16. Otherwise a thread reads four rows
# together, and every sum over k is exchanged between threads.
@triton.jit(do_not_specialize=["n", "step_z", "step_c"])
def _sweep(
    Z, C, G, D, R, E, OUT, INDPTR, INDICES, W, n, k, step_z, step_c, sweeps, stop2, enough, weight,
    HAS_D: tl.constexpr, HAS_R: tl.constexpr, HAS_E: tl.constexpr, HAS_W: tl.constexpr,
    ROWS: tl.constexpr, L: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    # Coordinate b J + i is entry b of tile i; the compiler can unroll loops over i, but not over b.
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < n
    at = tl.arange(0, L)
    first_row = (at * J)[:, None].to(tl.int64)
    z = ()
    for i in tl.static_range(J):
        mask = inside[None, :] & ((at * J + i) < k)[:, None]
        place = rows[None, :] + (first_row + i) * step_z
        z = z + (tl.load(Z + place, mask=mask, other=0.0),)
    if HAS_D:
        d = tl.load(D + rows, mask=inside, other=1.0)
    if HAS_R:
        r = tl.load(R + rows, mask=inside, other=0.0)
    else:
        r = tl.load(R) + tl.zeros([ROWS], z[0].dtype)
    if HAS_E:
        e = tl.load(E + rows, mask=inside, other=0.0)
    else:
        e = tl.load(E) + tl.zeros([ROWS], z[0].dtype)
    slope = ()
    if HAS_W:  # weight Σ_j w_ij (z_i - z_j), before any row moves
        for _ in tl.static_range(J):
            slope = slope + (tl.zeros([L, ROWS], z[0].dtype),)
        begin = tl.load(INDPTR + rows, mask=inside, other=0)
        count = tl.load(INDPTR + rows + 1, mask=inside, other=0) - begin
        for t in range(tl.max(count, axis=0)):
            there = t < count
            neighbor = tl.load(INDICES + begin + t, mask=there, other=0).to(tl.int64)
            w = weight * tl.load(W + begin + t, mask=there, other=0.0)
            for i in tl.static_range(J):
                mask = there[None, :] & ((at * J + i) < k)[:, None]
                place = neighbor[None, :] + (first_row + i) * step_z
                more = slope[i] + w[None, :] * (z[i] - tl.load(Z + place, mask=mask, other=0.0))
                slope = slope[:i] + (more,) + slope[i + 1 :]
    first = 0.0
    last = 0.0
    going = 1
    for sweep in range(sweeps):
        if going == 1:
            moved = tl.zeros([ROWS], tl.float32)
            for b in range(L):
                for i in tl.static_range(J):
                    j = b * J + i
                    if j < k:
                        row = G + j * (L * J) + at
                        p = z[0] * tl.load(row)[:, None]
                        for m in tl.static_range(1, J):
                            p += z[m] * tl.load(row + m * L)[:, None]
                        gradient = tl.sum(p, axis=0)
                        old = tl.sum(tl.where(at[:, None] == b, z[i], 0.0), axis=0)
                        here = rows + j.to(tl.int64) * step_c
                        c = tl.load(C + here, mask=inside, other=0.0)
                        gjj = tl.load(G + j * (L * J) + i * L + b)
                        if HAS_D:
                            h = d * gjj + e
                            gradient = d * gradient + r * old - c
                        else:
                            h = gjj + e
                            gradient = gradient + r * old - c
                        if HAS_W:
                            gradient += tl.sum(tl.where(at[:, None] == b, slope[i], 0.0), axis=0)
                        # a coordinate without curvature can only become zero
                        flat = tl.where(gradient > 0, 0.0, old)
                        safe = tl.where(h > 0, h, 1.0)
                        new = tl.where(h > 0, tl.maximum(old - gradient / safe, 0.0), flat)
                        moved += ((new - old) * (new - old) * h).to(tl.float32)
                        z = z[:i] + (tl.where(at[:, None] == b, new[None, :], z[i]),) + z[i + 1 :]
            total = tl.sum(moved, axis=0)
            if sweep == 0:
                first = total
            if (total <= stop2 * first) | (total <= enough):
                going = 0
            if (sweep > 20) & (total >= last):  # only rounding errors still change
                going = 0
            last = total
    for i in tl.static_range(J):
        mask = inside[None, :] & ((at * J + i) < k)[:, None]
        tl.store(OUT + rows[None, :] + (first_row + i) * n, z[i], mask=mask)


def sweep(
    Z: Tensor, C: Tensor, G: Tensor, d: Tensor | None, r: Tensor, e: Tensor, sweeps: int,
    stop: float, enough: float,
) -> Tensor:  # fmt: skip
    """Run coordinate sweeps on the columns of Z and C, (k, n); ``enough`` is for 32 of them.

    r (one number, or one per row) is a ridge; e >= r is the curvature of a step.
    """
    run = _prepared(C, G, d, r, e, Z.dtype)
    return run(Z, sweeps, stop, enough)


def graph_sweep(
    Z: Tensor, C: Tensor, G: Tensor, d: Tensor | None, r: Tensor, e: Tensor, rounds: int,
    indptr: Tensor, indices: Tensor, values: Tensor, weight: float,
) -> Tensor | None:  # fmt: skip
    """Run ``rounds`` sweeps under weight/2 tr(ZLZᵀ); its slope is recomputed before each.

    Return None if k is so large that a row's coordinates and slopes exceed a thread's registers.
    """
    if Z.shape[0] > WIDEST_GRAPH:
        return None
    run = _prepared(C, G, d, r, e, Z.dtype, (indptr, indices, values), weight)
    for _ in range(rounds):
        Z = run(Z, 1, 0.0, 0.0)
    return Z


def _prepared(
    C: Tensor, G: Tensor, d: Tensor | None, r: Tensor, e: Tensor, dtype: Any,
    graph: tuple[Tensor, Tensor, Tensor] | None = None, weight: float = 0.0,
) -> Callable[[Tensor, int, float, float], Tensor]:  # fmt: skip
    """Return a function that runs sweeps on Z, with all constants computed once."""
    k, n = C.shape
    C = C if C.stride(1) == 1 else C.contiguous()
    padded, length, tiles = _in_tiles(G)
    r, e = (a.to(dtype).contiguous() for a in (r, e))

    def run(Z: Tensor, sweeps: int, stop: float, enough: float) -> Tensor:
        Z = Z if Z.stride(1) == 1 else Z.contiguous()
        out = Z.new_empty((k, n))
        _sweep[(triton.cdiv(n, 32),)](
            Z, C, padded, Z if d is None else d, r, e, out, *(graph or (Z, Z, Z)),
            n, k, Z.stride(0), C.stride(0), sweeps, stop * stop, enough, weight,
            HAS_D=d is not None, HAS_R=r.shape[0] > 1, HAS_E=e.shape[0] > 1,
            HAS_W=graph is not None, ROWS=32, L=length, J=tiles, num_warps=1,
        )  # fmt: skip
        return out

    return run


@triton.jit(do_not_specialize=["n", "new_column", "old_column", "c_column"])
def _change(
    NEW, OLD, C, G, D, OUT, n, k, new_row, new_column, old_row, old_column, c_row, c_column,
    HAS_D: tl.constexpr, ROWS: tl.constexpr, L: tl.constexpr, J: tl.constexpr,
):  # fmt: skip
    # the layout of rows and coordinates is that of `_sweep`
    rows = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    inside = rows < n
    at = tl.arange(0, L)
    both = ()
    for i in tl.static_range(J):
        column = (at * J + i)[:, None].to(tl.int64)
        mask = inside[None, :] & (column < k)
        one = tl.load(NEW + rows[None, :] * new_row + column * new_column, mask=mask, other=0.0)
        two = tl.load(OLD + rows[None, :] * old_row + column * old_column, mask=mask, other=0.0)
        both = both + (one + two,)
    if HAS_D:
        d = tl.load(D + rows, mask=inside, other=0.0)
    total = tl.zeros([ROWS], tl.float64)
    for j in range(k):
        p = tl.zeros([L, ROWS], tl.float32)
        for m in tl.static_range(J):
            p += both[m] * tl.load(G + j * (L * J) + m * L + at)[:, None]
        slope = 0.5 * tl.sum(p, axis=0)
        if HAS_D:
            slope = d * slope
        far = tl.cast(j, tl.int64)
        slope -= tl.load(C + rows * c_row + far * c_column, mask=inside, other=0.0)
        new = tl.load(NEW + rows * new_row + far * new_column, mask=inside, other=0.0)
        old = tl.load(OLD + rows * old_row + far * old_column, mask=inside, other=0.0)
        total += (slope * (new - old)).to(tl.float64)
    tl.store(OUT + tl.program_id(0), tl.sum(total, axis=0))


def change(new: Tensor, old: Tensor, C: Tensor, G: Tensor, d: Tensor | None) -> Tensor:
    """Return ⟨d ∘ (new + old) G/2 - C, new - old⟩ of float32 rows."""
    n, k = new.shape
    tiled, length, tiles = _in_tiles(G)
    shares = torch.empty(triton.cdiv(n, 32), dtype=torch.float64, device=new.device)
    _change[(len(shares),)](
        new, old, C, tiled, new if d is None else d, shares, n, k,
        *new.stride(), *old.stride(), *C.stride(),
        HAS_D=d is not None, ROWS=32, L=length, J=tiles, num_warps=1,
    )  # fmt: skip
    return shares.sum()


def _in_tiles(G: Tensor) -> tuple[Tensor, int, int]:
    """Return the rows of G divided into tiles, contiguous and padded with zeros.

    The result is stored with G, because a sweep and the changes after it both need it.
    """
    k = G.shape[0]
    length, tiles = _tiles(k)
    found = getattr(G, "in_tiles", None)
    if found is None:
        width = length * tiles
        wide = torch.nn.functional.pad(G, (0, width - k, 0, width - k))
        found = G.in_tiles = wide.view(width, length, tiles).transpose(1, 2).contiguous()
    return found, length, tiles


def _tiles(k: int) -> tuple[int, int]:
    """Return length and number of the tiles that a row's coordinates are cut into.

    A tile has at most 16 coordinates, so that a thread loads its row of G in wide pieces. There are
    few tiles, since compile time grows with their number.
    """
    length = min(16, max(2, triton.next_power_of_2(triton.cdiv(k, 7))))
    return length, triton.cdiv(k, length)


@triton.jit
def _ratio_dot(
    X, V, U, UT, OUT, LOGS, n, p, low, BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    kk = tl.arange(0, K)
    inside = rows < n
    long = rows[:, None].to(tl.int64)
    v = tl.load(V + long * K + kk[None, :], mask=inside[:, None], other=0.0)
    acc = tl.zeros([BM, K], tl.float32)
    logs = tl.zeros([BM], tl.float64)
    for j in range(0, p, BN):
        cols = j + tl.arange(0, BN)
        there = cols < p
        mask = inside[:, None] & there[None, :]
        x = tl.load(X + long * p + cols[None, :], mask=mask, other=0.0)
        # Both factors of a product must be contiguous along the sum, so U is stored in both orders.
        across = tl.load(U + cols[None, :] * K + kk[:, None], mask=there[None, :], other=0.0)
        y = tl.maximum(tl.dot(v, across, input_precision="tf32x3"), low)
        logs += tl.sum(x * tl.log(y), axis=1).to(tl.float64)
        along = tl.load(UT + kk[None, :] * p + cols[:, None], mask=there[:, None], other=0.0)
        acc = tl.dot(x / y, along, acc, input_precision="tf32x3")
    tl.store(OUT + long * K + kk[None, :], acc, mask=inside[:, None])
    tl.store(LOGS + rows, logs, mask=inside)


@triton.jit
def _ratio_tdot(
    X, V, VT, U, OUT, n, p, low, span, BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    kk = tl.arange(0, K)
    there = cols < p
    u = tl.load(U + cols[:, None] * K + kk[None, :], mask=there[:, None], other=0.0)
    acc = tl.zeros([BN, K], tl.float32)
    begin = tl.program_id(1) * span
    for i in range(begin, min(begin + span, n), BM):
        rows = i + tl.arange(0, BM)
        inside = rows < n
        long = rows.to(tl.int64)
        mask = there[:, None] & inside[None, :]
        x = tl.load(X + long[None, :] * p + cols[:, None], mask=mask, other=0.0)
        across = tl.load(V + long[None, :] * K + kk[:, None], mask=inside[None, :], other=0.0)
        y = tl.maximum(tl.dot(u, across, input_precision="tf32x3"), low)
        along = VT + kk[None, :].to(tl.int64) * n + rows[:, None]
        along = tl.load(along, mask=inside[:, None], other=0.0)
        acc = tl.dot(x / y, along, acc, input_precision="tf32x3")
    out = OUT + tl.program_id(1).to(tl.int64) * p * K + cols[:, None] * K + kk[None, :]
    tl.store(out, acc, mask=there[:, None])


def _both_ways(M: Tensor) -> tuple[Tensor, Tensor, int]:
    """Return M padded with zeros to a width that the kernels have, and its transpose."""
    k = M.shape[1]
    width = max(16, triton.next_power_of_2(k))
    wide = torch.nn.functional.pad(M, (0, width - k)).contiguous()
    return wide, wide.t().contiguous(), width


def ratio_dot(X: Tensor, V: Tensor, U: Tensor, low: float) -> tuple[Tensor, Tensor]:
    """Return (X / max(VUᵀ, low)) U, and Σ_j x log y of each row in float64; X is float32."""
    (n, p), k = X.shape, U.shape[1]
    wide, (across, along, K) = _both_ways(V)[0], _both_ways(U)
    out = torch.empty_like(wide)
    logs = torch.empty(n, dtype=torch.float64, device=X.device)
    BM = 64
    _ratio_dot[(triton.cdiv(n, BM),)](
        X, wide, across, along, out, logs, n, p, low, BM=BM, BN=32, K=K,
        num_warps=4, num_stages=3,
    )  # fmt: skip
    return out[:, :k], logs


def ratio_tdot(X: Tensor, V: Tensor, U: Tensor, low: float) -> Tensor:
    """Return (X / max(VUᵀ, low))ᵀ V; X is float32."""
    (n, p), k = X.shape, U.shape[1]
    (across, along, K), wide = _both_ways(V), _both_ways(U)[0]
    BM, BN = 64, 64
    span = triton.cdiv(triton.cdiv(n, _SPLITS), BM) * BM
    parts = triton.cdiv(n, span)
    out = torch.empty((parts, p, K), dtype=X.dtype, device=X.device)
    _ratio_tdot[(triton.cdiv(p, BN), parts)](
        X, across, along, wide, out, n, p, low, span, BM=BM, BN=BN, K=K,
        num_warps=4, num_stages=2,
    )  # fmt: skip
    return out.sum(dim=0)[:, :k]


@triton.jit
def _laplacian(
    INDPTR, INDICES, W, Z, OUT, n, k, step_row, step_column, ROWS: tl.constexpr, J: tl.constexpr
):  # fmt: skip
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = rows < n
    begin = tl.load(INDPTR + rows, mask=inside, other=0)
    count = tl.load(INDPTR + rows + 1, mask=inside, other=0) - begin
    first = tl.program_id(1) * J
    own = ()
    total = ()
    for i in tl.static_range(J):
        place = Z + rows.to(tl.int64) * step_row + (first + i).to(tl.int64) * step_column
        own = own + (tl.load(place, mask=inside & (first + i < k), other=0.0),)
        total = total + (tl.zeros([ROWS], own[0].dtype),)
    for t in range(tl.max(count, axis=0)):
        there = t < count
        neighbor = tl.load(INDICES + begin + t, mask=there, other=0).to(tl.int64)
        w = tl.load(W + begin + t, mask=there, other=0.0)
        for i in tl.static_range(J):
            place = Z + neighbor * step_row + (first + i).to(tl.int64) * step_column
            z = tl.load(place, mask=there & (first + i < k), other=0.0)
            more = total[i] + w * (own[i] - z)
            total = total[:i] + (more,) + total[i + 1 :]
    for i in tl.static_range(J):
        place = OUT + rows.to(tl.int64) * step_row + (first + i).to(tl.int64) * step_column
        tl.store(place, total[i], mask=inside & (first + i < k))


def laplacian(indptr: Tensor, indices: Tensor, values: Tensor, Z: Tensor) -> Tensor:
    """Return Σ_j w_ij (z_i - z_j) for each row of Z (n, k), without cancellation."""
    n, k = Z.shape
    out = torch.empty_like(Z)
    if out.stride() != Z.stride():
        Z, out = Z.contiguous(), out.contiguous()
    J = 4
    _laplacian[(triton.cdiv(n, 64), triton.cdiv(k, J))](
        indptr, indices, values, Z, out, n, k, *Z.stride(), ROWS=64, J=J, num_warps=2
    )
    return out
