"""Operations on tensors that the array API lacks, or that PyTorch can fuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import scipy.sparse as sp
import torch

from partwise.backends import arrays, curvature, sweeps
from partwise.backends.arrays import AnyArray
from partwise.backends.torch import triton_dispatch


class TensorFunctions:
    """The array API on tensors; scalars are accepted where older versions of it refuse them."""

    def __init__(self) -> None:
        self.standard = arrays.namespace(torch.empty(0))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.standard, name)

    def maximum(self, a: Any, b: Any) -> Any:
        return torch.maximum(a, b) if isinstance(b, torch.Tensor) else a.clamp(min=b)

    def minimum(self, a: Any, b: Any) -> Any:
        return torch.minimum(a, b) if isinstance(b, torch.Tensor) else a.clamp(max=b)

    def full_like(self, a: Any, value: Any) -> Any:
        return torch.full_like(a, float(value))


@contextmanager
def without_tf32() -> Iterator[None]:
    """Run products in full float32, whatever the user's setting is."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


arrays.register_namespace(torch.Tensor, TensorFunctions())
in_tensors = curvature.damped_step.dispatch(object)
in_operations = sweeps.quadratic_change.dispatch(object)


@arrays.to_numpy.register
def _(a: torch.Tensor) -> Any:
    a = a.detach().cpu()
    if a.layout == torch.strided:
        return a.numpy()
    # Indices are int32 where they fit, because scikit-learn refuses int64.
    index = sp.get_index_dtype(maxval=max(a._nnz(), *a.shape))
    columns, starts = (b.numpy().astype(index) for b in (a.col_indices(), a.crow_indices()))
    return sp.csr_array((a.values().numpy(), columns, starts), shape=tuple(a.shape))


@arrays.contiguous.register
def _(a: torch.Tensor) -> AnyArray:
    return a.contiguous()


@arrays.joined.register
def _(first: torch.Tensor, *others: AnyArray) -> AnyArray:
    if not first.is_cuda:
        return torch.cat((first, *others), dim=1)
    return torch.cat([a.t() for a in (first, *others)]).t()  # column by column, see TorchData


@arrays.cut.register
def _(wide: torch.Tensor, begin: int, end: int) -> AnyArray:
    some = wide[:, begin:end]
    return some if wide.is_cuda and wide.stride(0) == 1 else some.contiguous()


@arrays.inner64.register
def _(a: torch.Tensor, b: AnyArray) -> AnyArray:
    return (a * b).sum(dtype=torch.float64)


@arrays.pending_scalar.register
def _(value: torch.Tensor) -> Callable[[], float] | None:
    if not value.is_cuda:
        return None
    # Waiting for an event of the copy does not wait for operations that are started after it.
    here = torch.empty_like(value, device="cpu", pin_memory=True)
    here.copy_(value, non_blocking=True)
    copied = torch.cuda.current_stream(value.device).record_event()

    def wait() -> float:
        copied.synchronize()
        return float(here)

    return wait


@arrays.extrapolate.register
def _(new: torch.Tensor, old: AnyArray, weight: float) -> AnyArray:
    return old.lerp(new, 1 + weight)


@arrays.clip_at_zero.register
def _(out: torch.Tensor) -> AnyArray:
    return out.clamp_(min=0)


@sweeps.sweep.register
def _(
    Z: torch.Tensor, C: AnyArray, G: AnyArray, d: AnyArray | None, r: AnyArray, e: AnyArray,
    times: int, stop: float, enough: float,
) -> AnyArray:  # fmt: skip
    if r.shape[1] == 1 and e.shape[1] == 1:  # the kernel supports one number per row only
        both = (r.reshape(-1), e.reshape(-1))
        args = (Z.t(), C.expand(Z.shape).t(), G, d, *both, times, stop, enough / 2)
        new = triton_dispatch.attempt("sweep", Z, *args, k=Z.shape[1])
        if new is not None:
            return new.t()
    return sweeps.sweep_columns(Z, C, G, d, r, e, times, stop, enough)


@sweeps.sweep_graph.register
def _(
    Z: torch.Tensor, C: AnyArray, G: AnyArray, d: AnyArray | None, r: AnyArray, term: Any,
    rounds: int, stop: float,
) -> AnyArray | None:  # fmt: skip
    W, weight = term.edges
    G, r = sweeps.join_ridge(G, d, r)
    if r.shape[1] > 1 or W.values.dtype != Z.dtype:
        return None
    e = r + 2.0 * weight * term.degrees[:, None]  # L ≼ 2D
    args = (Z.t(), C.expand(Z.shape).t(), G, d, r.reshape(-1), e.reshape(-1), rounds)
    new = triton_dispatch.attempt("graph_sweep", Z, *args, *W[:3], weight, k=Z.shape[1])
    return None if new is None else new.t()


@sweeps.quadratic_change.register
def _(new: torch.Tensor, old: AnyArray, C: AnyArray, G: AnyArray, d: AnyArray | None) -> Any:
    found = None
    if new.dtype == torch.float32 and C.shape == new.shape:
        found = triton_dispatch.attempt("change", new, new, old, C, G, d, k=new.shape[1])
    if found is not None:
        return found
    with without_tf32():
        return in_operations(new, old, C, G, d)


@curvature.damped_step.register
def _(
    Z: torch.Tensor, product: AnyArray, H: AnyArray, cost: AnyArray, ridge: AnyArray, sweeps: int
) -> AnyArray:
    args = (Z, product, H, cost, ridge, sweeps)
    single = Z.dtype == torch.float32
    found = triton_dispatch.attempt("damped", Z, *args, k=Z.shape[1]) if single else None
    return in_tensors(*args) if found is None else found
