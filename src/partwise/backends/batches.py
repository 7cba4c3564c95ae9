"""Batches of rows of an X in memory, a file, Zarr, HDF5, a backed AnnData or Dask.

Data that are not in memory are read in runs of rows as they are stored. The rows of a few runs are
shuffled and divided into batches, so a pass reads everything once and memory holds these runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from partwise.backends.arrays import AnyArray, forget
from partwise.backends.data_matrix import refuse_anndata
from partwise.backends.masks import refuse_masks
from partwise.backends.numpy.memmap import _check_length

#: Number of entries that are read from a file at a time if it has no chunks, and number of entries
#: that are in memory at a time to be shuffled.
RUN_ENTRIES, POOL_ENTRIES = 2**18, 2**22


class Batch(NamedTuple):
    """A batch of samples, and the numbers of their rows in X."""

    rows: AnyArray
    X: Any


class RowSource:
    """An X whose rows are read piece by piece.

    Parameters
    ----------
    shape, dtype
        Shape and dtype of X; batches have a float dtype.
    read : callable
        ``read(start, stop)`` returns these rows as an ndarray or a CSR matrix.
    bounds : (m + 1,) array
        Rows at which the pieces begin and end; each piece is read in one call.
    """

    def __init__(
        self, shape: tuple[int, int], dtype: Any, read: Callable[[int, int], Any], bounds: AnyArray
    ) -> None:
        self.shape, self._read, self.bounds = shape, read, bounds
        dtype = np.dtype(dtype)
        self.dtype = dtype if dtype in (np.float32, np.float64) else np.dtype(np.float64)

    def piece(self, number: int) -> Batch:
        """Return the rows of one piece as an array in memory."""
        start, stop = int(self.bounds[number]), int(self.bounds[number + 1])
        X = self._read(start, stop)
        if not sp.issparse(X) and hasattr(X, "tocsr"):  # a sparse matrix of another package
            X = X.tocsr()
        if sp.issparse(X):
            X = sp.csr_array(X)
            X = X if X.dtype == self.dtype else X.astype(self.dtype)
        else:
            X = np.ascontiguousarray(X, dtype=self.dtype)
        return Batch(np.arange(start, stop), X)

    def sample(self, entries: int, rng: Any) -> Batch:
        """Read randomly chosen pieces with about this many entries, at least one piece."""
        pool: list[Batch] = []
        rows = 0
        for number in rng.permutation(len(self.bounds) - 1).tolist():
            size = int(self.bounds[number + 1] - self.bounds[number])
            if pool and (rows + size) * self.shape[1] > entries:
                break
            pool.append(self.piece(number))
            rows += size
        return _joined(pool)

    def batches(self, size: int, rng: np.random.RandomState | None) -> Iterator[Batch]:
        """Yield batches of ``size`` rows that contain each row once; shuffle if ``rng``."""
        order = np.arange(len(self.bounds) - 1)
        order = order if rng is None else rng.permutation(order)
        least = max(size, POOL_ENTRIES // self.shape[1])
        pool: list[Batch] = []
        for number in order.tolist():
            pool.append(self.piece(number))
            if sum(len(part.rows) for part in pool) >= least:
                *whole, rest = _cut(_joined(pool), size, rng)
                yield from whole
                if len(rest.rows) == size:
                    yield rest
                    rest = Batch(rest.rows[:0], rest.X[:0])
                pool = [rest]
        if pool and sum(len(part.rows) for part in pool):
            yield from _cut(_joined(pool), size, rng)


class InMemory(RowSource):
    """An ndarray or a CSR matrix; shuffled batches copy their rows."""

    def __init__(self, X: Any) -> None:
        super().__init__(X.shape, X.dtype, lambda a, b: X[a:b], np.arange(2))
        self.X = X

    def sample(self, entries: int, rng: Any) -> Batch:
        return Batch(np.arange(self.shape[0]), self.X)

    def batches(self, size: int, rng: np.random.RandomState | None) -> Iterator[Batch]:
        return _cut(Batch(np.arange(self.shape[0]), self.X), size, rng)


def _cut(pool: Batch, size: int, rng: np.random.RandomState | None) -> Iterator[Batch]:
    """Yield batches of rows in memory; rows of a batch keep the order of the data."""
    n = len(pool.rows)
    order = None if rng is None or n <= size else rng.permutation(n)
    for start in range(0, n, size):
        at: Any = slice(start, start + size)
        if order is not None:
            at = np.sort(order[at])
        yield Batch(pool.rows[at], pool.X[at])


def _joined(pool: list[Batch]) -> Batch:
    if len(pool) == 1:
        return pool[0]
    rows = np.concatenate([part.rows for part in pool])
    parts = [part.X for part in pool if len(part.rows)]
    return Batch(rows, sp.vstack(parts, "csr") if sp.issparse(parts[0]) else np.concatenate(parts))


def _runs(n: int, p: int, unit: int = 1) -> AnyArray:
    """Return the bounds of runs of rows with about RUN_ENTRIES entries each.

    Each run has a multiple of ``unit`` rows, the number of rows in a chunk of the file.
    """
    step = max(1, RUN_ENTRIES // max(1, p * unit)) * unit
    return np.append(np.arange(0, n, step), n)


def _memmap(X: np.memmap) -> RowSource:
    def read(start: int, stop: int) -> AnyArray:
        _check_length(X, start)
        block = np.array(X[start:stop])
        forget(X)
        return block

    return RowSource(X.shape, X.dtype, read, _runs(X.shape[0], X.shape[1]))


def _stored(X: Any) -> RowSource:
    """Read Zarr, HDF5 and the sparse matrices of AnnData's files by slices of rows."""
    chunks = getattr(X, "shards", None) or getattr(X, "chunks", None)
    unit = int(chunks[0]) if chunks else 1
    return RowSource(X.shape, X.dtype, lambda a, b: X[a:b], _runs(X.shape[0], X.shape[1], unit))


def _dask(X: Any) -> RowSource:
    from partwise.backends.dask.dask_data import look

    look(X)
    bounds = np.append(0, np.cumsum(X.chunks[0]))
    return RowSource(X.shape, X.dtype, lambda a, b: X[a:b].compute(), bounds)


#: Packages whose arrays are read by rows.
SOURCES: dict[str, Callable[[Any], RowSource]] = {
    "zarr": _stored,
    "h5py": _stored,
    "anndata": _stored,
    "dask": _dask,
}


def row_source(X: Any) -> RowSource | None:
    """Return a reader of X by rows, or None if X is a plain array in memory."""
    if isinstance(X, np.memmap):
        return _memmap(X) if X.ndim == 2 and X.dtype.kind in "fiub" else None
    refuse_anndata(X)
    refuse_masks(X)
    make = SOURCES.get(type(X).__module__.partition(".")[0])
    if make is None:
        return None
    shape = getattr(X, "shape", ())
    if len(shape) != 2 or not hasattr(X, "dtype"):
        raise ValueError(
            f"X must be a two-dimensional array, got a {type(X).__name__} of {type(X).__module__}."
        )
    if np.dtype(X.dtype).kind not in "fiub":
        raise ValueError(f"X must hold real numbers, got dtype {X.dtype}.")
    if getattr(X, "format", "csr") != "csr":
        raise ValueError(
            "X is stored by columns (CSC), so that its rows cannot be read; store X as CSR."
        )
    return make(X)
