"""X U and Xᵀ V on a GPU's matrix units, as exact as float32 and as fast as X can be read.

A float32 number is split into two halves, x = h + l with h and l in float16 (22 bits together), and
X U = H Uₕ + H Uₗ + L Uₕ up to 2⁻²². Matrix units add products in a register that rounds towards
zero. Over 10,000 non-negative terms this causes an error of 7e-5, so sums are cut into pieces of
256 terms, which are added in ordinary float32. If X is exact in float16 (8-bit pictures, counts
below 2,048), L is zero, and half the bytes are read.

Measured on one H200, X of 200,000 x 10,000, in units of reading X once as float32 (1.9 ms), at 16,
32, 64 and 128 columns: X U 1.00, 1.07, 1.25, 1.99; Xᵀ V 1.01, 1.08, 1.32, 2.04; with X in float16
0.53, 0.56, 0.63, 1.07. Relative errors are 1.5e-6 and 6e-7. cuBLAS in float32 has 2.8 to 5.7.

Importing this needs Triton; compiling happens at the first call for each width.
"""

# Triton compiles the kernels from their source, which mypy cannot check as typed Python.
# mypy: disable-error-code="assignment, misc"
from __future__ import annotations

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

Tensor = Any
#: Largest k of a kernel; beyond it registers and shared memory run out, or X is read again.
WIDEST = 128
#: Number of terms that a matrix unit adds before the sum is continued in float32.
PIECE = 256
#: Number of runs of rows that `tdot` sums separately.
RUNS = 16
#: Multiple for the rows of V's halves; others are read singly, in 9.4 instead of 3.8 ms (k=100).
ROOM = 16
#: (rows or columns of a block, terms, warps, stages) by width, for float32 and float16 X.
DOT = {
    (False, 16): (128, 64, 4, 3),
    (False, 32): (64, 64, 4, 3),
    (False, 64): (128, 32, 4, 4),
    (False, 128): (64, 32, 4, 4),
    (True, 16): (64, 128, 4, 2),
    (True, 32): (64, 64, 4, 3),
    (True, 64): (128, 64, 8, 3),
    (True, 128): (128, 64, 8, 3),
}
TDOT = {
    (False, 16): (256, 32, 8, 3),
    (False, 32): (128, 64, 8, 3),
    (False, 64): (128, 32, 4, 4),
    (False, 128): (128, 64, 8, 3),
    (True, 16): (128, 32, 4, 4),
    (True, 32): (128, 64, 8, 3),
    (True, 64): (128, 64, 4, 3),
    (True, 128): (128, 64, 8, 3),
}
#: (rows, columns of a block, warps, stages) by width.
RESIDUALS = {16: (64, 64, 4, 3), 32: (64, 64, 4, 3), 64: (64, 64, 4, 3), 128: (128, 64, 8, 3)}


@triton.jit
def _dot(
    X, UH, UL, BACK, OUT, n, p, step_x, scale,
    BM: tl.constexpr, BK: tl.constexpr, PIECES: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    kk = tl.arange(0, K)
    inside = rows < n
    begin = X + rows[:, None].to(tl.int64) * step_x
    total = tl.zeros([BM, K], tl.float32)
    for first in range(0, p, BK * PIECES):
        part = tl.zeros([BM, K], tl.float32)
        for more in range(0, BK * PIECES, BK):
            cols = first + more + tl.arange(0, BK)
            there = cols < p
            x = tl.load(begin + cols[None, :], mask=inside[:, None] & there[None, :], other=0.0)
            at = cols[:, None] * K + kk[None, :]
            high = tl.load(UH + at, mask=there[:, None], other=0.0)
            low = tl.load(UL + at, mask=there[:, None], other=0.0)
            if EXACT:
                xh = x
            else:
                scaled = x * scale
                xh = scaled.to(tl.float16)
                part = tl.dot((scaled - xh.to(tl.float32)).to(tl.float16), high, part)
            part = tl.dot(xh, low, part)
            part = tl.dot(xh, high, part)
        total += part
    total *= tl.load(BACK + kk)[None, :]
    place = OUT + kk[None, :].to(tl.int64) * n + rows[:, None]
    tl.store(place, total, mask=inside[:, None])


@triton.jit
def _tdot(
    X, VH, VL, OUT, n, room, p, step_x, scale, span,
    BN: tl.constexpr, BK: tl.constexpr, PIECES: tl.constexpr, K: tl.constexpr, EXACT: tl.constexpr,
):  # fmt: skip
    cols = tl.program_id(0) * BN + tl.arange(0, BN)
    kk = tl.arange(0, K)
    there = cols < p
    total = tl.zeros([BN, K], tl.float32)
    begin = tl.program_id(1) * span
    for first in range(begin, min(begin + span, n), BK * PIECES):
        part = tl.zeros([BN, K], tl.float32)
        for more in range(0, BK * PIECES, BK):
            rows = first + more + tl.arange(0, BK)
            inside = rows < n
            place = X + rows[:, None].to(tl.int64) * step_x + cols[None, :]
            x = tl.load(place, mask=inside[:, None] & there[None, :], other=0.0)
            at = kk[None, :].to(tl.int64) * room + rows[:, None]
            whole = (rows < room)[:, None]
            high = tl.load(VH + at, mask=whole, other=0.0)
            low = tl.load(VL + at, mask=whole, other=0.0)
            if EXACT:
                xh = x
            else:
                scaled = x * scale
                xh = scaled.to(tl.float16)
                xl = (scaled - xh.to(tl.float32)).to(tl.float16)
                part = tl.dot(tl.trans(xl), high, part)
            part = tl.dot(tl.trans(xh), low, part)
            part = tl.dot(tl.trans(xh), high, part)
        total += part
    out = OUT + tl.program_id(1).to(tl.int64) * p * K + cols[:, None] * K + kk[None, :]
    tl.store(out, total, mask=there[:, None])


def _widths(k: int) -> list[int]:
    """Return powers of two that cover k columns, each for one pass over X."""
    widths = []
    while k > 0:
        widths.append(min(WIDEST, max(16, triton.next_power_of_2(k))))
        k -= widths[-1]
    return widths


@triton.jit
def _peaks(F, TOP, m, step_k, step_m, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    x = tl.load(F + row.to(tl.int64) * step_k + i * step_m, mask=i < m, other=0.0)
    tl.atomic_max(TOP + row, tl.max(tl.abs(x), axis=0))


@triton.jit
def _split(
    F, TOP, HIGH, LOW, BACK, k, m, room, step_k, step_m, out_k, out_m, scale, BLOCK: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0)
    i = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)).to(tl.int64)
    top = tl.maximum(tl.load(TOP + row), 1e-30)  # an empty part: 2¹¹³ is finite, 2¹³⁷ is not
    grow = tl.exp2(14 - tl.ceil(tl.log2(top)))
    place = F + row.to(tl.int64) * step_k + i * step_m
    x = tl.load(place, mask=(i < m) & (row < k), other=0.0) * grow
    high = x.to(tl.float16)
    at = row.to(tl.int64) * out_k + i * out_m
    tl.store(HIGH + at, high, mask=i < room)
    tl.store(LOW + at, (x - high.to(tl.float32)).to(tl.float16), mask=i < room)
    if tl.program_id(1) == 0:
        tl.store(BACK + row, 1.0 / grow / scale)


def _halves(
    F: Tensor, width: int, scale: float, *, across: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows of F (k, m) as two float16 parts, and the factors of their scales.

    Each row is brought to at most 2¹⁴ by a power of two, so that no half over- or underflows.
    The parts are (width, m), with zeros up to a whole number of ROOM, or (m, width) if ``across``.
    """
    k, m = F.shape
    room = m if across else triton.cdiv(m, ROOM) * ROOM
    top = torch.zeros(width, dtype=torch.float32, device=F.device)
    back = torch.empty_like(top)
    shape = (m, width) if across else (width, room)
    high, low = (torch.empty(shape, dtype=torch.float16, device=F.device) for _ in range(2))
    BLOCK, steps = 1024, F.stride()
    blocks = triton.cdiv(room, BLOCK)
    _peaks[(k, blocks)](F, top, m, *steps, BLOCK=BLOCK)
    out = (1, width) if across else (room, 1)
    _split[(width, blocks)](F, top, high, low, back, k, m, room, *steps, *out, scale, BLOCK=BLOCK)
    return high, low, back


def halves_scale(X: Tensor) -> float:
    """Return the power of two that brings the largest entry of X to at most 2¹⁴."""
    top = max(float(X.amax()), 1e-37) if X.numel() else 1.0
    return float(2.0 ** (14 - torch.tensor(top).log2().ceil().item()))


class Prepared(NamedTuple):
    """Columns of a factor as input of a product: two halves of ``width``, and their scales."""

    width: int
    columns: int
    high: Tensor
    low: Tensor
    back: Tensor


def prepare(product: str, X: Tensor, factor: Tensor, scale: float) -> list[Prepared]:
    """Return the inputs of "dot" or "tdot" in addition to X, for each of its passes."""
    scale = 1.0 if X.dtype == torch.float16 else scale
    out, start = [], 0
    for width in _widths(factor.shape[1]):
        part = factor[:, start : start + width].t()
        halves = _halves(part, width, scale, across=product == "dot")
        out.append(Prepared(width, part.shape[0], *halves))
        start += width
    return out


def dot(X: Tensor, U: Tensor, scale: float, ready: list[Prepared] | None = None) -> Tensor:
    """Return X U as (k, n); X is float32 with a scale, or exact in float16.

    ``ready`` is the result of `prepare` for U, if it was called before.
    """
    n, p = X.shape
    exact = X.dtype == torch.float16
    out = []
    for width, k, high, low, back in ready or prepare("dot", X, U, scale):
        part = torch.empty((width, n), dtype=torch.float32, device=X.device)
        BM, BK, warps, stages = DOT[exact, width]
        _dot[(triton.cdiv(n, BM),)](
            X, high, low, back, part, n, p, X.stride(0), scale,
            BM=BM, BK=BK, PIECES=PIECE // BK, K=width, EXACT=exact, num_warps=warps,
            num_stages=stages,
        )  # fmt: skip
        out.append(part[:k])
    return out[0] if len(out) == 1 else torch.cat(out)


def tdot(X: Tensor, V: Tensor, scale: float, ready: list[Prepared] | None = None) -> Tensor:
    """Return Xᵀ V as (p, k); see `dot`."""
    n, p = X.shape
    exact = X.dtype == torch.float16
    out = []
    for width, k, high, low, back in ready or prepare("tdot", X, V, scale):
        BN, BK, warps, stages = TDOT[exact, width]
        span = triton.cdiv(triton.cdiv(n, RUNS), PIECE) * PIECE
        runs = triton.cdiv(n, span)
        parts = torch.empty((runs, p, width), dtype=torch.float32, device=X.device)
        _tdot[(triton.cdiv(p, BN), runs)](
            X, high, low, parts, n, high.shape[1], p, X.stride(0), scale, span,
            BN=BN, BK=BK, PIECES=PIECE // BK, K=width, EXACT=exact, num_warps=warps,
            num_stages=stages,
        )  # fmt: skip
        out.append((parts.sum(dim=0) * back)[:, :k])
    return out[0] if len(out) == 1 else torch.cat(out, dim=1)


@triton.jit
def _residuals(
    X, VH, VL, UH, UL, BACK, OUT, n, p, step_x, BM: tl.constexpr, BN: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    kk = tl.arange(0, K)
    inside = rows < n
    along = rows[:, None].to(tl.int64)
    vh = tl.load(VH + along * K + kk[None, :], mask=inside[:, None], other=0.0)
    vl = tl.load(VL + along * K + kk[None, :], mask=inside[:, None], other=0.0)
    back = tl.load(BACK)
    total = tl.zeros([BM], tl.float64)
    for j in range(0, p, BN):
        cols = j + tl.arange(0, BN)
        there = cols < p
        at = cols[:, None] * K + kk[None, :]
        uh = tl.load(UH + at, mask=there[:, None], other=0.0)
        ul = tl.load(UL + at, mask=there[:, None], other=0.0)
        x = tl.load(
            X + along * step_x + cols[None, :], mask=inside[:, None] & there[None, :], other=0.0
        )
        y = tl.dot(vl, tl.trans(uh), tl.dot(vh, tl.trans(ul)))
        off = x.to(tl.float32) - tl.dot(vh, tl.trans(uh), y) * back
        total += tl.sum(off * off, axis=1).to(tl.float64)
    tl.store(OUT + rows, total, mask=inside)


def paired_halves(V: Tensor, U: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Any]:
    """Return V and U as float16 halves (n, width), (p, width) whose product is VUᵀ / back.

    There are at most WIDEST columns. The last results are the factors by which each column of the
    halves of V and of U must be multiplied.
    """
    k = V.shape[1]
    (width,) = _widths(k)
    vh, vl, grown = _halves(V.t(), width, 1.0, across=True)
    # Each column of V is scaled to at most 2¹⁴ and that of U inversely; one more scale limits U.
    other = U * grown[:k]
    back = torch.exp2(torch.ceil(torch.log2(other.amax().clamp(min=1e-30))) - 14)
    wide = torch.nn.functional.pad(other / back, (0, width - k)).contiguous()
    uh = wide.half()
    ul = (wide - uh.float()).half()
    return vh, vl, uh, ul, back.reshape(1), (grown[:k], back / grown[:k])


def residuals(X: Tensor, V: Tensor, U: Tensor) -> Tensor:
    """Return Σ_j (x_ij - v_i·u_j)² by row in float64; at most WIDEST columns.

    Matrix units round towards zero, which causes a relative error of about 2e-7 along Y. If V is a
    minimiser, the residuals are orthogonal to Y, and this error does not change their squares.
    """
    n, p = X.shape
    vh, vl, uh, ul, back, _ = paired_halves(V, U)
    width = vh.shape[1]
    out = torch.empty(n, dtype=torch.float64, device=X.device)
    BM, BN, warps, stages = RESIDUALS[width]
    _residuals[(triton.cdiv(n, BM),)](
        X, vh, vl, uh, ul, back, out, n, p, X.stride(0), BM=BM, BN=BN, K=width,
        num_warps=warps, num_stages=stages,
    )  # fmt: skip
    return out
