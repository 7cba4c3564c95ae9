"""Where a fit begins: one function for each start, each replayed alone from its own seed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from sklearn.utils import check_random_state

from partwise.backends import DataMatrix
from partwise.backends.arrays import AnyArray, to_numpy
from partwise.fitting import check_arrays, validation
from partwise.fitting.description import Checked, Description
from partwise.fitting.fixed_parts import Known
from partwise.fitting.validation import warn
from partwise.model.factor_model import FactorModel, column_lengths, unit_columns
from partwise.model.terms import Linear
from partwise.solvers import init
from partwise.solvers.many_starts import Start
from partwise.solvers.steps import Step

#: What makes V, U and the random numbers that are left for the way down.
Make = Callable[[], tuple[AnyArray, AnyArray, np.random.RandomState]]
#: What makes V and U from random numbers; whether it is the first of several starts.
One = Callable[[np.random.RandomState, bool], tuple[AnyArray, AnyArray]]


def starts(
    what: Description,
    checked: Checked,
    model: FactorModel,
    known: Known | None,
    step: Callable[[np.random.RandomState], Step],
) -> list[Start]:
    """What makes the factors of each start, fitted to the model, and the step that moves them."""

    # what stands for NNDSVD's zeros has the scale of X, not of V or U: entries in gaps would be
    # as far off as that makes them, and the first parts would follow
    lack = model.data.lack
    by_svd = what.init is not None and what.init.startswith("nndsvd")
    may_run_away = by_svd and lack is not None and not lack.nothing

    def begin(make: Make) -> tuple[AnyArray, AnyArray, Step]:
        V, U, rng = make()
        if what.printed:
            if not model.S.delta:
                V, U = unit_columns(V, U, model.loss.unit_norm)
            return model.reduce(V), U, step(rng)
        if what.init != "custom":
            V, U = in_order_of_classes(model, V, U)
        if known is not None:
            V, U = known.start(model.data, V, U, custom=what.init == "custom")
        return model.reduce(model.fit_scale(V, U, anyway=may_run_away)), U, step(rng)

    return [partial(begin, make) for make in factors(what, checked)]


def factors(what: Description, checked: Checked) -> list[Make]:
    """V and U of each start, whatever the model."""
    data, k = checked.data, checked.k
    rng = check_random_state(what.random_state)
    if what.printed and what.init in (None, "random"):
        return _each(what.n_init, rng, lambda child, first: _uniform(data, k, child))
    name = init_name(what, data, k)
    if name == "custom":
        V, U = _custom(what, checked)
        return [lambda: (data.rows(V.copy()), data.small(np.ascontiguousarray(U)), rng)]
    if checked.W is not None or checked.H is not None:
        warn(
            "When init!='custom', provided W or H are ignored. Set init='custom' to use them.",
            RuntimeWarning,
        )

    def one(child: np.random.RandomState, first: bool) -> tuple[AnyArray, AnyArray]:
        # a deterministic start is worth trying once; the others are random
        named = name if first or name == "kmeans" else "random"
        return init.start(data, k, named, child, checked.weights)

    return _each(what.n_init, rng, one)


def _each(n_init: int, rng: np.random.RandomState, one: One) -> list[Make]:
    """The starts with random numbers of their own; a single one has those of the estimator."""
    if n_init == 1:
        return [lambda: (*one(rng, True), rng)]

    def make(number: int, seed: int) -> tuple[AnyArray, AnyArray, np.random.RandomState]:
        child = np.random.RandomState(seed)
        return *one(child, number == 0), child

    seeds = rng.randint(np.iinfo(np.int32).max, size=n_init)
    return [partial(make, number, seed) for number, seed in enumerate(seeds)]


def _uniform(data: DataMatrix, k: int, rng: np.random.RandomState) -> tuple[AnyArray, AnyArray]:
    """The authors' start: uniform numbers, whatever the scale of X."""
    n, p = data.shape
    U = rng.uniform(size=(p, k)).astype(data.dtype)
    V = rng.uniform(size=(n, k)).astype(data.dtype)
    return data.rows(V), data.small(U)


def _custom(what: Description, checked: Checked) -> tuple[AnyArray, AnyArray]:
    """The user's own V and U."""
    if checked.W is None or checked.H is None:
        raise ValueError("init='custom' needs both W and H.")
    (n, p), k, data = checked.data.shape, checked.k, checked.data
    W, H = check_arrays.plain(checked.W), check_arrays.plain(checked.H)
    V = validation.check_start(W, (n, k), data.given, "W", what.whom)
    U = validation.check_start(H, (k, p), data.given, "H", what.whom).T
    return V.astype(data.dtype, copy=False), U.astype(data.dtype, copy=False)


def init_name(what: Description, data: DataMatrix, k: int) -> str:
    """The kind of start that ``init`` means for this X."""
    most = min(data.shape)
    if what.init is None:
        # an SVD of what fills the gaps is a start from which hidden entries run away
        whole = data.lack is None or data.lack.nothing
        return "nndsvda" if k <= most and whole else "random"
    if what.init.startswith("nndsvd") and k > most:
        raise ValueError(
            f"init = '{what.init}' can only be used when n_components <= min(n_samples, n_features)"
        )
    return what.init


def in_order_of_classes(model: FactorModel, V: AnyArray, U: AnyArray) -> tuple[AnyArray, AnyArray]:
    """The start with its components in the order in which the class cost ⟨D, V⟩ is least.

    All else in the objective is the same for any order. Without this a component may begin as
    another class's part, and a strong cost then holds it there.
    """
    costs = [t.cost for t in model.terms["V"] if isinstance(t, Linear) and min(t.cost.shape) > 1]
    if not costs:
        return V, U
    from scipy.optimize import linear_sum_assignment

    Z = to_numpy(model.reduce(V)) * to_numpy(column_lengths(U, model.loss.unit_norm))
    order = linear_sum_assignment(to_numpy(costs[0]).T @ Z)[1]
    turn = model.data.small(np.eye(len(order), dtype=Z.dtype)[:, order])
    return V @ turn, U @ turn
