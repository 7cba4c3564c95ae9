"""Immutable data classes that the four steps of a fit pass to each other.

The steps use nothing else of an estimator. `warn` issues their warnings.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends import DataMatrix
from partwise.backends.arrays import AnyArray, Array
from partwise.fitting.fixed_parts import Known
from partwise.knowledge.graph import Neighborhood
from partwise.knowledge.labels import Labels
from partwise.knowledge.links import Links
from partwise.model.factor_model import FactorModel
from partwise.model.l21 import RowLengths
from partwise.model.losses import NAMES, Loss, SignedFrobenius, make_loss
from partwise.model.terms import Term
from partwise.solvers.loop import Settings, Solution
from partwise.solvers.many_starts import Start

_OURS = ("partwise.", "sklearn.")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning that points to the user's line that called Partwise.

    Frames of Partwise and of scikit-learn are skipped.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


RandomState = int | np.random.RandomState | None


@dataclass(frozen=True, eq=False)
class Description:
    """What an estimator minimises and how, computed from its parameters without data.

    An estimator's parameter sets the field of the same name. The estimator's method ``_describe``
    sets the other fields. Penalty weights are in the units of the published papers.
    """

    estimator_name: str  # name of the estimator in error messages
    # -- which X an estimator supports
    labelled: bool = False  # y contains labels; otherwise it is ignored
    local: bool = False  # X must be in memory; a tensor or Dask array is refused
    signed: bool = False  # X may have negative entries
    free_parts: bool = False  # the parts may have negative entries
    dense: bool = False
    device: str | None = None
    missing_values: float | None = None
    # -- objective of the fit
    n_components: int | str | None = "auto"
    beta_loss: str | float = "frobenius"
    hard_labels: bool = False
    mixed_labels: bool = False  # part weights are class rows, mixed by class probability
    propagate: bool = False  # labels are first propagated over the neighbour graph
    graph_reg: float = 0.0
    label_weight: float | None = None  # None: labels do not change the graph
    n_neighbors: int = 5
    weighting: str = "binary"
    bandwidth: float | None = None
    class_reg: float | None = 0.0  # None means the paper's default weight
    components_per_class: int = 1
    smoothing: float = 0.0
    alpha_W: float = 0.0
    alpha_H: float | str = 0.0  # "same" means the value of alpha_W
    l1_ratio: float = 0.0
    must_link_reg: float | None = None  # None: must-linked samples have equal part weights
    cannot_link_reg: float = 0.1
    terms: Sequence[Term] | None = None
    basis_terms: Sequence[Term] | None = None
    #: For "V" or "U", a function that projects this factor onto its constraint set in each
    #: iteration.
    project: Mapping[str, Callable[[AnyArray], AnyArray]] = field(default_factory=dict)
    #: How the scale of the parts is fixed. "unit": a penalty on V alone needs parts of length one.
    #: "paper": the normalisation of the published method. "free": nothing is fixed.
    scale: str = "free"
    sample_weighting: str | None = None
    fixed_components: Any = None
    seed_components: Any = None
    # -- solver of the fit
    own_fit: bool = False  # `fit` has its own loop instead of `solve`
    solver: str = "auto"
    mu_rule: str = "lee-seung"
    shuffle: bool = False
    inner_iter: int | None = None  # inner iterations of "nesterov" in NMF-DC
    init: str | None = None
    n_init: int = 1
    max_iter: int = 200
    tol: float = 1e-4
    random_state: RandomState = None
    checkpoint: str | PathLike[str] | None = None
    n_clusters: int | None = None

    # -- values computed from the fields above
    beta: float = field(init=False)
    robust: bool = field(init=False)  # the loss is the L2,1 norm of the residual
    printed: bool = field(init=False)  # the fit follows the procedure of the published paper
    class_weight: float = field(init=False)  # weight λ or γ in the cdNMF paper
    basis_alpha: float = field(init=False)  # penalty weight on the parts
    own_terms: list[Term] = field(init=False)  # the user's terms on either factor
    on_parts: bool = field(init=False)  # the objective penalises the parts
    penalized: bool = field(init=False)  # the objective has a penalty in addition to the loss
    seed: int = field(init=False)  # seed of random numbers that do not concern initial values
    uses_labels: bool = field(init=False)  # labels change the part weights, not only the clusters

    def __post_init__(self) -> None:
        """Compute the fields that follow from the others."""
        beta = float(NAMES.get(self.beta_loss, self.beta_loss))  # type: ignore[arg-type]
        class_weight = self.class_reg
        if class_weight is None:
            class_weight = 1.0 if beta == 2 else 10.0
        basis_alpha = self.alpha_W if isinstance(self.alpha_H, str) else self.alpha_H
        own_terms = [*(self.terms or ()), *(self.basis_terms or ())]
        named = self.graph_reg or class_weight or self.alpha_W or basis_alpha
        vars(self).update(
            beta=beta,
            robust=self.beta_loss == "l21",
            printed=self.scale == "paper",
            class_weight=class_weight,
            basis_alpha=basis_alpha,
            own_terms=own_terms,
            on_parts=bool(basis_alpha or self.basis_terms),
            penalized=bool(named or own_terms),
            seed=int(self.random_state) if isinstance(self.random_state, (int, np.integer)) else 0,
            uses_labels=bool(self.hard_labels or class_weight or self.label_weight is not None),
        )

    @property
    def loss(self) -> Loss:
        """Loss between X and its reconstruction, as an object that computes it."""
        if self.robust:
            return RowLengths()
        return SignedFrobenius() if self.free_parts else make_loss(self.beta)


@dataclass(frozen=True, eq=False)
class FitInputs:
    """The user's arguments of `fit` other than X, unchecked."""

    y: Any = None
    W: Any = None
    H: Any = None
    sample_weight: Any = None
    entry_weight: Any = None
    graph: Any = None
    must_link: Any = None
    cannot_link: Any = None


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Prior knowledge about the samples: labels, a graph and links, checked."""

    labels: Labels | None = None
    neighbors: Neighborhood | None = None
    links: Links | None = None

    graph: sp.csr_array | None = field(init=False, default=None)
    n_classes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        """Compute the graph's matrix and the number of classes."""
        graph = None if self.neighbors is None else self.neighbors.graph
        n_classes = 0 if self.labels is None else self.labels.n_classes
        vars(self).update(graph=graph, n_classes=n_classes)


@dataclass(frozen=True, eq=False)
class Checked:
    """Checked and rescaled input of a fit: X, prior knowledge and initial factors."""

    X: Any  # checked X in its original scale
    data: DataMatrix  # X divided by ``factor``
    k: int
    solver: str
    knowledge: Knowledge
    weights: AnyArray | None = None  # sample weights divided by ``weight_scale``
    W: Any = None
    H: Any = None
    factor: float = 1.0  # a power of four if X has extreme values
    weight_scale: float = 1.0


@dataclass(frozen=True, eq=False)
class Problem:
    """Optimization problem of a fit: objective, solver, settings and restarts."""

    model: FactorModel
    k: int
    solver: str
    settings: Settings
    starts: Sequence[Start]
    knowledge: Knowledge
    known: Known | None = None


@dataclass(frozen=True, eq=False)
class FittedFactors:
    """Final factors of the best restart, with their objective and KKT residual."""

    Z: Array
    U: Array
    objective: float
    residual: float
    solution: Solution
