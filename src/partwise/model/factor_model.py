"""The objective of X ≈ V S Uᵀ with V = A Z, and its two subproblems."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import mul
from typing import Any

import numpy as np
from numpy.typing import NDArray

from partwise.backends import DataMatrix, arrays
from partwise.backends.arrays import Array, cast, entrywise, namespace, ratio, spread
from partwise.backends.mixed_rows import MixedData
from partwise.model.losses import Half, LastPass, Loss
from partwise.model.maps import MixedRows, SharedRows, Smoothing
from partwise.model.subproblems import LEAST_MISFIT, Model, Subproblem
from partwise.model.terms import Place, Price, Term, UnitLength


@dataclass(frozen=True)
class Held:
    """Entries of U that the user fixed.

    Attributes
    ----------
    values, known : (p, k) arrays
        The fixed values, and a mask that is one at each fixed entry.
    columns : (k,) array
        One for a part without fixed entries, else zero.
    """

    values: Array
    known: Array
    columns: Array

    def project(self, U: Array) -> Array:
        """Return U with the fixed entries set to their values."""
        return namespace(U).where(self.known > 0, self.values, U)


class FactorModel(Model):
    """The objective loss(X, A Z S Uᵀ) + terms_V(Z) + terms_U(U) for Z, U >= 0.

    Parameters
    ----------
    data : DataMatrix
    loss : Loss
    rows : SharedRows, MixedRows or None
        The map A, whose rows select or mix rows of Z for each sample. None: A is the identity.
    weights : (n,) array or None
        Sample weights γ of the loss.
    smoothing : float
        Strength δ of the smoothing matrix S.
    terms_V, terms_U : sequences of Term
        Penalty terms on Z and on U.
    unit : bool
        Whether each column of U has length one (Frobenius) or sum one (KL). The terms on V are then
        evaluated for V multiplied by the lengths of U, which gives an equivalent problem without a
        constraint: the subproblem for U contains a cost of the lengths (`UnitLength`), and
        `normalize` moves the lengths from U to V without changing the objective. It cannot be used
        with both smoothing, which mixes the columns, and fixed entries.
    held : (p, k) array or None
        Fixed entries of U, and NaN for all others.
    project : mapping
        For "V" or "U", a function that projects this factor onto its constraint set.
    sweeps : (int, int)
        Number of coordinate sweeps on V and on U per product with X.
    """

    def __init__(
        self,
        data: DataMatrix,
        loss: Loss,
        *,
        rows: SharedRows | MixedRows | None = None,
        weights: NDArray[Any] | None = None,
        smoothing: float = 0.0,
        terms_V: Sequence[Term] = (),
        terms_U: Sequence[Term] = (),
        unit: bool = False,
        held: NDArray[Any] | None = None,
        project: Mapping[str, Callable[[Array], Array]] | None = None,
        sweeps: tuple[int, int] = (1, 1),
    ) -> None:
        self.data, self.loss = data, loss
        self.weights = None if weights is None else data.rows(weights)
        self.rows = None if rows is None or rows.is_identity else rows
        self.S, self.unit = Smoothing(smoothing), unit
        self.d: Array | None = None
        self.R, mixing, counts = data, None, None
        if weights is not None or self.rows is not None:
            mixing, counts = self._gather(weights)
        if self.R.lack is not None and self.R.lack.d is not None:
            self.d = self.R.lack.d
        self.terms: dict[str, list[Term]] = {"V": [], "U": []}
        for side, terms in (("V", terms_V), ("U", terms_U)):
            for term in terms:
                self.add_term(side, term)
        self.constant, self.size = loss.constants(data, self.weights)
        self.mixing, self.counts, self.last = mixing, counts, LastPass()
        self.eps = float(np.finfo(data.dtype).eps)
        self.least = LEAST_MISFIT[loss.kind]
        # Value below which the objective must be summed without cancellation. Sums over X have
        # rounding errors of about eps times their size, so the errors above the limit are at most a
        # millionth of the value. With missing values, the model may be far larger than X at entries
        # that are not observed.
        large = self.R.lack is not None and self.eps > 1e-10
        self.cancels = np.inf if large or loss.careful else 1e6 * self.eps * self.size
        self.sweeps = {"V": sweeps[0], "U": sweeps[1]}
        self.project = dict(project or {})
        self.held = None if held is None else self._hold(held)

    def _gather(self, weights: NDArray[Any] | None) -> tuple[Any, Array | None]:
        """Set R = AᵀΓX and its row weights; return AᵀΓA if not diagonal, and Aᵀ1."""
        data, n, mixing = self.data, self.data.shape[0], None
        d = np.ones(n) if weights is None else weights
        if self.rows is None:
            self.R = data.weighted(weights, None, n)
        elif isinstance(self.rows, MixedRows):
            heavy = data if weights is None else data.weighted(weights, None, n)
            # MixedData implements only the methods of DataMatrix that losses use.
            self.R = MixedData(heavy, self.rows)  # type: ignore[assignment]
            mixing = self.rows.gram(weights).astype(data.dtype)
        else:
            self.R = data.weighted(weights, self.rows.index, self.rows.n_rows)
        d = d if self.rows is None else self.rows.reduce(d)
        self.d = self.R.rows(d.astype(data.dtype))
        if self.rows is None:
            return None, None
        return mixing, self.R.rows(self.rows.counts.astype(data.dtype))

    @property
    def newton_sides(self) -> str:
        """Factors that second-order sweeps support; they cannot keep entries fixed."""
        return self.R.newton_sides if self.held is None else self.R.newton_sides.replace("U", "")

    def _hold(self, values: NDArray[Any]) -> Held:
        known = ~np.isnan(values)
        parts = (np.where(known, values, 0), known, ~known.any(axis=0))
        if self.unit and self.S.delta:
            if not known.all():
                raise ValueError("scale='unit' does not allow smoothing with fixed components")
            self.unit = False  # all entries are fixed, so no length can change
        held = Held(*(self.data.small(a.astype(self.data.dtype)) for a in parts))
        self.project["U"] = held.project
        return held

    # -- terms ------------------------------------------------------------------------------

    def add_term(self, side: str, term: Term) -> None:
        """Add a term on Z ("V") or on U, with arrays of the same type as the factor."""
        move = self.R.rows if side == "V" else self.R.small
        self.terms[side].append(term.placed(Place(move, self.R.operator, self.data.dtype)))

    def penalty(self, side: str, Z: Array, U: Array) -> float:
        """Return the sum of the penalty terms on one factor."""
        return sum(term.value(Z if side == "V" else U) for term in self.terms[side])

    def lengths(self, U: Array) -> Array:
        """Return length (Frobenius) or sum (KL) of each column of U; without ``unit`` one."""
        if not self.unit:
            return arrays.ones(U, U.shape[1])
        length = column_lengths(U, self.loss.unit_norm, common=self.S.delta > 0)
        if self.held is None:
            return length
        # parts with fixed entries keep their length
        return length * self.held.columns + (1 - self.held.columns)

    def length_price(self, Z: Array) -> UnitLength:
        """Return the cost of the lengths of the columns of U, as a term on U.

        It is the value of the terms on V after V is multiplied by these lengths.
        """
        prices = [self._price(term, Z) for term in self.terms["V"]]
        free = None if self.held is None else self.held.columns
        norm = self.loss.unit_norm
        return UnitLength(prices, self.lengths, norm, free, exact=norm == 2)

    def _price(self, term: Term, Z: Array) -> Price:
        """Return the cost of the lengths l that one term on V causes.

        The cost is Σ ⟨z_k, ∇_k⟩ l^q/q for a term of degree q, and otherwise follows from the bound
        of the term.
        """
        q = term.degree
        # S mixes the columns, so that only their common scale can change without changing the loss.
        alike = _common if self.S.delta else lambda price: price
        if q == 1 or q == 2:
            price = alike(arrays.column_sums64(entrywise(mul, Z, term.gradient(Z))))
            nothing = namespace(price).zeros_like(price)
            first, second = (price, nothing) if q == 1 else (nothing, price)
            return Price(first, second, lambda lengths: (price * lengths**q).sum() / q)
        linear, ridge = term.bound(Z).about_zero(Z)
        first = alike(arrays.column_sums64(linear * Z))
        second = alike(arrays.column_sums64(ridge * Z * Z))
        return Price(first, second, lambda lengths: term.value(Z * arrays.cast(lengths, Z.dtype)))

    # -- what the loop asks for -------------------------------------------------------------

    def subproblem(self, side: str, Z: Array, U: Array) -> Subproblem:
        """Return the subproblem for one factor ("V" or "U") with the other factor fixed."""
        return self.subproblems(side, [(Z, U)])[0]

    def subproblems(self, side: str, points: Sequence[tuple[Array, Array]]) -> Sequence[Subproblem]:
        """Return the subproblems of several starts, if possible from one product with X."""
        other, free, halves = "U" if side == "V" else "V", side == "V" or self.held is None, []
        for Z, U in points:
            terms, others = self.terms[side], None
            if self.unit and side == "U":  # the cost of the lengths is that of the terms on V
                terms = [*terms, self.length_price(Z)]
            elif self.terms[other]:
                others = partial(self.penalty, other, Z, U)
            halves.append(Half(terms, others, self.sweeps[side], free))
        subs = self.loss.subproblems(self, side, points, halves)
        for sub in subs:
            sub.project = self.project.get(side)
            sub.held = self.held.known if side == "U" and self.held is not None else None
        return subs

    def expect(self, side: str, Z: Array, U: Array) -> None:
        """Announce the next subproblem, so that a back end can compute its product early."""
        # with smoothing, the product needs U S or V S, which is not computed yet
        if not self.S.delta:
            self.R.expect("dot" if side == "V" else "tdot", U if side == "V" else Z)

    def value(self, Z: Array, U: Array) -> float:
        """Return the objective."""
        value = self.loss.value(self, Z, U)
        if not (self.terms["V"] or self.terms["U"]):
            return value
        scaled = Z * self.lengths(U) if self.unit else Z
        return value + (self.penalty("V", scaled, U) + self.penalty("U", Z, U))

    def normalize(self, Z: Array, U: Array) -> tuple[Array, Array]:
        """Scale columns of U to unit length and multiply the columns of Z by the lengths.

        This is only for models with ``unit``.

        If a column of U is zero, the column of Z becomes zero.
        """
        if self.held is None:
            moved = unit_columns(Z, U, self.loss.unit_norm, common=self.S.delta > 0)
        else:
            length = self.lengths(U)
            length = namespace(length).where(length > 0, length, 1.0)
            moved = Z * length, self.held.project(U / length)
        if self.last.at(Z, U) is not None:
            self.last.rescale((Z, U), moved, self.lengths(U))
        return moved

    def feasible(self, Z: Array, U: Array) -> tuple[Array, Array]:
        """Return initial values that satisfy the constraints.

        No step changes an entry of U whose feature has no observed value, or a row of Z whose
        sample has weight zero, unless a term does. Such entries are set to zero.
        """
        if self.d is not None and not self.terms["V"]:
            Z = cast(namespace(Z).where(self.d[:, None] > 0, Z, 0), Z.dtype)
        if self.R.lack is not None:
            U = U * self.R.lack.seen_columns
        to_V, to_U = self.project.get("V"), self.project.get("U")
        Z, U = to_V(Z) if to_V else Z, to_U(U) if to_U else U
        return self.normalize(Z, U) if self.unit else (Z, U)

    def fit_scale(self, V: Array, U: Array) -> Array:
        """Return V multiplied by the number that fits X best."""
        B = self.S(U) if self.S.delta else U
        data = self.data if self.data.lack is None else self.data.filled()
        fit = float((B * data.tdot(V)).sum())
        size = float(((V.T @ V) * (B.T @ B)).sum())
        return V * (fit / size) if fit > 0 and size > 0 else V

    def exact_value(self, Z: Array, U: Array, about: float = np.inf) -> float:
        """Return the objective without cancellation if the fit is nearly perfect.

        ``about`` is an approximate value of the objective; it saves a pass over X.
        """
        value = about if about <= 0.5 * self.cancels else self.value(Z, U)
        if value <= self.cancels:
            B = self.S(U) if self.S.delta else U
            loss = self.loss.exact(self.data, self.weights, self.expand(Z), B)
            if loss is not None:
                value = loss
                if self.terms["V"] or self.terms["U"]:
                    value = loss + self.penalty("V", Z, U) + self.penalty("U", Z, U)
            elif value == about:
                value = self.value(Z, U)
        return max(value, 0.0)

    def reduce(self, V: Array) -> Array:
        """Return the initial Z for the initial part weights V.

        Each row of Z is the weighted mean of the rows of V whose samples share this row of Z, for
        example because they have the same label.
        """
        if self.rows is None:
            return V
        mean = self.data.mean_rows(self.rows, V)
        if self.weights is None or self.d is None:
            return mean
        sums = self.data.mean_rows(self.rows, V * arrays.cast(self.weights, V.dtype)[:, None])
        weighted = sums * ratio(self.counts, self.d)[:, None]
        return namespace(mean).where(self.d[:, None] > 0, weighted, mean)

    def expand(self, Z: Array) -> Array:
        """Return V = A Z."""
        return Z if self.rows is None else self.data.expand_rows(self.rows, Z)


def _common(lengths: Array) -> Array:
    return namespace(lengths).full_like(lengths, lengths.mean())


def column_lengths(U: Array, norm: int, *, common: bool = False) -> Array:
    """Return ‖u_k‖₂ (norm 2) or Σ_j u_jk (norm 1), or their mean if ``common``."""
    if norm == 1:
        sums = U.sum(axis=0)
        return _common(sums) if common else sums
    squares = (U * U).sum(axis=0)
    return namespace(U).sqrt(_common(squares) if common else squares)


def unit_columns(Z: Array, U: Array, norm: int, *, common: bool = False) -> tuple[Array, Array]:
    """Scale columns of U to length one, and Z inversely; zeros become constant."""
    length = column_lengths(U, norm, common=common)
    if (
        isinstance(U, np.ndarray)
        and arrays.to_numpy(length).min(initial=1) >= np.finfo(U.dtype).tiny
    ):
        return entrywise(mul, Z, length), U / length
    fallback = 1.0 / (U.shape[0] if norm == 1 else np.sqrt(U.shape[0]))
    U = namespace(U).where(length > 0, ratio(U, spread(length, U)), float(fallback))
    return Z * length, U
