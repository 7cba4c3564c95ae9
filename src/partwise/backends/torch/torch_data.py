"""torch tensors, dense or CSR, on any device. Factors are tensors there too.

On a GPU the two products with X run on its matrix units in the accuracy of float32 (see
`kernels_products`); TF32, which rounds to 10 bits of mantissa, is never used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import partwise.backends.torch.torch_arrays  # noqa: F401  what tensors register
from partwise.backends.array_api import (
    GPU_BLOCKS,
    Csr,
    DeviceDense,
    DeviceSparse,
    check_csr,
    check_dense,
)
from partwise.backends.arrays import NO_MEMORY, AnyArray, is_missing, to_numpy
from partwise.backends.data_matrix import BackEnd, DataMatrix
from partwise.backends.threads import cached_property
from partwise.backends.torch import triton_dispatch

#: On a GPU a CSR matrix with at least this share of non-zeros is multiplied faster as a dense one.
DENSE_FROM = 0.02
#: A GPU's matrix products run well at widths from 32 that this divides; zero columns fill up k.
WIDTH = 8
csr_tensor: Any = torch.sparse_csr_tensor
#: Largest k whose second-order steps under KL are worth their curvature, as measured.
NARROW = 32
#: Entries of X from which the products of `kernels_products` pay.
SPLIT_FROM = 1 << 22


NOTHING = ("", None, None)


@contextmanager
def memory_errors(what: str, device: Any) -> Iterator[None]:
    """An out-of-memory error that says where it happened and what helps."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(f"{device} has too little memory for {what}; {NO_MEMORY}") from error


def as_torch_data(X: Any, *, back: bool = False) -> TorchData | TorchSparse:
    """Wrap a validated tensor; ``back`` returns results as ndarrays."""
    if X.layout == torch.strided:
        return TorchData(X, back=back)
    n, p = X.shape
    if X.is_cuda and X._nnz() >= DENSE_FROM * n * p:
        free, _ = torch.cuda.mem_get_info(X.device)
        if 3 * n * p * X.element_size() < free:
            return TorchData(X.to_dense(), back=back)
    return TorchSparse(X, back=back)


def check(X: Any, whom: str) -> Any:
    """X as float32 or float64, dense or CSR; raise where an entry is no non-negative number."""
    X = X.detach()
    if X.layout != torch.strided:
        X = X.to_sparse_csr()
    if X.dtype not in (torch.float32, torch.float64):
        X = X.to(torch.float32 if X.dtype in (torch.float16, torch.bfloat16) else torch.float64)
    if X.layout == torch.strided:
        check_dense(X, whom)
    else:
        check_csr(csr_parts(X), whom)
    return X


def move(X: Any, device: str) -> TorchData | TorchSparse:
    """A numpy or scipy X as data on a torch device, whose results come back as ndarrays."""
    with memory_errors(f"X of shape {X.shape}", device):
        if sp.issparse(X):
            X = sp.csr_array(X)
            X.sum_duplicates()
            parts = [torch.from_numpy(np.asarray(a, np.int64)) for a in (X.indptr, X.indices)]
            tensor = csr_tensor(*parts, torch.from_numpy(np.array(X.data)), X.shape)
        else:
            tensor = torch.from_numpy(X if X.flags.writeable else X.copy())
        return as_torch_data(tensor.to(device), back=True)


def csr_parts(X: Any) -> Csr:
    return Csr(X.crow_indices(), X.col_indices(), X.values(), tuple(X.shape))


class OnTensors:
    """Where tensors live, and what torch calls what the standard has no name for."""

    like: Any

    @property
    def block_scale(self) -> int:
        return GPU_BLOCKS if self.like.is_cuda else 1

    def newton_pays(self, k: int) -> bool:
        return k <= NARROW

    def sums(self, index: AnyArray, values: AnyArray, n_rows: int) -> AnyArray:
        return values.new_zeros((n_rows, *values.shape[1:])).index_add_(0, index, values)

    def csr(self, parts: Csr) -> Any:
        return csr_tensor(*parts)

    def differences(self, W: Csr, Z: AnyArray) -> AnyArray | None:
        if W.values.dtype != Z.dtype:
            return None
        return triton_dispatch.attempt("laplacian", Z, *W[:3], Z)

    def multiply(self, W: Any, Z: AnyArray) -> AnyArray:
        # rows in one piece are gathered fastest; what comes back lies as Z does
        with memory_errors("a sparse product", self.like.device):
            out = W @ Z.contiguous()
        return out if Z.is_contiguous() else out.t().contiguous().t()

    def rows(self, a: AnyArray) -> AnyArray:
        if not isinstance(a, torch.Tensor):
            a = torch.from_numpy(np.array(to_numpy(a)))
        a = a.to(self.like.device)
        # beside other tall arrays, see dot
        return a.t().contiguous().t() if a.is_cuda and a.ndim == 2 else a


class TorchData(OnTensors, DeviceDense):
    """A dense float32 or float64 tensor."""

    _expected: tuple[str, Any, Any] = NOTHING  # the product that may come, with what it will read

    @contextmanager
    def product(self, what: str) -> Iterator[None]:
        """No TF32 inside, whatever the user's own setting is outside; errors of memory."""
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = False
        try:
            with memory_errors(what, self.X.device):
                yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    def sweeps(self, size: int, k: int) -> int:
        if not self.X.is_cuda or self.density < 1 or k <= 32:
            return super().sweeps(size, k)
        # A dense product takes as long as reading X, whatever k; sweeps take k² for each row,
        # and more than their share of time where there are few rows (the 600).
        return int(np.clip(1 + 0.6 * size / k**2, 1, min(10, 600 // k)))

    # On a GPU tall arrays lie column by column, as the sweeps want them and as the products
    # read them fastest; their shapes and values are the same.

    def dot(self, U: AnyArray) -> AnyArray:
        with self.product("X U"):
            if not U.is_cuda:
                return self.X @ U
            found = self._split("dot", U)
            if found is not None:
                return found.t()
            padded = _wide(U)
            out = _buffer(padded.shape[0], self.shape[0], U)
            for rows in self._even():
                torch.mm(padded, self.X[rows].t(), out=out[:, rows])
            return out[: U.shape[1]].t()

    def tdot(self, V: AnyArray) -> AnyArray:
        with self.product("Xᵀ V"):
            if not V.is_cuda:
                return self.X.t() @ V
            found = self._split("tdot", V)
            if found is not None:
                return found
            padded = _wide(V)
            parts = [self.X[rows].t() @ padded[:, rows].t() for rows in self._even()]
            return sum(parts[1:], parts[0])[:, : V.shape[1]]

    @cached_property
    def _halves(self) -> tuple[Any, float] | None:
        """X as the split products take it, and its scale; None where they are not for it."""
        X = self.X
        if X.dtype != torch.float32 or X.stride(1) != 1 or X.numel() < SPLIT_FROM:
            return None
        from partwise.backends.torch.triton_products import halves_scale

        free, _ = torch.cuda.mem_get_info(X.device)
        small = 4 * X.numel() < free and all(_is_half(part) for _, part in self._blocks())
        return (X.half(), 1.0) if small else (X, halves_scale(X))

    def _split(self, name: str, factor: AnyArray) -> Any:
        """The product with both sides in two halves; None where that does not run."""
        if triton_dispatch.fused(name, self.X) is None or self._halves is None:
            return None
        (product, expected, ready), self._expected = self._expected, NOTHING
        ready = ready if product == name and expected is factor else None
        X, scale = self._halves
        return triton_dispatch.attempt(name, self.X, X, factor, scale, ready)

    def expect(self, product: str, factor: AnyArray) -> None:
        if factor.is_cuda and triton_dispatch.fused("dot", self.X) is not None and self._halves:
            X, scale = self._halves
            ready = triton_dispatch.attempt("prepare", self.X, product, X, factor, scale)
            self._expected = product, factor, ready

    def row_sq_residuals(self, V: AnyArray, U: AnyArray) -> AnyArray:
        found = None
        if V.is_cuda and self._halves is not None:
            args = (self._halves[0], V, U)
            with self.product("X - VUᵀ"):
                found = triton_dispatch.attempt("residuals", self.X, *args, k=V.shape[1])
        return super().row_sq_residuals(V, U) if found is None else found

    def _even(self) -> list[slice]:
        """The rows, those beyond a number that a GPU's fast products take apart from the rest."""
        n = self.shape[0]
        even = n - n % WIDTH
        return [part for part in (slice(0, even), slice(even, n)) if part.start < part.stop]

    def _fused(self, name: str, V: AnyArray, U: AnyArray) -> Any:
        """The product from one pass over X that stores nothing of its size, where there is one."""
        if self.X.dtype != torch.float32 or not self.X.is_contiguous():
            return None
        args = (self.X, V, U, self._low)
        found = triton_dispatch.attempt(f"split_{name}", self.X, *args, k=U.shape[1])
        if found is not None:
            return found
        return triton_dispatch.attempt(name, self.X, *args, k=U.shape[1])

    def kl_dot(self, V: AnyArray, U: AnyArray) -> tuple[AnyArray, AnyArray]:
        with self.product("X / VUᵀ"):
            found = self._fused("ratio_dot", V, U)
            return super().kl_dot(V, U) if found is None else found

    def kl_tdot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        with self.product("X / VUᵀ"):
            found = self._fused("ratio_tdot", V, U)
            return super().kl_tdot(V, U) if found is None else found

    def kl_curvature(self, V: AnyArray, U: AnyArray, transposed: bool) -> AnyArray:
        with self.product("the curvature of X / VUᵀ"):
            found = None
            if self.X.dtype == torch.float32 and self.X.is_contiguous():
                name = "curvature_t" if transposed else "curvature"
                found = triton_dispatch.attempt(name, self.X, self.X, V, U, self._low, k=U.shape[1])
            return super().kl_curvature(V, U, transposed) if found is None else found


def _is_half(X: AnyArray) -> bool:
    """Whether every entry is exact in float16."""
    return bool((X.half().float() == X).all())


def _buffer(width: int, n: int, like: AnyArray) -> AnyArray:
    """Room for (width, n) whose rows begin at places that a GPU reads fast from."""
    return like.new_empty((width, -(-n // WIDTH) * WIDTH))[:, :n]


def _wide(B: AnyArray) -> AnyArray:
    """Bᵀ with rows of zeros up to a number that a GPU's products like, on good places."""
    (n, k), width = B.shape, max(32, -(-B.shape[1] // WIDTH) * WIDTH)
    if width == k and B.stride(0) == 1 and B.stride(1) % WIDTH == 0:
        return B.t()
    out = _buffer(width, n, B)
    out[:k] = B.t()
    out[k:] = 0
    return out


class TorchSparse(OnTensors, DeviceSparse):
    """A CSR tensor."""

    def __init__(self, X: Any, *, back: bool = False) -> None:
        super().__init__(X, back=back)
        self.parts = csr_parts(X)

    def product(self, what: str) -> AbstractContextManager[None]:
        return memory_errors(what, self.X.device)

    def dot(self, U: AnyArray) -> AnyArray:
        with self.product("X U"):
            return self.X @ U

    def tdot(self, V: AnyArray) -> AnyArray:
        with self.product("Xᵀ V"):
            return self._XT @ V


def gaps(X: Any, missing: float, whom: str) -> tuple[DataMatrix, DataMatrix, bool]:
    """X with zeros for what is missing, and a tensor of its kind with ones there."""
    X = X.detach()
    X = X if X.layout == torch.strided else X.to_sparse_csr()
    sparse = X.layout != torch.strided
    values = X.values() if sparse else X
    hidden = is_missing(values, missing)
    kept = torch.where(hidden, torch.zeros_like(values), values)
    if not sparse:
        X = check(kept, whom)
        return as_torch_data(X), as_torch_data(hidden.to(X.dtype)), False
    indptr, indices, _, shape = csr_parts(X)
    X = check(csr_tensor(indptr, indices, kept, shape), whom)
    places = (~hidden if missing == 0 else hidden).to(X.dtype)
    return as_torch_data(X), as_torch_data(csr_tensor(indptr, indices, places, shape)), missing == 0


def bring(a: Any, like: Any) -> TorchData | TorchSparse:
    """An ndarray or CSR matrix where the tensor is."""
    return as_torch_data(move(a, str(like.device)).X)


BACK_END = BackEnd("torch tensors", "X.cpu().numpy()", check, as_torch_data, gaps=gaps, bring=bring)

__all__ = ["BACK_END", "TorchData", "TorchSparse", "as_torch_data", "memory_errors", "move"]
