"""Penalty terms on one factor Z >= 0: the base class, and simple terms.

A term needs only `Term.value`, and `Term.gradient` or `Term.split`. With `Term.lipschitz`, every
solver can use it. Optional properties (a tighter bound, the degree, the edges of a graph, an exact
solution) make solvers faster. Terms declare which properties they have, so that a solver that needs
another one raises an error before the fit (`solvers.steps.check_step`).
"""

from __future__ import annotations

import copy
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np

from partwise.backends import arrays
from partwise.backends.arrays import Array, dot64, inner64, namespace, to_numpy
from partwise.model.maps import MixedRows, SharedRows

Told = TypeVar("Told", bound=Callable[..., Any])


def _of_factor(returns: str) -> Callable[[Told], Told]:
    """Add the sections Parameters and Returns to the docstring of a method of Z alone."""

    def told(method: Told) -> Told:
        method.__doc__ = (
            f"{inspect.cleandoc(method.__doc__ or '')}\n\nParameters\n----------\n"
            "Z : array of shape (rows, k)\n    The factor.\n\n"
            f"Returns\n-------\n{returns}\n"
        )
        return method

    return told


class Bound(NamedTuple):
    """A diagonal majoriser slope·z + ½ ridge·z², in z or, if ``around``, in z - Z.

    At Z it equals the term up to a constant, and nowhere it is below the term.

    Parameters
    ----------
    slope, ridge : array
        Arrays that broadcast to Z: (1, 1) for one number, (n, 1) for one number per row, (1, k) for
        one per column, or (n, k) for one per entry.
    around : bool, default=False
        Whether the majoriser is a function of z - Z. Its slope is then the gradient at Z, which is
        more exact than the difference slope - ridge Z.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.terms import Ridge
    >>> Ridge(np.array([[3.0]])).bound(np.ones((2, 2))).ridge
    array([[3.]])
    """

    slope: Array
    ridge: Array
    around: bool = False

    @_of_factor("tuple of array")
    def about_zero(self, Z: Array) -> tuple[Array, Array]:
        """Return the coefficients (linear, ridge) of linear·z + ½ ridge·z²."""
        return (self.slope - self.ridge * Z if self.around else self.slope), self.ridge


@dataclass(frozen=True)
class Place:
    """Conversion of the arrays of a term to the array type and dtype of a factor."""

    rows: Callable[[Array], Array]
    operator: Callable[[Any], Any]  # converts a graph, see DataMatrix.operator
    dtype: Any

    def __call__(self, a: Array) -> Array:
        return self.rows(arrays.cast(a, self.dtype))


class Term(ABC):
    """A penalty term of the objective on one factor Z >= 0 of shape (rows, k).

    Subclasses implement `value`, and `gradient` or `split`. If they also implement `lipschitz`, all
    solvers can use them. Unless ``anywhere`` is True, the methods receive numpy arrays, and may
    return any array that broadcasts to Z.

    Attributes
    ----------
    couples : bool
        Whether the value for one row depends on other rows. Such terms are ignored when the part
        weights of new samples are computed.
    degree : float or None
        The number q for which value(s Z) = s^q value(Z), or None if there is none.
    quadratic : bool
        Whether the value is a polynomial of degree two or less.
    exact : bool
        Whether `bound` stays valid while the subproblem is solved; otherwise it is computed after
        every sweep.
    anywhere : bool
        Whether the methods use only operators and sums that numpy, PyTorch and Dask arrays support.
        Otherwise the factor is converted to a numpy array, and the result is converted back.
    by_row : tuple of str
        Names of attributes that are arrays with one row for each row of Z, or with a single row.
    edges : tuple or None
        The CSR matrix W and λ if the term is λ/2 Σ_ij ½ w_ij ‖z_i - z_j‖².

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.terms import Term, check_term
    >>> class Even(Term):  # samples use all parts alike
    ...     def value(self, Z):
    ...         return 0.5 * ((Z - Z.mean(axis=1, keepdims=True)) ** 2).sum()
    ...     def gradient(self, Z):
    ...         return Z - Z.mean(axis=1, keepdims=True)
    ...     def lipschitz(self):
    ...         return 1.0
    >>> check_term(Even(), (6, 3))  # raises where it does not agree with its value
    >>> float(Even().value(np.ones((6, 3))))
    0.0
    """

    couples: bool = False
    degree: float | None = None
    quadratic: bool = False
    exact: bool = False
    anywhere: bool = False
    by_row: ClassVar[tuple[str, ...]] = ()
    edges: tuple[Any, float] | None = None

    def __init_subclass__(cls, **kw: Any) -> None:
        super().__init_subclass__(**kw)
        if cls.gradient is Term.gradient and cls.split is Term.split:
            raise TypeError(f"{cls.__name__} must define the method `gradient` or `split`.")

    @_of_factor("float")
    @abstractmethod
    def value(self, Z: Array) -> float:
        """Return the contribution of the term to the objective."""

    def change(self, new: Array, old: Array) -> float:
        """Return value(new) - value(old); if quadratic, from the gradient at the midpoint.

        On a GPU, the result may be a number that is still being computed, see `inner64`.

        Parameters
        ----------
        new, old : array of shape (rows, k)
            The factor after and before a step.

        Returns
        -------
        float
        """
        if not self.quadratic:
            return self.value(new) - self.value(old)
        slope = self.gradient(0.5 * (new + old))
        return inner64(arrays.spread(slope, new), new - old)

    @_of_factor("array\n    Broadcasts to Z.")
    def gradient(self, Z: Array) -> Array:
        """Return the derivative with respect to Z."""
        neg, pos = self.split(Z)
        return pos - neg

    @_of_factor("tuple of array")
    def split(self, Z: Array) -> tuple[Array, Array]:
        """Return (neg, pos) >= 0 with gradient = pos - neg, for multiplicative updates.

        By default, the halves are computed from `bound`: ridge Z is added to both, so that an
        update is not larger than the bound allows.
        """
        xp = namespace(Z)
        if "bound" not in self.offers:
            slope = self.gradient(Z) + xp.zeros_like(Z)
            return xp.maximum(-slope, 0), xp.maximum(slope, 0)
        linear, ridge = self.bound(Z).about_zero(Z)
        linear = linear + xp.zeros_like(Z)
        return xp.maximum(-linear, 0), ridge * Z + xp.maximum(linear, 0)

    @_of_factor("Bound")
    def bound(self, Z: Array) -> Bound:
        """Return a diagonal majoriser at Z, by default from the gradient and `lipschitz`."""
        return Bound(self.gradient(Z), arrays.none(Z) + self.lipschitz(), around=True)

    def lipschitz(self) -> float:
        """Return an upper bound of the Hessian's eigenvalues; infinity if none is known.

        Returns
        -------
        float
        """
        return np.inf

    def solve(self, b: Array, ridge: Array, c: Array, Z: Array) -> Array:
        """Solve (b + ridge z) z + z ∘ gradient(z) = c for z >= 0 (offers "solve").

        Parameters
        ----------
        b, ridge, c : array
            Broadcast to Z.
        Z : array of shape (rows, k)
            The current factor.

        Returns
        -------
        array of shape (rows, k)
        """
        raise NotImplementedError

    @property
    def offers(self) -> frozenset[str]:
        """Names of the optional methods that solvers may use, such as "bound" and "split"."""
        smooth = bool(np.isfinite(self.lipschitz()))
        bounded = smooth or type(self).bound is not Term.bound
        words = {"split": True, "bound": bounded, "lipschitz": smooth}
        return frozenset(word for word, there in words.items() if there)

    @property
    def name(self) -> str:
        """Name of the term in error messages."""
        return type(self).__name__

    @property
    def of_samples(self) -> bool:
        """True if the term has data for each row, so it cannot be used for new samples."""
        return self.couples or any(np.shape(getattr(self, a))[0] > 1 for a in self.by_row)

    def check(self, shape: tuple[int, int], name: str) -> None:
        """Raise a ValueError if arrays of the term do not fit a factor of this shape.

        Parameters
        ----------
        shape : (int, int)
            Shape of the factor.
        name : str
            Name of the term in the error message.
        """
        for attribute in self.by_row:
            got = np.shape(getattr(self, attribute))
            if len(got) != 2 or got[0] not in (1, shape[0]) or got[1] not in (1, shape[1]):
                raise ValueError(
                    f"{name}: {attribute} of {type(self).__name__} has shape {got}, which does not "
                    f"broadcast to {shape}; use one row for all samples, or fit all samples "
                    "together (cross-validation fits some of them)."
                )

    def placed(self, place: Place) -> Term:
        """Return a copy of the term whose arrays have the type of the factor.

        Parameters
        ----------
        place : Place
            Converts arrays to the type of the factor.

        Returns
        -------
        Term
        """
        if not self.anywhere:
            return Guest(self).placed(place)
        term = copy.copy(self)
        for name in self.by_row:
            setattr(term, name, place(getattr(self, name)))
        return term


class Guest(Term):
    """Adapter for a term that needs numpy arrays, or that is a function of V = A Z.

    By the chain rule, the gradient for a row of Z is the sum over the samples that share this row.
    """

    def __init__(self, term: Term, shared: SharedRows | MixedRows | None = None) -> None:
        self.term, self.shared = term, shared
        self.couples, self.exact = term.couples, term.exact
        self.quadratic = term.quadratic
        self.degree = term.degree
        self.place: Place | None = None

    def placed(self, place: Place) -> Term:
        guest = copy.copy(self)
        guest.place = place
        return guest

    def _here(self, Z: Array) -> Any:
        V = to_numpy(Z)
        return V if self.shared is None else self.shared.expand(V)

    def _there(self, part: Any, V: Array, Z: Array) -> Array:
        part = np.asarray(part, dtype=V.dtype)
        if self.shared is not None:
            part = self.shared.reduce(np.broadcast_to(part, V.shape))
        part = part.reshape((1,) * (2 - part.ndim) + part.shape)
        return part if self.place is None or isinstance(Z, np.ndarray) else self.place.rows(part)

    def value(self, Z: Array) -> float:
        return float(self.term.value(self._here(Z)))

    def gradient(self, Z: Array) -> Array:
        V = self._here(Z)
        return self._there(self.term.gradient(V), V, Z)

    def split(self, Z: Array) -> tuple[Array, Array]:
        V = self._here(Z)
        neg, pos = self.term.split(V)
        return self._there(neg, V, Z), self._there(pos, V, Z)

    def bound(self, Z: Array) -> Bound:
        V = self._here(Z)
        slope, ridge, around = self.term.bound(V)
        return Bound(self._there(slope, V, Z), self._there(ridge, V, Z), around)

    def lipschitz(self) -> float:
        if self.shared is None:
            return self.term.lipschitz()
        return (
            float(self.shared.reduce(np.ones(self.shared.n_samples)).max()) * self.term.lipschitz()
        )

    @property
    def offers(self) -> frozenset[str]:
        return self.term.offers - {"solve"}

    @property
    def name(self) -> str:
        return self.term.name


class Linear(Term):
    """Term ⟨cost, Z⟩ with cost >= 0: the l1 penalty, and the label cost of cdNMF.

    Parameters
    ----------
    cost : array of shape (1, 1), (1, k), (n, 1) or (n, k)

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.terms import Linear
    >>> Linear(np.array([[2.0, 0.0]])).value(np.ones((3, 2)))
    6.0
    """

    degree = 1
    exact = quadratic = anywhere = True
    by_row = ("cost",)

    def __init__(self, cost: Array) -> None:
        self.cost = cost

    def value(self, Z: Array) -> float:
        if self.cost.shape == Z.shape:
            return dot64(self.cost, Z)
        return arrays.sum64(self.cost * Z)

    def change(self, new: Array, old: Array) -> float:
        return inner64(arrays.spread(self.cost, new), new - old)

    def gradient(self, Z: Array) -> Array:
        return self.cost

    def split(self, Z: Array) -> tuple[Array, Array]:
        return arrays.none(Z), self.cost

    def bound(self, Z: Array) -> Bound:
        return Bound(self.cost, arrays.none(Z))

    def lipschitz(self) -> float:
        return 0.0


class Ridge(Term):
    """Term ½ Σ weight ∘ Z ∘ Z with weight >= 0.

    Parameters
    ----------
    weight : array of shape (1, 1), (1, k), (n, 1) or (n, k)

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.terms import Ridge
    >>> Ridge(np.array([[2.0]])).value(np.ones((3, 2)))
    6.0
    """

    degree = 2
    exact = quadratic = anywhere = True
    by_row = ("weight",)

    def __init__(self, weight: Array) -> None:
        self.weight = weight

    def value(self, Z: Array) -> float:
        return 0.5 * dot64(Z * self.weight, Z)

    def split(self, Z: Array) -> tuple[Array, Array]:
        return arrays.none(Z), Z * self.weight

    def bound(self, Z: Array) -> Bound:
        return Bound(arrays.none(Z), self.weight)

    def lipschitz(self) -> float:
        return arrays.largest(self.weight)


class Price(NamedTuple):
    """Cost of the lengths l of U's columns, with the bound Σ first l + ½ second l².

    At l = 1, the bound has the same slope as the cost. ``value(l)`` returns the cost itself; on a
    GPU it may be a number that is still being computed.
    """

    first: Array
    second: Array
    value: Callable[[Array], Any]


@dataclass(eq=False, repr=False)
class UnitLength(Term):
    """The terms on V, evaluated with the lengths of U's columns, as a term on U.

    Minimising this term without a constraint, and then moving the lengths from U to V
    (`FactorModel.normalize`), is equivalent to constraining the columns of U to length one
    (Frobenius) or sum one (KL). `value` is exact. `gradient` and `bound` assume columns of length
    one, which they have at the beginning of a step.
    """

    anywhere = True

    prices: list[Price]
    lengths: Callable[[Array], Array]
    norm: int
    free: Array | None = None  # shape (k,): zero for columns whose length has no cost
    exact: bool = False  # whether several sweeps may use the same bound

    def value(self, U: Array) -> float:
        return float(self._cost(U))

    def change(self, new: Array, old: Array) -> float:
        change: float = self._cost(new) - self._cost(old)
        return change

    def _cost(self, U: Array) -> Any:
        lengths = arrays.cast(self.lengths(U), np.float64)
        return sum(price.value(lengths) for price in self.prices)

    def _slopes(self, U: Array) -> tuple[Array, Array]:
        """Return coefficients (1, k) of the length and of half its square, over all terms."""
        first, second = (
            arrays.cast(sum(part), U.dtype)[None, :]
            for part in zip(*((price.first, price.second) for price in self.prices))
        )
        if self.free is not None:
            first, second = first * self.free, second * self.free
        return first, second

    def bound(self, U: Array) -> Bound:
        first, second = self._slopes(U)
        xp = namespace(U)
        if self.norm == 2:
            # ½ρ‖u‖² is exact for quadratic terms, and ‖u‖ <= ½(‖u‖² + 1) with equality at ‖u‖ = 1.
            # Costs that decrease with the length are concave, so their tangent is an upper bound.
            falling = xp.minimum(first, 0) + xp.minimum(second, 0)
            return Bound(falling * U, xp.maximum(first, 0) + xp.maximum(second, 0))
        # Terms of degree one are linear in Σu. For degree two, (Σu)² <= Σ u²/u₀ if Σu₀ = 1, by
        # Jensen's inequality. Entries below 1e-12 of the mean are rounding errors, and their
        # curvature would overflow.
        low = xp.maximum(U, 1e-12 / U.shape[0])
        ridge = xp.maximum(second, 0) / low if bool((second > 0).any()) else arrays.none(U)
        return Bound(first + xp.minimum(second, 0), ridge)

    def gradient(self, U: Array) -> Array:
        first, second = self._slopes(U)
        slope = first + second  # derivative of the cost by the length, at length one
        return slope if self.norm == 1 else slope * U

    def lipschitz(self) -> float:
        if self.norm == 1:
            return np.inf
        return sum(arrays.largest(p.first) + arrays.largest(p.second) for p in self.prices)


# -- check of a user's own term before a fit -------------------------------------------------------


def check_term(term: Term, shape: tuple[int, int], *, random_state: int = 0) -> None:
    """Compare the declared properties of a term with its value; raise all differences.

    A fit does not check its terms. With a wrong gradient or too small a bound, it ends with "no
    further progress". With a wrong ``couples``, part weights of new samples are wrong. This
    function compares `Term.gradient` with finite differences of `Term.value`. It compares
    `Term.split`, `Term.bound` and `Term.lipschitz` with the gradient and the value, also in the
    direction with the largest curvature, and it checks ``couples``, ``degree``, ``quadratic`` and
    ``exact``.

    Parameters
    ----------
    term : Term
    shape : (int, int)
        Shape of a factor to which the term is applied: (n_samples, k) for ``terms``, (n_features,
        k) for ``basis_terms``. It needs at least two rows, so that coupling of rows can be checked.
    random_state : int, default=0
        Random seed for the points at which the term is evaluated.

    Raises
    ------
    TypeError
        If the object is not a `Term`.
    ValueError
        If a property does not match the value; one sentence per property.

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.terms import Term, check_term
    >>> class Chain(Term):
    ...     couples = True  # rows that follow each other are drawn together
    ...     degree = 2
    ...     def value(self, Z):
    ...         return 0.5 * (np.diff(Z, axis=0) ** 2).sum()
    ...     def gradient(self, Z):
    ...         steps = np.diff(Z, axis=0, prepend=Z[:1], append=Z[-1:])
    ...         return steps[:-1] - steps[1:]
    ...     def lipschitz(self):
    ...         return 4.0
    >>> check_term(Chain(), (20, 3))
    >>> Chain.couples = False
    >>> check_term(Chain(), (20, 3))
    Traceback (most recent call last):
    ...
    ValueError: Chain: couples is False, but the gradient of a row depends on other rows.
    """
    if not isinstance(term, Term):
        raise TypeError(f"term must be a partwise.terms.Term, got {type(term).__name__}.")
    term.check(shape, "term")
    rng = np.random.default_rng(random_state)
    looks = _Looks(term, [rng.gamma(1.0, size=shape) + 0.05 for _ in range(3)], rng)
    found = looks.plain()
    if not found:  # other checks would report the same error again
        found = [word for look in (looks.joined, looks.shape, looks.bounded) for word in look()]
    if found:
        raise ValueError(f"{term.name}: " + "; ".join(found) + ".")


class _Looks:
    """The checks of `check_term`; each method returns a list of error messages.

    A central difference with step h has errors of about h² and eps/h, relative to the value. They
    are about 1e-9 if h is the cube root of eps. The tolerance of 1e-5 is far larger than these
    errors, and far smaller than the errors of wrong terms.
    """

    near = 1e-5

    def __init__(self, term: Term, points: list[Any], rng: np.random.Generator) -> None:
        self.term, self.points, self.rng = term, points, rng

    def _slope(self, Z: Any) -> Any:
        return np.broadcast_to(np.asarray(self.term.gradient(Z), dtype=float), Z.shape)

    def _along(self, Z: Any, direction: Any) -> float:
        h = np.cbrt(np.finfo(float).eps)
        ahead, behind = (self.term.value(Z + s * h * direction) for s in (1, -1))
        return float((ahead - behind) / (2 * h))

    def plain(self) -> list[str]:
        """Check that value and gradient are finite, consistent, and leave Z unchanged."""
        term, found = self.term, []
        zeros = self.points[0] * (self.rng.random(self.points[0].shape) < 0.5)
        for Z in (*self.points, zeros):
            before = Z.copy()
            value, gradient = term.value(Z), np.asarray(term.gradient(Z), dtype=float)
            if not np.array_equal(Z, before):
                return ["it writes to Z"]
            if np.ndim(value) != 0 or not np.isfinite(value):
                what = f"of shape {np.shape(value)}" if np.ndim(value) else repr(value)
                return [f"value is {what}, and not one finite number"]
            try:
                gradient = np.broadcast_to(gradient, Z.shape)
            except ValueError:
                return [f"gradient has shape {gradient.shape}, which does not broadcast {Z.shape}"]
            if not np.isfinite(gradient).all():
                return ["gradient is not finite" + (" where Z is zero" if Z is zeros else "")]
        for Z in self.points:
            gradient, size = self._slope(Z), abs(term.value(Z))
            for _ in range(5):
                direction = 0.02 * self.rng.standard_normal(Z.shape)
                said, seen = float((gradient * direction).sum()), self._along(Z, direction)
                scale = float(np.linalg.norm(gradient) * np.linalg.norm(direction))
                if abs(said - seen) > self.near * scale + 1e-9 * size:
                    return [
                        f"gradient is not that of value: along a direction it is {said:.6g}, "
                        f"and finite differences of value give {seen:.6g}"
                    ]
            neg, pos = (np.broadcast_to(np.asarray(part), Z.shape) for part in term.split(Z))
            if min(neg.min(), pos.min()) < 0:
                found = ["split has a negative half"]
            elif np.abs(pos - neg - gradient).max() > self.near * np.abs(gradient).max():
                found = ["split is not the gradient: pos - neg differs from it"]
        return found

    def joined(self) -> list[str]:
        """Check whether the gradient of a row depends on other rows, except by `by_row`."""
        Z = self.points[0]
        if self.term.couples or len(Z) < 2:
            return []
        gradient = self._slope(Z)
        for row in {0, len(Z) // 2, len(Z) - 1}:
            moved = Z.copy()
            moved[row] *= 2
            apart = np.delete(self._slope(moved) - gradient, row, axis=0)
            if np.abs(apart).max() > 1e-9 * np.abs(gradient).max():
                return ["couples is False, but the gradient of a row depends on other rows"]
        return []

    def shape(self) -> list[str]:
        """Check the degree, and whether the term is a polynomial of degree two."""
        term, found, Z = self.term, [], self.points[0]
        at = [term.value(s * Z) for s in (0.5, 1.0, 2.0)]
        if term.degree is not None:
            wanted = [at[1] * s**term.degree for s in (0.5, 1.0, 2.0)]
            if not np.allclose(at, wanted, rtol=self.near, atol=1e-9 * max(map(abs, at))):
                found.append(
                    f"degree is {term.degree}, but the value of 2 Z is {at[2]:.6g} and not "
                    f"{wanted[2]:.6g}"
                )
        if term.quadratic:
            line = [term.value(Z + s * (self.points[1] - Z)) for s in (0, 1 / 3, 2 / 3, 1)]
            third = line[3] - 3 * line[2] + 3 * line[1] - line[0]
            if abs(third) > self.near * max(map(abs, line)):
                found.append("quadratic is True, but the value has more than a square in it")
        return found

    def bounded(self) -> list[str]:
        """Check that `bound` and `lipschitz` equal the term at Z and are never below it."""
        term, found = self.term, []
        if "bound" in term.offers:
            for Z in self.points:
                linear, ridge = term.bound(Z).about_zero(Z)
                ridge = np.broadcast_to(np.asarray(ridge, dtype=float), Z.shape)
                slope = linear + ridge * Z
                if np.abs(slope - self._slope(Z)).max() > self.near * np.abs(slope).max():
                    found.append("bound has another slope at Z than gradient")
                elif self._passed(Z, ridge):
                    found.append("bound is below the value at some points")
                if found:
                    break
            one, other = (term.bound(Z).about_zero(Z) for Z in self.points[:2])
            pairs: Any = zip(one, other, strict=True)
            if term.exact and not all(np.allclose(a, b, rtol=self.near) for a, b in pairs):
                found.append("exact is True, but the bound changes with Z")
        if "lipschitz" in term.offers and not found:
            most = term.lipschitz()
            if any(self._passed(Z, np.full(Z.shape, most)) for Z in self.points):
                found.append(f"lipschitz is {most:.6g}, and the value curves more than that")
        return found

    def _passed(self, Z: Any, ridge: Any) -> bool:
        """Return whether the value exceeds value(Z) + ⟨gradient, d⟩ + ½ Σ ridge d²."""
        value, gradient = self.term.value(Z), self._slope(Z)
        low = 1e-9 * max(1e-300, ridge.max())
        root = 1 / np.sqrt(np.maximum(ridge, low))
        steep = self.rng.standard_normal(Z.shape)
        h = np.cbrt(np.finfo(float).eps)
        # power iteration for the direction with the largest curvature, in units of the ridge
        for _ in range(30):
            steep /= np.linalg.norm(steep)
            ahead, behind = (self._slope(np.maximum(Z + s * h * root * steep, 0)) for s in (1, -1))
            bent = root * (ahead - behind)
            if not bent.any():
                break
            steep = bent
        steep = root * steep
        random = [other - Z for other in self.points if other is not Z]
        for direction in (steep, -steep, *random):
            direction = direction * (0.5 * Z.mean() / max(1e-300, np.abs(direction).max()))
            for length in (0.1, 1.0, 4.0):
                step = np.maximum(Z + length * direction, 0) - Z
                above = float((gradient * step).sum() + 0.5 * (ridge * step * step).sum())
                parts = abs(value), float(np.abs(gradient * step).sum()), abs(above)
                if self.term.value(Z + step) - value - above > 1e-9 * max(parts):
                    return True
        return False
