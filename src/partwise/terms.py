"""Pieces of the objective on one factor Z: a value, a split gradient, and two bounds.

A term is five small methods. ``value`` is what it adds to the objective. ``split`` writes its
gradient as pos - neg with both >= 0, which is all a multiplicative update needs. ``row_bound`` is a
majoriser that separates over rows, lin·z + ½ ridge z² (equal to the term at Z up to a constant),
which is all coordinate descent needs. ``lipschitz`` bounds the Hessian, for gradient steps.
``couples`` says whether rows depend on each other, ``degree`` how the value grows with the scale
of Z.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from partwise._numeric import Array, dot64


class Term(Protocol):
    couples: bool
    degree: int

    def value(self, Z: Array) -> float: ...

    def split(self, Z: Array) -> tuple[Array, Array]: ...

    def row_bound(self, Z: Array) -> tuple[Array, Array]: ...

    def lipschitz(self) -> float: ...


class Linear:
    """⟨cost, Z⟩ with cost >= 0: the l1 penalty, and cdNMF's cost of another class's parts."""

    couples = False
    degree = 1

    def __init__(self, cost: Array) -> None:
        self.cost = cost

    def value(self, Z: Array) -> float:
        if self.cost.shape == Z.shape:
            return dot64(self.cost, Z)
        return float((self.cost * Z).sum(dtype=np.float64))

    def split(self, Z: Array) -> tuple[Array, Array]:
        return np.zeros((1, 1), Z.dtype), self.cost

    def row_bound(self, Z: Array) -> tuple[Array, Array]:
        return self.cost, np.zeros((1, 1), Z.dtype)

    def lipschitz(self) -> float:
        return 0.0


class Ridge:
    """½ Σ weight ∘ Z ∘ Z; weight is (1, 1), (n, 1) or (n, k)."""

    couples = False
    degree = 2

    def __init__(self, weight: Array) -> None:
        self.weight = weight

    def value(self, Z: Array) -> float:
        return 0.5 * dot64(Z * self.weight, Z)

    def split(self, Z: Array) -> tuple[Array, Array]:
        return np.zeros((1, 1), Z.dtype), Z * self.weight

    def row_bound(self, Z: Array) -> tuple[Array, Array]:
        return np.zeros((1, 1), Z.dtype), self.weight

    def lipschitz(self) -> float:
        return float(self.weight.max(initial=0.0))


class Graph:
    """λ/2 tr(ZᵀLZ), L = D - W: neighbours in the graph W get similar rows.

    ``neighbors`` multiplies by W, ``degree`` is its row sums; W itself may be implicit.
    """

    couples = True
    degree = 2

    def __init__(self, neighbors: Any, degree: Array, weight: float) -> None:
        self.neighbors = neighbors
        self.degree = degree
        self.weight = weight

    def value(self, Z: Array) -> float:
        LZ = self.degree[:, None] * Z - self.neighbors(Z)
        return 0.5 * self.weight * dot64(LZ, Z)

    def split(self, Z: Array) -> tuple[Array, Array]:
        return self.weight * self.neighbors(Z), self.weight * self.degree[:, None] * Z

    def row_bound(self, Z: Array) -> tuple[Array, Array]:
        # L ≼ 2D, so ½ tr(ZᵀLZ) <= at Z₀: ⟨LZ₀ - 2DZ₀, Z⟩ + tr(ZᵀDZ) = -⟨(W + D)Z₀, Z⟩ + tr(ZᵀDZ)
        DZ = self.degree[:, None] * Z
        return -self.weight * (self.neighbors(Z) + DZ), 2.0 * self.weight * self.degree[:, None]

    def lipschitz(self) -> float:
        return 2.0 * self.weight * float(self.degree.max(initial=0.0))
