"""X with missing entries or weights of entries.

With weights w_ij >= 0 of entries the loss is Σ w_ij loss(x_ij, y_ij). The ceiling d_i of a row is
at least its largest w_ij. The weight deficit E = d1ᵀ - w is zero except at missing entries. A
squared loss is therefore that of a complete matrix with row weights d, in which E ∘ Y₀ fills the
missing entries. Products with E are evaluated at its entries only, for the current factors, so
their cost grows with the number of entries of E. If most entries are missing, w is stored instead.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from partwise.backends import arrays
from partwise.backends.arrays import AnyArray, dot64, namespace, ratio
from partwise.backends.data_matrix import DataMatrix, Swept
from partwise.backends.numpy.dense import DenseData
from partwise.backends.numpy.gap_filling import Fill, Filling, filling
from partwise.backends.threads import cached_property

#: If a difference of float32 sums is below this share of the sums, it is computed in float64,
#: because cancellation would leave too few digits.
LEFT = 0.1
#: Rounding error of a weight that was computed as a difference, relative to its row's ceiling.
EPS = {"float32": 1e-6, "float64": 1e-14}


class WeightDeficit:
    """The weight deficit E = d1ᵀ - w: the ceiling of each row minus the weights of entries.

    Parameters
    ----------
    entries : DataMatrix
        E, or w if ``seen``.
    seen : bool
        Whether ``entries`` are the weights themselves.
    d : (n,) array or None
        The ceiling of each row; None means ones.
    """

    def __init__(self, entries: DataMatrix, *, seen: bool, d: AnyArray | None = None) -> None:
        self.entries, self.seen, self.d = entries, seen, d
        self._last: dict[str, tuple[AnyArray, AnyArray]] = {}

    @property
    def nothing(self) -> bool:
        """True if every entry has the largest weight of its row, so that the deficit is 0."""
        return not self.seen and float(self.entries.row_sums().sum()) == 0

    def weighted(
        self, weights: AnyArray | None, index: AnyArray | None, n_rows: int
    ) -> WeightDeficit:
        """Return AᵀΓE, the weight deficit of a matrix whose rows were weighted and added.

        See `DataMatrix.weighted` for the arguments.
        """
        n = self.entries.shape[0]
        d = np.ones(n) if self.d is None else arrays.to_numpy(self.d)
        d = d if weights is None else d * weights
        if index is not None:
            d = np.bincount(index, d, n_rows)
        entries = self.entries.weighted(weights, index, n_rows)
        d = entries.rows(d.astype(self.entries.dtype))
        return WeightDeficit(entries, seen=self.seen, d=d)

    def _rows(self, Z: AnyArray) -> AnyArray:
        return Z if self.d is None else Z * self.d[:, None]

    def dot(self, B: AnyArray) -> AnyArray:
        """Return E B, (n, k)."""
        out = self.entries.dot(B)
        return self._whole("V", B) - out if self.seen else out

    def tdot(self, F: AnyArray) -> AnyArray:
        """Return EᵀF, (p, k)."""
        out = self.entries.tdot(F)
        return self._whole("U", F) - out if self.seen else out

    def sums(self, side: str, factor: AnyArray, scaled: AnyArray) -> AnyArray:
        """Return the product of w (side "V") or wᵀ (side "U") with ``scaled``.

        The result is stored, and computed again only if ``factor`` is another object.
        """
        kept = self._last.get(side)
        if kept is None or kept[0] is not factor:
            kept = factor, self._seen_sums(side, scaled)
            self._last[side] = kept
        return kept[1]

    def _seen_sums(self, side: str, B: AnyArray) -> AnyArray:
        """Return sums over observed entries, in float64 if the difference cancels."""
        if self.seen:
            return self.entries.dot(B) if side == "V" else self.entries.tdot(B)
        whole = self._whole(side, B)
        left = whole - (self.dot(B) if side == "V" else self.tdot(B))
        if isinstance(B, np.ndarray) and B.itemsize == 4 and bool((left < LEFT * whole).any()):
            from partwise.backends.numpy.float64_products import double_products

            entries, B = double_products(self.entries), B.astype(np.float64)
            less = entries.dot(B) if side == "V" else entries.tdot(B)
            left = (self._whole(side, B) - less).astype(left.dtype)
        return _surely(left, whole, B)

    def _whole(self, side: str, B: AnyArray) -> AnyArray:
        """Return the sums over all entries, including the missing ones."""
        if side == "U":
            return self._rows(B).sum(axis=0)[None, :]
        sums = B.sum(axis=0)[None, :]
        return sums if self.d is None else self.d[:, None] * sums

    @cached_property
    def seen_columns(self) -> AnyArray:
        """Array (p, 1) that is one if a feature was observed in a sample, else zero."""
        every = self.entries.constant_rows(np.ones(1, self.entries.dtype))
        most = self._rows(every).sum(axis=0)[None, :]
        left = most - self.tdot(every)
        return arrays.cast(left > 1e-6 * most, self.entries.dtype)  # ignore rounding errors

    def times(self, side: str, Z: AnyArray, F: AnyArray) -> AnyArray:
        """Return (M ∘ ZFᵀ) F on side "V" or (M ∘ FZᵀ)ᵀ F on "U", where M is `entries`."""
        return self.entries.times_dot(Z, F) if side == "V" else self.entries.times_tdot(F, Z)

    def every(self, side: str, Z: AnyArray, F: AnyArray) -> AnyArray:
        """Return `times` for an M whose entries are all equal to the ceiling of their row."""
        return self._rows(Z) @ (F.T @ F) if side == "V" else Z @ (F.T @ self._rows(F))

    def fill(self, side: str, Z: AnyArray, F: AnyArray) -> AnyArray:
        """Return (E ∘ ZFᵀ) F, or (E ∘ FZᵀ)ᵀ F on the side "U"."""
        out = self.times(side, Z, F)
        return self.every(side, Z, F) - out if self.seen else out

    def squares(self, V: AnyArray, B: AnyArray) -> float:
        """Return Σ E ∘ (VBᵀ)²."""
        out = float(self.entries.times_squares(V, B).sum())
        return arrays.vdot(self.every("V", V, B), V) - out if self.seen else out


class Beside(Swept):
    """Base class of back ends that wrap another one and use its type of arrays."""

    base: DataMatrix

    def __init__(self, base: DataMatrix) -> None:
        self.base = base
        self.shape, self.dtype, self.density = base.shape, base.dtype, base.density
        self.newton_sides, self.curved = base.newton_sides, base.curved
        self.newton_pays = base.newton_pays  # type: ignore[method-assign]
        self.rows, self.small, self.operator = base.rows, base.small, base.operator
        self.constant_rows, self.result = base.constant_rows, base.result
        self.mean_rows, self.expand_rows = base.mean_rows, base.expand_rows
        self.sweeps = base.sweeps  # type: ignore[method-assign]


class MaskedData(Beside):
    """X with missing entries or weights of entries; every product is that of w ∘ X.

    Parameters
    ----------
    base : DataMatrix
        w ∘ X, which is zero at missing entries.
    lack : WeightDeficit
    moments : pair of (n,) arrays or None
        Σ_j w x² and Σ_j w x log x, if the weights are not only zeros and ones.
    """

    lack: WeightDeficit

    def __init__(
        self,
        base: DataMatrix,
        lack: WeightDeficit,
        moments: tuple[AnyArray, AnyArray] | None = None,
    ) -> None:
        super().__init__(base)
        self.lack, self.moments = lack, moments
        self.dot, self.tdot, self.row_sums = base.dot, base.tdot, base.row_sums
        self.kl_dot, self.kl_tdot, self.kl_newton = base.kl_dot, base.kl_tdot, base.kl_newton
        self.kl_tdot_log = base.kl_tdot_log  # type: ignore[method-assign]
        self.kl_curvature = base.kl_curvature  # type: ignore[method-assign]

    def weighted(self, weights: AnyArray | None, index: AnyArray | None, n_rows: int) -> MaskedData:
        base = self.base.weighted(weights, index, n_rows)
        return MaskedData(base, self.lack.weighted(weights, index, n_rows))

    def row_sq_norms(self) -> AnyArray:
        return self.base.row_sq_norms() if self.moments is None else self.moments[0]

    def row_xlogx(self) -> AnyArray:
        return self.base.row_xlogx() if self.moments is None else self.moments[1]

    def row_sq_residuals(self, V: AnyArray, U: AnyArray) -> AnyArray:
        """Return the weighted squared residuals Σ_j w_ij (x_ij - y_ij)² of each row."""
        lack = self.lack
        if isinstance(self.base, DenseData):
            return _seen_residuals(self.base, lack, V, U)
        missing = arrays.float64((lack.fill("V", V, U) * V).sum(axis=1))
        if self.moments is None:
            return self.base.row_sq_residuals(V, U) - missing
        every = (lack.every("V", V, U) - 2 * self.dot(U)) * V
        return self.moments[0] + arrays.float64(every.sum(axis=1)) - missing

    @cached_property
    def means(self) -> tuple[AnyArray, AnyArray]:
        """Return the matrix abᵀ of rank one that fits the observed row and column means.

        The result is the pair a (n, 1) and b (p, 1).
        """
        p = self.shape[1]
        one = self.small(np.ones((p, 1), self.dtype))
        every = self.constant_rows(np.ones(1, self.dtype))
        weight = self.lack._rows(every)
        of_row = weight * float(p) - self.lack.dot(one)
        of_column = weight.sum(axis=0)[None, :] - self.lack.tdot(every)
        sums = float(self.row_sums().sum()), float(of_row.sum())
        mean = sums[0] / sums[1] if min(sums) > 0 else 1.0
        return ratio(self.dot(one), of_row), ratio(self.tdot(every), of_column) / mean

    def filled(self) -> FilledData:
        return FilledData(self.base, self.lack, *self.means, over=self.lack.d)

    @cached_property
    def _filling(self) -> Filling | None:
        lack = self.lack
        return filling(self.base, lack.entries, seen=lack.seen, d=lack.d)

    def half(self, side: str, F: AnyArray, at: AnyArray) -> HalfSeen:
        """Return the subproblem of a squared loss on ``side`` at ``at``; F is the other factor."""
        return (HalfSeen if self._filling is None else HalfFilled)(self, side, F, at)


class HalfSeen:
    """The loss over observed entries in one factor, and a quadratic upper bound.

    Parameters
    ----------
    data : MaskedData
    side : "V" or "U"
    F : array
        The fixed factor.
    at : array
        The other factor at the start of the step; its model fills the missing entries.
    """

    def __init__(self, data: MaskedData, side: str, F: AnyArray, at: AnyArray) -> None:
        self.data, self.side, self.F, self.at = data, side, F, at

    @cached_property
    def given(self) -> AnyArray:
        """Products of the observed entries of X with the fixed factor F."""
        return self.data.dot(self.F) if self.side == "V" else self.data.tdot(self.F)

    def lacking(self, Z: AnyArray) -> AnyArray:
        """Return the products with F of the model of Z at the missing entries."""
        return self.data.lack.fill(self.side, Z, self.F)

    def modelled(self, Z: AnyArray, pull: AnyArray) -> AnyArray:
        """Return products of F with the model at observed entries; ``pull`` is that of all entries.

        Nothing limits the model at missing entries. If it is far larger there, the difference is
        computed in float64; rounding errors would let a multiplicative step raise the loss.
        """
        lack, F = self.data.lack, self.F
        if lack.seen:
            return lack.times(self.side, Z, F)
        pos = pull - lack.times(self.side, Z, F)
        if isinstance(Z, np.ndarray) and Z.itemsize == 4 and bool((pos < LEFT * pull).any()):
            Z, F = Z.astype(np.float64), F.astype(np.float64)
            pos = lack.every(self.side, Z, F) - lack.times(self.side, Z, F)
            pos = pos.astype(pull.dtype)
        return _surely(pos, pull, F)

    def _squares(self, Z: AnyArray) -> float:
        """Return Σ E ∘ Y², the sum over missing entries of the squared model."""
        lack = self.data.lack
        return lack.squares(Z, self.F) if self.side == "V" else lack.squares(self.F, Z)

    def gain(self, Z: AnyArray) -> float:
        """Return the part of the loss that Y changes: ⟨w ∘ X, Y⟩ + ½ Σ E Y².

        It is ½ Σ w x² + ½ Σ d y² minus the loss of Y.
        """
        return dot64(self.given, Z) + 0.5 * self._squares(Z)

    @cached_property
    def drawn(self) -> AnyArray:
        """Products of the filled-in X with the fixed factor F."""
        return self.given + self.lacking(self.at)

    #: Function that returns the minimiser over Z with F fixed, one row at a time, or None if the
    #: data have no such function. It is called as in `steps.solve_filled`. Z is the start. C, G, d
    #: and r define the objective of each row, ½ d zᵀGz + ½ r·z² - cᵀz, before the missing entries
    #: are taken out of G. A row stops when the squared change of a sweep is at most ``enough``, or
    #: at most ``stop``² times that of the first sweep.
    solve: Callable[..., AnyArray] | None = None

    def above(self, Z: AnyArray) -> float:
        """Return ½ ‖filled X - Y‖² minus the loss at Z."""
        return 0.0 if Z is self.at else 0.5 * self._squares(Z - self.at)


class HalfFilled(HalfSeen):
    """`HalfSeen` with stored filled values, which the updates of V and U share."""

    def __init__(self, data: MaskedData, side: str, F: AnyArray, at: AnyArray) -> None:
        super().__init__(data, side, F, at)
        assert data._filling is not None
        self.filling = data._filling
        if side == "V":
            self.solve = partial(self.filling.solve, U=F)

    def _pair(self, Z: AnyArray) -> tuple[AnyArray, AnyArray]:
        return (Z, self.F) if self.side == "V" else (self.F, Z)

    @cached_property
    def fill(self) -> Fill:
        return self.filling.at(self.side, *self._pair(self.at))

    @cached_property
    def drawn(self) -> AnyArray:
        return self.filling.product(self.fill, self.side, self.F)

    def gain(self, Z: AnyArray) -> float:
        if "drawn" not in self.__dict__:  # a multiplicative step does not fill in missing entries
            return super().gain(Z)
        return dot64(self.drawn, Z) - 0.5 * self.fill.size + self.above(Z)

    def above(self, Z: AnyArray) -> float:
        V, U = self._pair(Z)
        if self.fill.exact and V is self.fill.V and U is self.fill.U:
            return 0.0
        return 0.5 * self.filling.apart(self.fill, V, U)


def _surely(left: AnyArray, whole: AnyArray, summed: AnyArray) -> AnyArray:
    """Return the difference of two sums, or its rounding error if that is larger.

    ``left`` is the difference, and ``whole`` the larger sum. A difference below the rounding error
    is unreliable, even its sign. A step must not divide by a smaller number, because entries of
    features that are hardly observed would grow without limit.
    """
    eps = np.finfo(arrays.numpy_dtype(summed.dtype)).eps
    unsure = 4 * float(eps) * summed.shape[0] ** 0.5
    return namespace(left).maximum(left, arrays.cast(unsure * whole, left.dtype))


def _seen_residuals(base: DenseData, lack: WeightDeficit, V: AnyArray, U: AnyArray) -> AnyArray:
    """Return Σ_j w (x - y)² by row, independent of the model at missing entries."""
    entries: Any = lack.entries
    out, both = np.empty(base.shape[0]), (base._blocks(None), entries._blocks(None))
    for (rows, wX), (_, E) in zip(*both, strict=True):
        d = 1.0 if lack.d is None else lack.d[rows, None]
        w = np.asarray(E if lack.seen else d - E, dtype=np.float64)
        w = np.where(w > EPS[wX.dtype.name] * d, w, 0)  # d - E is inexact at a missing entry
        R = wX - w * (V[rows] @ U.T)
        out[rows] = np.divide(R * R, w, out=np.zeros_like(R), where=w > 0).sum(axis=1)
    return out


class FilledData(Beside):
    """(w ∘ X + E ∘ abᵀ) / d: missing entries filled with averages of rows and columns."""

    def __init__(
        self,
        base: DataMatrix,
        fill: WeightDeficit,
        a: AnyArray,
        b: AnyArray,
        *,
        over: AnyArray | None,
    ) -> None:
        super().__init__(base)
        self.fill, self.a, self.b, self.over = fill, a, b, over

    def _over(self, out: AnyArray) -> AnyArray:
        return out if self.over is None else out / self.over[:, None]

    def dot(self, U: AnyArray) -> AnyArray:
        return self._over(self.base.dot(U) + self.a * self.fill.dot(self.b * U))

    def tdot(self, V: AnyArray) -> AnyArray:
        V = self._over(V)
        return self.base.tdot(V) + self.b * self.fill.tdot(self.a * V)

    def row_sums(self) -> AnyArray:
        ones = self.small(np.ones((self.shape[1], 1), self.dtype))
        return arrays.float64(self.dot(ones)[:, 0])

    def weighted(self, weights: AnyArray | None, index: AnyArray | None, n_rows: int) -> FilledData:
        base = self.base.weighted(weights, index, n_rows)
        fill = self.fill.weighted(weights, index, n_rows)
        return FilledData(base, fill, self.a, self.b, over=self.over)

    def whole(self) -> Any | None:
        X: Any = self.base.whole()
        E: Any = self.fill.entries.whole()
        if X is None or self.base.density < 1:
            return X  # in a sparse matrix, a missing entry counts as zero, like most entries
        E = E.toarray() if hasattr(E, "toarray") else E
        if self.fill.seen:
            E = (1 if self.fill.d is None else self.fill.d[:, None]) - E
        return self._over(X + E * (self.a @ self.b.T))
