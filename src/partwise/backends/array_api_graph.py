"""CSR matrices by their arrays, and the products of a neighbour graph, on any device."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from partwise.backends.arrays import Array, cast, contiguous, float64, namespace, to_numpy

if TYPE_CHECKING:
    from partwise.backends.array_api import OnDevice


class Csr(NamedTuple):
    """The three arrays of a CSR matrix."""

    indptr: Array
    indices: Array
    values: Array
    shape: tuple[int, int]

    @property
    def row_of(self) -> Array:
        """The row of each non-zero."""
        xp = namespace(self.values)
        at = xp.arange(self.values.shape[0], dtype=self.indptr.dtype, device=self.indptr.device)
        return xp.searchsorted(self.indptr, at, side="right") - 1


class Neighbors:
    """W Z on a device, with the cliques of labels implicit as in `terms.Neighbors`."""

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

    def __call__(self, Z: Array) -> Array:
        out = self.data.multiply(self.W, Z)
        if self.codes is not None:
            own = Z[self.mask]
            sums = self.data.sums(self.codes, own, self.n_classes)
            out[self.mask] += float(self.weight) * (sums[self.codes] - own)
        return out

    def laplacian(self, Z: Array) -> Array:
        """(D - W) Z by differences, or at least in double precision."""
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
    def _degrees(self) -> Array:
        return self.data.sums(self.parts.row_of, float64(self.parts.values), self.parts.shape[0])
