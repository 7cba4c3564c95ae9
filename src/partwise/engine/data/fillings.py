"""Gaps filled with what the model says there, for arrays in memory.

With E = d1ᵀ - w, what the weights lack of their row's ceiling, the squared loss over seen entries
is below that of w ∘ X + E ∘ F with row weights d, whatever F is, and equal to it where the model
says F in the gaps. Where gaps are few, one filling serves both half-steps of an iteration: products
then cost what they cost without gaps, and what is added are the model's entries at the gaps, twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.engine.data import blocks
from partwise.engine.data.dense import DenseData
from partwise.engine.data.sparse import SparseData, cut_rows, multiply, sampled_values, solve_rows
from partwise.engine.numeric import Array, dot64

#: How far, of its length, a factor may have moved from a fill that serves the other half-step too.
#: Far from a start what is old in the gaps would throw the other factor off.
NEAR = 0.1


@dataclass(eq=False)
class Fill:
    """The model F = V Uᵀ that fills the gaps."""

    V: Array
    U: Array
    side: str  # the half-step that it was made for
    values: Array | None = None  # its entries at the places, where those are kept
    size: float = 0.0  # Σ E F², known once a product was asked for


class Filling(ABC):
    """w ∘ X + E ∘ F, with an F that is renewed; made by `filling`."""

    shared = False  # many gaps: what is old in them would hold the other half-step back

    def __init__(self) -> None:
        self._now: Fill | None = None  # what the products see
        self._last: Fill | None = None  # what was asked for last, whatever start it is of

    def at(self, side: str, V: Array, U: Array) -> Fill:
        """The fill for the step on ``side``: that of the other half of the same iteration, or new.

        The other half has left the factor that moves now as it was.
        """
        last = self._last
        if self.shared and last is not None and last.side != side:
            stayed, moved, old = (
                (U is last.U, V, last.V) if side == "U" else (V is last.V, U, last.U)
            )
            if stayed and dot64(moved - old, moved - old) <= NEAR**2 * dot64(old, old):
                return last
        self._last = Fill(V, U, side, self.entries(V, U))
        return self._last

    def product(self, fill: Fill, side: str, factor: Array) -> Array:
        """The filled X, or its transpose if ``side`` is "U", times the factor."""
        self._bring(fill)
        return self._dot(factor) if side == "V" else self._tdot(factor)

    def _bring(self, fill: Fill) -> None:
        if self._now is not fill:
            self._put(fill)
            self._now = fill

    def entries(self, V: Array, U: Array) -> Array | None:
        """What is kept of V Uᵀ."""
        return None

    @abstractmethod
    def apart(self, fill: Fill, V: Array, U: Array) -> float:
        """Σ E (F - VUᵀ)²."""

    @abstractmethod
    def solve(
        self, Z: Array, U: Array, C: Array, G: Array, d: Array | None, r: Array, stop: float,
        enough: float,
    ) -> Array:  # fmt: skip
        """The best codes with U fixed, row by row, from Z: with C, what seen entries draw to."""

    @abstractmethod
    def _put(self, fill: Fill) -> None:
        """Have products see this fill, and set its size."""

    @abstractmethod
    def _dot(self, U: Array) -> Array: ...

    @abstractmethod
    def _tdot(self, V: Array) -> Array: ...


class _Sampled(Filling):
    """Entries at the places of a sparse matrix, E or the weights themselves."""

    def __init__(self, places: Any) -> None:
        super().__init__()
        self.places = places
        self._cuts: dict[int, tuple[Array, int]] = {}
        self._point: tuple[Array, Array, Array] | None = None

    def entries(self, V: Array, U: Array) -> Array:
        """V Uᵀ at the places; the last ones are kept, since a loop asks twice for some."""
        point = self._point
        if point is None or point[0] is not V or point[1] is not U:
            k = V.shape[1]
            if k not in self._cuts:
                self._cuts[k] = cut_rows(self.places, 20 * k)
            self._point = point = V, U, sampled_values(self.places, self._cuts[k], V, U)
        return point[2]

    def _squares(self, values: Array) -> float:
        """The sum over the places of their number times a value squared."""
        return dot64((self.places.data * values)[None, :], values[None, :])

    sign = -1.0  # of the places' own part in a row's Hessian: E is taken off d UᵀU

    def solve(
        self, Z: Array, U: Array, C: Array, G: Array, d: Array | None, r: Array, stop: float,
        enough: float,
    ) -> Array:  # fmt: skip
        G = G if self.sign < 0 else np.zeros_like(G)
        return solve_rows(self.places, U, G, d, self.sign, Z, C, r, stop, enough)


class _Few(_Sampled):
    """Few gaps: a copy of X in which they are written over, dense or with a place for each."""

    shared = True
    base: Array | None  # what w ∘ X has at the places, where that is not zero

    def apart(self, fill: Fill, V: Array, U: Array) -> float:
        return self._squares(self.entries(V, U) - fill.values)

    def _put(self, fill: Fill) -> None:
        assert fill.values is not None
        filled = self.places.data * fill.values
        fill.size = dot64(filled[None, :], fill.values[None, :])
        self._write(filled if self.base is None else filled + self.base)

    @abstractmethod
    def _write(self, values: Array) -> None: ...


class _FewInDense(_Few):
    def __init__(self, X: Array, E: Any) -> None:
        super().__init__(E)
        self.X = np.array(X, order="C")
        rows = np.repeat(np.arange(E.shape[0], dtype=np.int64), np.diff(E.indptr))
        self.flat = rows * E.shape[1] + E.indices
        base = self.X.ravel()[self.flat]
        self.base = base if base.any() else None

    def _write(self, values: Array) -> None:
        self.X.ravel()[self.flat] = values

    def _dot(self, U: Array) -> Array:
        return self.X @ U

    def _tdot(self, V: Array) -> Array:
        return self.X.T @ V


class _FewInSparse(_Few):
    def __init__(self, X: Any, E: Any) -> None:
        X, E = X.sorted_indices(), E.sorted_indices()  # sums of rows have them in any order
        super().__init__(E)
        kinds = _ones(X) + 2 * _ones(E)  # 1: only in X, 2: only in E, 3: in both
        kinds.sort_indices()
        kinds.indices, kinds.indptr = (
            a.astype(X.indices.dtype) for a in (kinds.indices, kinds.indptr)
        )
        kind = kinds.data
        self.own, self.spots = np.flatnonzero(kind != 2), np.flatnonzero(kind >= 2)
        data = np.zeros(len(kind), dtype=X.dtype)
        data[self.own] = X.data
        base = data[self.spots]
        self.base = base if base.any() else None
        self.X = sp.csr_array((data, kinds.indices, kinds.indptr), shape=X.shape)
        order = sp.csr_array(
            (np.arange(len(kind)), kinds.indices, kinds.indptr), shape=X.shape
        ).T.tocsr()
        self.XT = sp.csr_array((data[order.data], order.indices, order.indptr), shape=X.shape[::-1])
        back = np.empty(len(kind), dtype=np.int64)
        back[order.data] = np.arange(len(kind))
        self.spots_T = back[self.spots]

    def _write(self, values: Array) -> None:
        self.X.data[self.spots] = values
        self.XT.data[self.spots_T] = values

    def _dot(self, U: Array) -> Array:
        return multiply(self.X, U)

    def _tdot(self, V: Array) -> Array:
        return multiply(self.XT, V)


class _Many(_Sampled):
    """Many gaps: the filled X is d F and, at the few seen entries, what w ∘ X has beyond w ∘ F."""

    sign = 1.0

    def __init__(self, X: Any, w: Any, d: Array | None) -> None:
        super().__init__(w)
        self.d = d
        rows = np.repeat(np.arange(w.shape[0]), np.diff(w.indptr))
        self.base = np.asarray(X[rows, w.indices]).ravel().astype(w.dtype)
        self.beyond = sp.csr_array((self.base.copy(), w.indices, w.indptr), shape=w.shape)
        places = sp.csr_array((np.arange(w.nnz), w.indices, w.indptr), shape=w.shape)
        turned = places.T.tocsr()
        self.order = turned.data
        self.beyond_T = sp.csr_array(
            (self.base[self.order], turned.indices, turned.indptr), shape=w.shape[::-1]
        )

    def _put(self, fill: Fill) -> None:
        self.beyond.data = self.base - self.places.data * fill.values
        self.beyond_T.data = self.beyond.data[self.order]
        self.V = fill.V if self.d is None else self.d[:, None] * fill.V
        self.U = fill.U
        every = dot64(self.V.T @ fill.V, fill.U.T @ fill.U)
        fill.size = every - self._squares(fill.values)

    def _dot(self, U: Array) -> Array:
        return multiply(self.beyond, U) + self.V @ (self.U.T @ U)

    def _tdot(self, V: Array) -> Array:
        return multiply(self.beyond_T, V) + self.U @ (self.V.T @ V)

    def apart(self, fill: Fill, V: Array, U: Array) -> float:
        # F - VUᵀ as one product, from differences: the two alone are far larger than what is left
        left = np.hstack([fill.V - V, V])
        right = np.hstack([fill.U, fill.U - U])
        weighed = left if self.d is None else left * self.d[:, None]
        every = dot64(weighed.T @ left, right.T @ right)
        return max(every - self._squares(self.entries(V, U) - fill.values), 0.0)


class _Dense(Filling):
    """Neither few: block by block, in a copy of X."""

    def __init__(self, X: Array, E: Array) -> None:
        super().__init__()
        self.base, self.E = X, E
        self.X = np.array(X, order="C")
        self.mask = bool(((E == 0) | (E == 1)).all())

    def _put(self, fill: Fill) -> None:
        fill.size = 0.0
        for rows in blocks.row_blocks(*self.X.shape):
            F, out = fill.V[rows] @ fill.U.T, self.X[rows]
            np.multiply(self.E[rows], F, out=out)
            fill.size += dot64(out, F)
            out += self.base[rows]

    def _dot(self, U: Array) -> Array:
        return self.X @ U

    def _tdot(self, V: Array) -> Array:
        return self.X.T @ V

    def solve(
        self, Z: Array, U: Array, C: Array, G: Array, d: Array | None, r: Array, stop: float,
        enough: float,
    ) -> Array:  # fmt: skip
        out = np.empty_like(Z)
        for rows in blocks.row_blocks(*self.X.shape):
            some = None if d is None else d[rows]
            ridge = r[rows] if len(r) > 1 else r
            args = (some, -1.0, Z[rows], C[rows], ridge, stop, enough)
            out[rows] = solve_rows(sp.csr_array(self.E[rows]), U, G, *args)
        return out

    def apart(self, fill: Fill, V: Array, U: Array) -> float:
        if not self.mask:
            V, U = np.hstack([fill.V - V, V]), np.hstack([fill.U, fill.U - U])
        else:
            self._bring(fill)
        total = 0.0
        for rows in blocks.row_blocks(*self.X.shape):
            Y, E = V[rows] @ U.T, self.E[rows]
            if self.mask:  # E = E²: the fill is what the copy has beyond w ∘ X
                Y *= E
                Y -= self.X[rows]
                Y += self.base[rows]
                total += dot64(Y, Y)
            else:
                total += dot64(E * Y, Y)
        return total


def _ones(X: Any) -> Any:
    return sp.csr_array((np.ones(X.nnz, dtype=np.int8), X.indices, X.indptr), shape=X.shape)


def filling(base: Any, entries: Any, *, seen: bool, d: Array | None) -> Filling | None:
    """The one for w ∘ X and E (w if ``seen``); None where an array is not in memory."""
    kinds = type(base), type(entries)
    if kinds == (DenseData, DenseData):
        E = entries.X
        if seen:
            E = (1 if d is None else d[:, None]) - E
        return _Dense(base.X, E)
    if kinds[0] not in (DenseData, SparseData) or kinds[1] is not SparseData:
        return None
    if seen:
        return _Many(base.X, entries.X, d)
    return (_FewInDense if kinds[0] is DenseData else _FewInSparse)(base.X, entries.X)
