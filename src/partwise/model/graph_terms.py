"""Penalty terms on a graph: the Laplacian term of GNMF, and its KL version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import add, sub
from typing import Any, Protocol

import numpy as np

from partwise.backends import arrays
from partwise.backends.arrays import (
    AnyArray,
    dot64,
    entrywise,
    floor,
    inner64,
    namespace,
    ratio,
    spread,
    to_numpy,
)
from partwise.backends.numpy.sparse import laplacian, multiply
from partwise.model.terms import Bound, Place, Term


class Operator(Protocol):
    """A graph that can be multiplied by a factor of any array type."""

    @property
    def gathered(self) -> tuple[Operator, Callable[[AnyArray], AnyArray]] | None:
        """For factors outside memory: the product in memory, and a loader of rows."""

    @property
    def edges(self) -> Any | None:
        """W as a CSR matrix of Z's array type, or None if not all edges are stored."""

    def __call__(self, Z: AnyArray) -> AnyArray:
        """Return W Z."""

    def laplacian(self, Z: AnyArray) -> AnyArray:
        """Return (D - W) Z from differences of rows, to avoid cancellation."""


@dataclass(eq=False, repr=False)
class Neighbors:
    """Product Z -> W Z with a graph in which all samples of a class may be connected.

    If ``members`` (n_classes, n) is given, all samples of a class are connected by edges of
    ``weight``, in addition to W. These edges are not stored: their contribution is the sum of the
    class minus the sample itself. ``mask`` marks samples with a class, and ``codes`` are the
    classes.
    """

    W: Any
    members: Any = None
    mask: AnyArray = None
    codes: AnyArray = None
    weight: Any = 0
    gathered = None

    @property
    def edges(self) -> Any | None:
        return self.W if self.members is None else None

    def __call__(self, Z: AnyArray) -> AnyArray:
        out = multiply(self.W, Z)
        if self.members is not None:
            out[self.mask] += self.weight * ((self.members @ Z)[self.codes] - Z[self.mask])
        return out

    def laplacian(self, Z: AnyArray) -> AnyArray:
        out = laplacian(self.W, Z)
        if self.members is not None:
            counts = np.asarray(self.members.sum(axis=1), dtype=np.float64).reshape(-1, 1)
            apart = Z.astype(np.float64)
            for _ in range(2):  # the second pass removes the rounding error of the first mean
                means = (self.members @ apart) / np.maximum(counts, 1)
                apart[self.mask] -= means[self.codes]
            apart = counts[self.codes] * apart[self.mask]
            out[self.mask] += (self.weight * apart).astype(Z.dtype)
        return out


@dataclass(eq=False, repr=False)
class OnGraph(Term):
    """Base class of terms on a graph.

    ``neighbors`` multiplies by the graph W, which need not be stored, and ``degrees`` are the row
    sums of W.
    """

    couples = anywhere = True

    neighbors: Operator
    degrees: AnyArray
    weight: float

    def gradient(self, Z: AnyArray) -> AnyArray:
        raise NotImplementedError

    def placed(self, place: Place) -> Any:
        return type(self)(place.operator(self.neighbors), place(self.degrees), self.weight)

    @property
    def edges(self) -> tuple[Any, float] | None:  # type: ignore[override]
        """The CSR matrix W and λ, or None if W has edges that are not stored."""
        W = self.neighbors.edges
        return None if W is None else (W, self.weight)


class Graph(OnGraph):
    """Term λ/2 tr(ZᵀLZ), L = D - W: neighbours in the graph W get similar rows.

    Parameters
    ----------
    neighbors : Operator
        Multiplies a factor by W and by L.
    degrees : array of shape (n,)
        Row sums of W.
    weight : float
        Weight λ of the term.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from partwise.model.graph_terms import Neighbors
    >>> from partwise.terms import Graph
    >>> W = sp.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> Graph(Neighbors(W), np.ones(2), 1.0).value(np.array([[1.0], [3.0]]))  # ½ (1 - 3)²
    2.0
    """

    degree = 2
    quadratic = True

    def value(self, Z: AnyArray) -> float:
        # Sum in float64: if neighbours agree in d digits, products in float32 keep only 7 - d
        # digits.
        return 0.5 * self.weight * dot64(self.neighbors.laplacian(arrays.cast(Z, np.float64)), Z)

    def change(self, new: AnyArray, old: AnyArray) -> float:
        sums, gaps = entrywise(add, new, old), entrywise(sub, new, old)
        return 0.5 * self.weight * inner64(self.neighbors.laplacian(sums), gaps)

    def gradient(self, Z: AnyArray) -> AnyArray:
        slope = self.neighbors.laplacian(Z)
        return slope if self.weight == 1 else self.weight * slope

    def split(self, Z: AnyArray) -> tuple[AnyArray, AnyArray]:
        return self.weight * self.neighbors(Z), self.weight * self.degrees[:, None] * Z

    def bound(self, Z: AnyArray) -> Bound:
        # The largest eigenvalue of L is at most 2 max D, since L ≼ 2D.
        return Bound(self.gradient(Z), 2.0 * self.weight * self.degrees[:, None], around=True)

    def lipschitz(self) -> float:
        return 2.0 * self.weight * arrays.largest(self.degrees)


class CannotLink(OnGraph):
    """The term μ Σ_ij c_ij ⟨z_i, z_j⟩ over cannot-link pairs i < j, with c >= 0.

    The term is small if the two samples of a pair use different parts.

    Its Hessian μ C is indefinite. The term therefore does not offer "lipschitz", and `nesterov`,
    which needs a convex problem, refuses it. Other steps decrease the objective. A multiplicative
    update divides by μ C Z. This follows from the majoriser z_i z_j <= ½ (a z_i² + z_j²/a) with a =
    z_j⁰/z_i⁰ (Lee & Seung), which only needs entries of C that are >= 0. `bound` uses the same
    inequality with a = 1 for the differences from Z: C ≼ diag(C 1).
    """

    degree = 2
    quadratic = True
    edges = None  # there is no Laplacian, so coordinate descent cannot update rows in groups

    @classmethod
    def between(cls, C: Any, weight: float) -> CannotLink:
        """Create the term from a symmetric sparse matrix C."""
        return cls(Neighbors(C), np.asarray(C.sum(axis=1)).ravel(), weight)

    def value(self, Z: AnyArray) -> float:
        return 0.5 * self.weight * dot64(self.neighbors(Z), Z)

    def gradient(self, Z: AnyArray) -> AnyArray:
        return self.weight * self.neighbors(Z)

    def split(self, Z: AnyArray) -> tuple[AnyArray, AnyArray]:
        return arrays.none(Z), self.gradient(Z)

    def bound(self, Z: AnyArray) -> Bound:
        return Bound(self.gradient(Z), self.weight * self.degrees[:, None], around=True)


class Anchored(Term):
    """The term λ/2 Σ_ij W_ij ‖z_i - a_j‖², which draws rows of Z to fixed rows a_j.

    It is used for new samples, whose neighbours a_j are training samples.

    Up to a constant, it equals ½ Σ_i weight_i ‖z_i‖² - ⟨pull, Z⟩ with pull = λ W A and weight = λ W
    1.
    """

    exact = anywhere = True
    by_row = ("pull", "weight")

    def __init__(self, pull: AnyArray, weight: AnyArray, constant: float) -> None:
        self.pull, self.weight, self.constant = pull, weight, constant

    @classmethod
    def to(cls, W: Any, A: AnyArray, scale: float) -> Any:
        """Create the term from the weights W (n, m), the fixed rows A (m, k) and λ."""
        scale = A.dtype.type(scale)
        weight = scale * np.asarray(W.sum(axis=1), dtype=A.dtype).reshape(-1, 1)
        sums = np.asarray(W.sum(axis=0), dtype=np.float64).ravel()
        return cls(scale * (W @ A), weight, float(scale) * float(sums @ cls.alone(A)))

    @staticmethod
    def alone(A: AnyArray) -> AnyArray:
        """Return the part of the value that depends on A alone, per row of A."""
        return 0.5 * (A.astype(np.float64) ** 2).sum(axis=1)

    def value(self, Z: AnyArray) -> float:
        return 0.5 * dot64(Z * self.weight, Z) - dot64(self.pull, Z) + self.constant

    def split(self, Z: AnyArray) -> tuple[AnyArray, AnyArray]:
        return self.pull, Z * self.weight

    def bound(self, Z: AnyArray) -> Bound:
        return Bound(-self.pull, self.weight)

    def lipschitz(self) -> float:
        return arrays.largest(self.weight)


class AnchoredDivergence(Anchored):
    """The term λ Σ_ij W_ij D(a_j ‖ z_i) with the Kullback-Leibler divergence D.

    This term replaces `Anchored` for a KL loss.

    The minimum of this term and the majoriser of the loss is GNMF (21) with fixed neighbours.
    """

    exact = False
    offers = frozenset({"split", "solve"})

    @staticmethod
    def alone(A: AnyArray) -> AnyArray:
        A = A.astype(np.float64)
        return (A * np.log(np.maximum(A, np.finfo(np.float64).tiny)) - A).sum(axis=1)

    def value(self, Z: AnyArray) -> float:
        xp = namespace(Z)
        log = xp.log(xp.maximum(Z, floor(Z.dtype)))
        return arrays.sum64(Z * self.weight) - dot64(self.pull, log) + self.constant

    def split(self, Z: AnyArray) -> tuple[AnyArray, AnyArray]:
        return ratio(self.pull, Z), spread(self.weight, Z)

    def solve(self, b: AnyArray, ridge: AnyArray, c: AnyArray, Z: AnyArray) -> AnyArray:
        """Solve (b + weight + ridge z) z = c + pull for z >= 0."""
        b, c = b + self.weight, c + self.pull
        if not ridge.any():
            return ratio(c, b)
        return ratio(2 * c, b + namespace(Z).sqrt(b * b + 4 * ridge * c))


#: Largest number of samples for which the matrix of a graph is factorized. The number of entries in
#: the factors grows faster than the graph.
MOST_FACTORED = 20_000


class GraphDivergence(OnGraph):
    """The graph term of GNMF (7) with λ halved, for the Kullback-Leibler loss.

    It is λ/4 Σ_jl W_jl Σ_k (v_jk log(v_jk/v_lk) + v_lk log(v_lk/v_jk)).

    `solve` is GNMF (21): it solves (diag(b) + λL) z = c for every column. If all columns have the
    same matrix, the matrix is factorized once; otherwise conjugate gradients are used. The fixed
    points of `solve` are close to minima of this value, but they are not stationary points of it.
    """

    degree = 1
    # there is no bound: the term is not convex, and (21) need not decrease it
    offers = frozenset({"split", "solve"})

    def __init__(self, neighbors: Operator, degrees: AnyArray, weight: float) -> None:
        super().__init__(neighbors, degrees, weight)
        self.cg_iterations = 0  # largest number of iterations in one solve
        self._known: Any = None  # diagonal of the factorized matrix, and the factors

    def _apart(self, Z: AnyArray) -> AnyArray:
        """Return (D - W) log Z in float64; float32 would lose small differences."""
        xp = namespace(Z)
        return self.neighbors.laplacian(xp.log(arrays.float64(xp.maximum(Z, floor(Z.dtype)))))

    def value(self, Z: AnyArray) -> float:
        return 0.5 * self.weight * dot64(self._apart(Z), Z)

    def gradient(self, Z: AnyArray) -> AnyArray:
        # Compute (D Z - W Z) / Z from differences of rows, to avoid cancellation between equal
        # neighbours.
        apart = arrays.cast(self._apart(Z), Z.dtype)
        return 0.5 * self.weight * (apart + ratio(self.neighbors.laplacian(Z), Z))

    def solve(self, b: AnyArray, ridge: AnyArray, c: AnyArray, Z: AnyArray) -> AnyArray:
        """Solve (b + ridge z + λL) z = c for z >= 0, starting from Z."""
        # If Z is outside memory, load its rows once, since each product W Z would load them.
        if self.neighbors.gathered is not None:
            return self._solve_here(*self.neighbors.gathered, b, ridge, c, Z)
        for _ in range(8 if ridge.any() else 1):  # Newton's method: ridge z² ≈ ridge (2 z₀ z - z₀²)
            Z = self._conjugate_gradient(b + 2 * ridge * Z, c + ridge * Z * Z, Z)
        return Z

    def _solve_here(
        self, neighbors: Operator, place: Callable[[AnyArray], AnyArray], *given: AnyArray
    ) -> AnyArray:
        here = GraphDivergence(neighbors, to_numpy(self.degrees), self.weight)
        Z = here.solve(*(to_numpy(a) for a in given))
        self.cg_iterations = max(self.cg_iterations, here.cg_iterations)
        return place(Z)

    def _conjugate_gradient(
        self, b: AnyArray, c: AnyArray, Z: AnyArray, most: int = 500
    ) -> AnyArray:
        """Solve by conjugate gradients with a Jacobi preconditioner.

        All columns are solved together if they are outside memory.

        Since the system is linear, Z is first scaled to values near one, whose squares neither
        vanish nor overflow.
        """
        peak = arrays.largest(Z)
        if 0 < peak < np.inf and not 1e-9 < peak < 1e9:
            unit = 2.0 ** float(np.round(np.log2(peak)))
            return self._conjugate_gradient(b, c / unit, Z / unit, most) * unit
        diagonal = b + self.weight * self.degrees[:, None]
        diagonal = namespace(Z).maximum(diagonal, floor(Z.dtype))
        goal = 1e-12 if floor(Z.dtype) < 1e-100 else 1e-6
        neighbors: Callable[[AnyArray], AnyArray] = self.neighbors
        edges = self.edges if isinstance(Z, np.ndarray) else None
        if edges is not None:
            factors = self._factors(edges, b)
            if factors is not None:
                return np.maximum(factors.solve(c.astype(np.float64)).astype(Z.dtype), 0)
            neighbors = partial(multiply, edges[0].astype(Z.dtype, copy=False))

        def product_of(P: AnyArray) -> AnyArray:
            return diagonal * P - self.weight * neighbors(P)

        residual = c - product_of(Z)
        goal = goal**2 * (c * c).sum(axis=0)
        scaled = residual / diagonal
        direction = scaled
        product = (residual * scaled).sum(axis=0)
        for n in range(1, most + 1):
            if ((residual * residual).sum(axis=0) <= goal).all():
                break
            AP = product_of(direction)
            alpha = ratio(product, (direction * AP).sum(axis=0))
            Z = Z + alpha * direction
            residual = residual - alpha * AP
            scaled = residual / diagonal
            following = (residual * scaled).sum(axis=0)
            direction = scaled + ratio(following, product) * direction
            product = following
            self.cg_iterations = max(self.cg_iterations, n)
        return namespace(Z).maximum(Z, 0)

    def _factors(self, edges: tuple[Any, float], b: AnyArray) -> Any:
        """Return cached LU factors of the matrix that all columns share.

        With ``scale="unit"`` the matrix never changes, so that one factorization serves the whole
        fit. If λ is large, conjugate gradients would take hundreds of iterations in each step.
        """
        W, scale = edges
        first = b[:, 0].astype(np.float64)
        pull = scale * np.asarray(W.sum(axis=1, dtype=np.float64)).ravel()
        if len(first) > MOST_FACTORED or np.ptp(b, axis=1).max() > 1e-12 * (first + pull).min():
            return None
        # If the loss has no weight on a connected component of the graph, the rows of this
        # component are undetermined. Set them to zero.
        first = np.maximum(first, np.maximum(1e-10 * pull, floor(np.float64))) + pull
        if self._known is None or not np.allclose(first, self._known[0], rtol=1e-12, atol=0):
            from scipy.sparse import csc_array, diags_array
            from scipy.sparse.linalg import splu

            A = csc_array(diags_array(first) - scale * W.astype(np.float64))
            how = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0}
            self._known = first, splu(A, options={"SymmetricMode": True}, **how)
        return self._known[1]
