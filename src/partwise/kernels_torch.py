"""Coordinate sweeps on torch tensors: a fused Triton kernel on a GPU, tensor operations elsewhere.

Both do what `kernels.hals_rows` does. The sweeps of a half-step stop together for all rows, where
the compiled kernel stops for each block of 64 rows, so with several sweeps the two agree to the
solver's own accuracy and with one sweep to rounding.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

Tensor = Any
ROWS = 64  # rows of a block of the compiled kernel, whose share ``enough`` is


def sweep_rows(
    Z: Tensor, C: Tensor, G: Tensor, d: Tensor | None, r: Tensor, sweeps: int, stop: float,
    enough: float,
) -> Tensor:  # fmt: skip
    """Coordinate descent on min ½ d zᵀGz + ½ r zᵀz - cᵀz for every row; returns the new Z."""
    global fused
    if Z.is_cuda and fused is not None and Z.shape[1] <= 256:
        try:
            return fused(Z, C, G, d, r, sweeps, stop, enough)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a compiler that is missing or too old shows only here
            fused = None
            warnings.warn(
                f"fused sweeps do not run here, tensor operations do: {error}", stacklevel=2
            )
    z, c = Z.t().contiguous(), C.t()
    blocks = max(1.0, Z.shape[0] / ROWS)
    diagonal = [float(x) for x in G.diagonal().tolist()]
    plain = d is None and r.shape[0] == 1 and not bool(r.any())
    first = last = 0.0
    for sweep in range(sweeps):
        moved = z.new_zeros(z.shape[1])
        for j, gjj in enumerate(diagonal):
            old = z[j]
            gradient = G[j] @ z
            if not plain:
                if d is not None:
                    gradient *= d
                gradient += r * old
            gradient -= c[j]
            if plain and gjj > 0:
                new = torch.clamp(old - gradient / gjj, min=0)
                moved += (new - old).square_().mul_(gjj)
            else:
                h = (gjj if d is None else d * gjj) + r
                # a coordinate without curvature moves only where its linear cost sends it to zero
                flat = torch.where(gradient > 0, torch.zeros_like(old), old)
                new = torch.where(h > 0, (old - gradient / h).clamp(min=0), flat)
                moved += (new - old).square_().mul_(h)
            z[j] = new
        total = float(moved.double().sum())
        first = total if sweep == 0 else first
        if total <= stop * stop * first or total <= enough * blocks:
            break
        if sweep > 20 and total >= last:  # rounding is all that still moves
            break
        last = total
    return z.t().contiguous()


def _make_fused() -> Any:
    """The Triton kernel, or None where Triton is not there."""
    try:
        import triton
        import triton.language as tl
    except ImportError:
        return None

    @triton.jit
    def kernel(
        Z, C, G, D, R, OUT, n, k, sweeps, stop2, enough,
        HAS_D: tl.constexpr, HAS_R: tl.constexpr, ROWS_: tl.constexpr, K: tl.constexpr,
    ):  # fmt: skip
        rows = tl.program_id(0) * ROWS_ + tl.arange(0, ROWS_)
        cols = tl.arange(0, K)
        inside = rows < n
        at = rows[:, None].to(tl.int64) * k + cols[None, :]
        mask = inside[:, None] & (cols < k)[None, :]
        z = tl.load(Z + at, mask=mask, other=0.0)
        c = tl.load(C + at, mask=mask, other=0.0)
        if HAS_D:
            d = tl.load(D + rows, mask=inside, other=1.0)
        if HAS_R:
            r = tl.load(R + rows, mask=inside, other=0.0)
        else:
            r = tl.load(R)
        first = 0.0
        last = 0.0
        going = 1
        for sweep in range(sweeps):
            if going == 1:
                moved = 0.0
                for j in range(k):
                    g = tl.load(G + j * k + cols, mask=cols < k, other=0.0)
                    here = (cols == j)[None, :]
                    gradient = tl.sum(z * g[None, :], axis=1)
                    old = tl.sum(tl.where(here, z, 0.0), axis=1)
                    cj = tl.sum(tl.where(here, c, 0.0), axis=1)
                    gjj = tl.load(G + j * k + j)
                    if HAS_D:
                        h = d * gjj + r
                        gradient = d * gradient + r * old - cj
                    else:
                        h = gjj + r + tl.zeros_like(old)
                        gradient = gradient + r * old - cj
                    flat = tl.where(gradient > 0, 0.0, old)
                    safe = tl.where(h > 0, h, 1.0)
                    new = tl.where(h > 0, tl.maximum(old - gradient / safe, 0.0), flat)
                    moved += tl.sum((new - old) * (new - old) * h, axis=0).to(tl.float32)
                    z = tl.where(here, new[:, None], z)
                if sweep == 0:
                    first = moved
                if (moved <= stop2 * first) | (moved <= enough):
                    going = 0
                if (sweep > 20) & (moved >= last):  # rounding is all that still moves
                    going = 0
                last = moved
        tl.store(OUT + at, z, mask=mask)

    def run(
        Z: Tensor, C: Tensor, G: Tensor, d: Tensor | None, r: Tensor, sweeps: int, stop: float,
        enough: float,
    ) -> Tensor:  # fmt: skip
        n, k = Z.shape
        width = triton.next_power_of_2(max(k, 16))
        rows = max(16, min(ROWS, 8192 // width))
        Z, C, G = Z.contiguous(), C.contiguous(), G.contiguous()
        out = torch.empty_like(Z)
        r = r.to(Z.dtype).contiguous()
        kernel[(triton.cdiv(n, rows),)](
            Z, C, G, Z if d is None else d, r, out, n, k, sweeps, stop * stop,
            enough * rows / ROWS,
            HAS_D=d is not None, HAS_R=r.shape[0] > 1, ROWS_=rows, K=width,
        )  # fmt: skip
        return out

    return run


fused = _make_fused()
