"""The two subproblems of a factorization, after the products: X is gone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
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
from partwise.backends.sweeps import kkt_lengths, quadratic_change, row_runs
from partwise.backends.threads import PASS, results, threads_for
from partwise.model.terms import Term


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
        True for a majoriser at the current factor, which must be recomputed after a step.
    descends : bool
        True if the loss itself couples rows, so that only `descend` moves them.
    measures_change : bool
        Whether `change` is more exact than a difference of values.
    project : callable or None
        Maps the factor to its constraint set, if that is smaller than Z >= 0.
    free : bool
        True if the factor may be negative: a quadratic's minimum is then a linear solve.
    held : array of Z's shape or None
        One where an entry does not move, else zero; `project` brings back what it is.
    size : float
        The largest of the sums whose difference was the last `value`, other than that of X.
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
        """Return (neg, pos) of the loss alone."""

    def split(self, Z: Array) -> tuple[Array, Array]:
        """Return (neg, pos), both >= 0 for a multiplicative step, with gradient = pos - neg."""
        neg, pos = self.halves(Z)
        for term in self.terms:
            minus, plus = term.split(Z)
            neg, pos = neg + minus, pos + plus
        return neg, pos

    @abstractmethod
    def value(self, Z: Array) -> float:
        """Return the whole objective with this factor at Z."""

    def gradient(self, Z: Array) -> Array:
        """Return the gradient at Z."""
        neg, pos = self.split(Z)
        return pos - neg

    def change(self, new: Array, old: Array) -> float:
        """Return value(new) - value(old)."""
        return self.value(new) - self.value(old)

    def descend(self, Z: Array, steps: int) -> Array:
        """Take the problem's own gradient steps, if ``descends``."""
        raise NotImplementedError


class Model(Protocol):
    """The interface of a model for the loop: the problem in each factor, and the objective.

    Attributes
    ----------
    eps, size, least : float
        Rounding of its dtype, the loss of V = 0, and the share of it that is a perfect fit.
    unit : bool
        Whether columns of U have length one.
    """

    eps: float
    size: float
    least: float
    unit: bool

    @abstractmethod
    def subproblem(self, side: str, Z: Array, U: Array, /) -> Subproblem:
        """Return the problem in one factor, "V" or "U", at this point."""

    @abstractmethod
    def value(self, Z: Array, U: Array, /) -> float:
        """Return the objective."""

    @abstractmethod
    def exact_value(self, Z: Array, U: Array, /, about: float = np.inf) -> float:
        """Return the objective near ``about``, with no more rounding error than that allows."""

    @abstractmethod
    def normalize(self, Z: Array, U: Array, /) -> tuple[Array, Array]:
        """Return the same product with columns of U of length one, if ``unit``."""

    @abstractmethod
    def feasible(self, Z: Array, U: Array, /) -> tuple[Array, Array]:
        """Return a start that satisfies the constraints, which every step preserves."""

    def lengths(self, U: Array, /) -> Array:
        """Return the lengths of the columns of U, if ``unit``."""
        return namespace(U).ones(U.shape[1])

    def expect(self, side: str, Z: Array, U: Array, /) -> None:
        """Announce that this subproblem is likely to come next."""
        return None


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
        The value of the penalties on the other factor, called only for `value`.
    sweeps : int
        Number of coordinate sweeps per product with X.
    """

    kind = "frobenius"
    measures_change = True

    def __init__(
        self,
        C: Any,  # None if a subclass computes it on first use
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
        own = gram(Z) if self.d is None else (Z * self.d[:, None]).T @ Z
        loss = 0.5 * dot64(own, self.G) - dot64(self.C, Z) + self.constant
        return self._whole(loss, Z)

    def _whole(self, loss: float, Z: Array) -> float:
        """Return the loss plus the terms on both factors."""
        total = loss if self.others is None else loss + self.others()
        return total + sum(term.value(Z) for term in self.terms)

    def change(self, new: Array, old: Array) -> float:
        """Return value(new) - value(old), without the rounding of ½‖X‖² that a difference has.

        What is quadratic changes by ⟨gradient half-way, new - old⟩. On a device it may be a number
        that is still being computed, see `inner64`.
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
        """Return a bound of the Hessian: ‖G‖₂ max d plus the terms' own."""
        d = 1.0 if self.d is None else arrays.largest(self.d)
        return arrays.spectral_norm(self.G) * d + sum(t.lipschitz() for t in self.terms)


class Gaps(Protocol):
    """Products of incomplete X for a step; E is the missing weight of each entry."""

    @property
    def given(self) -> Array:
        """Products of what was seen with the other factor."""

    @property
    def drawn(self) -> Array:
        """Products of X with its missing entries filled."""

    def modelled(self, Z: Array, pull: Array) -> Array:
        """Return products with the model at observed entries; ``pull`` is that of all entries."""

    def gain(self, Z: Array) -> float:
        """Return ½ Σ w x² + ½ Σ d y² minus the loss at Z."""

    def above(self, Z: Array) -> float:
        """Return the quadratic of the filled X minus the loss at Z."""

    @property
    def solve(self) -> Callable[..., Array] | None:
        """The minimiser itself, row by row, where it can be had."""


class Signed(Quadratic):
    """A quadratic whose C and G have signs, Z >= 0: both halves of the gradient >= 0.

    Z ∘ √(neg/pos) is then the multiplicative step (Ding, Li & Jordan 2010, (9)).
    """

    exponent = 0.5

    def halves(self, Z: Array) -> tuple[Array, Array]:
        xp = namespace(Z)
        less, more = Z @ xp.maximum(-self.G, 0), Z @ xp.maximum(self.G, 0)
        if self.d is not None:
            less, more = less * self.d[:, None], more * self.d[:, None]
        return xp.maximum(self.C, 0) + less, xp.maximum(-self.C, 0) + more


class Mixed(Quadratic):
    """½ tr(ZᵀMZG) - ⟨C, Z⟩ + terms(Z) with M = AᵀΓA >= 0, whose rows add up to d.

    M ≼ diag(d), so that ½ Σ d_i z_iᵀ G z_i with the slope at Z₀ is not below it: that quadratic has
    C + (d ∘ Z₀ - M Z₀) G for its C. `value`, `change` and `gradient` are of the loss itself.
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
    """A quadratic in a factor of any sign."""

    free = True


class Filled(Quadratic):
    """½ Σ w_ij (x_ij - z_i·b_j)² + terms(Z): its value, and a quadratic that is not below it.

    The majoriser is the loss of X with its missing entries filled. `value`, `change` and `split`
    are those of the loss itself; `gradient` is that of the quadratic.
    """

    local = True

    def __init__(self, gaps: Gaps, G: Array, **rest: Any) -> None:
        super().__init__(None, G, **rest)
        self.gaps = gaps
        self._last: tuple[Array, float] | None = None

    @property
    def C(self) -> Array:
        """The linear coefficient; multiplicative steps do not use it."""
        return self.gaps.drawn

    @C.setter
    def C(self, value: None) -> None: ...

    @property
    def measures_change(self) -> bool:  # type: ignore[override]
        """True in single precision only, because it needs another pass over missing entries."""
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
        """Return the part that is linear in the loss itself, with its terms."""
        return Quadratic(self.gaps.given, self.G, d=self.d, terms=self.terms)

    def halves(self, Z: Array) -> tuple[Array, Array]:
        """Return the sums of observed values and of the model at the observed entries."""
        return self.gaps.given, self.gaps.modelled(Z, self._pull(Z))


class Sweeps(Protocol):
    """Second-order sweeps that a back end runs: linear cost (1 or n, k), ridge (1 or n, 1 or k)."""

    def __call__(
        self, Z: Array, /, cost: Array, ridge: Array, sweeps: int, rough: bool
    ) -> Array: ...


class Divergence(Subproblem):
    """The EM majoriser of a KL (or β) loss at the current point.

    gradient = cost + terms - product, where ``product`` are the ratio products (X/Y) B, computed on
    first use, and ``cost`` (1 or n, k) the column sums with their weights.

    Parameters
    ----------
    beta : float
        β of the loss; 1 for KL.
    newton : Sweeps or None
        Second-order sweeps, where the back end has them.
    curvature : callable or None
        The Hessian of each row at Z, where the back end has that instead.
    evaluate : callable
        The loss with this factor at Z.
    others : callable or None
        The value of the penalties on the other factor, called only for `value`.
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


#: ½‖X - Y‖² / ½‖X‖² below which a fit counts as perfect: float32's rounding of X, so that both
#: precisions end alike. A divergence is a difference of sums: of a perfect fit, whose residual is
#: like the root of its value, less is left above their rounding.
LEAST_MISFIT = {"frobenius": 1.2e-7, "divergence": 1e-5}


def misfit(value: float, size: float, least: float, tol: float = 0.0) -> float:
    """Return ‖X - Y‖/‖X‖, the share of the gradient's halves that is left after cancellation.

    ``value`` is the objective, ``size`` that of Y = 0 (0 if unknown). Below ``least`` and ``tol``,
    a fit is perfect to the requested tolerance.
    """
    if size <= 0:
        return 1.0
    return float(np.sqrt(np.clip(value / size, max(least, tol**2), 1.0)))


def kkt_residual(sub: Subproblem, Z: Array, misfit: float = 1.0) -> float:
    """Return ‖projected gradient‖ / (misfit (‖neg‖ + ‖pos‖) + Σ ‖gradient of a term‖), at most 1.

    neg and pos are the halves of the loss's gradient, which cancel in a good fit. A term's gradient
    is not split, so that its halves cannot hide the residual.

    Where the gradient is positive, entries below the mean of their column count in proportion:
    at zero not at all, and a multiplicative update that is on its way there little; in the norms
    below the fraction likewise. A row of weight d counts like d equal rows.
    """
    mean = Z.mean(axis=0) if sub.d is None else sub.d @ Z / sub.d.sum()
    scale = ratio(namespace(mean).ones_like(mean), mean)
    found = None
    if type(sub) is Quadratic and sub.d is None and sub.held is None and not sub.terms:
        found = kkt_lengths(Z, sub.C, sub.G, scale)
    gradient, minus, plus, *rest = _lengths(sub, Z, scale) if found is None else found
    total = misfit * (minus + plus) + sum(rest)
    return min(1.0, float(gradient / total)) if total > 0 else 0.0


def _lengths(sub: Subproblem, Z: Array, scale: Array) -> Any:
    """Return norms of the projected gradient and its parts, over the largest of some rows."""
    slopes = (term.gradient(Z) for term in sub.terms)
    parts = [spread(part, Z) for part in (*sub.halves(Z), *slopes)]
    if sub.held is not None:
        parts = [part * (1 - sub.held) for part in parts]
    blocks = list(row_runs(Z, sub.d, *parts))
    free = sub.free

    def run(here: Array, d: Array | None, *mine: Array) -> list[float]:
        return _norms(here, *mine, scale=scale, d=d, free=free)

    lengths = results(run, blocks, threads_for(8 * PASS * Z.shape[0] * Z.shape[1]))
    peak = np.max(lengths, initial=0) or 1.0  # relative to it, squares of lengths are finite
    return np.linalg.norm(np.divide(lengths, peak), axis=0)


def _norms(
    Z: Array, neg: Array, pos: Array, *slopes: Array, scale: Array, d: Array | None, free: bool
) -> list[float]:
    """Return norms of the projected gradient and its parts on some rows; scale is 1 / mean of Z."""
    xp = namespace(Z)
    gradient = pos - neg
    for slope in slopes:
        gradient = gradient + slope
    share = xp.ones_like(Z)
    if not free:  # 1 where the gradient is not positive; a choice by entries is five times as slow
        share = xp.maximum(Z * scale, cast(gradient <= 0, Z.dtype))
        share = xp.minimum(share, 1)
    if d is not None:
        share = share * ratio(xp.ones_like(d), xp.sqrt(d))[:, None]
    return [norm64(part * share) for part in (gradient, neg, pos, *slopes)]
