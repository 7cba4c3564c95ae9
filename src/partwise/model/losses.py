"""Losses between X and Y = V S Uᵀ, and the subproblems that they lead to.

A loss makes the subproblem for one factor from products of X with the other factor. Of a
`FactorModel` it uses the data R with row weights d, the smoothing S and the last pass over X. With
B = U S and F = V S, Y = V Bᵀ = F Uᵀ.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from partwise.backends import DataMatrix
from partwise.backends.arrays import (
    Array,
    column_blocks,
    column_sums64,
    dot64,
    gram,
    joined,
    ratio,
    spread,
)
from partwise.model.subproblems import (
    Divergence,
    Filled,
    Free,
    Mixed,
    Quadratic,
    Signed,
    Subproblem,
)
from partwise.model.terms import Term

if TYPE_CHECKING:
    from partwise.model.factor_model import FactorModel as Model


class Pass(NamedTuple):
    """Results of one pass over X for a pair of factors."""

    Z: Array
    U: Array
    total: float  # Σ x log y for KL, the divergence for other β
    product: Any  # product for the update of factor ``side``, or None if it was not computed
    side: str


class LastPass:
    """Results of the last pass over X, used by the next update of the same factors.

    The arrays of factors are not changed after a step has returned them, so that a pair of factors
    can be recognised by identity.
    """

    _last: Pass | None = None

    def at(self, Z: Array, U: Array) -> Pass | None:
        last = self._last
        return last if last is not None and last.Z is Z and last.U is U else None

    def keep(self, Z: Array, U: Array, total: float, product: Any, side: str = "V") -> Pass:
        self._last = Pass(Z, U, total, product, side)
        return self._last

    def product(self, Z: Array, U: Array, side: str) -> Any:
        """Return the product for updating ``side``, if computed for these factors."""
        last = self.at(Z, U)
        return last.product if last is not None and last.side == side else None

    def taken(self, Z: Array, U: Array, side: str) -> list[Any] | None:
        """Return `product` in a list; delete it here, as it is as large as a factor."""
        last, self._last = self._last, None
        if last is None or last.product is None or last.side != side:
            return None
        return [last.product] if last.Z is Z and last.U is U else None

    def rescale(self, old: tuple[Array, Array], new: tuple[Array, Array], lengths: Array) -> None:
        """Update the stored product after lengths moved from U to Z.

        (X/Y) B is divided by the lengths, and (X/Y)ᵀ F is multiplied by them.
        """
        last = self.at(*old)
        if last is None:
            return
        product = last.product
        if product is not None:
            lengths = spread(lengths, product)
            product = ratio(product, lengths) if last.side == "V" else product * lengths
        self.keep(*new, last.total, product, last.side)


@dataclass(frozen=True)
class Half:
    """Penalty terms and number of sweeps for the update of one factor.

    ``others()`` returns the value of the terms on the other factor.
    """

    terms: Sequence[Term] = ()
    others: Callable[[], float] | None = None
    sweeps: int = 1
    free: bool = True  # False if some entries are fixed, which second-order sweeps do not support


#: The value of β for each loss name. "l21" is solved as a Frobenius loss whose sample weights are
#: computed again in each step.
NAMES = {"frobenius": 2.0, "kullback-leibler": 1.0, "itakura-saito": 0.0, "l21": 2.0}


class Loss(ABC):
    """A loss, and the subproblems for the two factors.

    Attributes
    ----------
    beta : float
        The exponent β of the β-divergence.
    kind : str
        The kind of its subproblems: "frobenius" or "divergence".
    unit_norm : int
        The norm of columns of U under ``scale="unit"``: 2 for ‖u‖₂ = 1, and 1 for Σu = 1.
    careful : bool
        Whether the loss must always be computed by `exact`, even if it is large.
    degree : float
        The number q for which loss(sX, sY) = s^q loss(X, Y).
    """

    beta: float
    degree: float
    kind: str
    unit_norm: int
    careful: bool = False

    @abstractmethod
    def constants(self, data: DataMatrix, weights: Array | None) -> tuple[float, float]:
        """Return the part of the loss without the factors, and a size to compare a fit with.

        The size is 0 if it is unknown.
        """

    def exact(self, data: DataMatrix, weights: Array | None, V: Array, B: Array) -> float | None:
        """Return the loss summed entry by entry, for nearly perfect fits.

        In such fits, sums over X would cancel. Return None if `value` is already computed by
        entries, or if no better way is known.
        """
        return None

    @abstractmethod
    def value(self, model: Model, Z: Array, U: Array) -> float:
        """Return the loss at (Z, U)."""

    def subproblems(
        self, model: Model, side: str, points: Sequence[tuple[Array, Array]], halves: Sequence[Half]
    ) -> Sequence[Subproblem]:
        """Return the subproblems of several starts for one factor with the other factor fixed."""
        pairs = zip(points, halves, strict=True)
        return [self.subproblem(model, side, Z, U, half) for (Z, U), half in pairs]

    def subproblem(self, model: Model, side: str, Z: Array, U: Array, half: Half) -> Subproblem:
        """Return the subproblem of one start."""
        return self.subproblems(model, side, [(Z, U)], [half])[0]


def beta_of(beta_loss: str | float) -> float:
    """Return β of a loss name or number."""
    return float(NAMES.get(beta_loss, beta_loss))  # type: ignore[arg-type]


def make_loss(beta_loss: str | float) -> Loss:
    """Return the loss object of a scikit-learn ``beta_loss``."""
    beta = float(NAMES.get(beta_loss, beta_loss))  # type: ignore[arg-type]
    if beta == 2:
        return Frobenius()
    return KullbackLeibler() if beta == 1 else Beta(beta)


def _total(rows: Array, weights: Array | None) -> float:
    return float(rows.sum() if weights is None else rows @ weights)


class Frobenius(Loss):
    """The Frobenius loss ½ ‖X - Y‖²."""

    #: Class of the subproblem for each factor.
    kinds: Mapping[str, type[Quadratic]] = {"V": Quadratic, "U": Quadratic}

    beta = degree = 2.0
    kind = "frobenius"
    unit_norm = 2

    def constants(self, data: DataMatrix, weights: Array | None) -> tuple[float, float]:
        if weights is None:
            half = 0.5 * data.total_squares()
        else:
            half = 0.5 * _total(data.row_sq_norms(), weights)
        return half, half  # the size is the loss for Y = 0

    def exact(self, data: DataMatrix, weights: Array | None, V: Array, B: Array) -> float:
        if weights is None:
            return 0.5 * data.total_squares(V, B)
        return 0.5 * _total(data.row_sq_residuals(V, B), weights)

    def value(self, model: Model, Z: Array, U: Array) -> float:
        """Return the loss, and store its product with X for a following update of V."""
        if model.R.lack is not None or model.mixing is not None:
            return self.subproblems(model, "U", [(Z, U)], [Half()])[0].value(U)
        sub = self.subproblems(model, "V", [(Z, U)], [Half()])[0]
        value = sub.value(Z)
        model.last.keep(Z, U, value, sub.C)
        return value

    def subproblems(
        self, model: Model, side: str, points: Sequence[tuple[Array, Array]], halves: Sequence[Half]
    ) -> list[Quadratic]:
        """Return the subproblems of several starts from one product with X."""
        turned = side == "V"
        fixed = [pair[turned] for pair in points]
        if model.S.delta:
            fixed = [model.S(F) for F in fixed]
        Cs: list[Array] = []
        if model.R.lack is None:  # first, since Dask computes XᵀV and VᵀV in one pass
            product = model.R.dot if turned else model.R.tdot
            if len(points) > 1:
                Cs = column_blocks(product(joined(*fixed)), [F.shape[1] for F in fixed])
            else:
                Cs = model.last.taken(*points[0], side) or [product(fixed[0])]
        heavy = not turned and model.d is not None
        Gs = [_heavy_gram(model, F) if heavy else gram(F) for F in fixed]
        rest: list[dict[str, Any]] = [
            {
                "d": model.d if turned else None,
                "terms": half.terms,
                "constant": model.constant,
                "others": half.others,
                "sweeps": half.sweeps,
            }
            for half in halves
        ]
        if model.R.lack is not None:
            made = zip(fixed, Gs, points, rest, strict=True)
            gaps: Any = model.R.half  # type: ignore[attr-defined]
            return [Filled(gaps(side, F, at[not turned]), G, **kw) for F, G, at, kw in made]
        if turned and model.mixing is not None:
            mixed = zip(Cs, Gs, points, rest, strict=True)
            return [Mixed(C, G, model.mixing, at[0], **kw) for C, G, at, kw in mixed]
        return [self.kinds[side](C, G, **kw) for C, G, kw in zip(Cs, Gs, rest, strict=True)]


def _heavy_gram(model: Model, F: Array) -> Array:
    """Return Fᵀ diag(d) F, or FᵀMF if samples mix the rows of several classes."""
    assert model.d is not None
    return F.T @ (F * model.d[:, None] if model.mixing is None else model.mixing @ F)


class SignedFrobenius(Frobenius):
    """The loss ½ ‖X - Y‖² for X and U with negative values, and V >= 0."""

    kinds = {"V": Signed, "U": Free}


class KullbackLeibler(Loss):
    """The Kullback-Leibler divergence Σ x log(x/y) - x + y."""

    beta = degree = 1.0
    kind = "divergence"
    unit_norm = 1

    def constants(self, data: DataMatrix, weights: Array | None) -> tuple[float, float]:
        sums = data.row_sums()
        # The loss of a good fit is about ½ Σ (x - y)²/y.
        return _total(data.row_xlogx() - sums, weights), 0.5 * _total(sums, weights)

    def exact(self, data: DataMatrix, weights: Array | None, V: Array, B: Array) -> float | None:
        rows = data.row_divergences(V, B)
        return None if rows is None else _total(rows, weights)

    def value(self, model: Model, Z: Array, U: Array, side: str = "V") -> float:
        """Return the loss; store the product of the same pass for an update of ``side``."""
        last = model.last.at(Z, U)
        both = model.R.kl_tdot_log(model.S(Z), U) if last is None and side == "U" else None
        if both is not None:
            last = model.last.keep(Z, U, both[1], both[0], "U")
        elif last is None:
            product, xlogy = model.R.kl_dot(Z, model.S(U))
            last = model.last.keep(Z, U, float(xlogy.sum()), product)
        if model.R.lack is None:
            sum_y = float(column_sums64(Z, model.d) @ column_sums64(model.S(U)))
        else:
            sum_y = dot64(U if side == "V" else Z, self._seen_sums(model, side, Z, U))
        return model.constant + sum_y - last.total

    def _seen_sums(self, model: Model, side: str, Z: Array, U: Array) -> Array:
        """Return w B or wᵀF, the linear cost of factor ``side`` for an incomplete X."""
        lack = model.R.lack
        assert lack is not None
        other, factor = ("U", Z) if side == "V" else ("V", U)
        sums: Array = lack.sums(other, factor, model.S(factor))
        return sums

    def subproblem(self, model: Model, side: str, Z: Array, U: Array, half: Half) -> Divergence:
        R, codes = model.R, side == "V"
        fixed = model.S(U if codes else Z)  # B in the subproblem for Z, F in that for U
        d = model.d if codes else None
        sums = (fixed.sum(axis=0) if codes or model.d is None else model.d @ fixed)[None, :]
        if R.lack is not None:
            cost = self._seen_sums(model, "U" if codes else "V", Z, U)
        else:
            cost = sums if d is None else d[:, None] * sums

        def product() -> Array:
            found: Array | None = model.last.product(Z, U, side)
            if found is not None:
                return found
            return R.kl_dot(Z, fixed)[0] if codes else R.kl_tdot(fixed, U)

        def pair(factor: Array) -> tuple[Array, Array]:
            return (factor, fixed) if codes else (fixed, factor)

        def newton(factor: Array, cost: Array, ridge: Array, sweeps: int, rough: bool) -> Array:
            left, right = pair(factor)
            new, xlogy = R.kl_newton(left, right, cost, ridge, sweeps, rough, transposed=not codes)
            if not codes:
                model.last.keep(Z, new, float(xlogy.sum()), None)
            return new

        def curvature(factor: Array) -> Array:
            return R.kl_curvature(*pair(factor), transposed=not codes)

        def evaluate(factor: Array) -> float:
            return self.value(model, factor, U, "U") if codes else self.value(model, Z, factor)

        able = side in R.newton_sides and (codes or half.free)
        curved = side in R.curved
        return Divergence(
            product,
            cost,
            d=d,
            terms=half.terms,
            newton=newton if able and not curved else None,
            curvature=curvature if able and curved else None,
            evaluate=evaluate,
            others=half.others,
        )


class Beta(Loss):
    """The β-divergence, for the drop-in NMF only: no labels, graph or weights."""

    kind = "divergence"
    unit_norm = 2

    def __init__(self, beta: float) -> None:
        self.beta = self.degree = beta

    def constants(self, data: DataMatrix, weights: Array | None) -> tuple[float, float]:
        # The loss of a good fit is about ½ Σ (x - y)² y^(β-2).
        return 0.0, 0.5 * _total(data.row_powers(self.beta), weights)

    def value(self, model: Model, Z: Array, U: Array) -> float:
        last = model.last.at(Z, U)
        if last is None:
            num, den, rows = model.R.beta_dot(Z, U, self.beta)
            last = model.last.keep(Z, U, float(rows.sum()), (num, den))
        return last.total

    def subproblem(self, model: Model, side: str, Z: Array, U: Array, half: Half) -> Divergence:
        codes = side == "V"
        found = model.last.product(Z, U, "V") if codes else None
        if found is None:
            pass_over = model.R.beta_dot if codes else model.R.beta_tdot
            found = pass_over(Z, U, self.beta)[:2]
        num, den = found

        def evaluate(factor: Array) -> float:
            return self.value(model, factor, U) if codes else self.value(model, Z, factor)

        return Divergence(
            lambda: num,
            den,
            terms=half.terms,
            beta=self.beta,
            evaluate=evaluate,
            others=half.others,
        )
