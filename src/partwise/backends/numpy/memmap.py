"""numpy.memmap: X on disk, streamed by blocks of rows; memory holds the factors and one block."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends import arrays
from partwise.backends.arrays import AnyArray
from partwise.backends.data_matrix import ZEROS, Weighed, check_values
from partwise.backends.numpy import blocks
from partwise.backends.numpy.dense import ByBlocks, DenseData


class MemmapData(ByBlocks):
    """Rows of X in the order of the file, scaled and summed while reading if necessary.

    Second-order steps for KL sweep the rows of X for V. For U they would need whole columns, so
    the Hessian of each column is summed over the blocks instead.

    Parameters
    ----------
    X : memmap
    head : (c, p) array or None
        Rows before those of the file: sums over labelled samples, in memory.
    keep : (m,) array or None
        The rows of the file that follow ``head``, in order; None uses all.
    weights : (n,) array or None
        Weight of each row of the file.
    see : callable or None
        ``see(rows, block)`` converts each block after reading; ``rows`` is a slice.
    """

    curved = "U"

    def __init__(
        self,
        X: np.memmap,
        head: AnyArray = None,
        keep: AnyArray = None,
        weights: AnyArray = None,
        see: Callable[[slice, AnyArray], AnyArray] | None = None,
    ) -> None:
        self.X, self.head, self.keep, self.weights, self.see = X, head, keep, weights, see
        self._n = (0 if head is None else len(head)) + (len(X) if keep is None else len(keep))

    @property
    def shape(self) -> tuple[int, int]:  # type: ignore[override]
        return self._n, self.X.shape[1]

    @property
    def dtype(self) -> Any:
        return self.X.dtype if self.X.dtype.kind == "f" else np.dtype(np.float64)

    def whole(self) -> Any | None:
        return self.X if self.see is None else None

    def read(self) -> Iterator[tuple[slice, AnyArray]]:
        """Yield (rows, block) of the file in the float dtype."""
        for rows in arrays.row_blocks(*self.X.shape):
            _check_length(self.X, rows.start)
            block = np.array(self.X[rows], dtype=self.dtype, order="C")
            arrays.forget(self.X)
            yield rows, block if self.see is None else self.see(rows, block)

    def _blocks(self, entries: int | None = None) -> Iterator[tuple[slice, AnyArray]]:
        at = 0
        if self.head is not None and len(self.head):
            at = len(self.head)
            yield slice(0, at), self.head
        for rows, block in self.read():
            if self.keep is not None:
                lo, hi = np.searchsorted(self.keep, (rows.start, rows.stop))
                picked = self.keep[lo:hi]
                block = block[picked - rows.start]
                scale = None if self.weights is None else self.weights[picked]
            else:
                scale = None if self.weights is None else self.weights[rows]
            if scale is not None:
                block *= scale[:, None].astype(self.dtype)
            if len(block):
                yield slice(at, at + len(block)), block
            at += len(block)

    def weighted(self, weights: AnyArray | None, index: AnyArray | None, n_rows: int) -> MemmapData:
        if index is None:
            made = MemmapData(self.X, weights=weights, see=self.see)
            return made.weighing(weights, self.shape[0])
        count, keep = blocks.split_rows(index, n_rows)
        head = np.zeros((count, self.shape[1]), dtype=self.dtype)
        for rows, block in self.read():
            at = np.flatnonzero(index[rows] < count)
            part = block[at]
            if weights is not None:
                part *= weights[rows][at][:, None].astype(self.dtype)
            np.add.at(head, index[rows][at], part)
        made = MemmapData(self.X, head, keep, weights, self.see)
        return made.weighing(weights, self.shape[0])

    def kl_newton(
        self, V: AnyArray, U: AnyArray, cost: AnyArray, ridge: AnyArray, sweeps: int, rough: bool,
        transposed: bool,
    ) -> tuple[AnyArray, AnyArray]:  # fmt: skip
        assert not transposed, "curved"
        out = []
        for rows, X in self._blocks():
            block = DenseData(X).part_of(self._low, self._size)
            c = cost if cost.shape[0] == 1 else cost[rows]
            r = ridge if ridge.shape[0] == 1 else ridge[rows]
            out.append(block.kl_newton(V[rows], U, c, r, sweeps, rough, transposed)[0])
        return np.concatenate(out), np.zeros(0)


def gaps(X: np.memmap, missing: float) -> tuple[MemmapData, MemmapData]:
    """Return X with zeros for missing entries, and a mask of these, computed while reading."""
    return (
        MemmapData(X, see=lambda _, block: np.where(_hidden(block, missing), 0, block)),
        MemmapData(X, see=lambda _, block: _hidden(block, missing).astype(block.dtype)),
    )


def _hidden(block: AnyArray, missing: float | None) -> AnyArray:
    if missing is None:
        return np.zeros(block.shape, dtype=bool)
    return arrays.is_missing(block, missing)


def weighed(X: np.memmap, W: Any, missing: float | None) -> Weighed:
    """Return the weighted X and the deficit, computed while X and W are read."""

    def weight(rows: slice, block: AnyArray) -> AnyArray:
        w = W[rows]
        w = w.toarray() if sp.issparse(w) else np.asarray(w)
        return np.where(_hidden(block, missing), 0, w).astype(block.dtype)

    def times(rows: slice, block: AnyArray) -> AnyArray:
        return np.where(_hidden(block, missing), 0, block) * weight(rows, block)

    d, squares, logs = np.empty((3, len(X)))
    for rows, block in MemmapData(X).read():
        w = weight(rows, block)
        d[rows] = w.max(axis=1)
        squares[rows], logs[rows] = blocks.weighed_sums(block, w)

    def lack(rows: slice, block: AnyArray) -> AnyArray:
        return d[rows, None].astype(block.dtype) - weight(rows, block)

    return Weighed(MemmapData(X, see=times), MemmapData(X, see=lack), d, squares, logs)


def check_memmap(X: np.memmap | MemmapData, estimator_name: str, *, positive: bool = False) -> None:
    """Raise an error with the position of NaN, infinity or a negative entry; one pass."""
    for rows, block in (X if isinstance(X, MemmapData) else MemmapData(X)).read():
        if block.size:
            check_values(block, estimator_name, before=rows.start)
        if positive and block.size and block.min() == 0:
            raise ValueError(ZEROS)


def _check_length(X: np.memmap, row: int) -> None:
    """Check the length of the file, because reading beyond its end would kill the process."""
    filename = getattr(X, "filename", None)
    mapped = getattr(X, "_mmap", None)
    if filename is None or mapped is None:
        return
    begin = X.offset - X.offset % mmap.ALLOCATIONGRANULARITY
    try:
        there = os.path.getsize(filename)
    except OSError as error:
        raise OSError(f"the file {filename} of X was deleted at row {row}.") from error
    if there < begin + len(mapped):
        raise OSError(
            f"the file {filename} of X was shortened to {there} of {begin + len(mapped)} bytes; it "
            f"was read up to row {row}."
        )


@arrays.forget.register
def _(X: np.memmap) -> None:
    mapped = getattr(X, "_mmap", None)
    if X.mode in ("r", "r+", "w+") and hasattr(mapped, "madvise"):
        mapped.madvise(mmap.MADV_DONTNEED)  # type: ignore[union-attr]
