"""FactorModel: the objective of X ≈ V S Uᵀ with V = A Z, and its two subproblems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from partwise._numeric import Array, ratio
from partwise.data import DataMatrix
from partwise.losses import Beta, Frobenius, KullbackLeibler
from partwise.maps import Smoothing
from partwise.subproblems import Subproblem
from partwise.terms import Term


class Known(NamedTuple):
    """What the last pass over X said about one pair of factors."""

    Z: Array
    U: Array
    xlogy: float
    product: Array


class FactorModel:
    """loss(X, A Z S Uᵀ) + terms_V(Z) + terms_U(U), Z >= 0, U >= 0.

    Parameters
    ----------
    data : DataMatrix
    loss : Frobenius, KullbackLeibler or Beta
    index : (n,) int array or None
        The map A: row of Z that sample i uses. None: its own.
    weights : (n,) array or None
        Sample weights γ of the loss.
    smoothing : float
        δ of S.
    terms_V, terms_U : sequences of Term
        Already written for Z and U.
    unit : bool
        Hold each column of U at length one (Frobenius) or sum one (KL). Penalties on V are then
        those of V with the lengths of U moved into it, which is the same problem without a
        constraint: the U-step pays for length, and `normalize` moves it over without changing the
        objective.
    """

    def __init__(
        self,
        data: DataMatrix,
        loss: Frobenius | KullbackLeibler | Beta,
        *,
        index: Array | None = None,
        n_rows: int | None = None,
        weights: Array | None = None,
        smoothing: float = 0.0,
        terms_V: Sequence[Term] = (),
        terms_U: Sequence[Term] = (),
        unit: bool = False,
    ) -> None:
        self.data, self.loss, self.weights = data, loss, weights
        self.index, self.S, self.unit = index, Smoothing(smoothing), unit
        self.terms = {"V": terms_V, "U": terms_U}
        self.n_rows = data.shape[0] if n_rows is None else n_rows
        self.d: Array | None = None
        self.R = data
        if weights is not None or index is not None:
            self.R = data.weighted(weights, index, self.n_rows)
            ones = np.ones(data.shape[0]) if weights is None else weights
            d = ones if index is None else np.bincount(index, ones, self.n_rows)
            self.d = d.astype(data.dtype)
        self.constant = loss.constant(data, weights)
        self._known: Known | None = None
        self.sweeps = {"V": 1, "U": 1}

    # -- what the losses ask for ------------------------------------------------------------

    def penalty(self, side: str, Z: Array, U: Array) -> float:
        """The terms on one factor."""
        return sum(term.value(Z if side == "V" else U) for term in self.terms[side])

    def lengths(self, U: Array) -> Array:
        """Length (Frobenius) or sum (KL) of each column of U; ones without the constraint."""
        if not self.unit:
            return np.ones(U.shape[1], dtype=U.dtype)
        if self.loss.unit_norm == 1:
            return U.sum(axis=0)
        return np.sqrt((U * U).sum(axis=0))

    def length_prices(self, Z: Array) -> list[tuple[int, Array]]:
        """(degree, ⟨z_k, ∇term_k⟩) of each term on V: what a longer u_k costs."""
        prices = []
        for term in self.terms["V"]:
            neg, pos = term.split(Z)
            prices.append((term.degree, ((pos - neg) * Z).sum(axis=0)))
        return prices

    def remember(self, Z: Array, U: Array, xlogy: float, product: Array) -> Known:
        self._known = Known(Z, U, xlogy, product)
        return self._known

    def recall(self, Z: Array, U: Array) -> Known | None:
        known = self._known
        return known if known is not None and known.Z is Z and known.U is U else None

    # -- what the loop asks for -------------------------------------------------------------

    def subproblem(self, side: str, Z: Array, U: Array) -> Subproblem:
        """The problem in one factor ("V" or "U") with the other fixed."""
        return self.loss.subproblem(self, side, Z, U)

    def value(self, Z: Array, U: Array) -> float:
        """The objective."""
        return self.loss.value(self, Z, U)

    def normalize(self, Z: Array, U: Array) -> tuple[Array, Array]:
        """Unit columns of U, lengths moved into Z; a column of zeros gives its Z up."""
        if not self.unit:
            return Z, U
        return unit_columns(Z, U, self.loss.unit_norm)

    def exact_value(self, Z: Array, U: Array) -> float:
        """The objective without cancellation where the fit is nearly perfect."""
        value = self.value(Z, U)
        precision = float(np.finfo(self.data.dtype).eps) ** 0.75
        if isinstance(self.loss, Frobenius) and value <= precision * self.constant:
            V = self.expand(Z)
            loss = self.loss.exact(self.data, self.weights, V, self.S(U))
            value = loss + self.penalty("V", Z, U) + self.penalty("U", Z, U)
        return max(value, 0.0)

    def reduce_start(self, V: Array) -> Array:
        """A start for Z: the mean of V over the samples that share a row."""
        if self.index is None:
            return V
        Z = np.zeros((self.n_rows, V.shape[1]), dtype=V.dtype)
        np.add.at(Z, self.index, V)
        return Z / np.bincount(self.index, minlength=self.n_rows)[:, None].astype(V.dtype)

    def expand(self, Z: Array) -> Array:
        """V = A Z."""
        return Z if self.index is None else Z[self.index]


def unit_columns(Z: Array, U: Array, norm: int) -> tuple[Array, Array]:
    """Columns of U of length (norm 2) or sum (norm 1) one; Z takes the factor."""
    length = U.sum(axis=0) if norm == 1 else np.sqrt((U * U).sum(axis=0))
    fallback = 1.0 / (U.shape[0] if norm == 1 else np.sqrt(U.shape[0]))
    U = np.where(length > 0, ratio(U, np.broadcast_to(length, U.shape)), U.dtype.type(fallback))
    return Z * length, U
