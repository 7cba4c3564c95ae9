"""The L21 loss: the sum of the norms of residuals, robust to outlying samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from partwise.backends import DataMatrix, arrays
from partwise.backends.arrays import Array, namespace
from partwise.model.losses import Frobenius, Half
from partwise.model.subproblems import Quadratic

if TYPE_CHECKING:
    from partwise.model.factor_model import FactorModel as Model

#: ε as a fraction of the mean norm of a sample.
SMOOTH = 1e-3


class Reweighted(Quadratic):
    """Weighted Frobenius subproblem that majorises the L21 loss at given factors.

    It uses √(r² + ε²) <= ½ (r² + ε²)/s + ½ s, with equality if r² + ε² = s². Each sample therefore
    has the weight 1/s in a Frobenius loss. `value` is the L21 loss itself.
    """

    local = True
    measures_change = False

    def __init__(self, *rest: Any, evaluate: Callable[[Array], float]) -> None:
        super().__init__(*rest)
        self.evaluate = evaluate

    def value(self, Z: Array) -> float:
        total = self.evaluate(Z) + sum(term.value(Z) for term in self.terms)
        return total if self.others is None else total + self.others()

    def change(self, new: Array, old: Array) -> float:
        return self.value(new) - self.value(old)


class RowLengths(Frobenius):
    """The smoothed L21 loss Σ_i γ_i √(‖x_i - y_i‖² + ε²) (Kong, Ding & Huang 2011).

    Each update of a factor solves a Frobenius problem in which sample i has the weight γ_i divided
    by its current √(‖x_i - y_i‖² + ε²). All terms and steps for the Frobenius loss can therefore be
    used, and a step that decreases the Frobenius problem also decreases this loss.

    Parameters
    ----------
    epsilon : float or None
        The constant ε. None: a thousandth of the mean norm of a sample.
    """

    # the root makes the rounding error of a single sample large compared with its value
    careful = True
    degree = 1.0

    def __init__(self, epsilon: float | None = None) -> None:
        self.given, self.epsilon = epsilon, epsilon or 1.0
        # U and the product X B, which both updates of an iteration need
        self._last: tuple[Array, Array] | None = None

    def constants(self, data: DataMatrix, weights: Array | None) -> tuple[float, float]:
        self.squares = squares = data.row_sq_norms()
        if self.given is None:
            self.epsilon = SMOOTH * float(namespace(squares).sqrt(squares).mean()) or 1.0
        return super().constants(data, weights)[0], self._total(squares, weights)

    def exact(self, data: DataMatrix, weights: Array | None, V: Array, B: Array) -> float:
        return self._total(data.row_sq_residuals(V, B), weights)

    def value(self, model: Model, Z: Array, U: Array) -> float:
        B = model.S(U)
        squares = self._squares(model, model.expand(Z), self._product(model, U, B), B)
        return self._total(squares, model.weights)

    def subproblems(
        self, model: Model, side: str, points: Sequence[tuple[Array, Array]], halves: Sequence[Half]
    ) -> list[Quadratic]:
        return [
            (self._codes if side == "V" else self._basis)(model, Z, U, half)
            for (Z, U), half in zip(points, halves, strict=True)
        ]

    def _codes(self, model: Model, Z: Array, U: Array, half: Half) -> Reweighted:
        B = model.S(U)
        product = self._product(model, U, B)
        weights = self._weights(model, model.expand(Z), product, B)

        def evaluate(Z: Array) -> float:
            return self._total(self._squares(model, model.expand(Z), product, B), model.weights)

        d = _summed(model, weights[:, None])[:, 0]
        C = _summed(model, weights[:, None] * product)
        rest = (d, half.terms, model.constant, half.others, half.sweeps)
        return Reweighted(C, B.T @ B, *rest, evaluate=evaluate)

    def _basis(self, model: Model, Z: Array, U: Array, half: Half) -> Reweighted:
        B = model.S(U)
        V = model.expand(Z)
        weights = self._weights(model, V, self._product(model, U, B), B)
        F = model.S(V)
        heavy = F * weights[:, None]

        def evaluate(U: Array) -> float:
            return self.value(model, Z, U)

        C = model.data.tdot(heavy)
        rest = (None, half.terms, model.constant, half.others, half.sweeps)
        return Reweighted(C, F.T @ heavy, *rest, evaluate=evaluate)

    def _product(self, model: Model, U: Array, B: Array) -> Array:
        """Return the product X B; it is computed once for each U."""
        if self._last is None or self._last[0] is not U:
            self._last = U, model.data.dot(B)
        return self._last[1]

    def _squares(self, model: Model, V: Array, product: Array, B: Array) -> Array:
        """Return ‖x_i - B v_i‖² in float64, by entries if X B loses too many digits."""
        if arrays.numpy_dtype(V.dtype).itemsize < 8 and model.data.density == 1:
            return model.data.row_sq_residuals(V, B)
        V, product, G = (arrays.float64(a) for a in (V, product, B.T @ B))
        found = self.squares + ((V @ G - 2 * product) * V).mean(axis=1) * float(V.shape[1])
        return namespace(found).maximum(found, 0)

    def _weights(self, model: Model, V: Array, product: Array, B: Array) -> Array:
        """Return the weight of each sample in the Frobenius problem."""
        squares = self._squares(model, V, product, B)
        lengths = namespace(squares).sqrt(squares + self.epsilon**2)
        weights = 1.0 / lengths if model.weights is None else model.weights / lengths
        return arrays.cast(weights, model.data.dtype)

    def _total(self, squares: Array, weights: Array | None) -> float:
        lengths = namespace(squares).sqrt(squares + self.epsilon**2)
        return float(lengths.sum() if weights is None else lengths @ weights)


def _summed(model: Model, V: Array) -> Array:
    """Return the sums over the samples that share a row of Z."""
    if model.counts is None:
        return V
    return model.data.mean_rows(model.rows, V) * model.counts[:, None]
