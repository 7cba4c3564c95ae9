"""Missing entries filled with the model's values, for arrays in memory.

E = d1ᵀ - w is the weight deficit: the ceiling of each row minus its weights. For any F, the squared
loss over observed entries is at most that of w ∘ X + E ∘ F with row weights d. They are equal if F
is the model at the missing entries. If few are missing, one filling serves both half-steps of an
iteration. Products then cost as much as for complete X, plus the model's missing entries twice.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends import arrays
from partwise.backends.arrays import AnyArray, dot64
from partwise.backends.numpy.dense import DenseData
from partwise.backends.numpy.sparse import SparseData, multiply, sampled_values, solve_rows

#: Largest relative change of a factor for which the fill also serves the other half-step. With
#: larger changes, outdated values at missing entries would mislead the other factor.
NEAR = 0.1


@dataclass(eq=False)
class Fill:
    """Values that fill in missing entries: the model F = V Uᵀ, or an approximation."""

    V: AnyArray
    U: AnyArray
    side: str  # the factor ("V" or "U") whose update it was computed for
    values: AnyArray | None = None  # values at the missing entries, if stored
    size: float = 0.0  # Σ E F², which is set when the first product is computed
    exact: bool = True  # False if the values approximate the model V Uᵀ


def _near(moved: AnyArray, old: AnyArray) -> bool:
    return dot64(moved - old, moved - old) <= NEAR**2 * dot64(old, old)


class Filling(ABC):
    """Products with w ∘ X + E ∘ F, where F is recomputed during the fit.

    Use `filling` to create an object of the suitable subclass.
    """

    # Whether the updates of V and U may share a fill. With many missing entries, a fill that is out
    # of date would make the second update less effective.
    shared = False

    def __init__(self) -> None:
        self._now: Fill | None = None  # the fill that products use now
        self._last: Fill | None = (
            None  # the last fill that `at` returned, from any start of the fit
        )

    def at(self, side: str, V: AnyArray, U: AnyArray) -> Fill:
        """Return the fill for the update of the factor ``side``.

        If the factors have hardly changed since the update of the other factor, its fill is used
        again.
        """
        last, guess = self._last, None
        if self.shared and last is not None:
            guess = self._guess(V, U)
            stayed, moved, old = (
                (U is last.U, V, last.V) if side == "U" else (V is last.V, U, last.U)
            )
            if guess is None and last.side != side and stayed and _near(moved, old):
                return last
        values = self.entries(V, U) if guess is None else guess
        self._last = Fill(V, U, side, values, exact=guess is None)
        return self._last

    def _guess(self, V: AnyArray, U: AnyArray) -> AnyArray | None:
        """Return approximate entries of V Uᵀ at the missing entries, or None."""
        return None

    def product(self, fill: Fill, side: str, factor: AnyArray) -> AnyArray:
        """Return the filled X, or its transpose if ``side`` is "U", times the factor."""
        self._bring(fill)
        return self._dot(factor) if side == "V" else self._tdot(factor)

    def _bring(self, fill: Fill) -> None:
        if self._now is not fill:
            self._put(fill)
            self._now = fill

    def entries(self, V: AnyArray, U: AnyArray) -> AnyArray | None:
        """Return the entries of V Uᵀ that this class stores, or None."""
        return None

    @abstractmethod
    def apart(self, fill: Fill, V: AnyArray, U: AnyArray) -> float:
        """Return Σ E (F - VUᵀ)², the squared error of the values that were filled in."""

    @abstractmethod
    def solve(
        self, Z: AnyArray, U: AnyArray, C: AnyArray, G: AnyArray, d: AnyArray | None, r: AnyArray,
        stop: float, enough: float,
    ) -> AnyArray:  # fmt: skip
        """Return the minimiser over the part weights with U fixed, row by row, from Z."""

    @abstractmethod
    def _put(self, fill: Fill) -> None:
        """Make products use the values of ``fill``, and set its ``size``."""

    @abstractmethod
    def _dot(self, U: AnyArray) -> AnyArray: ...

    @abstractmethod
    def _tdot(self, V: AnyArray) -> AnyArray: ...


class _Sampled(Filling):
    """Base class that stores the model at the entries of a sparse matrix, E or w."""

    def __init__(self, places: Any) -> None:
        super().__init__()
        self.places = places
        self._point: tuple[AnyArray, AnyArray, AnyArray] | None = None
        self._before: tuple[AnyArray, AnyArray, AnyArray] | None = None

    def entries(self, V: AnyArray, U: AnyArray) -> AnyArray:
        """Return V Uᵀ at the entries of `places`.

        The result is stored, because the iteration loop needs some results twice.
        """
        point = self._point
        if point is None or point[0] is not V or point[1] is not U:
            self._before = self._point
            self._point = point = V, U, sampled_values(self.places, V, U)
        return point[2]

    def _squares(self, values: AnyArray) -> float:
        """Return Σ e v² over the entries e of `places` and the ``values`` v."""
        return dot64((self.places.data * values)[None, :], values[None, :])

    sign = -1.0  # E is subtracted from d UᵀU in the Hessian of a row

    def solve(
        self, Z: AnyArray, U: AnyArray, C: AnyArray, G: AnyArray, d: AnyArray | None, r: AnyArray,
        stop: float, enough: float,
    ) -> AnyArray:  # fmt: skip
        G = G if self.sign < 0 else np.zeros_like(G)
        return solve_rows(self.places, U, G, d, self.sign, Z, C, r, stop, enough)


class _Turned:
    """A CSR matrix and its transpose, whose values can be replaced."""

    def __init__(self, places: Any) -> None:
        at = np.arange(places.nnz, dtype=places.indices.dtype)
        turned = sp.csr_array((at, places.indices, places.indptr), shape=places.shape).T.tocsr()
        self.order = turned.data
        self.X = sp.csr_array((places.data, places.indices, places.indptr), shape=places.shape)
        self.XT = sp.csr_array(
            (places.data[self.order], turned.indices, turned.indptr), shape=places.shape[::-1]
        )

    def write(self, values: AnyArray) -> None:
        self.X.data, self.XT.data = values, values[self.order]


class _Few(_Sampled):
    """Few missing entries: their values are stored in a copy of X or in addition to X."""

    shared = True

    def _guess(self, V: AnyArray, U: AnyArray) -> AnyArray | None:
        """Return extrapolated entries of V Uᵀ if one factor changed since the last call.

        The entries at the last two pairs of factors are known. If the changed factor is far from
        its last value, the last entries are returned: any fill gives an upper bound of the loss.
        """
        if self._point is None or self._before is None:
            return None
        (V1, U1, now), (V0, U0, before) = self._point, self._before
        old_already = self._last is not None and self._last.values is now
        if old_already or (V is V1) == (U is U1):  # both factors have changed, or neither
            return None
        moved, last, old = (U, U1, U0) if V is V1 else (V, V1, V0)
        size = dot64(last - old, last - old) if last.shape == old.shape else 0.0
        if not size or not _near(moved, last):
            return now
        return now + (now - before) * now.dtype.type(dot64(moved - last, last - old) / size)

    def apart(self, fill: Fill, V: AnyArray, U: AnyArray) -> float:
        return self._squares(self.entries(V, U) - fill.values)

    def _put(self, fill: Fill) -> None:
        assert fill.values is not None
        filled = self.places.data * fill.values
        fill.size = dot64(filled[None, :], fill.values[None, :])
        self._write(filled)

    @abstractmethod
    def _write(self, values: AnyArray) -> None: ...


class _FewInDense(_Few):
    def __init__(self, X: AnyArray, E: Any) -> None:
        super().__init__(E)
        self.X = np.array(X, order="C")
        self.rows = np.repeat(np.arange(E.shape[0]), np.diff(E.indptr))
        base = self.X[self.rows, E.indices]
        self.base = base if base.any() else None  # w ∘ X at these entries

    def _write(self, values: AnyArray) -> None:
        self.X[self.rows, self.places.indices] = values if self.base is None else values + self.base

    def _dot(self, U: AnyArray) -> AnyArray:
        return self.X @ U

    def _tdot(self, V: AnyArray) -> AnyArray:
        return self.X.T @ V


class _FewInSparse(_Few):
    def __init__(self, base: SparseData, E: Any) -> None:
        super().__init__(E)
        self.base, self.fills = base, _Turned(E)

    def _write(self, values: AnyArray) -> None:
        self.fills.write(values)

    def _dot(self, U: AnyArray) -> AnyArray:
        return self.base.dot(U) + multiply(self.fills.X, U)

    def _tdot(self, V: AnyArray) -> AnyArray:
        return self.base.tdot(V) + multiply(self.fills.XT, V)


class _Many(_Sampled):
    """Many missing entries: the filled X is d F plus w ∘ (X - F) at the observed entries."""

    sign = 1.0

    def __init__(self, X: Any, w: Any, d: AnyArray | None) -> None:
        super().__init__(w)
        self.d = d
        rows = np.repeat(np.arange(w.shape[0]), np.diff(w.indptr))
        self.base = np.asarray(X[rows, w.indices]).ravel().astype(w.dtype)
        self.beyond = _Turned(w)

    def _put(self, fill: Fill) -> None:
        self.beyond.write(self.base - self.places.data * fill.values)
        self.V = fill.V if self.d is None else self.d[:, None] * fill.V
        self.U = fill.U
        every = dot64(self.V.T @ fill.V, fill.U.T @ fill.U)
        fill.size = every - self._squares(fill.values)

    def _dot(self, U: AnyArray) -> AnyArray:
        return multiply(self.beyond.X, U) + self.V @ (self.U.T @ U)

    def _tdot(self, V: AnyArray) -> AnyArray:
        return multiply(self.beyond.XT, V) + self.U @ (self.V.T @ V)

    def apart(self, fill: Fill, V: AnyArray, U: AnyArray) -> float:
        # F - VUᵀ is one product of differences, because F and VUᵀ would nearly cancel.
        left = np.hstack([fill.V - V, V])
        right = np.hstack([fill.U, fill.U - U])
        weighed = left if self.d is None else left * self.d[:, None]
        every = dot64(weighed.T @ left, right.T @ right)
        return max(every - self._squares(self.entries(V, U) - fill.values), 0.0)


class _Dense(Filling):
    """Many missing and many observed entries: filled block by block, in a copy of X."""

    def __init__(self, X: AnyArray, E: AnyArray) -> None:
        super().__init__()
        self.base, self.E = X, E
        self.X = np.array(X, order="C")
        self.mask = bool(((E == 0) | (E == 1)).all())

    def _put(self, fill: Fill) -> None:
        fill.size = 0.0
        for rows in arrays.row_blocks(*self.X.shape):
            F, out = fill.V[rows] @ fill.U.T, self.X[rows]
            np.multiply(self.E[rows], F, out=out)
            fill.size += dot64(out, F)
            out += self.base[rows]

    def _dot(self, U: AnyArray) -> AnyArray:
        return self.X @ U

    def _tdot(self, V: AnyArray) -> AnyArray:
        return self.X.T @ V

    def solve(
        self, Z: AnyArray, U: AnyArray, C: AnyArray, G: AnyArray, d: AnyArray | None, r: AnyArray,
        stop: float, enough: float,
    ) -> AnyArray:  # fmt: skip
        out = np.empty_like(Z)
        for rows in arrays.row_blocks(*self.X.shape):
            some = None if d is None else d[rows]
            ridge = r[rows] if len(r) > 1 else r
            args = (some, -1.0, Z[rows], C[rows], ridge, stop, enough)
            out[rows] = solve_rows(sp.csr_array(self.E[rows]), U, G, *args)
        return out

    def apart(self, fill: Fill, V: AnyArray, U: AnyArray) -> float:
        if not self.mask:
            V, U = np.hstack([fill.V - V, V]), np.hstack([fill.U, fill.U - U])
        else:
            self._bring(fill)
        total = 0.0
        for rows in arrays.row_blocks(*self.X.shape):
            Y, E = V[rows] @ U.T, self.E[rows]
            if self.mask:  # E = E², so the fill is the copy minus w ∘ X
                Y *= E
                Y -= self.X[rows]
                Y += self.base[rows]
                total += dot64(Y, Y)
            else:
                total += dot64(E * Y, Y)
        return total


def filling(base: Any, entries: Any, *, seen: bool, d: AnyArray | None) -> Filling | None:
    """Return the filling for w ∘ X and E (w if ``seen``); None for an array not in memory."""
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
    if kinds[0] is DenseData:
        return _FewInDense(base.X, entries.X)
    return _FewInSparse(base, entries.X)
