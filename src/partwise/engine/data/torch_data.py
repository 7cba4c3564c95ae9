"""torch tensors, dense or CSR, on any device. Factors are tensors there too.

TF32 is off unless `allow_tf32` says otherwise: it is faster on recent GPUs and rounds the two
products with X to 10 bits of mantissa. k x k products always keep the full precision.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch

from partwise.engine import kernels_torch
from partwise.engine.arrays import NO_MEMORY, to_numpy
from partwise.engine.data.base import Swept
from partwise.engine.data.blocks import BLOCK_ENTRIES, row_blocks
from partwise.engine.numeric import Array, floor

#: On a GPU a CSR matrix with at least this share of non-zeros is multiplied faster as a dense one.
DENSE_FROM = 0.02
#: A GPU's matrix products run well at widths from 32 that this divides; zero columns fill up k.
WIDTH = 8
_tf32 = False
csr_tensor: Any = torch.sparse_csr_tensor


def allow_tf32(on: bool = True) -> None:
    """Let products with X use TF32 on GPUs that have it, from now on."""
    global _tf32
    _tf32 = on


@contextmanager
def _precision() -> Iterator[None]:
    """TF32 inside, if it is allowed; the user's own setting outside."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = _tf32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


@contextmanager
def memory_errors(what: str, device: Any) -> Iterator[None]:
    """An out-of-memory error that says where it happened and what helps."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise MemoryError(f"{device} has too little memory for {what}; {NO_MEMORY}") from error


def as_torch_data(X: Any, *, back: bool = False) -> TorchData:
    """Wrap a validated tensor; ``back`` returns results as ndarrays."""
    if X.layout == torch.strided:
        return TorchData(X, back=back)
    n, p = X.shape
    if X.is_cuda and X._nnz() >= DENSE_FROM * n * p:
        free, _ = torch.cuda.mem_get_info(X.device)
        if 3 * n * p * X.element_size() < free:
            return TorchData(X.to_dense(), back=back)
    return TorchSparse(X, back=back)


class TorchData(Swept):
    """A dense float32 or float64 tensor."""

    density = 1.0
    newton_sides = ""  # KL steps are multiplicative here, with extrapolation under "newton"

    def __init__(self, X: Any, *, back: bool = False) -> None:
        self.X, self.back = X, back

    @property
    def shape(self) -> tuple[int, int]:
        return tuple(self.X.shape)

    @cached_property
    def dtype(self) -> Any:
        return np.dtype(str(self.X.dtype).removeprefix("torch."))

    # -- where arrays live --------------------------------------------------------------------

    def rows(self, a: Array) -> Array:
        if not isinstance(a, torch.Tensor):
            a = torch.from_numpy(np.array(to_numpy(a)))
        a = a.to(self.X.device)
        # beside other tall arrays, see dot
        return a.t().contiguous().t() if a.is_cuda and a.ndim == 2 else a

    def small(self, a: Array) -> Array:
        return self.rows(a).contiguous()

    def constant_rows(self, row: Array) -> Array:
        return self.rows(row)[None, :].repeat(self.shape[0], 1)

    def operator(self, neighbors: Any) -> Any:
        return TorchNeighbors(neighbors, self)

    def mean_rows(self, shared: Any, V: Array) -> Array:
        index = self.rows(shared.index)
        sums = V.new_zeros((shared.n_rows, V.shape[1])).index_add_(0, index, V)
        counts = self.rows(shared.counts).to(V.dtype)[:, None]
        at = index[:, None].expand(V.shape)
        least, most = (
            V.new_zeros(sums.shape).scatter_reduce(0, at, V, how, include_self=False)
            for how in ("amin", "amax")
        )
        # rounding must not leave the range: equal rows stay equal
        return (sums / counts).clamp(least, most)

    def expand_rows(self, shared: Any, Z: Array) -> Array:
        return Z[self.rows(shared.index)]

    def result(self, a: Array) -> Array:
        return to_numpy(a) if self.back else a.contiguous()

    def sweeps(self, size: int, k: int) -> int:
        if not self.X.is_cuda or self.density < 1 or k <= 32:
            return super().sweeps(size, k)
        # A dense product takes as long as reading X, whatever k; sweeps take k² for each row,
        # and more than their share of time where there are few rows (the 600).
        return int(np.clip(1 + 0.6 * size / k**2, 1, min(10, 600 // k)))

    # -- products -----------------------------------------------------------------------------

    def _blocks(self) -> Any:
        # a GPU has room for larger temporaries, and needs them to be busy
        scale = 32 if self.X.is_cuda else 1
        n, p = self.shape
        return ((rows, self.X[rows]) for rows in row_blocks(n, max(1, p // scale)))

    # On a GPU tall arrays lie column by column, as the sweeps want them and as the products
    # read them fastest; their shapes and values are the same.

    def dot(self, U: Array) -> Array:
        with _precision(), memory_errors("X U", self.X.device):
            if not U.is_cuda:
                return self.X @ U
            padded = _wide(U)
            out = _buffer(padded.shape[0], self.shape[0], U)
            for rows in self._even():
                torch.mm(padded, self.X[rows].t(), out=out[:, rows])
            return out[: U.shape[1]].t()

    def tdot(self, V: Array) -> Array:
        with _precision(), memory_errors("Xᵀ V", self.X.device):
            if not V.is_cuda:
                return self.X.t() @ V
            padded = _wide(V)
            parts = [self.X[rows].t() @ padded[:, rows].t() for rows in self._even()]
            return sum(parts[1:], parts[0])[:, : V.shape[1]]

    def _even(self) -> list[slice]:
        """The rows, those beyond a number that a GPU's fast products take apart from the rest."""
        n = self.shape[0]
        even = n - n % WIDTH
        return [part for part in (slice(0, even), slice(even, n)) if part.start < part.stop]

    def _by_row(self, function: Any) -> Array:
        return torch.cat([function(rows, X) for rows, X in self._blocks()])

    def row_sq_norms(self) -> Array:
        return self._by_row(lambda _, X: X.double().square().sum(dim=1))

    def row_sums(self) -> Array:
        return self.X.sum(dim=1, dtype=torch.float64)

    def row_xlogx(self) -> Array:
        return self._by_row(lambda _, X: torch.xlogy(X.double(), X.double()).sum(dim=1))

    def row_sq_residuals(self, V: Array, U: Array) -> Array:
        return self._by_row(lambda rows, X: (X - V[rows] @ U.T).double().square_().sum(dim=1))

    def weighted(self, weights: Array | None, index: Array | None, n_rows: int) -> TorchData:
        X = self.X if weights is None else self.X * self.rows(weights).to(self.X.dtype)[:, None]
        if index is not None:
            where = self.rows(index)
            X = X.new_zeros((n_rows, X.shape[1])).index_add_(0, where, X)
        return TorchData(X, back=self.back)

    @cached_property
    def _low(self) -> float:
        mean = float(self.row_sums().sum()) / max(1, self.shape[0] * self.shape[1])
        return max(mean * (1e-30 if self.dtype == np.float64 else 1e-12), floor(self.dtype))

    def _ratio(self, X: Array, V: Array, U: Array) -> tuple[Array, Array]:
        Y = (V @ U.T).clamp_(min=self._low)
        return X / Y, Y

    def _fused(self, name: str, V: Array, U: Array) -> Any:
        """The product from one pass over X that stores nothing of its size, where there is one."""
        if self.X.dtype != torch.float32 or not self.X.is_contiguous():
            return None
        args = (self.X, V, U, self._low, _tf32)
        return kernels_torch.attempt(name, self.X, U.shape[1], *args)

    def kl_dot(self, V: Array, U: Array) -> tuple[Array, Array]:
        out, logs = [], []
        with _precision(), memory_errors("X / VUᵀ", self.X.device):
            found = self._fused("ratio_dot", V, U)
            if found is not None:
                return found
            for rows, X in self._blocks():
                R, Y = self._ratio(X, V[rows], U)
                out.append(R @ U)
                logs.append((X * Y.log_()).sum(dim=1, dtype=torch.float64))
        return torch.cat(out), torch.cat(logs)

    def kl_tdot(self, V: Array, U: Array) -> Array:
        out = torch.zeros_like(U)
        with _precision(), memory_errors("X / VUᵀ", self.X.device):
            found = self._fused("ratio_tdot", V, U)
            if found is not None:
                return found
            for rows, X in self._blocks():
                out += self._ratio(X, V[rows], U)[0].T @ V[rows]
        return out

    def kl_newton(self, *args: Any, **kwargs: Any) -> tuple[Array, Array]:
        raise NotImplementedError("tensors have no second-order sweeps; newton_sides says so")

    def beta_dot(self, V: Array, U: Array, beta: float) -> tuple[Array, Array, Array]:
        raise _only_two_losses(beta)

    def beta_tdot(self, V: Array, U: Array, beta: float) -> tuple[Array, Array]:
        raise _only_two_losses(beta)


def _buffer(width: int, n: int, like: Array) -> Array:
    """Room for (width, n) whose rows begin at places that a GPU reads fast from."""
    return like.new_empty((width, -(-n // WIDTH) * WIDTH))[:, :n]


def _wide(B: Array) -> Array:
    """Bᵀ with rows of zeros up to a number that a GPU's products like, on good places."""
    (n, k), width = B.shape, max(32, -(-B.shape[1] // WIDTH) * WIDTH)
    if width == k and B.stride(0) == 1 and B.stride(1) % WIDTH == 0:
        return B.t()
    out = _buffer(width, n, B)
    out[:k] = B.t()
    out[k:] = 0
    return out


def _only_two_losses(beta: float) -> ValueError:
    return ValueError(
        f"beta_loss={beta:g} needs X as a numpy or scipy array; tensors have 'frobenius' and "
        "'kullback-leibler'."
    )


class TorchSparse(TorchData):
    """A CSR tensor; the transpose is kept too once it is asked for."""

    @property
    def density(self) -> float:  # type: ignore[override]
        return self.X._nnz() / max(1, self.shape[0] * self.shape[1])

    @cached_property
    def _XT(self) -> Any:
        return self.X.to_sparse_coo().t().coalesce().to_sparse_csr()

    @cached_property
    def _row_of(self) -> Array:
        """The row of each non-zero."""
        crow = self.X.crow_indices()
        return torch.repeat_interleave(
            torch.arange(self.shape[0], device=crow.device), crow[1:] - crow[:-1]
        )

    @cached_property
    def _transposed(self) -> Array:
        """Position in X of each non-zero of Xᵀ."""
        n, p = self.shape
        order = torch.arange(self.X._nnz(), device=self.X.device, dtype=torch.float64)
        kept = csr_tensor(self.X.crow_indices(), self.X.col_indices(), order + 1, (n, p))
        return kept.to_sparse_coo().t().coalesce().values().long() - 1

    def _blocks(self) -> Any:
        X = self.X
        crow = X.crow_indices()
        for rows in row_blocks(*self.shape):
            lo, hi = int(crow[rows.start]), int(crow[rows.stop])
            part = csr_tensor(
                crow[rows.start : rows.stop + 1] - lo,
                X.col_indices()[lo:hi],
                X.values()[lo:hi],
                (rows.stop - rows.start, self.shape[1]),
            )
            yield rows, part.to_dense()

    def dot(self, U: Array) -> Array:
        with memory_errors("X U", self.X.device):
            return self.X @ U

    def tdot(self, V: Array) -> Array:
        with memory_errors("Xᵀ V", self.X.device):
            return self._XT @ V

    def _sums(self, values: Array) -> Array:
        zeros = torch.zeros(self.shape[0], dtype=torch.float64, device=values.device)
        return zeros.index_add_(0, self._row_of, values.double())

    def row_sq_norms(self) -> Array:
        return self._sums(self.X.values().double().square())

    def row_sums(self) -> Array:
        return self._sums(self.X.values())

    def row_xlogx(self) -> Array:
        x = self.X.values().double()
        return self._sums(torch.xlogy(x, x))

    def weighted(self, weights: Array | None, index: Array | None, n_rows: int) -> TorchData:
        x, rows = self.X.values(), self._row_of
        if weights is not None:
            x = x * self.rows(weights).to(x.dtype)[rows]
        if index is None:
            n_rows = self.shape[0]
        else:
            rows = self.rows(index)[rows]
        at = torch.stack([rows, self.X.col_indices().long()])
        X = torch.sparse_coo_tensor(at, x, (n_rows, self.shape[1])).coalesce().to_sparse_csr()
        return TorchSparse(X, back=self.back)

    def _products(self, V: Array, U: Array) -> Array:
        """VUᵀ at the non-zeros, in pieces so that nothing of size nnz x k is stored."""
        columns = self.X.col_indices()
        y = torch.empty_like(self.X.values())
        step = max(1, (32 if V.is_cuda else 1) * BLOCK_ENTRIES // V.shape[1])
        for lo in range(0, y.shape[0], step):
            hi = lo + step
            y[lo:hi] = (V[self._row_of[lo:hi]] * U[columns[lo:hi]]).sum(dim=1)
        return y.clamp_(min=self._low)

    def kl_dot(self, V: Array, U: Array) -> tuple[Array, Array]:
        with memory_errors("X / VUᵀ", self.X.device):
            y, x = self._products(V, U), self.X.values()
            R = csr_tensor(self.X.crow_indices(), self.X.col_indices(), x / y, self.shape)
            return R @ U, self._sums(x * y.log())

    def kl_tdot(self, V: Array, U: Array) -> Array:
        with memory_errors("X / VUᵀ", self.X.device):
            ratio = (self.X.values() / self._products(V, U))[self._transposed]
            XT = self._XT
            R = csr_tensor(XT.crow_indices(), XT.col_indices(), ratio, XT.shape)
            return R @ V


class TorchNeighbors:
    """W Z on tensors, with the cliques of labels implicit as in `terms.Neighbors`."""

    def __init__(self, neighbors: Any, data: TorchData) -> None:
        W = neighbors.W
        self.W = csr_tensor(
            *(torch.from_numpy(np.asarray(a, dtype=np.int64)) for a in (W.indptr, W.indices)),
            torch.from_numpy(np.array(W.data)),
            W.shape,
        ).to(data.X.device)
        self.weight = neighbors.weight
        self.codes = None
        if neighbors.members is not None:
            self.codes, self.mask = data.rows(neighbors.codes), data.rows(neighbors.mask)
            self.n_classes = neighbors.members.shape[0]

    def __call__(self, Z: Array) -> Array:
        # rows in one piece are gathered fastest; what comes back lies as Z does
        out = self.W @ Z.contiguous()
        if not Z.is_contiguous():
            out = out.t().contiguous().t()
        if self.codes is not None:
            own = Z[self.mask]
            sums = Z.new_zeros((self.n_classes, Z.shape[1])).index_add_(0, self.codes, own)
            out[self.mask] += float(self.weight) * (sums[self.codes] - own)
        return out


__all__ = ["TorchData", "TorchSparse", "allow_tf32", "as_torch_data", "memory_errors"]
