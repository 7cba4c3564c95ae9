"""The two subproblems of a factorization, expressed by products with X."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from partwise.backends import arrays
from partwise.backends.arrays import (
    Array,
    cast,
    dot64,
    gram,
    inner64,
    namespace,
    norm64,
    ratio,
    spread,
)
from partwise.backends.gaps import HalfSeen
from partwise.backends.sweeps import quadratic_change, row_runs
from partwise.backends.threads import PASS, results, threads_for
from partwise.model.terms import Term


class Subproblem(ABC):
    """The problem for one factor Z >= 0 with the other one fixed, as solvers use it.

    Attributes
    ----------
    kind : str
        "frobenius" or "divergence"; it determines which solver steps can be used.
    terms : sequence of Term
    d : (n,) array or None
        Weight of each row in the loss; None means ones.
    exponent : float
        Exponent of the ratio in a multiplicative step.
    local : bool
        True if the problem is a majoriser at the current factor, to be computed again after a step.
    descends : bool
        True if the loss couples the rows of Z, so that only `descend` can update the factor.
    measures_change : bool
        Whether `change` has a smaller rounding error than a difference of two values.
    project : callable or None
        Function that projects the factor onto its constraint set, if this is smaller than Z >= 0.
    free : bool
        True if the factor may be negative. A quadratic problem is then solved as a linear system.
    held : array of Z's shape or None
        One where an entry is fixed, else zero; `project` restores the values of fixed entries.
    size : float
        The largest sum in the last `value`, other than that of X. It determines the rounding error.
    """

    kind: str
    terms: Sequence[Term] = ()
    d: Array | None = None
    exponent: float = 1.0
    local: bool = False
    descends: bool = False
    measures_change: bool = False
    free: bool = False
    project: Callable[[Array], Array] | None = None
    held: Array | None = None
    size: float = 0.0

    @abstractmethod
    def halves(self, Z: Array) -> tuple[Array, Array]:
        """Return (neg, pos) of the loss without terms; the gradient is pos - neg."""

    def split(self, Z: Array) -> tuple[Array, Array]:
        """Return (neg, pos), both >= 0, with gradient pos - neg: for multiplicative steps."""
        neg, pos = self.halves(Z)
        for term in self.terms:
            minus, plus = term.split(Z)
            neg, pos = neg + minus, pos + plus
        return neg, pos

    @abstractmethod
    def value(self, Z: Array) -> float:
        """Return the whole objective for this factor Z."""

    def gradient(self, Z: Array) -> Array:
        """Return the gradient at Z."""
        neg, pos = self.split(Z)
        return pos - neg

    def change(self, new: Array, old: Array) -> float:
        """Return value(new) - value(old)."""
        return self.value(new) - self.value(old)

    def descend(self, Z: Array, steps: int) -> Array:
        """Return the factor after gradient steps of this problem, if ``descends``."""
        raise NotImplementedError


class Model(Protocol):
    """Interface of a model for the iteration loop: its subproblems and its objective.

    Attributes
    ----------
    eps, size, least : float
        Machine epsilon of the dtype, the loss for V = 0, and the share of this loss below which a
        fit is perfect.
    unit : bool
        Whether `normalize` scales the columns of U.
    """

    eps: float
    size: float
    least: float
    unit: bool

    @abstractmethod
    def subproblem(self, side: str, Z: Array, U: Array, /) -> Subproblem:
        """Return the subproblem for one factor, "V" or "U", at this point."""

    @abstractmethod
    def value(self, Z: Array, U: Array, /) -> float:
        """Return the objective."""

    @abstractmethod
    def exact_value(self, Z: Array, U: Array, /, about: float = np.inf) -> float:
        """Return the objective without cancellation; ``about`` is an approximate value."""

    @abstractmethod
    def normalize(self, Z: Array, U: Array, /) -> tuple[Array, Array]:
        """Return factors with the same product; columns of U have length one if ``unit``."""

    @abstractmethod
    def feasible(self, Z: Array, U: Array, /) -> tuple[Array, Array]:
        """Return initial values that satisfy the constraints, as all later iterates do."""

    def lengths(self, U: Array, /) -> Array:
        """Return the lengths of the columns of U, if ``unit``."""
        return namespace(U).ones(U.shape[1])

    def expect(self, side: str, Z: Array, U: Array, /) -> None:
        """Announce that this subproblem will probably be requested next."""
        return None


@dataclass(eq=False, repr=False)
class Quadratic(Subproblem):
    """The problem ½ Σ_i d_i z_iᵀ G z_i - ⟨C, Z⟩ + terms(Z) for Z >= 0.

    Parameters
    ----------
    C, G : (n, k) and (k, k) arrays
    d : (n,) array or None
        Weights of the rows of Z in the quadratic part; None means ones.
    terms : sequence of Term
    constant : float
        The part of the loss that does not depend on Z.
    others : callable or None
        Function that returns the penalties on the other factor; only `value` calls it.
    sweeps : int
        Number of coordinate sweeps per product with X.
    """

    kind = "frobenius"
    measures_change = True

    C: Any  # None if a subclass computes it on first use
    G: Array
    d: Array | None = None
    terms: Sequence[Term] = ()
    constant: float = 0.0
    others: Callable[[], float] | None = None
    sweeps: int = 1

    def value(self, Z: Array) -> float:
        own = gram(Z) if self.d is None else (Z * self.d[:, None]).T @ Z
        loss = 0.5 * dot64(own, self.G) - dot64(self.C, Z) + self.constant
        return self._whole(loss, Z)

    def _whole(self, loss: float, Z: Array) -> float:
        """Return the loss plus the penalty terms on both factors."""
        total = loss if self.others is None else loss + self.others()
        return total + sum(term.value(Z) for term in self.terms)

    def change(self, new: Array, old: Array) -> float:
        """Return value(new) - value(old) without the rounding error of ½‖X‖².

        The change of a quadratic function is ⟨gradient at the midpoint, new - old⟩. On a GPU, the
        result may be a number that is still being computed, see `inner64`.
        """
        loss = quadratic_change(new, old, self.C, self.G, self.d)
        change: float = loss + sum(term.change(new, old) for term in self.terms)
        return change

    def halves(self, Z: Array) -> tuple[Array, Array]:
        return self.C, self._pull(Z)

    def _pull(self, Z: Array) -> Array:
        pos = Z @ self.G
        if self.d is not None:
            pos *= self.d[:, None]
        return pos

    def gradient(self, Z: Array) -> Array:
        gradient: Array = self._pull(Z) - self.C
        for term in self.terms:
            gradient = gradient + term.gradient(Z)
        return gradient

    def lipschitz(self) -> float:
        """Return an upper bound of the Hessian's norm: ‖G‖₂ max d plus those of the terms."""
        d = 1.0 if self.d is None else arrays.largest(self.d)
        return arrays.spectral_norm(self.G) * d + sum(t.lipschitz() for t in self.terms)


class Signed(Quadratic):
    """A quadratic problem with Z >= 0 in which C and G may have negative entries.

    Both halves of the gradient are non-negative, and the multiplicative step is Z ∘ √(neg/pos)
    (Ding, Li & Jordan 2010, (9)).
    """

    exponent = 0.5

    def halves(self, Z: Array) -> tuple[Array, Array]:
        xp = namespace(Z)
        less, more = Z @ xp.maximum(-self.G, 0), Z @ xp.maximum(self.G, 0)
        if self.d is not None:
            less, more = less * self.d[:, None], more * self.d[:, None]
        return xp.maximum(self.C, 0) + less, xp.maximum(-self.C, 0) + more


class Mixed(Quadratic):
    """The problem ½ tr(ZᵀMZG) - ⟨C, Z⟩ + terms(Z), M = AᵀΓA, for mixed rows of Z.

    The rows of M >= 0 sum to d, so M ≼ diag(d). The problem is therefore majorised at Z₀ by the
    quadratic ½ Σ d_i z_iᵀ G z_i - ⟨C', Z⟩ with C' = C + (d ∘ Z₀ - M Z₀) G. `value`, `change` and
    `gradient` are those of the problem itself, not of the majoriser.
    """

    local = True

    def __init__(self, given: Array, G: Array, mixing: Any, at: Array, **rest: Any) -> None:
        apart = rest["d"][:, None] * at - mixing @ at
        super().__init__(given + apart @ G, G, **rest)
        self.given, self.mixing = given, mixing

    def _pull(self, Z: Array) -> Array:
        pull: Array = (self.mixing @ Z) @ self.G
        return pull

    def value(self, Z: Array) -> float:
        loss = 0.5 * dot64(Z.T @ (self.mixing @ Z), self.G) - dot64(self.given, Z) + self.constant
        return self._whole(loss, Z)

    def change(self, new: Array, old: Array) -> float:
        slope = self._pull(0.5 * (new + old)) - self.given
        return inner64(slope, new - old) + sum(term.change(new, old) for term in self.terms)

    def halves(self, Z: Array) -> tuple[Array, Array]:
        return self.given, self._pull(Z)

    def gradient(self, Z: Array) -> Array:
        gradient = self._pull(Z) - self.given
        for term in self.terms:
            gradient = gradient + term.gradient(Z)
        return gradient


class Free(Quadratic):
    """A quadratic problem for a factor of any sign."""

    free = True


class Filled(Quadratic):
    """The problem ½ Σ w_ij (x_ij - z_i·b_j)² + terms(Z), and a quadratic majoriser.

    The majoriser is the loss of X after its missing entries are filled in by the model. `value`,
    `change` and `split` are those of the problem itself; `gradient` is that of the majoriser.
    """

    local = True

    def __init__(self, gaps: HalfSeen, G: Array, **rest: Any) -> None:
        super().__init__(None, G, **rest)
        self.gaps = gaps
        self._last: tuple[Array, float] | None = None

    @property
    def C(self) -> Array:
        """The linear coefficient of the majoriser; multiplicative steps do not use it."""
        drawn: Array = self.gaps.drawn
        return drawn

    @C.setter
    def C(self, value: None) -> None: ...

    @property
    def measures_change(self) -> bool:  # type: ignore[override]
        """True in single precision only, because it needs another pass over X."""
        return bool(self.G.dtype.itemsize < 8)

    def value(self, Z: Array) -> float:
        weighted = Z if self.d is None else Z * self.d[:, None]
        self.size = 0.5 * dot64(weighted.T @ Z, self.G)
        return self._whole(self.size - self.gaps.gain(Z) + self.constant, Z)

    def _above(self, Z: Array) -> float:
        if self._last is None or self._last[0] is not Z:
            self._last = Z, self.gaps.above(Z)
        return self._last[1]

    def change(self, new: Array, old: Array) -> float:
        before = self._above(old)
        return super().change(new, old) + before - self._above(new)

    def seen_alone(self) -> Quadratic:
        """Return the quadratic problem with the products of observed values only."""
        return Quadratic(self.gaps.given, self.G, d=self.d, terms=self.terms)

    def halves(self, Z: Array) -> tuple[Array, Array]:
        """Return (neg, pos) from observed values, and from the model at observed entries."""
        return self.gaps.given, self.gaps.modelled(Z, self._pull(Z))


class Divergence(Subproblem):
    """The EM majoriser of a Kullback-Leibler (KL) or β-divergence at given factors.

    The gradient is cost + terms - product. ``product`` are the products (X/Y) B, computed on first
    use, and ``cost`` (1 or n, k) are the column sums of B, weighted by the sample weights.

    Parameters
    ----------
    beta : float
        Exponent β of the divergence; 1 for KL.
    newton : callable or None
        Second-order sweeps, if the back end supports them.
    curvature : callable or None
        Function that returns the Hessian of each row at Z, if the back end supports this instead.
    evaluate : callable
        Function that returns the loss for this factor Z.
    others : callable or None
        Function that returns the penalties on the other factor; only `value` calls it.
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
        newton: Callable[..., Array] | None = None,
        curvature: Callable[[Array], Array] | None = None,
        evaluate: Callable[[Array], float],
        others: Callable[[], float] | None = None,
    ) -> None:
        self._make_product, self.cost, self.d, self.terms = product, cost, d, terms
        self.beta, self.newton, self.curvature = beta, newton, curvature
        self.evaluate, self.others = evaluate, others
        self._product: Array | None = None

    def value(self, Z: Array) -> float:
        total = self.evaluate(Z) + sum(term.value(Z) for term in self.terms)
        return total if self.others is None else total + self.others()

    @property
    def product(self) -> Array:
        if self._product is None:
            self._product = self._make_product()
        return self._product

    def halves(self, Z: Array) -> tuple[Array, Array]:
        return self.product, self.cost


#: If the loss is below this share of the loss for Y = 0, the fit is perfect. For the Frobenius
#: loss, this is the rounding error of float32, also in float64, so that fits in both precisions end
#: alike. The share is larger for a divergence, because it is a difference of sums with larger
#: rounding errors.
LEAST_MISFIT = {"frobenius": 1.2e-7, "divergence": 1e-5}


def misfit(value: float, size: float, least: float, tol: float = 0.0) -> float:
    """Return ‖X - Y‖/‖X‖, the share of the gradient that does not cancel in the fit.

    ``value`` is the objective, and ``size`` the objective for Y = 0 (0 if unknown). The result is
    at least ``tol``, and at least √``least``, since a fit below this is perfect.
    """
    if size <= 0:
        return 1.0
    return float(np.sqrt(np.clip(value / size, max(least, tol**2), 1.0)))


def kkt_residual(sub: Subproblem, Z: Array, misfit: float = 1.0) -> float:
    """Return the relative KKT residual, a number between 0 and 1.

    It is ‖projected gradient‖ / (misfit (‖neg‖ + ‖pos‖) + Σ ‖gradient of a term‖).

    neg and pos are the two halves of the gradient of the loss, which cancel in a good fit. The
    gradient of a term is not divided into halves, since large halves could hide a large residual.

    If the gradient of an entry is positive and the entry is smaller than the mean of its column,
    its weight in all norms is the ratio of the two. A zero entry then has weight zero, and an entry
    that approaches zero has a small weight. A row with weight d counts like d equal rows.
    """
    mean = Z.mean(axis=0) if sub.d is None else sub.d @ Z / sub.d.sum()
    scale = ratio(namespace(mean).ones_like(mean), mean)
    gradient, minus, plus, *rest = _lengths(sub, Z, scale)
    total = misfit * (minus + plus) + sum(rest)
    return min(1.0, float(gradient / total)) if total > 0 else 0.0


def _lengths(sub: Subproblem, Z: Array, scale: Array) -> Any:
    """Return norms of the projected gradient and its parts, divided by one number."""
    slopes = (term.gradient(Z) for term in sub.terms)
    parts = [*sub.halves(Z), *slopes]
    parts = [part if part.shape == Z.shape else spread(part, Z) for part in parts]
    if sub.held is not None:
        parts = [part * (1 - sub.held) for part in parts]
    blocks = list(row_runs(Z, sub.d, *parts))
    run = partial(_norms, scale=scale, free=sub.free)
    lengths = results(run, blocks, threads_for(8 * PASS * Z.shape[0] * Z.shape[1]))
    # divide by the largest norm, so that the squares are finite
    peak = np.max(lengths, initial=0) or 1.0
    return np.linalg.norm(np.divide(lengths, peak), axis=0)


def _norms(
    Z: Array, d: Array | None, neg: Array, pos: Array, *slopes: Array, scale: Array, free: bool
) -> list[float]:
    """Return norms of the projected gradient and its parts for some rows of Z.

    ``scale`` is one divided by the mean of each column of Z.
    """
    xp = namespace(Z)
    gradient = pos - neg
    for slope in slopes:
        gradient = gradient + slope
    share = xp.ones_like(Z)
    # The weight is 1 where the gradient is not positive. `where` would take five times as long.
    if not free:
        share = xp.maximum(Z * scale, cast(gradient <= 0, Z.dtype))
        share = xp.minimum(share, 1)
    if d is not None:
        share = share * ratio(xp.ones_like(d), xp.sqrt(d))[:, None]
    return [norm64(part * share) for part in (gradient, neg, pos, *slopes)]
