"""Dense and CSR matrices of any library with the array API; factors stay on their device.

The products use functions of the array API standard. The module of each library adds functions that
the standard lacks (`OnDevice.sums`, `OnDevice.csr`), and replaces functions that the library can
compute faster.
"""

from __future__ import annotations

import operator
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import numpy as np

from partwise.backends import arrays
from partwise.backends.arrays import (
    AnyArray,
    cast,
    contiguous,
    float64,
    namespace,
    numpy_dtype,
    row_blocks,
    to_numpy,
)
from partwise.backends.curvature import of_pairs
from partwise.backends.data_matrix import DataMatrix, Swept, check_values
from partwise.backends.numpy.float64_products import DoubleProducts, double_products
from partwise.backends.threads import cached_property

#: Size of blocks of rows on a GPU, relative to those on a CPU. Small blocks would leave a GPU
#: partly idle.
GPU_BLOCKS = 32
#: Largest k for which second-order steps for the KL loss were faster, measured with torch.
NARROW = 32


class Csr(NamedTuple):
    """The three arrays of a CSR matrix."""

    indptr: AnyArray
    indices: AnyArray
    values: AnyArray
    shape: tuple[int, int]

    @property
    def row_of(self) -> AnyArray:
        """The row of each non-zero entry."""
        xp = namespace(self.values)
        at = xp.arange(self.values.shape[0], dtype=self.indptr.dtype, device=self.indptr.device)
        return xp.searchsorted(self.indptr, at, side="right") - 1


class DeviceNeighbors:
    """Product Z -> W Z with a neighbour graph W, for arrays on a device.

    As in `graph_terms.Neighbors`, edges between samples of one class are not stored.
    """

    gathered = None

    def __init__(self, neighbors: Any, data: OnDevice) -> None:
        W = neighbors.W
        parts = (np.asarray(W.indptr, np.int64), np.asarray(W.indices, np.int64), np.array(W.data))
        indptr, indices, values = (data.rows(a) for a in parts)
        self.parts = Csr(indptr, indices, values, W.shape)
        self.W = data.csr(self.parts)
        self.data, self.weight, self.codes = data, neighbors.weight, None
        self.here = neighbors if getattr(data.like.device, "type", None) == "cpu" else None
        if neighbors.members is not None:
            members = np.flatnonzero(neighbors.mask)
            self.codes, self.mask = data.rows(neighbors.codes), data.rows(members)
            self.n_classes = neighbors.members.shape[0]

    @property
    def edges(self) -> Csr | None:
        return self.parts if self.codes is None else None

    def __call__(self, Z: AnyArray) -> AnyArray:
        out = self.data.multiply(self.W, Z)
        if self.codes is not None:
            own = Z[self.mask]
            sums = self.data.sums(self.codes, own, self.n_classes)
            out[self.mask] += float(self.weight) * (sums[self.codes] - own)
        return out

    def laplacian(self, Z: AnyArray) -> AnyArray:
        """Return (D - W) Z, where D holds the degrees of the graph.

        To avoid cancellation, it is computed from differences of rows or in double precision.
        """
        if self.here is not None:
            return self.data.rows(self.here.laplacian(to_numpy(Z)))
        found = self.data.differences(self.parts, Z)
        if found is not None and self.codes is None:
            return found
        wide = contiguous(float64(Z))
        out = self._degrees[:, None] * wide - self.data.multiply(self._double, wide)
        if self.codes is not None:
            own = wide[self.mask]
            sums = self.data.sums(self.codes, own, self.n_classes)
            counts = self.data.sums(self.codes, namespace(own).ones_like(own), self.n_classes)
            out[self.mask] += float(self.weight) * (counts[self.codes] * own - sums[self.codes])
        return cast(out, Z.dtype)

    @cached_property
    def _double(self) -> Any:
        return self.data.csr(self.parts._replace(values=float64(self.parts.values)))

    @cached_property
    def _degrees(self) -> AnyArray:
        return self.data.sums(self.parts.row_of, float64(self.parts.values), self.parts.shape[0])


class OnDevice(Swept):
    """Base class that moves arrays to the device and library of X."""

    newton_sides, curved = "VU", "VU"
    shape: tuple[int, int]
    like: AnyArray  # a dense array of the library, on the device
    back: bool  # whether results are returned as ndarrays

    @property
    def block_scale(self) -> int:
        """Size of the blocks of rows, relative to that on a CPU."""
        return 1

    def newton_pays(self, k: int) -> bool:
        return k <= NARROW  # curvature takes k/2 times the arithmetic of a multiplicative step

    def differences(self, W: Csr, Z: AnyArray) -> AnyArray | None:
        """Return Σ_j w_ij (z_i - z_j) for each row i; None without a kernel for it."""
        return None

    # -- functions that the standard lacks ----------------------------------------------------

    @abstractmethod
    def sums(self, index: AnyArray, values: AnyArray, n_rows: int) -> AnyArray:
        """Return sums (n_rows, ...) of the entries of ``values`` by row ``index``."""

    @abstractmethod
    def csr(self, parts: Csr) -> Any:
        """Return a sparse matrix with ``@``."""

    def multiply(self, W: Any, Z: AnyArray) -> AnyArray:
        """Return W Z for a matrix that `csr` made."""
        return W @ Z

    def product(self, what: str) -> AbstractContextManager[None]:
        """Return a context for a product with X, in which out-of-memory errors name the product."""
        return nullcontext()

    # -- placement ------------------------------------------------------------------------------

    def rows(self, a: AnyArray) -> AnyArray:
        if namespace(a) is np:
            a = namespace(self.like).asarray(a, device=self.like.device)
        return a

    def small(self, a: AnyArray) -> AnyArray:
        return contiguous(self.rows(a))

    def constant_rows(self, row: AnyArray) -> AnyArray:
        row = self.rows(row)
        return namespace(row).tile(row[None, :], (self.shape[0], 1))

    def operator(self, neighbors: Any) -> Callable[[AnyArray], AnyArray]:
        return DeviceNeighbors(neighbors, self)

    def mean_rows(self, shared: Any, V: AnyArray) -> AnyArray:
        index = self.rows(shared.index)
        counts = cast(self.rows(shared.counts), V.dtype)[:, None]
        last = np.zeros(shared.n_rows, dtype=np.int64)
        last[shared.index] = np.arange(len(shared.index))
        # The mean of differences from one sample is exactly zero for equal rows, so equal rows stay
        # equal.
        some = V[self.rows(last)]
        mean = some + self.sums(index, V - some[index], shared.n_rows) / counts
        return namespace(V).maximum(mean, 0)

    def expand_rows(self, shared: Any, Z: AnyArray) -> AnyArray:
        return Z[self.rows(shared.index)]

    def result(self, a: AnyArray) -> AnyArray:
        return to_numpy(a) if self.back else contiguous(a)


def _unchanged(B: AnyArray) -> AnyArray:
    return B


class DeviceDense(OnDevice):
    """Base class of back ends for dense float32 or float64 arrays on a device."""

    density = 1.0

    def __init__(self, X: Any, *, back: bool = False) -> None:
        self.X, self.back = X, back

    @property
    def like(self) -> AnyArray:
        return self.X

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return tuple(self.X.shape)

    @property
    def dtype(self) -> Any:
        return numpy_dtype(self.like.dtype)

    def whole(self) -> Any:
        return self.X

    def made(self, X: Any) -> DeviceDense:
        """Return X as an object of this class, with the same settings."""
        return type(self)(X, back=self.back)

    def _blocks(self) -> Iterator[tuple[slice, AnyArray]]:
        n, p = self.shape
        return ((rows, self.X[rows]) for rows in row_blocks(n, max(1, p // self.block_scale)))

    def dot(self, U: AnyArray) -> AnyArray:
        with self.product("X U"):
            return self.X @ U

    def tdot(self, V: AnyArray) -> AnyArray:
        with self.product("Xᵀ V"):
            return self.X.T @ V

    def _by_row(self, function: Callable[[slice, AnyArray], AnyArray]) -> AnyArray:
        parts = [function(rows, X) for rows, X in self._blocks()]
        return namespace(parts[0]).concat(parts)

    def row_sq_norms(self) -> AnyArray:
        return self._sq_norms

    @cached_property
    def _sq_norms(self) -> AnyArray:
        return self._squared_rows()

    def _squared_rows(self) -> AnyArray:
        return self._by_row(lambda _, X: (float64(X) ** 2).sum(axis=1))

    def row_sums(self) -> AnyArray:
        return self._by_row(lambda _, X: float64(X).sum(axis=1))

    def row_xlogx(self) -> AnyArray:
        return self._by_row(lambda _, X: xlogx(X).sum(axis=1))

    def row_sq_residuals(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self._by_row(lambda rows, X: (float64(X - V[rows] @ U.T) ** 2).sum(axis=1))

    def weighted(
        self, weights: AnyArray | None, index: AnyArray | None, n_rows: int
    ) -> DeviceDense:
        X = self.X
        if weights is not None:
            X = X * cast(self.rows(weights), X.dtype)[:, None]
        made = self.made(X if index is None else self.sums(self.rows(index), X, n_rows))
        return made.weighing(weights, self.shape[0])

    @cached_property
    def _low(self) -> float:
        return self.model_floor(self.row_sums(), self.shape[1])

    def _modelled(self, V: AnyArray, U: AnyArray) -> AnyArray:
        Y = V @ U.T
        return namespace(Y).maximum(Y, self._low)

    def kl_dot(self, V: AnyArray, U: AnyArray) -> tuple[AnyArray, AnyArray]:
        xp, out, logs = namespace(U), [], []
        with self.product("X / VUᵀ"):
            for rows, X in self._blocks():
                Y = self._modelled(V[rows], U)
                out.append((X / Y) @ U)
                logs.append(xp.sum(X * xp.log(Y), axis=1, dtype=xp.float64))
            return xp.concat(out), xp.concat(logs)

    def _product(self, make: Any, V: AnyArray, U: AnyArray, of: Any = _unchanged) -> AnyArray:
        """Return R B with R = make(X, VUᵀ) and B = of(U), one block of rows at a time."""
        B = of(U)
        with self.product("a product with VUᵀ"):
            return namespace(B).concat([make(X, V[rows] @ U.T) @ B for rows, X in self._blocks()])

    def _tproduct(self, make: Any, V: AnyArray, U: AnyArray, of: Any = _unchanged) -> AnyArray:
        """Return Rᵀ C with R = make(X, VUᵀ) and C = of(V), one block of rows at a time."""
        total: Any = 0
        with self.product("a product with VUᵀ"):
            for rows, X in self._blocks():
                total = total + make(X, V[rows] @ U.T).T @ of(V[rows])
        return total

    def _ratio(self, x: AnyArray, y: AnyArray) -> AnyArray:
        return x / namespace(y).maximum(y, self._low)

    def _bend(self, x: AnyArray, y: AnyArray) -> AnyArray:
        y = namespace(y).maximum(y, self._low)
        return x / y / y

    def kl_tdot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self._tproduct(self._ratio, V, U)

    def times_dot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self._product(operator.mul, V, U)

    def times_tdot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self._tproduct(operator.mul, V, U)

    def times_squares(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self._by_row(lambda rows, X: float64(X * (V[rows] @ U.T) ** 2).sum(axis=1))

    def kl_newton(self, *args: Any, **kwargs: Any) -> tuple[AnyArray, AnyArray]:
        raise NotImplementedError("a device has no sweeps over rows; check `curved` first")

    def kl_curvature(self, V: AnyArray, U: AnyArray, transposed: bool) -> AnyArray:
        return (self._tproduct if transposed else self._product)(self._bend, V, U, of_pairs)


class DeviceSparse(DeviceDense):
    """Base class of back ends for CSR matrices on a device.

    The matrix has no duplicates. Its transpose is stored on first use.
    """

    parts: Csr

    @property
    def like(self) -> AnyArray:
        return self.parts.values

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return self.parts.shape

    @property
    def density(self) -> float:  # type: ignore[override]
        return float(self.parts.values.shape[0] / max(1, self.shape[0] * self.shape[1]))

    @cached_property
    def _row_of(self) -> AnyArray:
        return self.parts.row_of

    @cached_property
    def _by_column(self) -> AnyArray:
        """Position in X of each non-zero entry of its transpose."""
        return namespace(self.like).argsort(self.parts.indices, stable=True)

    @cached_property
    def _XT_parts(self) -> Csr:
        order, columns = self._by_column, self.parts.indices
        xp, (n, p) = namespace(columns), self.shape
        bounds = xp.arange(p + 1, dtype=columns.dtype, device=columns.device)
        starts = cast(xp.searchsorted(columns[order], bounds), self.parts.indptr.dtype)
        rows = cast(self._row_of[order], columns.dtype)
        return Csr(starts, rows, self.parts.values[order], (p, n))

    @cached_property
    def _XT(self) -> Any:
        return self.csr(self._XT_parts)

    def dot(self, U: AnyArray) -> AnyArray:
        with self.product("X U"):
            return self.multiply(self.X, U)

    def tdot(self, V: AnyArray) -> AnyArray:
        with self.product("Xᵀ V"):
            return self.multiply(self._XT, V)

    def _sums(self, values: AnyArray) -> AnyArray:
        return self.sums(self._row_of, float64(values), self.shape[0])

    def row_sq_norms(self) -> AnyArray:
        return self._sums(float64(self.parts.values) ** 2)

    def row_sums(self) -> AnyArray:
        return self._sums(self.parts.values)

    def row_xlogx(self) -> AnyArray:
        return self._sums(xlogx(self.parts.values))

    def row_sq_residuals(self, V: AnyArray, U: AnyArray) -> AnyArray:
        indptr, indices, values, (n, p) = self.parts
        out = []
        for rows in row_blocks(n, max(1, p // self.block_scale)):
            lo, hi = int(indptr[rows.start]), int(indptr[rows.stop])
            Y = V[rows] @ U.T
            Y[self._row_of[lo:hi] - rows.start, indices[lo:hi]] -= values[lo:hi]
            out.append((float64(Y) ** 2).sum(axis=1))
        return namespace(values).concat(out)

    def weighted(
        self, weights: AnyArray | None, index: AnyArray | None, n_rows: int
    ) -> DeviceDense:
        indptr, indices, x, (n, p) = self.parts
        if weights is not None:
            x = x * cast(self.rows(weights), x.dtype)[self._row_of]
        if index is None:
            return self.made(self.csr(Csr(indptr, indices, x, (n, p)))).weighing(weights, n)
        xp, rows = namespace(x), self.rows(index)[self._row_of]
        places, which = xp.unique_inverse(cast(rows, np.int64) * p + cast(indices, np.int64))
        x = self.sums(which, x, places.shape[0])
        bounds = xp.arange(n_rows + 1, dtype=xp.int64, device=x.device) * p
        starts = cast(xp.searchsorted(places, bounds), indptr.dtype)
        made = self.made(self.csr(Csr(starts, cast(places % p, indices.dtype), x, (n_rows, p))))
        return made.weighing(weights, n)

    def _modelled(self, V: AnyArray, U: AnyArray) -> AnyArray:
        y = self._at_entries(V, U)
        return namespace(y).maximum(y, self._low)

    def _at_entries(self, V: AnyArray, U: AnyArray) -> AnyArray:
        """Return VUᵀ at the non-zeros, in pieces to avoid a temporary array of size nnz x k."""
        xp, columns = namespace(U), self.parts.indices
        y = xp.empty_like(self.parts.values)
        step = max(1, self.block_scale * arrays.BLOCK_ENTRIES // V.shape[1])
        for lo in range(0, y.shape[0], step):
            hi = lo + step
            y[lo:hi] = (V[self._row_of[lo:hi]] * U[columns[lo:hi]]).sum(axis=1)
        return y

    def kl_dot(self, V: AnyArray, U: AnyArray) -> tuple[AnyArray, AnyArray]:
        with self.product("X / VUᵀ"):
            y, x = self._modelled(V, U), self.parts.values
            R = self.csr(self.parts._replace(values=x / y))
            return self.multiply(R, U), self._sums(x * namespace(y).log(y))

    def _product(self, make: Any, V: AnyArray, U: AnyArray, of: Any = _unchanged) -> AnyArray:
        with self.product("a product with VUᵀ"):
            values = make(self.parts.values, self._at_entries(V, U))
            return self.multiply(self.csr(self.parts._replace(values=values)), of(U))

    def _tproduct(self, make: Any, V: AnyArray, U: AnyArray, of: Any = _unchanged) -> AnyArray:
        with self.product("a product with VUᵀ"):
            values = make(self.parts.values, self._at_entries(V, U))[self._by_column]
            return self.multiply(self.csr(self._XT_parts._replace(values=values)), of(V))

    def times_squares(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self._sums(self.parts.values * self._at_entries(V, U) ** 2)


class _DoubleSparse(DoubleProducts):
    """A float32 CSR matrix; each product converts the values to float64."""

    def _product(self, parts: Csr, factor: AnyArray) -> AnyArray:
        base: Any = self.base
        return base.multiply(base.csr(parts._replace(values=float64(parts.values))), factor)

    def dot(self, U: AnyArray) -> AnyArray:
        return self._product(self.base.parts, U)  # type: ignore[attr-defined]

    def tdot(self, V: AnyArray) -> AnyArray:
        return self._product(self.base._XT_parts, V)  # type: ignore[attr-defined]


@double_products.register
def _(data: DeviceSparse) -> Any:
    return data if data.dtype == np.float64 else _DoubleSparse(data)


def xlogx(X: AnyArray) -> AnyArray:
    """Return x log x in float64, with 0 log 0 = 0."""
    X, xp = float64(X), namespace(X)
    return X * xp.log(xp.where(X > 0, X, 1.0))


def without_missing(
    X: Any,
    parts: Csr | None,
    missing: float,
    csr: Callable[[Csr], Any],
    check: Callable[[Any], Any],
    wrap: Callable[[Any], DataMatrix],
) -> tuple[DataMatrix, DataMatrix, bool]:
    """Return X with zeros for missing entries, a matrix of marks, and their meaning.

    The third result is True if the observed entries are marked, False if the missing ones are.
    ``parts`` are the arrays of a CSR matrix, or None for a dense X. The last three arguments are
    functions that make a CSR matrix, check X, and wrap X as a back end.
    """
    values = X if parts is None else parts.values
    hidden, xp = arrays.is_missing(values, missing), namespace(values)
    kept = xp.where(hidden, xp.zeros_like(values), values)
    if parts is None:
        X = check(kept)
        return wrap(X), wrap(cast(hidden, X.dtype)), False
    X = check(csr(parts._replace(values=kept)))
    places = cast(~hidden if missing == 0 else hidden, X.dtype)
    return wrap(X), wrap(csr(parts._replace(values=places))), missing == 0


def check_csr(parts: Csr, estimator_name: str) -> None:
    """Raise ValueError if a CSR matrix contains NaN, infinity or a negative value."""

    def place(at: int) -> tuple[int, int]:
        return int(parts.row_of[at]), int(parts.indices[at])

    check_values(parts.values, estimator_name, place)
