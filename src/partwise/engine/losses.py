"""The loss between X and Y = V S Uᵀ: what it is worth, and how each half-step looks.

A loss turns products of the data with one factor into a subproblem in the other. The model ``m``
brings ``R``, the data with sample weights and shared rows summed in (AᵀΓX), ``d``, the weight of
each row (None: ones), the smoothing ``S`` and the terms. With B = U S and F = V S,
Y = V Bᵀ = F Uᵀ.
"""

from __future__ import annotations

from typing import Any

from partwise.engine.arrays import cast, column_sums64, float64, namespace
from partwise.engine.data import DataMatrix
from partwise.engine.numeric import Array
from partwise.engine.subproblems import Divergence, Quadratic, Subproblem
from partwise.engine.terms import Linear, Ridge

NAMES = {"frobenius": 2.0, "kullback-leibler": 1.0, "itakura-saito": 0.0}


def beta_of(beta_loss: str | float) -> float:
    """β of a loss name or number."""
    return NAMES[beta_loss] if isinstance(beta_loss, str) else float(beta_loss)


def make_loss(beta_loss: str | float) -> Frobenius | KullbackLeibler | Beta:
    """The loss object of a scikit-learn ``beta_loss``."""
    beta = beta_of(beta_loss)
    if beta == 2:
        return Frobenius()
    return KullbackLeibler() if beta == 1 else Beta(beta)


def _total(rows: Array, weights: Array | None) -> float:
    return float(rows.sum() if weights is None else rows @ weights)


class Frobenius:
    """½ ‖X - Y‖²."""

    beta = 2.0
    kind = "frobenius"
    unit_norm = 2  # ‖u_k‖₂ = 1 is the scale constraint that goes with it

    def constant(self, data: DataMatrix, weights: Array | None) -> float:
        return 0.5 * _total(data.row_sq_norms(), weights)

    def exact(self, data: DataMatrix, weights: Array | None, V: Array, B: Array) -> float:
        """The loss summed from residuals, for fits so good that the expansion cancels."""
        return 0.5 * _total(data.row_sq_residuals(V, B), weights)

    def value(self, m: Any, Z: Array, U: Array) -> float:
        sub = self.subproblem(m, "U", Z, U)
        return sub.value(U)

    def subproblem(self, m: Any, side: str, Z: Array, U: Array) -> Quadratic:
        if side == "V":
            B = m.S(U)
            return Quadratic(
                m.R.dot(B),
                B.T @ B,
                d=m.d,
                terms=m.terms["V"],
                constant=m.constant + m.penalty("U", Z, U),
                sweeps=m.sweeps["V"],
            )
        F = m.S(Z)
        G = F.T @ (F if m.d is None else F * m.d[:, None])
        if not m.unit:
            return Quadratic(
                m.R.tdot(F),
                G,
                terms=m.terms["U"],
                constant=m.constant + m.penalty("V", Z, U),
                sweeps=m.sweeps["U"],
            )
        # ½ρ‖u‖² is the price of length exactly for terms of degree 2; for degree 1 it bounds it,
        # ‖u‖ <= ½(‖u‖² + 1), with equality at ‖u‖ = 1, where each step begins.
        prices = m.length_prices(Z)

        def length_cost(U: Array) -> float:
            # the terms on V with these lengths in it: by Euler a term of degree q is price/q
            lengths = float64(m.lengths(U))
            return sum(float((price * lengths**q).sum()) / q for q, price in prices)

        return Quadratic(
            m.R.tdot(F),
            G,
            constant=m.constant,
            ridge=sum(price for _, price in prices),
            length_cost=length_cost,
            sweeps=m.sweeps["U"],
        )


def _recalled(m: Any, Z: Array, U: Array, side: str) -> Array:
    """The product for the step on ``side`` at these factors, if a pass for the value made it."""
    known = m.recall(Z, U)
    return known.product if known is not None and known.side == side else None


class KullbackLeibler:
    """Σ x log(x/y) - x + y."""

    beta = 1.0
    kind = "divergence"
    unit_norm = 1  # Σ_j u_jk = 1

    def constant(self, data: DataMatrix, weights: Array | None) -> float:
        return _total(data.row_xlogx() - data.row_sums(), weights)

    def value(self, m: Any, Z: Array, U: Array, side: str = "V") -> float:
        """The objective, from a pass whose product the step on ``side`` can use next."""
        known = m.recall(Z, U)
        if known is None and side == "U" and hasattr(m.R, "kl_tdot_log"):
            product, xlogy = m.R.kl_tdot_log(m.S(Z), U)
            known = m.remember(Z, U, xlogy, product, "U")
        elif known is None:
            product, xlogy = m.R.kl_dot(Z, m.S(U))
            known = m.remember(Z, U, float(xlogy.sum()), product)
        sum_y = float(column_sums64(Z, m.d) @ column_sums64(m.S(U)))
        penalty = m.penalty("V", Z * m.lengths(U), U) + m.penalty("U", Z, U)
        return m.constant + sum_y - known.xlogy + penalty

    def subproblem(self, m: Any, side: str, Z: Array, U: Array) -> Divergence:
        if side == "V":
            B = m.S(U)
            sums = B.sum(axis=0)[None, :]

            def product() -> Array:
                found = _recalled(m, Z, U, "V")
                return m.R.kl_dot(Z, B)[0] if found is None else found

            def newton(Z: Array, *how: Any) -> Array:
                return m.R.kl_newton(Z, B, *how, transposed=False)[0]

            return Divergence(
                product,
                sums if m.d is None else m.d[:, None] * sums,
                d=m.d,
                terms=m.terms["V"],
                newton=newton if "V" in m.R.newton_sides else None,
                evaluate=lambda Z: self.value(m, Z, U, "U"),
            )
        F = m.S(Z)
        mass = (F.sum(axis=0) if m.d is None else m.d @ F)[None, :]
        terms = list(m.terms["U"])
        for degree, price in m.length_prices(Z) if m.unit else ():
            # degree 1 is linear in Σu exactly; (Σu)² <= Σ u²/u₀ at Σu₀ = 1 by Jensen for degree 2
            price = cast(price, U.dtype)
            linear = Linear(price[None, :])
            # below 1e-12 of the mean an entry is rounding, and its curvature would overflow
            low = namespace(U).maximum(U, 1e-12 / U.shape[0])
            terms.append(linear if degree == 1 else Ridge(price / low))

        def newton_columns(U: Array, *how: Any) -> Array:
            new, xlogy = m.R.kl_newton(F, U, *how, transposed=True)
            m.remember(Z, new, float(xlogy.sum()), None)
            return new

        def product_columns() -> Array:
            found = _recalled(m, Z, U, "U")
            return m.R.kl_tdot(F, U) if found is None else found

        return Divergence(
            product_columns,
            mass,
            terms=terms,
            newton=newton_columns if "U" in m.R.newton_sides else None,
            evaluate=lambda U: self.value(m, Z, U),
        )


class Beta:
    """The β-divergence, for the drop-in NMF only: no labels, graph or weights."""

    kind = "divergence"
    unit_norm = 2

    def __init__(self, beta: float) -> None:
        self.beta = beta

    def constant(self, data: DataMatrix, weights: Array | None) -> float:
        return 0.0

    def value(self, m: Any, Z: Array, U: Array) -> float:
        known = m.recall(Z, U)
        if known is None:
            num, den, rows = m.R.beta_dot(Z, U, self.beta)
            known = m.remember(Z, U, float(rows.sum()), (num, den))
        return known.xlogy + m.penalty("V", Z, U) + m.penalty("U", Z, U)

    def subproblem(self, m: Any, side: str, Z: Array, U: Array) -> Subproblem:
        if side == "V":
            known = m.recall(Z, U)
            num, den = m.R.beta_dot(Z, U, self.beta)[:2] if known is None else known.product
            evaluate = lambda Z: self.value(m, Z, U)  # noqa: E731
        else:
            num, den = m.R.beta_tdot(Z, U, self.beta)
            evaluate = lambda U: self.value(m, Z, U)  # noqa: E731
        return Divergence(lambda: num, den, terms=m.terms[side], beta=self.beta, evaluate=evaluate)
