"""Parameters that several estimators share, and the values that they accept."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from numbers import Integral, Real
from os import PathLike
from typing import Any, TypeVar, dataclass_transform

from partwise._sklearn import Interval, StrOptions
from partwise.estimators._docstrings import documented
from partwise.model.losses import NAMES
from partwise.solvers.init import INITS
from partwise.solvers.steps import SOLVER_NAMES

Class = TypeVar("Class", bound=type)

AT_LEAST_ZERO = Interval(Real, 0, None, closed="left")
AT_LEAST_ONE = Interval(Integral, 1, None, closed="left")
SHARE = Interval(Real, 0, 1, closed="both")

#: Valid values of each parameter. An estimator that accepts other values lists them in its own
#: `_parameter_constraints`.
CONSTRAINTS: dict[str, Any] = {
    "n_components": [AT_LEAST_ONE, None, StrOptions({"auto"})],
    "init": [StrOptions(set(INITS)), None],
    "solver": [StrOptions(SOLVER_NAMES)],
    # A number is the β of any other beta-divergence.
    "beta_loss": [StrOptions(set(NAMES)), Interval(Real, None, None, closed="neither")],
    "tol": [AT_LEAST_ZERO],
    "max_iter": [AT_LEAST_ONE],
    "n_init": [AT_LEAST_ONE],
    "n_clusters": [AT_LEAST_ONE, None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
    "device": [str, None],
    "checkpoint": [str, PathLike, None],
    "missing_values": [Real, None],
    "fixed_components": ["array-like", None],
    "seed_components": ["array-like", None],
    "must_link_reg": [AT_LEAST_ZERO, None],
    "cannot_link_reg": [AT_LEAST_ZERO],
    "alpha_W": [AT_LEAST_ZERO],
    "alpha_H": [AT_LEAST_ZERO, StrOptions({"same"})],
    "l1_ratio": [SHARE],
    "shuffle": ["boolean"],
    "sample_weighting": [StrOptions({"ncw"}), None],
    "mu_rule": [StrOptions({"lee-seung", "lin"})],
    "graph_reg": [AT_LEAST_ZERO],
    "n_neighbors": [AT_LEAST_ONE],
    "weighting": [StrOptions({"binary", "heat", "dot"})],
    "bandwidth": [Interval(Real, 0, None, closed="neither"), None],
    "label_weight": [AT_LEAST_ZERO, None],
    "scale": [StrOptions({"unit", "paper"})],
    "class_reg": [AT_LEAST_ZERO, None],
    "components_per_class": [AT_LEAST_ONE],
    "hard_labels": ["boolean"],
    "smoothing": [SHARE],
    "inner_iter": [AT_LEAST_ONE],
}


@dataclass_transform(kw_only_default=True, eq_default=False)
def estimator(cls: Class) -> Class:
    """Turn the annotated attributes of a class into parameters of its constructor.

    The order is: n_components, the parameters of the class, then those of each base class.
    `documented` completes the docstring of the class.
    """
    dataclass(eq=False, repr=False, match_args=False, kw_only=True)(cls)
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    known = signature.parameters
    names = ["self", "n_components", *inspect.get_annotations(cls)]
    for base in cls.__bases__:
        names += inspect.signature(base.__init__).parameters  # type: ignore[misc]
    order = [known[name] for name in dict.fromkeys(names) if name in known]
    cls.__init__.__signature__ = signature.replace(parameters=order)  # type: ignore[misc]
    allowed = dict(CONSTRAINTS)
    for base in reversed(cls.__mro__):
        allowed |= vars(base).get("_parameter_constraints", {})
    cls._parameter_constraints = {k: v for k, v in allowed.items() if k in known}  # type: ignore[attr-defined]
    return documented(cls)


@dataclass(eq=False, repr=False, kw_only=True)
class GraphParameters:
    """Parameters of an estimator that concern the neighbour graph."""

    n_neighbors: int = 5
    weighting: str = "binary"
    bandwidth: float | None = None


@dataclass(eq=False, repr=False, kw_only=True)
class LossParameters:
    """Parameters of an estimator that choose the loss and the solver."""

    beta_loss: str = "frobenius"
    solver: str = "auto"


@dataclass(eq=False, repr=False, kw_only=True)
class LoopParameters:
    """Parameters for the initialisation, the stopping rule and the number of clusters."""

    init: str | None = None
    n_init: int = 1
    max_iter: int = 200
    tol: float = 1e-4
    n_clusters: int | None = None
    random_state: Any = None
    verbose: int = 0


@dataclass(eq=False, repr=False, kw_only=True)
class CommonParameters(LoopParameters):
    """Parameters that almost all estimators with labels share."""

    device: str | None = None
    checkpoint: Any = None
    missing_values: float | None = None
    fixed_components: Any = None
    seed_components: Any = None
    must_link_reg: float | None = None
    cannot_link_reg: float = 0.1
