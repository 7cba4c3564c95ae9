"""What a loss sees of a problem, and what a half-step has beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from partwise.backends import DataMatrix
from partwise.backends.arrays import Array, spread
from partwise.backends.numeric import ratio
from partwise.model.maps import Smoothing
from partwise.model.terms import Term


class Pass(NamedTuple):
    """What a pass over X said of one pair of factors."""

    Z: Array
    U: Array
    total: float  # Σ x log y for KL, the divergence for other β
    product: Any  # for the step on ``side``; None where the pass made none
    side: str


class LastPass:
    """The last pass over X: its value and product serve the step that begins at the same factors.

    Factors are never written to once a step has returned them, so a pair is known by identity.
    """

    def __init__(self) -> None:
        self._last: Pass | None = None

    def at(self, Z: Array, U: Array) -> Pass | None:
        last = self._last
        return last if last is not None and last.Z is Z and last.U is U else None

    def keep(self, Z: Array, U: Array, total: float, product: Any, side: str = "V") -> Pass:
        self._last = Pass(Z, U, total, product, side)
        return self._last

    def product(self, Z: Array, U: Array, side: str) -> Any:
        """The product for the step on ``side`` at these factors, if there is one."""
        last = self.at(Z, U)
        return last.product if last is not None and last.side == side else None

    def taken(self, Z: Array, U: Array, side: str) -> list[Any] | None:
        """`product` alone in a list, which is then forgotten: it is as large as a factor."""
        found = self.product(Z, U, side)
        self._last = None
        return None if found is None else [found]

    def rescale(self, old: tuple[Array, Array], new: tuple[Array, Array], lengths: Array) -> None:
        """Lengths have moved from U to Z: Y is the same, (X/Y) B shrinks and (X/Y)ᵀ F grows."""
        last = self.at(*old)
        if last is None:
            return
        product = last.product
        if product is not None:
            lengths = spread(lengths, product)
            product = ratio(product, lengths) if last.side == "V" else product * lengths
        self.keep(*new, last.total, product, last.side)


@dataclass
class Samples:
    """The samples themselves, for a loss that weighs each anew: X, γ and the map A.

    ``rows`` is A, None where it is the identity; ``counts`` its Aᵀ1, where Z lives.
    """

    data: DataMatrix
    weights: Array | None = None
    rows: Any = None
    counts: Array | None = None

    @cached_property
    def squares(self) -> Array:
        """‖x_i‖²."""
        return self.data.row_sq_norms()

    def expand(self, Z: Array) -> Array:
        """A Z."""
        return Z if self.rows is None else self.data.expand_rows(self.rows, Z)

    def reduce(self, V: Array) -> Array:
        """AᵀV."""
        if self.counts is None:
            return V
        return self.data.mean_rows(self.rows, V) * self.counts[:, None]


@dataclass
class Seen:
    """What a loss sees of a problem.

    Attributes
    ----------
    R : DataMatrix
        The data with sample weights and shared rows summed in, AᵀΓX.
    d : (n,) array or None
        The weight of each row of R; None means ones.
    S : Smoothing
    constant : float
        What the loss of X alone adds.
    mixing : matrix or None
        M = AᵀΓA where it is not diag(d): samples mix the rows of several classes.
    samples : Samples
    last : LastPass
    """

    R: DataMatrix
    d: Array | None
    S: Smoothing
    constant: float
    samples: Samples
    mixing: Any = None
    last: LastPass = field(default_factory=LastPass)


@dataclass(frozen=True)
class Half:
    """What a half-step has beside the loss: its terms, the other factor's, and how long to sweep.

    ``others()`` is the value of the terms on the other factor.
    """

    terms: Sequence[Term] = ()
    others: Callable[[], float] | None = None
    sweeps: int = 1
    free: bool = True  # whether every entry moves: second-order sweeps cannot hold one
