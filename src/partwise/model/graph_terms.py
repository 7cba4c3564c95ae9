"""Terms that join neighbours in a graph: GNMF's Laplacian, and its divergence under KL."""

from __future__ import annotations

from collections.abc import Callable
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
from partwise.backends.threads import threads_for
from partwise.model.terms import Bound, Place, Term


class Operator(Protocol):
    """A graph as two products with a factor, wherever that lives."""

    @property
    def gathered(self) -> tuple[Operator, Callable[[AnyArray], AnyArray]] | None:
        """For rows outside memory: the product in memory, and the function that returns rows."""

    @property
    def edges(self) -> Any | None:
        """W as CSR at the place of Z, if it contains all edges; else None."""

    def __call__(self, Z: AnyArray) -> AnyArray:
        """Return W Z."""

    def laplacian(self, Z: AnyArray) -> AnyArray:
        """Return (D - W) Z, without the cancellation of D Z - W Z."""


class Neighbors:
    """Z -> W Z, with cliques kept implicit.

    With ``members`` (classes, n), samples of a class are joined by ``weight`` in addition to W: the
    sum of the class minus the sample itself. ``mask`` marks samples with a class, and ``codes`` are
    these classes.
    """

    def __init__(
        self,
        W: Any,
        members: Any = None,
        mask: AnyArray = None,
        codes: AnyArray = None,
        weight: Any = 0,
    ) -> None:
        self.W, self.members, self.mask, self.codes, self.weight = W, members, mask, codes, weight
        self.gathered = None

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
            for _ in range(2):  # the second time takes the rounding of the first means away
                means = (self.members @ apart) / np.maximum(counts, 1)
                apart[self.mask] -= means[self.codes]
            apart = counts[self.codes] * apart[self.mask]
            out[self.mask] += (self.weight * apart).astype(Z.dtype)
        return out


class OnGraph(Term):
    """Common data of terms on a graph: ``neighbors`` multiplies by W, ``degrees`` are its row sums.

    W itself may be implicit.
    """

    couples = anywhere = True

    def __init__(self, neighbors: Operator, degrees: AnyArray, weight: float) -> None:
        self.neighbors = neighbors
        self.degrees = degrees
        self.weight = weight

    def gradient(self, Z: AnyArray) -> AnyArray:
        raise NotImplementedError

    def placed(self, place: Place) -> Any:
        return type(self)(place.operator(self.neighbors), place(self.degrees), self.weight)

    @property
    def edges(self) -> tuple[Any, float] | None:
        W = self.neighbors.edges
        return None if W is None else (W, self.weight)


class Graph(OnGraph):
    """λ/2 tr(ZᵀLZ), L = D - W: neighbours in the graph W get similar rows.

    Parameters
    ----------
    neighbors : Operator
        Multiplies by W and by L.
    degrees : array of shape (n,)
        Row sums of W.
    weight : float
        λ.

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
        # in float64: where neighbours agree to d digits, rounded products leave 7 - d of the sum
        return 0.5 * self.weight * dot64(self.neighbors.laplacian(arrays.float64(Z)), Z)

    def change(self, new: AnyArray, old: AnyArray) -> float:
        sums, gaps = entrywise(add, new, old), entrywise(sub, new, old)
        return 0.5 * self.weight * inner64(self.neighbors.laplacian(sums), gaps)

    def gradient(self, Z: AnyArray) -> AnyArray:
        slope = self.neighbors.laplacian(Z)
        return slope if self.weight == 1 else self.weight * slope

    def split(self, Z: AnyArray) -> tuple[AnyArray, AnyArray]:
        return self.weight * self.neighbors(Z), self.weight * self.degrees[:, None] * Z

    def bound(self, Z: AnyArray) -> Bound:
        # L ≼ 2D
        return Bound(self.gradient(Z), 2.0 * self.weight * self.degrees[:, None], around=True)

    def lipschitz(self) -> float:
        return 2.0 * self.weight * arrays.largest(self.degrees)


class CannotLink(OnGraph):
    """μ Σ_ij c_ij ⟨z_i, z_j⟩ over pairs i < j, c >= 0: linked rows use different columns.

    The Hessian μ C is indefinite, so a step that counts on convexity may rise: "lipschitz" is not
    offered, and `nesterov` refuses. Both others descend. A multiplicative update divides by μ C Z,
    which is z_i z_j <= ½ (a z_i² + z_j²/a) with a = z_j⁰/z_i⁰ (Lee & Seung's majoriser asks of a
    matrix only that its entries are >= 0). The bound is the same inequality with a = 1, for the
    distances from Z: C ≼ diag(C 1).
    """

    degree = 2
    quadratic = True
    edges = None  # no Laplacian: rows cannot take turns as those of a graph do

    @classmethod
    def between(cls, C: Any, weight: float) -> CannotLink:
        """Create the term from a symmetric sparse C."""
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
    """λ/2 Σ_ij W_ij ‖z_i - a_j‖²: rows near fixed rows a_j, such as those of neighbours.

    Up to a constant ½ Σ_i weight_i ‖z_i‖² - ⟨pull, Z⟩, with pull = λ W A and weight = λ W 1.
    """

    exact = anywhere = True
    by_row = ("pull", "weight")

    def __init__(self, pull: AnyArray, weight: AnyArray, constant: float) -> None:
        self.pull, self.weight, self.constant = pull, weight, constant

    @classmethod
    def to(cls, W: Any, A: AnyArray, scale: float) -> Any:
        """Create the term from W (n, m), the rows A (m, k) and λ."""
        scale = A.dtype.type(scale)
        weight = scale * np.asarray(W.sum(axis=1), dtype=A.dtype).reshape(-1, 1)
        sums = np.asarray(W.sum(axis=0), dtype=np.float64).ravel()
        return cls(scale * (W @ A), weight, float(scale) * float(sums @ cls.alone(A)))

    @staticmethod
    def alone(A: AnyArray) -> AnyArray:
        """Return the contribution of each row of A."""
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
    """λ Σ_ij W_ij D(a_j ‖ z_i), D the Kullback-Leibler divergence: `Anchored` for a KL loss.

    Together with the loss's majoriser, its minimiser is GNMF (21) with fixed neighbours.
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


#: Samples up to which a graph's matrix is factored; fill-in grows faster than the graph.
MOST_FACTORED = 20_000


class GraphDivergence(OnGraph):
    """λ/4 Σ_jl W_jl Σ_k (v_j log(v_j/v_l) + v_l log(v_l/v_j)): GNMF (7) with its λ halved.

    ``solve`` is GNMF (21): (diag(b) + λL) z = c for every column, by one factorization where all
    columns have the same matrix and by conjugate gradients elsewhere. Its fixed points are near
    those of this value, but not stationary for it.
    """

    degree = 1
    offers = frozenset({"split", "solve"})  # no bound: it is not convex, nor its rule a descent

    def __init__(self, neighbors: Operator, degrees: AnyArray, weight: float) -> None:
        super().__init__(neighbors, degrees, weight)
        self.cg_iterations = 0  # the most that one solve took
        self._known: Any = None  # the diagonal of the matrix that is factored, and its factors

    def _apart(self, Z: AnyArray) -> AnyArray:
        """Return (D - W) log Z in float64, since float32 logarithms of neighbours become equal."""
        xp = namespace(Z)
        return self.neighbors.laplacian(xp.log(arrays.float64(xp.maximum(Z, floor(Z.dtype)))))

    def value(self, Z: AnyArray) -> float:
        return 0.5 * self.weight * dot64(self._apart(Z), Z)

    def gradient(self, Z: AnyArray) -> AnyArray:
        # (D Z - W Z) / Z from differences: among neighbours that agree it is not rounding
        apart = arrays.cast(self._apart(Z), Z.dtype)
        return 0.5 * self.weight * (apart + ratio(self.neighbors.laplacian(Z), Z))

    def solve(self, b: AnyArray, ridge: AnyArray, c: AnyArray, Z: AnyArray) -> AnyArray:
        """Solve (b + ridge z + λL) z = c for z >= 0, from Z."""
        if self.neighbors.gathered is not None:  # W Z brings the rows here: once is enough
            return self._solve_here(*self.neighbors.gathered, b, ridge, c, Z)
        for _ in range(8 if ridge.any() else 1):  # ridge z² ≈ ridge (2 z₀ z - z₀²): Newton
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
        """Solve by Jacobi-preconditioned CG, on all columns together if they are outside memory.

        The system is linear: Z is brought near one, whose squares neither vanish nor overflow.
        """
        peak = arrays.largest(Z)
        if 0 < peak < np.inf and not 1e-9 < peak < 1e9:
            unit = 2.0 ** float(np.round(np.log2(peak)))
            return self._conjugate_gradient(b, c / unit, Z / unit, most) * unit
        diagonal = b + self.weight * self.degrees[:, None]
        diagonal = namespace(Z).maximum(diagonal, floor(Z.dtype))
        goal = 1e-12 if floor(Z.dtype) < 1e-100 else 1e-6
        edges = self.edges if isinstance(Z, np.ndarray) else None
        if edges is not None:
            factors = self._factors(edges, b)
            if factors is not None:
                return np.maximum(factors.solve(c.astype(np.float64)).astype(Z.dtype), 0)
            return self._by_column(edges, diagonal, c, Z, goal, most)

        def multiply(P: AnyArray) -> AnyArray:
            return diagonal * P - self.weight * self.neighbors(P)

        residual = c - multiply(Z)
        goal = goal**2 * (c * c).sum(axis=0)
        scaled = residual / diagonal
        direction = scaled
        product = (residual * scaled).sum(axis=0)
        for n in range(1, most + 1):
            if ((residual * residual).sum(axis=0) <= goal).all():
                break
            AP = multiply(direction)
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
        """Return LU factors of the matrix that all columns share, cached while it is unchanged.

        Under the unit constraint it never changes: one factorization for the whole fit, where
        conjugate gradients take hundreds of iterations each time if λ is large.
        """
        W, scale = edges
        first = b[:, 0].astype(np.float64)
        pull = scale * np.asarray(W.sum(axis=1, dtype=np.float64)).ravel()
        if len(first) > MOST_FACTORED or np.ptp(b, axis=1).max() > 1e-12 * (first + pull).min():
            return None
        # where the loss has no weight on a whole component its rows are free: hold them at zero
        first = np.maximum(first, np.maximum(1e-10 * pull, floor(np.float64))) + pull
        if self._known is None or not np.allclose(first, self._known[0], rtol=1e-12, atol=0):
            from scipy.sparse import csc_array, diags_array
            from scipy.sparse.linalg import splu

            A = csc_array(diags_array(first) - scale * W.astype(np.float64))
            how = {"permc_spec": "MMD_AT_PLUS_A", "diag_pivot_thresh": 0.0}
            self._known = first, splu(A, options={"SymmetricMode": True}, **how)
        return self._known[1]

    def _by_column(
        self,
        edges: tuple[Any, float],
        diagonal: AnyArray,
        c: AnyArray,
        Z: AnyArray,
        goal: float,
        most: int,
    ) -> AnyArray:
        from partwise.backends.numpy import kernels

        W, scale = edges
        n, k = Z.shape
        width = -(-k // kernels.TILE)

        def tiles(a: AnyArray, rest: float) -> AnyArray:
            wide = np.full((n, width * kernels.TILE), rest, dtype=Z.dtype)
            wide[:, :k] = a
            return np.ascontiguousarray(wide.reshape(n, width, -1).transpose(1, 0, 2))

        z = tiles(Z, 0)
        taken = np.zeros(width, dtype=np.int64)
        threads = threads_for(10.0 * (W.nnz + 5 * n) * k, True)
        arrays = (W.indptr, W.indices, W.data.astype(Z.dtype, copy=False), Z.dtype.type(scale))
        args = (*arrays, tiles(diagonal, 1), tiles(c, 0), z, goal, most, taken)
        kernels.crew.rows(kernels.graph_solve, args, width, 1, threads)
        self.cg_iterations = max(self.cg_iterations, int(taken.max(initial=0)))
        return np.maximum(z.transpose(1, 0, 2).reshape(n, -1)[:, :k], 0)
