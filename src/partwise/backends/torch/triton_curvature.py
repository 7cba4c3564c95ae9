"""The second-order step of the KL loss on a GPU: curvature of each row from one reading of X.

`curvature` and `curvature_t` compute Σ_j x/y² u_ja u_jb for all pairs a <= b as one matrix product
with the pairs, and keep x/y² on the chip. Both sides are bfloat16, because a Hessian with an error
of 0.5% is accurate enough for a step; the gradient is computed separately and more accurately.
`damped` is `partwise.backends.curvature.damped_step` with a row's numbers in registers.

Measured on one H200, X of 200,000 x 10,000, k = 20: 3.8 and 5.9 ms, and 0.7 ms for the step; the
two ratio products (`triton_ratios`) take 5.5 and 5.0 ms.
"""

# Triton compiles the kernels from their source, which mypy cannot check as typed Python.
# mypy: disable-error-code="assignment, misc"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from partwise.backends.curvature import HOLD

Tensor = Any
#: Largest supported k; the number of pairs grows with its square.
NARROW = 32
#: Number of runs of rows that `curvature_t` sums separately.
RUNS = 16
#: (rows, columns of a block, warps, stages) by the pairs of a block.
DOT = {64: (64, 64, 4, 3), 256: (128, 64, 8, 3)}
TDOT = {64: (64, 64, 4, 3), 256: (64, 32, 4, 4)}


@triton.jit
def _pairs(
    B, FIRST, SECOND, OUT, n, step_row, step_column, T, ROWS: tl.constexpr, BT: tl.constexpr
):
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    inside = (rows < n)[:, None]
    for begin in range(0, T, BT):
        at = begin + tl.arange(0, BT)
        a, b = tl.load(FIRST + at), tl.load(SECOND + at)
        there = inside & (a >= 0)[None, :]
        place = B + rows[:, None] * step_row
        first = tl.load(place + a[None, :] * step_column, mask=there, other=0.0)
        second = tl.load(place + b[None, :] * step_column, mask=there, other=0.0)
        tl.store(
            OUT + rows[:, None] * T + at[None, :], (first * second).to(tl.bfloat16), mask=inside
        )


@triton.jit
def _curvature(
    X, V, U, PAIRS, OUT, n, p, low, T, pieces,
    BM: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    # pieces of one block of rows run together, so that X comes from the cache
    at = (tl.program_id(0) % pieces) * BT + tl.arange(0, BT)
    rows = (tl.program_id(0) // pieces).to(tl.int64) * BM + tl.arange(0, BM)
    kk = tl.arange(0, K)
    inside = rows < n
    v = tl.load(V + rows[:, None] * K + kk[None, :], mask=inside[:, None], other=0.0)
    total = tl.zeros([BM, BT], tl.float32)
    for j in range(0, p, BN):
        cols = j + tl.arange(0, BN)
        there = cols < p
        place = X + rows[:, None] * p + cols[None, :]
        x = tl.load(place, mask=inside[:, None] & there[None, :], other=0.0)
        u = tl.load(U + cols[:, None] * K + kk[None, :], mask=there[:, None], other=0.0)
        over = 1.0 / tl.maximum(tl.dot(v, tl.trans(u)), low)
        pairs = tl.load(PAIRS + cols[:, None] * T + at[None, :], mask=there[:, None], other=0.0)
        total = tl.dot((x * over * over).to(tl.bfloat16), pairs, total)
    tl.store(OUT + rows[:, None] * T + at[None, :], total, mask=inside[:, None])


@triton.jit
def _curvature_t(
    X, V, U, PAIRS, OUT, n, p, low, T, pieces, span,
    BM: tl.constexpr, BN: tl.constexpr, BT: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    at = (tl.program_id(0) % pieces) * BT + tl.arange(0, BT)
    cols = (tl.program_id(0) // pieces) * BM + tl.arange(0, BM)
    kk = tl.arange(0, K)
    there = cols < p
    u = tl.load(U + cols[:, None] * K + kk[None, :], mask=there[:, None], other=0.0)
    total = tl.zeros([BM, BT], tl.float32)
    begin = tl.program_id(1) * span
    for i in range(begin, min(begin + span, n), BN):
        rows = (i + tl.arange(0, BN)).to(tl.int64)
        inside = rows < n
        place = X + rows[:, None] * p + cols[None, :]
        x = tl.load(place, mask=inside[:, None] & there[None, :], other=0.0)
        v = tl.load(V + rows[:, None] * K + kk[None, :], mask=inside[:, None], other=0.0)
        over = 1.0 / tl.maximum(tl.dot(u, tl.trans(v)), low)
        pairs = tl.load(PAIRS + rows[:, None] * T + at[None, :], mask=inside[:, None], other=0.0)
        total = tl.dot((tl.trans(x) * over * over).to(tl.bfloat16), pairs, total)
    out = OUT + (tl.program_id(1).to(tl.int64) * p + cols[:, None]) * T + at[None, :]
    tl.store(out, total, mask=there[:, None])


@triton.jit
def _damped(
    Z, P, H, COST, RIDGE, OUT, n, k, T, sweeps, hold, z_row, z_column, p_row, p_column, c_row,
    c_column, r_row, r_column, ROWS: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    kk = tl.arange(0, K)
    mask = (rows < n)[:, None] & (kk < k)[None, :]
    z = tl.load(Z + rows[:, None] * z_row + kk[None, :] * z_column, mask=mask, other=0.0)
    product = tl.load(P + rows[:, None] * p_row + kk[None, :] * p_column, mask=mask, other=0.0)
    cost = tl.load(COST + rows[:, None] * c_row + kk[None, :] * c_column, mask=mask, other=0.0)
    ridge = tl.load(RIDGE + rows[:, None] * r_row + kk[None, :] * r_column, mask=mask, other=0.0)
    slope = cost + ridge * z - product
    change = tl.zeros([ROWS, K], tl.float32)
    bent = tl.zeros([ROWS, K], tl.float32)
    for _ in range(sweeps):
        for a in range(k):
            low, high = tl.minimum(kk, a), tl.maximum(kk, a)
            where = (high * (high + 1) // 2 + low)[None, :]
            across = tl.load(H + rows[:, None] * T + where, mask=mask, other=0.0)
            here = (kk == a)[None, :]
            held = hold * across + ridge
            curved = tl.sum(tl.where(here, across + held, 0.0), axis=1)
            pull = tl.sum(tl.where(here, slope + bent + held * change, 0.0), axis=1)
            old = tl.sum(tl.where(here, change, 0.0), axis=1)
            least = -tl.sum(tl.where(here, z, 0.0), axis=1)
            flat = tl.where(pull > 0, least, old)
            new = tl.maximum(old - pull / tl.where(curved > 0, curved, 1.0), least)
            new = tl.where(curved > 0, new, flat)
            bent += (new - old)[:, None] * across
            change = tl.where(here, new[:, None], change)
    mass = tl.maximum(tl.sum(z * product, axis=1), 1.1754944e-38)
    steep = tl.sqrt(tl.maximum(tl.sum(bent * change, axis=1), 0.0) / mass)
    new = tl.maximum(z + change / (1 + steep)[:, None], 0.0)
    tl.store(OUT + kk[None, :].to(tl.int64) * n + rows[:, None], new, mask=mask)


def _block(k: int) -> tuple[int, int]:
    """Return the number of pairs of columns per block, and that of all blocks."""
    pairs = k * (k + 1) // 2
    block = 64 if pairs <= 64 else 256
    return block, triton.cdiv(pairs, block) * block


def _made_pairs(B: Tensor, width: int) -> Tensor:
    """Return products of pairs of columns in bfloat16, with zeros up to ``width``."""
    n, k = B.shape
    first, second = torch.full((2, width), -1, dtype=torch.int32)
    for b in range(k):
        begin = b * (b + 1) // 2
        first[begin : begin + b + 1] = torch.arange(b + 1)
        second[begin : begin + b + 1] = b
    out = torch.empty((n, width), dtype=torch.bfloat16, device=B.device)
    places = (first.to(B.device), second.to(B.device))
    _pairs[(triton.cdiv(n, 16),)](B, *places, out, n, *B.stride(), width, ROWS=16, BT=64)
    return out


def _coarse(B: Tensor) -> Tensor:
    """Return B in bfloat16, padded with zeros to a width that matrix units support."""
    width = max(16, triton.next_power_of_2(B.shape[1]))
    return torch.nn.functional.pad(B, (0, width - B.shape[1])).to(torch.bfloat16).contiguous()


def curvature(X: Tensor, V: Tensor, U: Tensor, low: float) -> Tensor:
    """Return Σ_j x/y² u_ja u_jb by row, y = max(VUᵀ, low); columns beyond the pairs are zero."""
    (n, p), (BT, width) = X.shape, _block(U.shape[1])
    BM, BN, warps, stages = DOT[BT]
    pairs, v, u = _made_pairs(U, width), _coarse(V), _coarse(U)
    out = torch.empty((n, width), dtype=torch.float32, device=X.device)
    _curvature[(triton.cdiv(n, BM) * (width // BT),)](
        X, v, u, pairs, out, n, p, low, width, width // BT,
        BM=BM, BN=BN, BT=BT, K=v.shape[1], num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out


def curvature_t(X: Tensor, V: Tensor, U: Tensor, low: float) -> Tensor:
    """Return Σ_i x/y² v_ia v_ib by column."""
    (n, p), (BT, width) = X.shape, _block(U.shape[1])
    BM, BN, warps, stages = TDOT[BT]
    pairs, v, u = _made_pairs(V, width), _coarse(V), _coarse(U)
    span = triton.cdiv(triton.cdiv(n, RUNS), BN) * BN
    runs = triton.cdiv(n, span)
    out = torch.empty((runs, p, width), dtype=torch.float32, device=X.device)
    _curvature_t[(triton.cdiv(p, BM) * (width // BT), runs)](
        X, v, u, pairs, out, n, p, low, width, width // BT, span,
        BM=BM, BN=BN, BT=BT, K=v.shape[1], num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out.sum(dim=0)


def damped(
    Z: Tensor, product: Tensor, H: Tensor, cost: Tensor, ridge: Tensor, sweeps: int
) -> Tensor:
    """Return `damped_step` in float32."""
    n, k = Z.shape
    out = torch.empty((k, n), dtype=Z.dtype, device=Z.device)
    cost, ridge = (a.to(Z.dtype).expand(n, k) for a in (cost, ridge))
    width = max(16, triton.next_power_of_2(k))
    ROWS = 16
    _damped[(triton.cdiv(n, ROWS),)](
        Z, product, H, cost, ridge, out, n, k, H.shape[1], sweeps, HOLD,
        *Z.stride(), *product.stride(), *cost.stride(), *ridge.stride(),
        ROWS=ROWS, K=width, num_warps=1,
    )  # fmt: skip
    return out.t()
