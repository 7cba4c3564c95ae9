"""Dask arrays of dense or sparse chunks of rows; V stays next to its rows of X.

With a `distributed` client, the workers keep X, and the tasks of a block run on the worker that
holds it. Each worker receives U and returns one sum of shape (p, k) or (k, k). Without a client,
Dask's threads compute each chunk in every pass; ``X.persist()`` keeps chunks that fit in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import dask
import dask.array as da
import numpy as np
import scipy.sparse as sp

from partwise.backends import arrays
from partwise.backends.arrays import AnyArray, to_numpy
from partwise.backends.dask import dask_blocks as beside
from partwise.backends.dask.dask_runners import Threads, Workers, current_client
from partwise.backends.dask.row_blocks import RowLayout, Rows
from partwise.backends.data_matrix import BackEnd, DataMatrix, Swept, Weighed, check_values
from partwise.backends.numpy import blocks
from partwise.backends.numpy.dense import DenseData
from partwise.backends.numpy.float64_products import double_products
from partwise.backends.numpy.sparse import SparseData
from partwise.backends.threads import cached_property

#: Chunks with fewer entries are joined: the overhead of a task equals a product with this many.
SMALL_BLOCK = 4_000_000
#: Number of pairs of parts whose curvature is summed over the blocks at a time. Each block holds
#: this many numbers per feature.
PAIRS = 512
#: Assumed ratio between the number of all entries of a sparse chunk and that of its stored entries.
SPARSE_SHARE = 50
#: Up to this many bytes, V is copied to the client after a fit, so that it is kept when the cluster
#: ends. A larger V stays on the workers, each block on two of them.
BROUGHT = 2**28


def look(X: Any) -> None:
    """Raise unless X is a Dask array of real numbers with a known shape."""
    if not isinstance(X, da.Array):
        raise TypeError(
            f"X must be a Dask array, got a Dask {type(X).__name__}; convert a DataFrame with "
            "X.to_dask_array(lengths=True)."
        )
    if any(np.isnan(size) for sizes in X.chunks for size in sizes):
        raise ValueError("X has chunks of unknown size; call X.compute_chunk_sizes() first.")
    if X.dtype.kind not in "fiubc":
        raise ValueError(f"X must hold numbers, got dtype {X.dtype}; use X.astype(float).")


def check_dask(X: Any, estimator_name: str) -> DaskData:
    """Wrap a Dask array; raise if a chunk has NaN or a negative entry, and name its place."""
    return check_blocks(as_dask_data(X), estimator_name)


def check_blocks(data: DaskData, estimator_name: str) -> DaskData:
    problem = data.blocks.reduce(
        _problem, data.blocks, data.index_rows(), estimator_name, combine=_first
    )
    if problem is None:
        return data
    row, message = problem
    chunk = int(np.searchsorted(np.cumsum(data.chunks), row, side="right"))
    raise ValueError(f"{message} The row is in row chunk {chunk}.")


def gaps(X: Any, missing: float, estimator_name: str) -> tuple[DataMatrix, DataMatrix, bool]:
    """Return X with zeros for missing entries, and blocks of ones at those entries."""
    data = as_dask_data(X)
    seen = missing == 0 and _is_sparse(X._meta)
    both = (
        data.blocks.map(f, data.blocks, missing, like=0).derived()
        for f in (beside.kept, beside.places)
    )
    base, places = (DaskData(made, data.p, data.dtype, data.chunks) for made in both)
    return check_blocks(base, estimator_name), places, seen


def weighed(X: Any, W: Any, missing: float | None) -> Weighed:
    """Apply weights W, an array of this process, to the blocks of X."""
    data = as_dask_data(X)
    W = np.asarray(W.toarray() if sp.issparse(W) else W, dtype=data.dtype)
    given, d = data.rows(W), W.max(axis=1)
    top = data.rows(d)
    made = (
        data.blocks.map(function, data.blocks, *more, missing, like=0).derived()
        for function, more in ((beside.times, (given,)), (beside.short, (given, top)))
    )
    base, lack = (DaskData(blocks_, data.p, data.dtype, data.chunks) for blocks_ in made)
    sums = data.blocks.map(beside.sums, data.blocks, given, missing, like=np.empty((0, 2)))
    squares, logs = to_numpy(sums).T
    return Weighed(base, lack, d, squares, logs)


def as_dask_data(X: Any) -> DaskData:
    """Wrap X with one chunk across the columns; runs of small chunks become one block."""
    dtype = X.dtype if X.dtype in (np.float32, np.float64) else np.dtype(np.float64)
    if X.numblocks[1] > 1:
        X = X.rechunk({1: -1})
    client = current_client()
    runner: Any = Threads() if client is None else Workers(client)
    chunks, pieces = X.chunks[0], X.to_delayed()[:, 0]
    n, p = X.shape
    runner.plan(X, 0.0 if client is None else _row_bytes(X, dtype, client))
    least = SMALL_BLOCK * (SPARSE_SHARE if _is_sparse(X._meta) else 1)
    least = 0 if runner.short else min(least, -(-n // runner.threads) * p)
    runs = merged(chunks, p, least)
    wrap = dask.delayed(_wrap, pure=False)
    calls = [wrap([pieces[i] for i in run], dtype) for run in runs]
    layout = RowLayout([sum(int(chunks[i]) for i in run) for run in runs], runner)
    handles = runner.keep(calls)
    return DaskData(Rows.of(layout, handles, None), X.shape[1], dtype, chunks)


def _row_bytes(X: Any, dtype: Any, client: Any) -> float:
    """Return the bytes of a row of X; for sparse chunks, from the first chunk."""
    if not _is_sparse(X._meta):
        return float(X.shape[1] * dtype.itemsize)
    first = client.compute(dask.delayed(_stored)(X.to_delayed()[0, 0])).result()
    return float(first * (dtype.itemsize + 4) / max(1, X.chunks[0][0]))


def _stored(chunk: Any) -> int:
    return int(chunk.nnz)


def merged(sizes: Sequence[int], p: int, least: int) -> list[list[int]]:
    """Join neighbouring chunks until they have ``least`` entries; larger ones stay alone."""
    runs: list[list[int]] = []
    open_rows = 0
    for i, size in enumerate(sizes):
        if not runs or size * p >= least or open_rows * p >= least:
            runs.append([])
            open_rows = 0
        runs[-1].append(i)
        open_rows += size
    return runs


def _is_sparse(chunk: Any) -> bool:
    return sp.issparse(chunk) or hasattr(chunk, "tocsr")  # chunks of `sparse` have it


def _wrap(chunks: list[Any], dtype: Any) -> DenseData:
    if any(_is_sparse(chunk) for chunk in chunks):
        rows = [sp.csr_array(chunk.tocsr()) for chunk in chunks]
        X = rows[0] if len(rows) == 1 else sp.csr_array(sp.vstack(rows))
        X = X.astype(dtype, copy=X is rows[0] and not X.has_canonical_format)
        X.sum_duplicates()
        return SparseData(X)
    parts = [np.asarray(chunk, dtype=dtype) for chunk in chunks]
    return DenseData(parts[0] if len(parts) == 1 else np.concatenate(parts))


def _problem(block: Any, rows: AnyArray, estimator_name: str) -> Any:
    """Return a row with an invalid entry, and the message of the error; None if there is none."""
    X, found = block.X, []
    sparse = sp.issparse(X)

    def place(at: int) -> tuple[int, int]:
        row = int(np.searchsorted(X.indptr, at, side="right")) - 1 if sparse else at // X.shape[1]
        found.append(int(rows[row]))
        return found[0], int(X.indices[at]) if sparse else at % X.shape[1]

    try:
        check_values(X.data if sparse else X, estimator_name, place)
    except ValueError as error:
        return found[0], str(error)
    return None


def _first(shares: list[Any]) -> Any:
    return next((share for share in shares if share is not None), None)


class DaskData(Swept):
    """X as blocks of rows; the factor V is `Rows` of the same layout."""

    newton_sides, curved = "VU", "U"  # no block has whole columns, so blocks sum their Hessians

    def __init__(
        self, blocks: Rows, p: int, dtype: Any, chunks: Sequence[int] | None = None
    ) -> None:
        self.blocks, self.layout, self.p, self.dtype = blocks, blocks.layout, p, dtype
        #: Numbers of rows in the chunks of the user's X; results have the same chunks.
        self.chunks = tuple(self.layout.sizes if chunks is None else chunks)
        self.room_checked = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.layout.n, self.p

    @cached_property
    def density(self) -> float:  # type: ignore[override]
        entries = float(self.blocks.reduce(beside.entries, self.blocks))
        return entries / max(1, self.shape[0] * self.p)

    # -- placement of arrays ------------------------------------------------------------------

    def rows(self, a: AnyArray) -> AnyArray:
        if isinstance(a, Rows) or (a.shape[0] == 1 and self.shape[0] != 1):
            return a
        parts = [np.ascontiguousarray(part) for part in self.layout.split(a)]
        handles = self.layout.runner.place(parts, self.layout.first)
        return Rows.of(self.layout, handles, np.asarray(a)[:0])

    def small(self, a: AnyArray) -> AnyArray:
        return a

    def index_rows(self) -> AnyArray:
        return self.rows(np.arange(self.shape[0]))

    def constant_rows(self, row: AnyArray) -> AnyArray:
        sizes = [np.empty((size, 0), dtype=row.dtype) for size in self.layout.sizes]
        empty = Rows.of(
            self.layout, self.layout.runner.place(sizes, self.layout.first), sizes[0][:0]
        )
        return empty.map(beside.repeat, empty, row)

    def operator(self, neighbors: Any) -> Any:
        return GatheredNeighbors(neighbors, self.rows)

    def mean_rows(self, shared: Any, V: AnyArray) -> AnyArray:
        layout = self._summed(shared.index, shared.n_rows)
        count = layout.sizes[0]
        index = self.rows(shared.index)
        sums = V.reduce(beside.head_sums, V, index, count)
        head = (sums / shared.counts[:count, None]).astype(V.dtype)
        rest = V.map(beside.tail, V, index, count)
        first = layout.runner.place([head], 0)
        return Rows.of(layout, first + rest.handles(), V.meta)

    def _summed(self, index: AnyArray, n_rows: int) -> RowLayout:
        """Return the layout of AᵀX: the rows shared by several samples, then all others."""
        count, _ = blocks.split_rows(index, n_rows)
        rest = [int((part >= count).sum()) for part in self.layout.split(index)]
        return RowLayout([count, *rest], self.layout.runner, first=1)

    def expand_rows(self, shared: Any, Z: AnyArray) -> AnyArray:
        count, handles = Z.layout.sizes[0], Z.handles()
        head = self.layout.runner.fetch(handles[:1])[0]
        rest = Rows.of(self.layout, handles[1:], Z.meta)
        index = self.rows(shared.index)
        return rest.map(beside.join, rest, index, head, count, like=Z.meta).settle()

    def result(self, a: AnyArray) -> AnyArray:
        if not isinstance(a, Rows):
            return a
        handles, chunks = a.handles(), (self.chunks, *a.shape[1:])
        if int(np.prod(a.shape)) * a.dtype.itemsize <= BROUGHT:
            V = np.concatenate(self.layout.runner.fetch(handles))
            return da.from_array(V, chunks=chunks, name=False)
        self.layout.runner.secure(handles)
        parts = [
            da.from_delayed(dask.delayed(handle), (size, *a.shape[1:]), a.dtype)
            for handle, size in zip(handles, self.layout.sizes, strict=True)
        ]
        return da.concatenate(parts).rechunk(chunks)

    # -- products -----------------------------------------------------------------------------

    def dot(self, U: AnyArray) -> AnyArray:
        if not self.room_checked:
            self.layout.runner.check_room(self.shape[0], U.shape[1] * self.dtype.itemsize)
            self.room_checked = True
        return self._rows(beside.call, "dot", U, width=U.shape[1])

    def _rows(self, function: Any, *args: Any, width: int | None = None, dtype: Any = None) -> Rows:
        shape = (0,) if width is None else (0, width)
        return self.blocks.map(
            function, self.blocks, *args, like=np.empty(shape, dtype or self.dtype)
        )

    def tdot(self, V: AnyArray) -> AnyArray:
        if not isinstance(V, Rows) or V.node.gram is not None:
            return self.blocks.reduce(beside.tdot, self.blocks, V)
        # A step that needs XᵀV needs VᵀV next; computing both together saves a task per block.
        both = self.blocks.reduce(beside.tdot_gram, self.blocks, V)
        V.node.gram = np.ascontiguousarray(both[self.p :], dtype=V.dtype)
        return np.ascontiguousarray(both[: self.p])

    def row_sq_norms(self) -> AnyArray:
        return self._rows(beside.call, "row_sq_norms", dtype=np.float64)

    def row_sums(self) -> AnyArray:
        return self._rows(beside.call, "row_sums", dtype=np.float64)

    def row_xlogx(self) -> AnyArray:
        return self._rows(beside.call, "row_xlogx", dtype=np.float64)

    def row_sq_residuals(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self._rows(beside.call, "row_sq_residuals", V, U, dtype=np.float64)

    def row_divergences(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self._rows(beside.call, "row_divergences", V, U, dtype=np.float64)

    def row_powers(self, beta: float) -> AnyArray:
        return self._rows(beside.call, "row_powers", beta, dtype=np.float64)

    def weighted(self, weights: AnyArray | None, index: AnyArray | None, n_rows: int) -> DaskData:
        scale = None if weights is None else self.rows(weights)
        if index is None:
            made = self.blocks.map(beside.selected, self.blocks, None, 0, scale, like=0).derived()
            return DaskData(made, self.p, self.dtype).weighing(weights, self.shape[0])
        layout, where = self._summed(index, n_rows), self.rows(index)
        if self.layout.runner.short:
            raise ValueError(
                "hard labels and must-links need X in the memory of the workers, which is too "
                "small for it; use more workers, or an estimator without them."
            )
        count = layout.sizes[0]
        head = self.blocks.reduce(beside.head_data, self.blocks, where, count, scale)
        made = self._select(where, count, scale)
        handles = layout.runner.place([DenseData(head)], 0) + made.handles()
        made = Rows.of(layout, handles, None)
        return DaskData(made, self.p, self.dtype).weighing(weights, self.shape[0])

    def _select(self, where: Rows | None, count: int, scale: Rows | None) -> Rows:
        return self.blocks.map(beside.selected, self.blocks, where, count, scale, like=0).settle()

    @cached_property
    def _whole(self) -> tuple[float, int]:
        """Properties of the whole array that its blocks need.

        These are the lower limit of VUᵀ in ratios, and the size of the array.
        """
        return self.model_floor(self.row_sums(), self.p), self.shape[0] * self.p

    def kl_dot(self, V: AnyArray, U: AnyArray) -> tuple[AnyArray, AnyArray]:
        both = self.blocks.map(beside.of_part, self.blocks, self._whole, "kl_dot", V, U, like=0)
        return self._pair(both, U.shape[1])

    def _pair(self, both: Rows, k: int) -> tuple[Rows, Rows]:
        first = both.map(itemgetter(0), both, like=np.empty((0, k), self.dtype))
        return first, both.map(itemgetter(1), both, like=np.empty(0))

    def kl_tdot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self.blocks.reduce(beside.of_part, self.blocks, self._whole, "kl_tdot", V, U)

    def kl_newton(
        self, V: AnyArray, U: AnyArray, cost: AnyArray, ridge: AnyArray, sweeps: int, rough: bool,
        transposed: bool,
    ) -> tuple[AnyArray, AnyArray]:  # fmt: skip
        assert not transposed, "curved"
        args = (self._whole, "kl_newton", V, U, cost, ridge, sweeps, rough, False)
        both = self.blocks.map(beside.of_part, self.blocks, *args, like=0)
        return self._pair(both, U.shape[1])

    def kl_curvature(self, V: AnyArray, U: AnyArray, transposed: bool) -> AnyArray:
        assert transposed, "rows are swept"
        how = (beside.of_part, self.blocks, self._whole, "column_curvature", V, U)
        parts = [
            self.blocks.reduce(*how, seconds)
            for seconds in merged(range(1, U.shape[1] + 1), 1, PAIRS)
        ]
        return np.concatenate(parts, axis=1)

    def times_dot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self._rows(beside.call, "times_dot", V, U, width=U.shape[1])

    def times_tdot(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self.blocks.reduce(beside.call, self.blocks, "times_tdot", V, U)

    def times_squares(self, V: AnyArray, U: AnyArray) -> AnyArray:
        return self._rows(beside.call, "times_squares", V, U, dtype=np.float64)


@double_products.register
def _(data: DaskData) -> Any:
    if data.dtype == np.float64:
        return data
    made = data.blocks.map(double_products, data.blocks, like=0).derived()
    doubled = DaskData(made, data.p, np.dtype(np.float64), data.chunks)
    doubled.room_checked = True  # the memory was checked at the beginning of the fit
    return doubled


class GatheredNeighbors:
    """W Z, computed on the client: the rows of Z are gathered there and sent back."""

    def __init__(self, neighbors: Any, place: Any) -> None:
        self.here, self.place = neighbors, place
        self.gathered, self.edges = (neighbors, place), None

    def __call__(self, Z: Rows) -> AnyArray:
        return self.place(self.here(Z.gather()))

    def laplacian(self, Z: Rows) -> AnyArray:
        return self.place(self.here.laplacian(Z.gather()))


BACK_END = BackEnd("Dask arrays", "X.compute()", check_dask, as_dask_data, look, gaps, weighed)

__all__ = ["BACK_END", "DaskData", "Threads", "Workers", "as_dask_data", "check_dask"]


@arrays.joined.register
def _(first: Rows, *others: Any) -> AnyArray:
    return first.map(_beside, first, *others)


def _beside(*blocks: AnyArray) -> AnyArray:
    return np.concatenate(blocks, axis=1)


@arrays.materialize.register
def _(a: Rows) -> AnyArray:
    return a.settle()  # otherwise each block of columns would compute the whole product again
