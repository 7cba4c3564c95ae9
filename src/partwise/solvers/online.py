"""Mini-batch learning of parts from sums in which earlier batches lose weight.

When V of a batch is computed, the batch adds a quadratic function of U to the objective (two sums,
VᵀV and XᵀV) or, with a β-divergence, a majoriser (also two sums). The sums over many batches define
the subproblem for U of all their samples, so X is not needed again. If a sample is read again, its
new part weights replace the old ones. With the Frobenius loss, this is block coordinate descent on
the objective of all samples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends import DataMatrix, as_data
from partwise.backends.arrays import AnyArray, floor, ratio, to_numpy
from partwise.backends.numpy.blocks import beta_parts
from partwise.model.factor_model import FactorModel
from partwise.model.losses import KullbackLeibler, Loss
from partwise.model.subproblems import Divergence, Quadratic, Subproblem
from partwise.model.terms import Term
from partwise.solvers.steps import hals, make_step, mu, start_codes

#: Function that returns the penalties on a factor, given the weights of its rows or the number of
#: samples.
Penalty = Callable[[Any], Sequence[Term]]
NEWTON = make_step("newton", sweeps=2)
#: Number of sweeps over U per batch. A sweep costs k / batch_size of a product with the batch.
SWEEPS = 10
#: Number of alternations between part weights and U per batch. Each alternation makes a majoriser
#: less exact.
ROUNDS = {"frobenius": 4, "divergence": 2}
#: In two cases, the contribution of an earlier sample to the sums loses weight this many times
#: faster: for losses other than Frobenius, because its majoriser was made from an older U, and in
#: `partial_fit`, because the part weights of earlier samples are never updated.
DECAY_SPEEDUP = 16
#: Exponent that enlarges the EM step for the KL loss; the step converges for exponents below two.
RELAX = 1.6


class Sums(ABC):
    """Sums over samples that define the subproblem for U; earlier samples lose weight.

    Attributes
    ----------
    C : (p, k) array
        The linear part of the subproblem, in float64.
    weight : float
        Number of samples in the sums, each counted by its weight.
    """

    def __init__(self, p: int, k: int) -> None:
        self.C, self.weight = np.zeros((p, k)), 0.0

    def age(self, share: float) -> None:
        """Multiply the contributions of earlier samples by this share."""
        self.C *= share
        self.weight *= share

    @abstractmethod
    def add(
        self, model: FactorModel, V: AnyArray, U: AnyArray, counts: AnyArray | None = None
    ) -> None:
        """Add samples of a model with these part weights; ``counts`` are their weights."""

    @abstractmethod
    def subproblem(self, U: AnyArray, terms: Sequence[Term]) -> Subproblem:
        """Return the subproblem for U."""


class QuadraticSums(Sums):
    """The quadratic ½ ⟨U G, U⟩ - ⟨C, U⟩ with G = Σ w v vᵀ and C = Σ w x vᵀ."""

    def __init__(self, p: int, k: int) -> None:
        super().__init__(p, k)
        self.G, self.added = np.zeros((k, k)), np.zeros(k)

    def age(self, share: float) -> None:
        super().age(share)
        self.G *= share
        self.added *= share

    def add(
        self, model: FactorModel, V: AnyArray, U: AnyArray, counts: AnyArray | None = None
    ) -> None:
        self.replace(model, V, None, 0.0)

    def replace(self, model: FactorModel, V: AnyArray, old: AnyArray | None, kept: Any) -> None:
        """Replace the contributions of samples that were read before.

        ``kept`` is the remaining weight of the old part weights.
        """
        less = None if old is None else old * np.asarray(kept, V.dtype)[:, None]
        self.C += to_numpy(model.R.tdot(V if less is None else V - less))
        d = model.d
        G = V.T @ (V if d is None else V * d[:, None])
        self.G += G
        self.added += np.diag(G)
        self.weight += len(V) if d is None else float(d.sum())
        if less is not None:
            assert old is not None and d is None
            self.G -= less.T @ old
            self.weight -= float(np.sum(kept))

    def subproblem(self, U: AnyArray, terms: Sequence[Term]) -> Quadratic:
        # For a part that no sample uses, the sums are only rounding errors, so it is not changed.
        eps = float(np.finfo(U.dtype).eps)
        alive = np.diag(self.G) > 10 * eps * self.added
        G, C = self.G * np.outer(alive, alive), self.C * alive
        return Quadratic(C.astype(U.dtype), G.astype(U.dtype), terms=terms, sweeps=SWEEPS)


class MajoriserSums(Sums):
    """The EM majoriser of a β-divergence, with the minimiser (C / B)^(1/power).

    C is the sum of U^power ∘ product over batches, with U at the time of each batch, and B is the
    sum of the costs. For KL the exponent is one, the products are (X/Y)ᵀV, and the costs are Σv.
    """

    def __init__(self, p: int, k: int, beta: float) -> None:
        super().__init__(p, k)
        self.beta = beta
        self.power = 2 - beta if beta < 1 else beta - 1 if beta > 2 else 1.0
        self.B = np.zeros((1 if beta == 1 else p, k))

    def age(self, share: float) -> None:
        super().age(share)
        self.B *= share

    def add(
        self, model: FactorModel, V: AnyArray, U: AnyArray, counts: AnyArray | None = None
    ) -> None:
        if (
            counts is not None and model.d is None
        ):  # the loss has no sample weights, see `ClassRows.model`
            up, down, _ = beta_parts(model.data.whole(), V, U, self.beta)
            often = V * counts.astype(V.dtype)[:, None]
            product, costs = up.T @ often, down.T @ often
        else:
            sub = model.subproblem("U", V, U)
            assert isinstance(sub, Divergence)
            product, costs = to_numpy(sub.product), to_numpy(sub.cost)
        if self.weight == 0:  # the initial U counts as one sample, so that no sum is zero
            cost = costs.mean() / len(V)
            self.C += U**self.power * cost
            self.B += cost
        self.C += U**self.power * product
        self.B += costs
        self.weight += len(V) if counts is None else float(counts.sum())

    def subproblem(self, U: AnyArray, terms: Sequence[Term]) -> Divergence:
        product = ratio(self.C.astype(U.dtype), U**self.power)
        cost = self.B.astype(U.dtype)
        idle = ~cost.any(axis=0)  # unused parts do not change
        product[:, idle] = cost[:, idle] = 1
        return Divergence(
            lambda: product, cost, terms=terms, beta=self.beta, evaluate=lambda U: float("nan")
        )


def make_sums(loss: Loss, p: int, k: int) -> QuadraticSums | MajoriserSums:
    """Return empty sums for a loss."""
    return QuadraticSums(p, k) if loss.beta == 2 else MajoriserSums(p, k, loss.beta)


class ClassRows:
    """The labelled samples, of which only the weighted sum of each class is stored.

    All labelled samples of a class share their part weights, so their mean can replace them.

    Attributes
    ----------
    sums : (c, p) array
        Σ w x over the labelled samples of each class, in float64.
    counts : (c,) array
        Σ w, the sum of the weights of these samples.
    V : (c, k) array
        The part weights that the samples of each class share.
    """

    def __init__(self, p: int, k: int) -> None:
        self.sums, self.counts, self.V = np.zeros((0, p)), np.zeros(0), np.zeros((0, k))

    def age(self, share: float) -> None:
        """Multiply the contributions of earlier samples by this share."""
        self.sums *= share
        self.counts *= share

    def add(self, X: Any, codes: AnyArray, weights: AnyArray) -> None:
        """Add labelled samples; each new class gets a row."""
        new = int(codes.max(initial=-1)) + 1 - len(self.counts)
        if new > 0:
            self.sums = np.vstack([self.sums, np.zeros((new, self.sums.shape[1]))])
            self.counts = np.append(self.counts, np.zeros(new))
            self.V = np.vstack([self.V, np.zeros((new, self.V.shape[1]))])
        A = sp.csr_array(
            (weights, (codes, np.arange(len(codes)))), shape=(len(self.counts), len(codes))
        )
        total = A @ X
        self.sums += total.toarray() if sp.issparse(total) else total
        self.counts += A.sum(axis=1)

    def model(self, loss: Loss, dtype: Any, terms: Penalty, of: AnyArray) -> FactorModel:
        """Return a model whose samples are the weighted means of the classes ``of``.

        Losses other than Frobenius and KL do not support sample weights, so each mean counts as one
        sample. The part weights are the same as with weights, and `Sums.add` receives the counts.
        """
        counts = self.counts[of]
        data = as_data((self.sums[of] / counts[:, None]).astype(dtype))
        if loss.beta not in (1, 2):
            return FactorModel(data, loss, terms_V=terms(1.0))
        return FactorModel(data, loss, weights=counts, terms_V=terms(counts[:, None]))


@dataclass
class Online:
    """State of mini-batch learning: the parts and the sums learned so far.

    Attributes
    ----------
    loss : Loss
    U : (p, k) array
    forget : float
        The share of its weight that the contribution of a sample keeps during one pass.
    terms_V, terms_U : callables
        Functions that return the penalties on part weights and on U, given weights of rows or a
        number of samples.
    time : float
        Number of passes so far. The weight of a sample is forget^age, where age is the number of
        passes since it was read.
    seen : int
        Number of samples so far; repeated ones count again.
    """

    loss: Loss
    U: AnyArray
    forget: float
    terms_V: Penalty
    terms_U: Penalty
    time: float = 0.0
    seen: int = 0
    sums: Sums = field(init=False)
    classes: ClassRows = field(init=False)

    def __post_init__(self) -> None:
        self.sums = make_sums(self.loss, *self.U.shape)
        self.classes = ClassRows(*self.U.shape)

    def state(self) -> dict[str, Any]:
        """Return the learned parts and sums as arrays and numbers."""
        return {
            "time": self.time,
            "seen": self.seen,
            "sums": dict(vars(self.sums)),
            "classes": dict(vars(self.classes)),
        }

    def go_on(self, state: dict[str, Any]) -> None:
        """Continue an earlier fit: copy the sums from the result of its `state`."""
        self.time, self.seen = state["time"], state["seen"]
        vars(self.sums).update(deepcopy(state["sums"]))
        vars(self.classes).update(deepcopy(state["classes"]))

    def model(self, data: DataMatrix) -> FactorModel:
        """Return the model of a batch."""
        return FactorModel(data, self.loss, terms_V=self.terms_V(1.0))

    def codes(self, model: FactorModel, V: AnyArray | None, sweeps: int) -> AnyArray:
        """Return the part weights of a batch for the current U.

        The solver starts from V, the last part weights of the batch, or from a constant if V is
        None.
        """
        V = start_codes(model.data, self.U) if V is None else V
        if self.loss.beta == 2:
            sub = model.subproblem("V", V, self.U)
            assert isinstance(sub, Quadratic)
            sub.sweeps = sweeps
            return hals(sub, V, stop=0.01)
        step, rounds = (NEWTON, -(-sweeps // 4)) if self.loss.beta == 1 else (mu, sweeps)
        for _ in range(rounds):
            V = step(model.subproblem("V", V, self.U), V)
        return V

    def kept(self, since: Any) -> Any:
        """Return the remaining weight of samples that were added when `time` was ``since``."""
        return self.forget ** ((self.time - since) * (1 if self.loss.beta == 2 else DECAY_SPEEDUP))

    def decay(self, met: int, among: int | None) -> None:
        """Reduce the weight of earlier samples because ``met`` new samples were read.

        ``among`` is the number of samples in the data set. It is None in `partial_fit`, where the
        number of samples read so far is used instead and weights fall `DECAY_SPEEDUP` times faster.
        """
        self.seen += met
        passed = met / (self.seen if among is None else min(among, self.seen))
        if among is None and self.loss.beta == 2:
            passed *= DECAY_SPEEDUP
        self.time += passed
        share = float(self.kept(self.time - passed))
        self.sums.age(share)
        self.classes.age(share)

    def visit(
        self, model: FactorModel, V: AnyArray | None, sweeps: int, old: AnyArray | None, kept: Any
    ) -> tuple[AnyArray, float]:
        """Compute V of a batch, replace its old contribution, and update U.

        Return V and the objective of the batch before U changed.
        """
        before = deepcopy(self.sums)
        value = 0.0
        for turn in range(ROUNDS[self.loss.kind]):
            V = self.codes(model, V, SWEEPS if turn else sweeps)
            if turn == 0:
                value = self._value(model, V)
            if isinstance(self.sums, QuadraticSums):
                self.sums.replace(model, V, old, kept)
                old, kept = V, np.ones(len(V))
            else:
                self.sums = deepcopy(before)
                self.sums.add(model, V, self.U)
            self.move()
        assert V is not None
        return V, value

    def _value(self, model: FactorModel, V: AnyArray) -> float:
        """Return the objective of a batch; the update of U reuses its products."""
        if isinstance(self.loss, KullbackLeibler):
            self.loss.value(model, V, self.U, "U")
        penalty = sum(term.value(self.U) for term in self.terms_U(len(V)))
        return model.value(V, self.U) + penalty

    def move(self) -> None:
        """Update U by a few sweeps on the sums of all samples so far."""
        sums, classes = self.sums, self.classes
        # Classes whose samples were read so long ago that their weight is negligible are left out.
        met = np.flatnonzero(classes.counts >= floor(classes.counts.dtype))
        if met.size:
            sums = deepcopy(sums)
            model = classes.model(self.loss, self.U.dtype, self.terms_V, met)
            V = classes.V[met].astype(self.U.dtype)
            fresh = ~V.any(axis=1)  # a multiplicative update would never change a zero
            V[fresh] = start_codes(model.data, self.U)[fresh]
            classes.V[met] = V = self.codes(model, V, SWEEPS)
            sums.add(model, V, self.U, classes.counts[met])
        step = hals if self.loss.beta == 2 else mu
        U = step(sums.subproblem(self.U, self.terms_U(sums.weight)), self.U)
        if self.loss.beta == 1:
            U = self.U * ratio(U, self.U) ** RELAX
        self.U = U
