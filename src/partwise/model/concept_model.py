"""The objective and the two subproblems of concept factorization (CF and LCF).

The basis U = XᵀC consists of combinations of samples: X ≈ V Uᵀ = V CᵀX. The objective is the loss ½
‖X - V CᵀX‖² plus, for LCF, the cost λ/2 Σ_ik v_ik ‖u_k - x_i‖². It depends on X only through K =
XXᵀ, which another kernel can replace. A linear kernel is never computed, since K C = X (XᵀC).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from partwise.backends import DataMatrix
from partwise.backends.arrays import AnyArray, dot64
from partwise.backends.numpy.dense import product
from partwise.model.subproblems import LEAST_MISFIT, Model, Quadratic, Subproblem
from partwise.model.terms import Linear, Term


class LinearGram:
    """Products with K = XXᵀ, which is not computed.

    For X with negative values, K⁺ = X⁺X⁺ᵀ + X⁻X⁻ᵀ and K⁻ = X⁺X⁻ᵀ + X⁻X⁺ᵀ.
    """

    def __init__(self, data: DataMatrix, positive: DataMatrix | None, negative: DataMatrix | None):
        self.data, self.positive, self.negative = data, positive, negative
        self.signed = negative is not None
        self.noise = float(np.finfo(data.dtype).eps)  # rounding affects half of the digits of XᵀC

    def dot(self, C: AnyArray) -> AnyArray:
        return self.data.dot(self.data.tdot(C))

    def plus_dot(self, C: AnyArray) -> AnyArray:
        if self.positive is None or self.negative is None:
            return self.dot(C)
        plus, minus = self.positive, self.negative
        return plus.dot(plus.tdot(C)) + minus.dot(minus.tdot(C))

    def minus_dot(self, C: AnyArray) -> AnyArray:
        if self.positive is None or self.negative is None:
            return np.zeros((1, 1), C.dtype)
        plus, minus = self.positive, self.negative
        return plus.dot(minus.tdot(C)) + minus.dot(plus.tdot(C))

    def diagonal(self) -> AnyArray:
        return np.asarray(self.data.row_sq_norms(), dtype=self.data.dtype)


class DenseGram:
    """Products with a kernel matrix that is in memory."""

    def __init__(self, K: AnyArray) -> None:
        self.K = K
        self.signed = bool((K < 0).any())
        self.positive = np.maximum(K, 0) if self.signed else K
        # rounding affects all but two of the digits of CᵀKC
        self.noise = 256 * float(np.finfo(K.dtype).eps)

    def dot(self, C: AnyArray) -> AnyArray:
        return product(self.K, C)

    def plus_dot(self, C: AnyArray) -> AnyArray:
        return product(self.positive, C)

    def minus_dot(self, C: AnyArray) -> AnyArray:
        if not self.signed:
            return np.zeros((1, 1), C.dtype)
        return product(self.positive, C) - product(self.K, C)

    def diagonal(self) -> AnyArray:
        return np.diag(self.K)


#: Products with a kernel matrix K = K⁺ - K⁻, where K⁺ and K⁻ are non-negative. A concept whose
#: squared length, relative to that of its samples, is below ``noise`` is rounding noise.
Gram = LinearGram | DenseGram


class Weights(Subproblem):
    """The subproblem for C: ½ tr(CᵀKC H) - (1+λ)⟨KV, C⟩ with H = VᵀV + λ diag(Vᵀ1).

    `ConceptModel.product` stores K C from one update to the next. A gradient therefore costs one
    product with K, and an iteration with one gradient costs two.
    """

    kind = "frobenius"
    descends = True

    def __init__(self, model: ConceptModel, V: AnyArray, H: AnyArray) -> None:
        self.model, self.V, self.H = model, V, H
        self.factor = 1 + model.locality
        self.exponent = 0.5 if model.gram.signed else 1.0
        lam, a = model.locality, model.a
        self.constant = model.constant + 0.5 * lam * float(a @ V.sum(axis=1))

    def halves(self, C: AnyArray) -> tuple[AnyArray, AnyArray]:
        gram = self.model.gram
        if not gram.signed:
            return self.factor * gram.dot(self.V), self.model.product(C) @ self.H
        CH = C @ self.H
        neg = self.factor * gram.plus_dot(self.V) + gram.minus_dot(CH)
        pos = self.factor * gram.minus_dot(self.V) + gram.plus_dot(CH)
        return neg, pos

    def value(self, C: AnyArray) -> float:
        KC = self.model.product(C)
        return 0.5 * dot64(KC, C @ self.H) - self.factor * dot64(KC, self.V) + self.constant

    def descend(self, C: AnyArray, steps: int) -> AnyArray:
        """Return C after accelerated projected gradient steps.

        The product with K is extrapolated together with C, since K times the extrapolated point is
        the same combination of earlier products.
        """
        size = self.model.bound(C.shape[0], C.dtype) * float(np.linalg.norm(self.H, 2))
        if size == 0:
            return C
        goal = self.factor * self.model.gram.dot(self.V)
        KC = self.model.product(C)
        Y, KY, momentum = C, KC, 1.0
        for _ in range(steps):
            new = np.maximum(Y - (KY @ self.H - goal) / C.dtype.type(size), 0)
            Knew = self.model.product(new)
            following = (1 + np.sqrt(4 * momentum**2 + 1)) / 2
            weight = C.dtype.type((momentum - 1) / following)
            Y, KY = new + weight * (new - C), Knew + weight * (Knew - KC)
            C, KC, momentum = new, Knew, following
        return C


class Codes(Quadratic):
    """The subproblem for V of a concept factorization.

    For a multiplicative step, it returns the positive and the negative part of its products.
    """

    def __init__(self, *args: Any, parts: Any = None, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.parts = parts
        if parts is not None:
            self.exponent = 0.5

    def halves(self, Z: AnyArray) -> tuple[AnyArray, AnyArray]:
        if self.parts is None:
            return super().halves(Z)
        plus, minus, G_plus, G_minus = self.parts
        return plus + Z @ G_minus, minus + Z @ G_plus


class ConceptModel(Model):
    """The objective of CF and LCF, and its subproblems for V ("V") and C ("U")."""

    def __init__(
        self, gram: Gram, locality: float = 0.0, *, balance: bool = False, sweeps: int = 1
    ) -> None:
        self.gram, self.locality = gram, locality
        self.unit = balance and not locality
        self.a = gram.diagonal()
        self.constant = 0.5 * float(self.a.sum(dtype=np.float64))
        self.size = self.constant  # the loss for V = 0
        self.eps = float(np.finfo(self.a.dtype).eps)
        self.least = LEAST_MISFIT["frobenius"]
        self.sweeps = sweeps  # number of coordinate sweeps on V per product
        self._bound: float | None = None
        self._known: tuple[AnyArray, AnyArray] | None = None

    def bound(self, n: int, dtype: Any) -> float:
        """Return an upper estimate of ‖K‖₂, the step size of C, by power iterations."""
        if self._bound is None:
            v = np.random.RandomState(0).uniform(size=(n, 1)).astype(dtype)
            size = 0.0
            for _ in range(15):
                v = self.gram.dot(v / np.linalg.norm(v))
                size = float(np.linalg.norm(v))
            self._bound = 1.05 * size
        return self._bound

    def product(self, C: AnyArray) -> AnyArray:
        """Return K C, stored for the last C; zero for concepts whose samples cancel.

        A concept whose samples cancel, for example the mean of centred samples, consists of
        rounding errors. Scaling such a concept to unit length, or fitting part weights to it, would
        enlarge these errors to the size of X.
        """
        if self._known is None or self._known[0] is not C:
            KC = self.gram.dot(C)
            if self.gram.signed:
                most = np.square(np.sqrt(np.maximum(self.a, 0)) @ C)
                KC = KC * (np.abs((C * KC).sum(axis=0)) > self.gram.noise * most)
            self._known = (C, KC)
        return self._known[1]

    def subproblem(self, side: str, V: AnyArray, C: AnyArray) -> Weights | Codes:
        """Return the subproblem for V or, with "U", for C."""
        return self.codes(C) if side == "V" else self.weights(V)

    def weights(self, V: AnyArray) -> Weights:
        """Return the subproblem for C with V fixed."""
        H = V.T @ V
        H[np.diag_indices_from(H)] += self.locality * V.sum(axis=0)
        return Weights(self, V, H)

    def codes(self, C: AnyArray) -> Codes:
        """Return the subproblem for V with C fixed."""
        lam = self.locality
        KC = self.product(C)
        G = C.T @ KC
        parts = None
        if self.gram.signed:
            plus, minus = self.gram.plus_dot(C), self.gram.minus_dot(C)
            parts = ((1 + lam) * plus, (1 + lam) * minus, C.T @ plus, C.T @ minus)
        return code_problem(self.a, KC, G, lam, sweeps=self.sweeps, parts=parts)

    def value(self, V: AnyArray, C: AnyArray) -> float:
        return self.codes(C).value(V)

    def exact_value(self, V: AnyArray, C: AnyArray, about: float = np.inf) -> float:
        return self.value(V, C)

    def normalize(self, V: AnyArray, C: AnyArray) -> tuple[AnyArray, AnyArray]:
        """Scale basis vectors to length one, which leaves the objective unchanged.

        Without this scaling, a single large column of V would force small gradient steps for all
        columns of C.
        """
        KC = self.product(C)
        lengths = np.sqrt(np.maximum((C * KC).sum(axis=0), 0))
        lengths = np.where(lengths > 0, lengths, 1).astype(C.dtype)
        C = C / lengths
        self._known = (C, KC / lengths)
        return V * lengths, C

    def feasible(self, V: AnyArray, C: AnyArray) -> tuple[AnyArray, AnyArray]:
        return self.normalize(V, C) if self.unit else (V, C)

    def fit_scale(self, V: AnyArray, C: AnyArray) -> AnyArray:
        """Return V multiplied by the number for which V CᵀX fits X best."""
        KC = self.product(C)
        fit, size = dot64(KC, V), dot64(V.T @ V, C.T @ KC)
        return V * V.dtype.type(fit / size) if fit > 0 and size > 0 else V


def code_problem(
    a: AnyArray, KC: AnyArray, G: AnyArray, locality: float, *, sweeps: int = 1, parts: Any = None
) -> Codes:
    """Return the subproblem for V from a = ‖x_i‖², KC = X U and G = UᵀU."""
    terms: list[Term] = []
    # The cost of locality is λ/2 (‖x_i‖² + ‖u_k‖² - 2 x_i·u_k); its last term is part of (1 + λ)
    # KC.
    if locality:
        terms.append(Linear((0.5 * locality * (a[:, None] + np.diag(G))).astype(KC.dtype)))
    constant = 0.5 * float(a.sum(dtype=np.float64))
    return Codes((1 + locality) * KC, G, terms=terms, constant=constant, sweeps=sweeps, parts=parts)
