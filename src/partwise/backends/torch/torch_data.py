"""PyTorch tensors, dense or CSR, on any device. Factors are tensors there too.

On a GPU the two products with X run on its matrix units in the accuracy of float32 (see
`triton_products`); TF32, which rounds to 10 bits of mantissa, is never used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

from partwise.backends.array_api import (
    GPU_BLOCKS,
    Csr,
    DeviceDense,
    DeviceSparse,
    check_csr,
    without_missing,
)
from partwise.backends.arrays import NO_MEMORY, AnyArray, row_blocks, to_numpy
from partwise.backends.data_matrix import BackEnd, DataMatrix, check_values
from partwise.backends.numpy.blocks import split_rows
from partwise.backends.threads import cached_property
from partwise.backends.torch import triton_dispatch
from partwise.backends.torch.torch_arrays import without_tf32

#: On a GPU a CSR matrix with at least this share of non-zeros is multiplied faster as a dense one.
DENSE_FROM = 0.02
#: Matrix products on a GPU are fast if the width is a multiple of this, and at least 32. Narrower
#: factors are padded with columns of zeros.
WIDTH = 8
csr_tensor: Any = torch.sparse_csr_tensor
#: Minimum number of entries of X for the split products of `triton_products` to be faster.
SPLIT_FROM = 1 << 22


NOTHING = ("", None, None)


@contextmanager
def memory_errors(what: str, device: Any) -> Iterator[None]:
    """Turn an out-of-memory error into one with the operation and a remedy."""
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


def check(X: Any, estimator_name: str) -> Any:
    """Return X as float32 or float64, dense or CSR; raise if an entry is invalid."""
    X = X.detach()
    if X.layout != torch.strided:
        X = X.to_sparse_csr()
    if X.dtype not in (torch.float32, torch.float64):
        X = X.to(torch.float32 if X.dtype in (torch.float16, torch.bfloat16) else torch.float64)
    if X.layout == torch.strided:
        check_values(X, estimator_name)
    else:
        check_csr(csr_parts(X), estimator_name)
    return X


def move(X: Any, device: str) -> TorchData | TorchSparse:
    """Move a numpy or scipy X to a torch device; results are returned as ndarrays."""
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
    """Mixin that moves arrays to the device of the tensors in X.

    It also implements operations on tensors that the array API standard does not have.
    """

    like: Any

    @property
    def block_scale(self) -> int:
        return GPU_BLOCKS if self.like.is_cuda else 1

    def sums(self, index: AnyArray, values: AnyArray, n_rows: int) -> AnyArray:
        return values.new_zeros((n_rows, *values.shape[1:])).index_add_(0, index, values)

    def csr(self, parts: Csr) -> Any:
        return csr_tensor(*parts)

    def differences(self, W: Csr, Z: AnyArray) -> AnyArray | None:
        if W.values.dtype != Z.dtype:
            return None
        return triton_dispatch.attempt("laplacian", Z, *W[:3], Z)

    def multiply(self, W: Any, Z: AnyArray) -> AnyArray:
        # Contiguous rows are gathered fastest; the result has the memory layout of Z.
        with memory_errors("a sparse product", self.like.device):
            out = W @ Z.contiguous()
        return out if Z.is_contiguous() else out.t().contiguous().t()

    def rows(self, a: AnyArray) -> AnyArray:
        if not isinstance(a, torch.Tensor):
            a = torch.from_numpy(np.array(to_numpy(a)))
        a = a.to(self.like.device)
        # Tall arrays on a GPU are stored by column, as explained at `TorchData.dot`.
        return a.t().contiguous().t() if a.is_cuda and a.ndim == 2 else a


class TorchData(OnTensors, DeviceDense):
    """Back end for dense PyTorch tensors in float32 or float64."""

    _expected: tuple[str, Any, Any] = NOTHING  # the announced product and its prepared input

    @contextmanager
    def product(self, what: str) -> Iterator[None]:
        """Run without TF32, and explain memory errors."""
        with without_tf32(), memory_errors(what, self.like.device):
            yield

    def made(self, X: Any) -> TorchData:
        return TorchData(X, back=self.back)

    def sweeps(self, size: int, k: int) -> int:
        if not self.like.is_cuda or self.density < 1 or k <= 32:
            usual: int = super().sweeps(size, k)
            return usual
        # A dense product takes as long as reading X for any k, but a sweep takes k² operations per
        # row. The limit 600 // k was measured for few rows, where sweeps are slower.
        return int(np.clip(1 + 0.6 * size / k**2, 1, min(10, 600 // k)))

    # On a GPU tall arrays are stored column by column, because sweeps and products read them
    # fastest in this order; their shapes and values are the same.

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
        """Return X divided into float16 halves, and its scale; None if not supported."""
        X = self.X
        if X.dtype != torch.float32 or X.stride(1) != 1 or X.numel() < SPLIT_FROM:
            return None
        from partwise.backends.torch.triton_products import halves_scale

        free, _ = torch.cuda.mem_get_info(X.device)
        small = 4 * X.numel() < free and all(_is_half(part) for _, part in self._blocks())
        return (X.half(), 1.0) if small else (X, halves_scale(X))

    def _split(self, name: str, factor: AnyArray) -> Any:
        """Return the product of both sides split into float16 halves; None if unsupported."""
        if triton_dispatch.fused(name, self.like) is None or self._halves is None:
            return None
        (product, expected, ready), self._expected = self._expected, NOTHING
        ready = ready if product == name and expected is factor else None
        X, scale = self._halves
        return triton_dispatch.attempt(name, X, X, factor, scale, ready)

    def expect(self, product: str, factor: AnyArray) -> None:
        if factor.is_cuda and triton_dispatch.fused("dot", factor) is not None and self._halves:
            X, scale = self._halves
            ready = triton_dispatch.attempt("prepare", X, product, X, factor, scale)
            self._expected = product, factor, ready

    def row_sq_residuals(self, V: AnyArray, U: AnyArray) -> AnyArray:
        found = None
        if V.is_cuda and self._halves is not None:
            args = (self._halves[0], V, U)
            with self.product("X - VUᵀ"):
                found = triton_dispatch.attempt("residuals", V, *args, k=V.shape[1])
        return super().row_sq_residuals(V, U) if found is None else found

    def _squared_rows(self) -> AnyArray:
        if not self.like.is_cuda:
            return super()._squared_rows()
        nothing = [self.like.new_zeros((m, 1)) for m in self.shape]
        return self.row_sq_residuals(*nothing)  # one fused pass

    def weighted(
        self, weights: AnyArray | None, index: AnyArray | None, n_rows: int
    ) -> DeviceDense:
        if weights is not None or index is None:
            return super().weighted(weights, index, n_rows)
        index = to_numpy(index)
        shared, sample = split_rows(index, n_rows)
        if not 0 < 2 * shared <= n_rows:
            return super().weighted(weights, index, n_rows)
        members = np.flatnonzero(index < shared)
        top = self.X.new_zeros((shared, self.shape[1]), dtype=torch.float64)
        for part in row_blocks(len(members), max(1, self.shape[1] // self.block_scale)):
            some = members[part]
            top.index_add_(0, self.rows(index[some]), self.X[self.rows(some)].double())
        made = StackedRows(self.made(top.to(self.X.dtype)), SomeRows(self, sample))
        return made.weighing(None, self.shape[0])

    def _even(self) -> list[slice]:
        """Return the rows in two slices: a multiple of WIDTH, which is fast, and the remainder."""
        n = self.shape[0]
        even = n - n % WIDTH
        return [part for part in (slice(0, even), slice(even, n)) if part.start < part.stop]

    def _fused(self, name: str, V: AnyArray, U: AnyArray) -> Any:
        """Return the product from one pass over X without large temporaries, if possible."""
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


class SomeRows(TorchData):
    """Selected rows of other data, in 16 bits if the other data is exact in 16 bits.

    Contiguous rows are a view. Others are copied on first use.
    """

    def __init__(self, base: TorchData, samples: Any) -> None:
        self.base, self.back, self.n = base, base.back, len(samples)
        run = slice(int(samples[0]), int(samples[0]) + self.n)
        in_order = np.array_equal(samples, np.arange(run.start, run.stop))
        self.samples = run if in_order else base.rows(samples)

    @property
    def like(self) -> AnyArray:
        return self.base.like

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return self.n, self.base.shape[1]

    @cached_property
    def X(self) -> Any:
        return self.base.X[self.samples]

    @cached_property
    def _halves(self) -> tuple[Any, float] | None:
        if self.base._halves is None:
            return None
        X, scale = self.base._halves
        return (X[self.samples] if X.dtype == torch.float16 else self.X), scale


class StackedRows(TorchData):
    """A few sums of rows, followed by rows of X; products treat the two separately.

    Therefore the rows of X are not copied and may stay in 16 bits, where sums are seldom exact.
    """

    def __init__(self, top: TorchData, rest: TorchData) -> None:
        self.top, self.rest, self.back = top, rest, rest.back
        self.shared = top.shape[0]

    @property
    def like(self) -> AnyArray:
        return self.top.X

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return self.shared + self.rest.shape[0], self.rest.shape[1]

    @cached_property
    def X(self) -> Any:
        """Matrix of the sums of rows and the rows of X, for nonlinear operations."""
        return torch.cat([self.top.X, self.rest.X])

    def dot(self, U: AnyArray) -> AnyArray:
        self._expected = NOTHING
        above, below = self.top.dot(U), self.rest.dot(U)
        return (
            torch.cat([above.t(), below.t()], dim=1).t() if U.is_cuda else torch.cat([above, below])
        )

    def tdot(self, V: AnyArray) -> AnyArray:
        (product, factor, below), self._expected = self._expected, NOTHING
        below = below if product == "tdot" and factor is V else V[self.shared :]
        return self.top.tdot(V[: self.shared]) + self.rest.tdot(below)

    def expect(self, product: str, factor: AnyArray) -> None:
        below = factor if product == "dot" else factor[self.shared :]
        self._expected = product, factor, below
        self.rest.expect(product, below)


def _is_half(X: AnyArray) -> bool:
    """Return True if every entry is exact in float16."""
    return bool((X.half().float() == X).all())


def _buffer(width: int, n: int, like: AnyArray) -> AnyArray:
    """Return an empty (width, n) tensor, aligned so that a GPU reads rows fast."""
    return like.new_empty((width, -(-n // WIDTH) * WIDTH))[:, :n]


def _wide(B: AnyArray) -> AnyArray:
    """Return Bᵀ, padded with zeros and aligned as products on a GPU need it."""
    (n, k), width = B.shape, max(32, -(-B.shape[1] // WIDTH) * WIDTH)
    if width == k and B.stride(0) == 1 and B.stride(1) % WIDTH == 0:
        return B.t()
    out = _buffer(width, n, B)
    out[:k] = B.t()
    out[k:] = 0
    return out


class TorchSparse(OnTensors, DeviceSparse):
    """Back end for PyTorch tensors in CSR format."""

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


def gaps(X: Any, missing: float, estimator_name: str) -> tuple[DataMatrix, DataMatrix, bool]:
    """Return X with zeros for missing entries, and a tensor with ones there."""
    X = X.detach()
    parts = None if X.layout == torch.strided else csr_parts(X.to_sparse_csr())
    checked = partial(check, estimator_name=estimator_name)
    return without_missing(X, parts, missing, lambda new: csr_tensor(*new), checked, as_torch_data)


def bring(a: Any, like: Any) -> TorchData | TorchSparse:
    """Convert an ndarray or CSR matrix to the device of a tensor."""
    return as_torch_data(move(a, str(like.device)).X)


BACK_END = BackEnd("torch tensors", "X.cpu().numpy()", check, as_torch_data, gaps=gaps, bring=bring)

__all__ = ["BACK_END", "TorchData", "TorchSparse", "as_torch_data", "memory_errors", "move"]
