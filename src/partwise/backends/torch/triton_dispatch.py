"""Selection of Triton kernels for tensors on a GPU, if the GPU supports them."""

from __future__ import annotations

import warnings
from typing import Any

import torch

Tensor = Any  # the overloads of torch.Tensor differ between its releases
_refused: set[str] = set()  # kernels that did not compile here


def fused(name: str, like: Tensor, k: int = 0) -> Any:
    """Return the Triton kernel of that name for tensors like this one, or None."""
    if not like.is_cuda or name in _refused:
        return None
    try:
        from partwise.backends.torch import (
            triton_curvature,
            triton_products,
            triton_ratios,
            triton_sweeps,
        )
    except ImportError:
        _refused.add(name)
        return None
    if name in ("dot", "tdot", "prepare"):  # these support every width
        return getattr(triton_products, name)
    if name in vars(triton_curvature):
        return getattr(triton_curvature, name) if k <= triton_curvature.NARROW else None
    if k > triton_products.WIDEST:
        return None
    for module in (triton_products, triton_ratios, triton_sweeps):
        if name in vars(module):
            return getattr(module, name)
    raise KeyError(name)


def attempt(name: str, like: Tensor, *args: Any, k: int = 0) -> Any:
    """Run the kernel; return None if it does not exist or has failed before."""
    kernel = fused(name, like, k)
    if kernel is None:
        return None
    try:
        return kernel(*args)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # a missing compiler or an unsuitable GPU is detected only here
        _refused.add(name)
        warnings.warn(
            f"the Triton kernel {name!r} failed, so slower PyTorch operations replace it: {error}",
            stacklevel=3,
        )
        return None
