"""The two ratio products of the KL loss on a GPU's matrix units, X / VUᵀ kept on the chip.

Both factors are split into float16 halves (see `triton_products`), and so is the ratio. If a ratio
exceeds the range of float16, the caller uses the slower kernels of `triton_sweeps`.

Measured on one H200, X of 200,000 x 10,000: 5.0 ms each at 32 columns, 8.1 and 8.8 ms at 128, where
`triton_sweeps` takes 7.4, 9.2, 28.8 and 26.9 ms. Relative errors are below 5e-7.
"""

# Triton compiles the kernels from their source, which mypy cannot check as typed Python.
# mypy: disable-error-code="assignment, misc"
from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from partwise.backends.torch.triton_products import paired_halves

Tensor = Any
#: The largest ratio that is split into float16 halves.
LARGEST = 32768.0
#: Number of runs of rows that `ratio_tdot` sums separately.
RUNS = 16
#: (rows, columns of a block, warps, stages) by width.
DOT = {16: (64, 64, 4, 2), 32: (64, 64, 4, 2), 64: (64, 64, 4, 2), 128: (64, 64, 4, 2)}
TDOT = {16: (64, 64, 4, 3), 32: (64, 64, 4, 3), 64: (64, 64, 4, 3), 128: (32, 64, 4, 3)}


@triton.jit
def _dot(
    X, VH, VL, UH, UL, BACK, OUT, LOGS, FLAG, n, p, low,
    BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    kk = tl.arange(0, K)
    inside = rows < n
    long = rows[:, None].to(tl.int64)
    vh = tl.load(VH + long * K + kk[None, :], mask=inside[:, None], other=0.0)
    vl = tl.load(VL + long * K + kk[None, :], mask=inside[:, None], other=0.0)
    back = tl.load(BACK)
    total = tl.zeros([BM, K], tl.float32)
    logs = tl.zeros([BM], tl.float64)
    top = tl.zeros([BM], tl.float32)
    for j in range(0, p, BN):
        cols = j + tl.arange(0, BN)
        there = cols < p
        x = tl.load(X + long * p + cols[None, :], mask=inside[:, None] & there[None, :], other=0.0)
        at = cols[:, None] * K + kk[None, :]
        uh = tl.load(UH + at, mask=there[:, None], other=0.0)
        ul = tl.load(UL + at, mask=there[:, None], other=0.0)
        y = tl.dot(vl, tl.trans(uh), tl.dot(vh, tl.trans(ul)))
        y = tl.maximum(tl.dot(vh, tl.trans(uh), y) * back, low)
        logs += tl.sum(x * tl.log(y), axis=1).to(tl.float64)
        ratio = x / y
        top = tl.maximum(top, tl.max(ratio, axis=1))
        rh = ratio.to(tl.float16)
        rl = (ratio - rh.to(tl.float32)).to(tl.float16)
        total += tl.dot(rh, uh, tl.dot(rh, ul, tl.dot(rl, uh)))
    tl.store(OUT + long * K + kk[None, :], total, mask=inside[:, None])
    tl.store(LOGS + rows, logs, mask=inside)
    tl.atomic_max(FLAG, tl.max(top, axis=0))


@triton.jit
def _tdot(
    X, VH, VL, UH, UL, BACK, OUT, FLAG, n, p, low, span,
    BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    kk = tl.arange(0, K)
    there = cols < p
    uh = tl.load(UH + cols[:, None] * K + kk[None, :], mask=there[:, None], other=0.0)
    ul = tl.load(UL + cols[:, None] * K + kk[None, :], mask=there[:, None], other=0.0)
    back = tl.load(BACK)
    total = tl.zeros([BN, K], tl.float32)
    top = tl.zeros([BN], tl.float32)
    begin = tl.program_id(1) * span
    for i in range(begin, min(begin + span, n), BM):
        rows = i + tl.arange(0, BM)
        inside = rows < n
        long = rows[:, None].to(tl.int64)
        x = tl.load(X + long * p + cols[None, :], mask=inside[:, None] & there[None, :], other=0.0)
        vh = tl.load(VH + long * K + kk[None, :], mask=inside[:, None], other=0.0)
        vl = tl.load(VL + long * K + kk[None, :], mask=inside[:, None], other=0.0)
        y = tl.dot(uh, tl.trans(vl), tl.dot(ul, tl.trans(vh)))
        y = tl.maximum(tl.dot(uh, tl.trans(vh), y) * back, low)
        ratio = tl.trans(x) / y
        top = tl.maximum(top, tl.max(ratio, axis=1))
        rh = ratio.to(tl.float16)
        rl = (ratio - rh.to(tl.float32)).to(tl.float16)
        total += tl.dot(rh, vh, tl.dot(rh, vl, tl.dot(rl, vh)))
    out = OUT + tl.program_id(1).to(tl.int64) * p * K + cols[:, None] * K + kk[None, :]
    tl.store(out, total, mask=there[:, None])
    tl.atomic_max(FLAG, tl.max(top, axis=0))


def split_ratio_dot(X: Tensor, V: Tensor, U: Tensor, low: float) -> tuple[Tensor, Tensor] | None:
    """Return (X / max(VUᵀ, low)) U, and Σ_j x log y of each row in float64; X is float32.

    Return None if a ratio is too large to be split.
    """
    (n, p), k = X.shape, U.shape[1]
    vh, vl, uh, ul, back, scales = paired_halves(V, U)
    width = vh.shape[1]
    out = torch.empty((n, width), dtype=torch.float32, device=X.device)
    logs = torch.empty(n, dtype=torch.float64, device=X.device)
    flag = torch.zeros(1, dtype=torch.float32, device=X.device)
    BM, BN, warps, stages = DOT[width]
    _dot[(triton.cdiv(n, BM),)](
        X, vh, vl, uh, ul, back, out, logs, flag, n, p, low, BM=BM, BN=BN, K=width,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    # u was divided by the scales of its columns
    return (out[:, :k] * scales[1], logs) if float(flag) <= LARGEST else None


def split_ratio_tdot(X: Tensor, V: Tensor, U: Tensor, low: float) -> Tensor | None:
    """Return (X / max(VUᵀ, low))ᵀ V for X in float32; None if a ratio is too large."""
    (n, p), k = X.shape, U.shape[1]
    vh, vl, uh, ul, back, scales = paired_halves(V, U)
    width = vh.shape[1]
    BM, BN, warps, stages = TDOT[width]
    span = triton.cdiv(triton.cdiv(n, RUNS), BM) * BM
    runs = triton.cdiv(n, span)
    out = torch.empty((runs, p, width), dtype=torch.float32, device=X.device)
    flag = torch.zeros(1, dtype=torch.float32, device=X.device)
    _tdot[(triton.cdiv(p, BN), runs)](
        X, vh, vl, uh, ul, back, out, flag, n, p, low, span, BM=BM, BN=BN, K=width,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out.sum(dim=0)[:, :k] * scales[0] if float(flag) <= LARGEST else None
