"""Work on torch tensors that is not one tensor operation: Triton kernels on a GPU where they run.

The sweeps do what `kernels.hals_rows` does. Those of a half-step stop together for all rows (on a
GPU for 32 of them), where the compiled kernel stops for each block of 64, so with several sweeps
they agree to the solver's own accuracy and with one sweep to rounding.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

Tensor = Any
ROWS = 64  # rows of a block of the compiled kernel, whose share ``enough`` is
_refused: set[str] = set()  # kernels that did not compile here


def fused(name: str, like: Tensor, k: int) -> Any:
    """The Triton kernel of that name for tensors like this one, or None."""
    if not like.is_cuda or name in _refused:
        return None
    try:
        from partwise.engine import kernels_triton
    except ImportError:
        _refused.add(name)
        return None
    return getattr(kernels_triton, name) if k <= kernels_triton.MOST else None


def attempt(name: str, like: Tensor, k: int, *args: Any) -> Any:
    """What the kernel returns; None where there is none, and from now on where it fails."""
    kernel = fused(name, like, k)
    if kernel is None:
        return None
    try:
        return kernel(*args)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a compiler that is missing or a small chip shows only here
        _refused.add(name)
        warnings.warn(
            f"the fused kernel {name!r} does not run here, tensor operations do: {error}",
            stacklevel=3,
        )
        return None


def sweep_rows(
    Z: Tensor, C: Tensor, G: Tensor, d: Tensor | None, r: Tensor, sweeps: int, stop: float,
    enough: float,
) -> Tensor:  # fmt: skip
    """Coordinate descent on min ½ d zᵀGz + ½ r zᵀz - cᵀz for every row; returns the new Z."""
    new = attempt("sweep", Z, Z.shape[1], Z.t(), C.t(), G, d, r, sweeps, stop, enough / 2)
    if new is not None:
        return new.t()
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
