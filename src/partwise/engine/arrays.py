"""The few array operations that steps and terms use, for numpy, torch and distributed rows.

A factor is an ndarray, a torch tensor, or `Rows`: an array cut into row blocks that live beside
their blocks of X (see `partwise.engine.rows`). `namespace` gives functions with numpy's names for
any of them; the functions below are what has no common name. Numpy arrays take the first branch of
each.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

Array = Any


def is_tensor(a: Any) -> bool:
    """Whether a is a torch tensor; torch is not imported to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(a, torch.Tensor)


class _Torch:
    """numpy's names for torch functions; scalars may stand where numpy takes them."""

    def __init__(self) -> None:
        import torch

        self.torch = torch
        for name in (
            "where",
            "sqrt",
            "log",
            "floor",
            "exp",
            "abs",
            "zeros_like",
            "ones_like",
            "diag",
        ):
            setattr(self, name, getattr(torch, name))

    def maximum(self, a: Any, b: Any) -> Any:
        return self.torch.maximum(a, b) if is_tensor(b) else a.clamp(min=b)

    def minimum(self, a: Any, b: Any) -> Any:
        return self.torch.minimum(a, b) if is_tensor(b) else a.clamp(max=b)

    def full_like(self, a: Any, value: Any) -> Any:
        return self.torch.full_like(a, float(value))


_torch: Any = None


def namespace(Z: Array) -> Any:
    """numpy, or an object with its names; `Rows` answer to numpy's own functions."""
    if isinstance(Z, np.ndarray) or not is_tensor(Z):
        return np
    global _torch
    if _torch is None:
        _torch = _Torch()
    return _torch


#: What to do about a device without memory left.
NO_MEMORY = "use float32, a smaller n_components, or leave X on disk as a numpy.memmap."


def to_numpy(a: Any) -> Any:
    """A tensor as ndarray or csr_array, rows brought together; anything else as it is."""
    if isinstance(a, np.ndarray):
        return a
    if is_tensor(a):
        a = a.detach().cpu()
        return a.numpy() if str(a.layout) == "torch.strided" else _csr_array(a)
    return a.gather() if hasattr(a, "gather") else a


def _csr_array(a: Any) -> Any:
    from scipy.sparse import csr_array, get_index_dtype

    # int64 as in the tensor only where it must be: scikit-learn refuses it
    index = get_index_dtype(maxval=max(a._nnz(), *a.shape))
    columns, starts = (b.numpy().astype(index) for b in (a.col_indices(), a.crow_indices()))
    return csr_array((a.values().numpy(), columns, starts), shape=tuple(a.shape))


def none(Z: Array, ndim: int = 2) -> Array:
    """A zero of shape (1, 1) or (1,), in the dtype and place of Z."""
    if is_tensor(Z):
        return Z.new_zeros((1,) * ndim)
    return np.zeros((1,) * ndim, Z.dtype)


def ones(Z: Array, n: int) -> Array:
    """n ones in the dtype and place of Z."""
    return Z.new_ones(n) if is_tensor(Z) else np.ones(n, dtype=Z.dtype)


def spread(part: Array, Z: Array) -> Array:
    """``part`` broadcast to the shape of Z."""
    if isinstance(Z, np.ndarray):
        return np.broadcast_to(part, Z.shape)
    return part.expand(Z.shape) if is_tensor(Z) else Z.spread(part)


def cast(a: Array, dtype: Any) -> Array:
    """``a`` with the numpy dtype or torch dtype; tensors stay where they are."""
    if is_tensor(a):
        return a.to(_torch_dtype(dtype))
    return a.astype(dtype)


def float64(a: Array) -> Array:
    """``a`` in double precision."""
    return a.double() if is_tensor(a) else a.astype(np.float64)


def _torch_dtype(dtype: Any) -> Any:
    import torch

    return dtype if isinstance(dtype, torch.dtype) else getattr(torch, np.dtype(dtype).name)


def contiguous(a: Array) -> Array:
    """``a`` in C order."""
    return a.contiguous() if is_tensor(a) else np.ascontiguousarray(a)


def largest(a: Array) -> float:
    """max(a, 0)."""
    if isinstance(a, np.ndarray):
        return float(a.max(initial=0.0))
    return max(0.0, float(a.max())) if a.shape[0] else 0.0


def sum64(a: Array) -> float:
    """Σ a in float64."""
    if is_tensor(a):
        return float(a.double().sum())
    return float(a.sum(dtype=np.float64))


def column_sums64(Z: Array, d: Array | None = None) -> Array:
    """Σ_i d_i z_i in float64."""
    if is_tensor(Z):
        return Z.double().sum(dim=0) if d is None else d.double() @ Z.double()
    return Z.sum(axis=0, dtype=np.float64) if d is None else d.astype(np.float64) @ Z


def vdot(a: Array, b: Array) -> float:
    """⟨a, b⟩ in the arrays' own precision."""
    if is_tensor(a):
        return float((a * b).sum())
    return float(np.vdot(a, b))


def spectral_norm(G: Array) -> float:
    """‖G‖₂ of a small matrix."""
    return float(np.linalg.norm(to_numpy(G), 2))


def extrapolate(new: Array, old: Array, weight: float) -> Array:
    """new + weight (new - old), in few passes."""
    if is_tensor(new):
        return old.lerp(new, 1 + weight)
    out = new - old
    out *= weight
    out += new
    return out


def clip_at_zero(out: Array) -> Array:
    """max(out, 0), in place where that is possible."""
    if is_tensor(out):
        return out.clamp_(min=0)
    return np.maximum(out, 0, out=out) if isinstance(out, np.ndarray) else np.maximum(out, 0)


def orthonormal(Y: Array) -> Array:
    """An orthonormal basis of the columns of a tall Y."""
    if isinstance(Y, np.ndarray):
        return np.linalg.qr(Y)[0]
    if is_tensor(Y):
        import torch

        return torch.linalg.qr(Y)[0]
    return Y.orthonormal()


def signs(left: Array) -> Array:
    """The sign of the entry largest in size of each column."""
    if isinstance(left, np.ndarray):
        return np.sign(left[np.abs(left).argmax(axis=0), np.arange(left.shape[1])])
    high, low = (left.max(0)[0], left.min(0)[0]) if is_tensor(left) else (left.max(0), left.min(0))
    sign = namespace(high).ones_like(high)
    return namespace(high).where(high >= -low, sign, -sign)


def own(V: Array) -> Array:
    """A copy that the caller may write into; arrays of a cluster cannot be written to."""
    if is_tensor(V):
        return V.clone()
    return V.copy() if isinstance(V, np.ndarray) else V
