"""The L21 loss: the sum of the norms of residuals, robust to outlying samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from partwise.backends import DataMatrix, arrays
from partwise.backends.arrays import Array, namespace
from partwise.model.losses import Frobenius, Half, Seen, WeighedSamples
from partwise.model.subproblems import Quadratic

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
        squares = data.row_sq_norms()
        if self.given is None:
            self.epsilon = SMOOTH * float(namespace(squares).sqrt(squares).mean()) or 1.0
        return super().constants(data, weights)[0], self._total(squares, weights)

    def exact(self, data: DataMatrix, weights: Array | None, V: Array, B: Array) -> float:
        return self._total(data.row_sq_residuals(V, B), weights)

    def value(self, seen: Seen, Z: Array, U: Array) -> float:
        B = seen.S(U)
        who = seen.samples
        squares = self._squares(who, who.expand(Z), self._product(seen, U, B), B)
        return self._total(squares, who.weights)

    def subproblems(
        self, seen: Seen, side: str, points: Sequence[tuple[Array, Array]], halves: Sequence[Half]
    ) -> list[Quadratic]:
        return [
            (self._codes if side == "V" else self._basis)(seen, Z, U, half)
            for (Z, U), half in zip(points, halves, strict=True)
        ]

    def _codes(self, seen: Seen, Z: Array, U: Array, half: Half) -> Reweighted:
        B, who = seen.S(U), seen.samples
        product = self._product(seen, U, B)
        weights = self._weights(who, who.expand(Z), product, B)

        def evaluate(Z: Array) -> float:
            return self._total(self._squares(who, who.expand(Z), product, B), who.weights)

        d = who.reduce(weights[:, None])[:, 0]
        C = who.reduce(weights[:, None] * product)
        rest = (d, half.terms, seen.constant, half.others, half.sweeps)
        return Reweighted(C, B.T @ B, *rest, evaluate=evaluate)

    def _basis(self, seen: Seen, Z: Array, U: Array, half: Half) -> Reweighted:
        B, who = seen.S(U), seen.samples
        V = who.expand(Z)
        weights = self._weights(who, V, self._product(seen, U, B), B)
        F = seen.S(V)
        heavy = F * weights[:, None]

        def evaluate(U: Array) -> float:
            return self.value(seen, Z, U)

        C = who.data.tdot(heavy)
        rest = (None, half.terms, seen.constant, half.others, half.sweeps)
        return Reweighted(C, F.T @ heavy, *rest, evaluate=evaluate)

    def _product(self, seen: Seen, U: Array, B: Array) -> Array:
        """Return the product X B; it is computed once for each U."""
        if self._last is None or self._last[0] is not U:
            self._last = U, seen.samples.data.dot(B)
        return self._last[1]

    def _squares(self, who: WeighedSamples, V: Array, product: Array, B: Array) -> Array:
        """Return ‖x_i - B v_i‖² in float64, by entries if X B loses too many digits."""
        if arrays.numpy_dtype(V.dtype).itemsize < 8 and who.data.density == 1:
            return who.data.row_sq_residuals(V, B)
        V, product, G = (arrays.float64(a) for a in (V, product, B.T @ B))
        found = who.squares + ((V @ G - 2 * product) * V).mean(axis=1) * float(V.shape[1])
        return namespace(found).maximum(found, 0)

    def _weights(self, who: WeighedSamples, V: Array, product: Array, B: Array) -> Array:
        """Return the weight of each sample in the Frobenius problem."""
        squares = self._squares(who, V, product, B)
        lengths = namespace(squares).sqrt(squares + self.epsilon**2)
        weights = 1.0 / lengths if who.weights is None else who.weights / lengths
        return arrays.cast(weights, who.data.dtype)

    def _total(self, squares: Array, weights: Array | None) -> float:
        lengths = namespace(squares).sqrt(squares + self.epsilon**2)
        return float(lengths.sum() if weights is None else lengths @ weights)
