"""The two subproblems of a factorization, after the products: X is gone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from partwise.engine import arrays
from partwise.engine.arrays import namespace, spread
from partwise.engine.numeric import Array, dot64, norm64, ratio
from partwise.engine.terms import Term


def add_terms(terms: Sequence[Term], Z: Array, neg: Array, pos: Array) -> tuple[Array, Array]:
    """Add the split gradients of the terms to (neg, pos)."""
    for term in terms:
        minus, plus = term.split(Z)
        neg, pos = neg + minus, pos + plus
    return neg, pos


class Subproblem(ABC):
    """The problem in one factor Z >= 0 with the other fixed, as the steps see it.

    Attributes
    ----------
    kind : str
        "frobenius" or "divergence": which steps can do it.
    terms : sequence of Term
    d : (n,) array or None
        Weight of each row in the loss; None means ones.
    exponent : float
        Power of the ratio in a multiplicative step.
    local : bool
        Whether it is a majoriser at the factor it was made for, to be made anew after a step.
    descends : bool
        Whether rows are joined by the loss itself, so that only `descend` moves them.
    project : callable or None
        Maps the factor to its constraint set, where that is more than Z >= 0.
    """

    kind: str
    terms: Sequence[Term] = ()
    d: Array | None = None
    exponent: float = 1.0
    local: bool = False
    descends: bool = False
    project: Callable[[Array], Array] | None = None

    @abstractmethod
    def split(self, Z: Array) -> tuple[Array, Array]:
        """(neg, pos), both >= 0 for a multiplicative step, with gradient = pos - neg."""

    @abstractmethod
    def value(self, Z: Array) -> float:
        """The whole objective with this factor at Z."""

    def gradient(self, Z: Array) -> Array:
        """The gradient at Z."""
        neg, pos = self.split(Z)
        return pos - neg

    def descend(self, Z: Array, steps: int) -> Array:
        """Gradient steps of its own, where ``descends``."""
        raise NotImplementedError


class Quadratic(Subproblem):
    """½ Σ_i d_i z_iᵀ G z_i - ⟨C, Z⟩ + terms(Z), Z >= 0.

    Parameters
    ----------
    C, G : (n, k) and (k, k) arrays
    d : (n,) array or None
        Row weights of the quadratic part; None means ones.
    terms : sequence of Term
    constant : float
        What makes the loss whole.
    others : callable or None
        The penalties on the other factor, asked for with a value.
    sweeps : int
        How many coordinate sweeps one product deserves.
    """

    kind = "frobenius"

    def __init__(
        self,
        C: Array,
        G: Array,
        *,
        d: Array | None = None,
        terms: Sequence[Term] = (),
        constant: float = 0.0,
        others: Callable[[], float] | None = None,
        sweeps: int = 1,
    ) -> None:
        self.C, self.G, self.d, self.terms = C, G, d, terms
        self.constant, self.others, self.sweeps = constant, others, sweeps

    def value(self, Z: Array) -> float:
        weighted = Z if self.d is None else Z * self.d[:, None]
        total = 0.5 * dot64(weighted.T @ Z, self.G) - dot64(self.C, Z) + self.constant
        if self.others is not None:
            total += self.others()
        return total + sum(term.value(Z) for term in self.terms)

    def _pull(self, Z: Array) -> Array:
        pos = Z @ self.G
        if self.d is not None:
            pos *= self.d[:, None]
        return pos

    def split(self, Z: Array) -> tuple[Array, Array]:
        return add_terms(self.terms, Z, self.C, self._pull(Z))

    def gradient(self, Z: Array) -> Array:
        gradient = self._pull(Z) - self.C
        for term in self.terms:
            gradient = gradient + term.gradient(Z)
        return gradient

    def lipschitz(self) -> float:
        """A bound of the Hessian: ‖G‖₂ max d plus the terms' own."""
        d = 1.0 if self.d is None else arrays.largest(self.d)
        return arrays.spectral_norm(self.G) * d + sum(t.lipschitz() for t in self.terms)


class Sweeps(Protocol):
    """Second-order sweeps that a back end runs: linear cost (1 or n, k), ridge (1 or n, 1 or k)."""

    def __call__(
        self, Z: Array, /, cost: Array, ridge: Array, sweeps: int, rough: bool
    ) -> Array: ...


class Divergence(Subproblem):
    """The EM majoriser of a KL (or β) loss at the current point.

    gradient = cost + terms - product, where ``product`` are the ratio products (X/Y) B, made when
    first asked for, and ``cost`` (1 or n, k) the column sums with their weights.

    Parameters
    ----------
    beta : float
        β of the loss; 1 for KL.
    newton : Sweeps or None
        Second-order sweeps, where the back end has them.
    evaluate : callable
        The loss with this factor at Z.
    others : callable or None
        The penalties on the other factor, asked for with a value.
    """

    kind = "divergence"
    local = True

    def __init__(
        self,
        product: Callable[[], Array],
        cost: Array,
        *,
        d: Array | None = None,
        terms: Sequence[Term] = (),
        beta: float = 1.0,
        newton: Sweeps | None = None,
        evaluate: Callable[[Array], float],
        others: Callable[[], float] | None = None,
    ) -> None:
        self._make_product, self.cost, self.d, self.terms = product, cost, d, terms
        self.beta, self.newton, self.evaluate, self.others = beta, newton, evaluate, others
        self._product: Array = None

    def value(self, Z: Array) -> float:
        total = self.evaluate(Z) + sum(term.value(Z) for term in self.terms)
        return total if self.others is None else total + self.others()

    @property
    def product(self) -> Array:
        if self._product is None:
            self._product = self._make_product()
        return self._product

    def split(self, Z: Array) -> tuple[Array, Array]:
        return add_terms(self.terms, Z, self.product, self.cost)


def kkt_residual(sub: Subproblem, Z: Array) -> float:
    """‖projected gradient‖ / (‖neg‖ + ‖pos‖), in [0, 1] whatever the scale of X.

    Where the gradient is positive, entries below the mean of their column count in proportion:
    at zero not at all, and a multiplicative update that is on its way there little; in the norms
    below the fraction likewise. A row of weight d counts like d equal rows.
    """
    neg, pos = (spread(part, Z) for part in sub.split(Z))
    mean = Z.mean(axis=0) if sub.d is None else sub.d @ Z / sub.d.sum()
    if isinstance(Z, np.ndarray):
        # in blocks: temporaries as large as the factors would double the memory of a fit
        cuts = [slice(start, start + 8192) for start in range(0, len(Z), 8192)]
        weights = [None if sub.d is None else sub.d[cut] for cut in cuts]
        lengths = [_norms(Z[c], neg[c], pos[c], mean, d) for c, d in zip(cuts, weights)]
        gradient, minus, plus = np.linalg.norm(lengths, axis=0)
    else:
        gradient, minus, plus = _norms(Z, neg, pos, mean, sub.d)
    return float(gradient / (minus + plus)) if minus + plus > 0 else 0.0


def _norms(Z: Array, neg: Array, pos: Array, mean: Array, d: Array | None) -> tuple[float, ...]:
    """Norms of the projected gradient and of its two parts, on some rows."""
    xp = namespace(Z)
    if d is not None:
        row = ratio(xp.ones_like(d), xp.sqrt(d))[:, None]
        neg, pos = neg * row, pos * row
    gradient = pos - neg
    share = xp.where(gradient > 0, xp.minimum(ratio(Z, spread(mean, Z)), 1), xp.ones_like(Z))
    return norm64(gradient * share), norm64(neg * share), norm64(pos * share)
