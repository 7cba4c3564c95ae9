"""The iteration loop of all fits, with extrapolation and a stopping rule.

An iteration updates V and U. A `State` contains everything that changes between iterations.
`advance` runs one iteration of one start: both updates, the extrapolation, and the objective. It is
a generator that yields a `Request` for each subproblem and receives the subproblem. The caller can
therefore compute the subproblems of several starts together (see `many_starts`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np

from partwise.backends.arrays import (
    Array,
    clip_at_zero,
    extrapolate,
    namespace,
    norm64,
    pending_scalar,
)
from partwise.model.subproblems import Model, Quadratic, Subproblem, kkt_residual, misfit
from partwise.solvers.checkpoint import Checkpoint
from partwise.solvers.state import Point, State
from partwise.solvers.steps import Step, mu

#: Number of iterations over which the relative decrease of the objective is measured. A fit has
#: converged only if it is at most tol.
LOOK_BACK = 10
#: Weight of the extrapolation in the first iteration.
FIRST = 0.5
#: If the steps of PLAIN successive iterations were undone, the next step has no extrapolation.
#: After SAFE such iterations, it is a multiplicative update.
PLAIN, SAFE = 2, 3
#: Number of iterations at the beginning of a fit in which a part that is zero in one factor is not
#: changed in the other, so that it may become positive again (see `_patient`).
PATIENCE = 10

T = TypeVar("T")


class Request(NamedTuple):
    """Request for the subproblem in one factor ("V" or "U") at the given factors."""

    side: str
    Z: Array
    U: Array


#: Generator that yields requests, receives their subproblems, and returns a value of type T.
Asking = Generator[Request, Subproblem, T]


@dataclass
class Solution:
    """Result of the iteration loop."""

    Z: Array
    U: Array
    history: list[float] = field(default_factory=list)
    n_iter: int = 0
    converged: bool = False
    status: str = ""
    value: float | None = None  # the objective of these factors, if known


@dataclass(frozen=True)
class Settings:
    """Settings of the iteration loop.

    Parameters
    ----------
    max_iter, tol
        Stop after max_iter iterations, or if the KKT residual is at most tol and the objective
        decreased by at most a share tol in ten iterations. With tol=0 the loop runs max_iter
        iterations.
    order : "VU" or "UV"
        Which factor is updated first.
    extrapolate : bool
        Start each update from an extrapolated point, and undo the step if the objective rises (Ang
        and Gillis 2019).
    guard : bool
        Undo steps that raise the objective. False runs the multiplicative updates exactly as the
        papers print them.
    stationary : bool
        Whether fixed points are KKT points. If not (GNMF under KL), the relative change of the
        factors is compared with tol.
    warmup : int
        Number of first iterations with multiplicative updates. A second-order step from random
        initial values sets parts to zero before they differ.
    rough : Step or None
        Cheaper step that is used while an iteration decreases the objective by more than a share of
        1e-5.
    check_every : int
        Number of iterations between two computations of the KKT residual.
    keep : float
        Extrapolation keeps at least this share of an entry, since multiplicative updates cannot
        increase a zero.
    safe : Step or None
        Step that is tried if a step without extrapolation was undone. None if multiplicative
        updates violate the constraints.
    done : int
        Number of iterations that earlier loops of this fit have used, which count towards max_iter.
    """

    max_iter: int
    tol: float
    order: str = "VU"
    extrapolate: bool = True
    guard: bool = True
    stationary: bool = True
    warmup: int = 0
    rough: Step | None = None
    check_every: int = 5
    keep: float = 0.0
    safe: Step | None = mu
    done: int = 0


def alternate(
    model: Model,
    Z: Array,
    U: Array,
    step: Step,
    settings: Settings,
    on_iteration: Callable[[int, Solution], bool] | None = None,
    keeper: Checkpoint | None = None,
) -> Solution:
    """Minimise the model from (Z, U) until convergence or for `max_iter` iterations.

    ``on_iteration(n, solution)`` is called after each iteration, and the loop ends if it returns
    True. The factors of the solution are those of the last objective in the history. ``keeper`` is
    a `Checkpoint`: the loop continues from its state, and saves to it.
    """
    return answered(model, alternating(model, Z, U, step, settings, on_iteration, keeper))


def answered(model: Model, asking: Asking[T]) -> T:
    """Run the generator ``asking`` with subproblems of the model; return its result."""
    try:
        request = next(asking)
        while True:
            request = asking.send(model.subproblem(*request))
    except StopIteration as end:
        result: T = end.value
        return result


def alternating(
    model: Model,
    Z: Array,
    U: Array,
    step: Step,
    settings: Settings,
    on_iteration: Callable[[int, Solution], bool] | None = None,
    keeper: Checkpoint | None = None,
) -> Asking[Solution]:
    """Run `alternate` as a generator; the caller computes the subproblems it yields."""
    state = None if keeper is None else keeper.load()
    if state is None:
        state = begin(model, Z, U, settings)
    solution = Solution(state.x["V"], state.x["U"], state.history, settings.done + state.n)
    while not solution.status and solution.n_iter < settings.max_iter:
        look = settings.tol > 0 and (state.n + 1) % settings.check_every == 0
        before = state.x
        state, residual = yield from advance(model, state, step, settings, look)
        solution.Z, solution.U = state.x["V"], state.x["U"]
        solution.n_iter = settings.done + state.n
        if keeper is not None and state.n % keeper.every == 0:
            state.ahead = float(state.ahead)
            keeper.save(state)
        if on_iteration is not None and on_iteration(solution.n_iter, solution):
            solution.status = f"stopped by a callback after {solution.n_iter} iterations"
        elif look and _fallen(model, state, settings.tol) <= settings.tol:
            yield from _judge(model, state, before, solution, residual, settings)
    if not solution.status:
        solution.status = f"stopped at max_iter={settings.max_iter}, above tol={settings.tol:g}"
    if settings.guard:
        anchor(model, state)
        solution.value = float(state.value)
    return solution


def begin(model: Model, Z: Array, U: Array, settings: Settings) -> State:
    """Return the state before the first iteration."""
    x = dict(zip("VU", model.feasible(Z, U), strict=True))
    value = np.inf
    if settings.guard:
        value = model.value(x["V"], x["U"])
        if value <= 100 * model.eps * model.size:
            value = model.exact_value(x["V"], x["U"])
    weight = FIRST if settings.extrapolate else 0.0
    return State(x, dict(x), dict(x), value, anchor=value, weight=weight)


class HalfStep(NamedTuple):
    """A factor after its update, with results that may come from the same pass."""

    new: Array
    beyond: Array | None = None  # the extrapolated factor
    change: float = 0.0  # change of the objective by the step
    ahead: float = 0.0  # change by the extrapolation


class Moved(NamedTuple):
    """Both factors after an iteration, before the objective is checked."""

    new: Point  # the factors after the steps
    first: Array  # the extrapolated first factor, used by the second step
    second: HalfStep
    sub: Subproblem  # the subproblem of the second factor
    weight: float
    value: Array | float  # the objective at ``new``; a GPU may still be computing it
    by_change: bool  # True if ``value`` is the last objective plus the changes of both steps
    residual: float  # KKT residual between the half-steps, if requested
    measured: bool = True  # whether the steps of both factors returned their changes


def advance(
    model: Model, state: State, step: Step, settings: Settings, look: bool
) -> Asking[tuple[State, float]]:
    """Run one iteration; return the state, and the KKT residual if ``look`` (or inf)."""
    moved = yield from _both_steps(model, state, step, settings, look)
    wait = pending_scalar(moved.value)
    # A device continues as if the objective were lower, which is usually right, while its value is
    # transferred. Only products with X wait for the value.
    ahead = None
    if wait is not None and moved.by_change and model.eps > 1e-10:
        ahead = _look_ahead(model, state, moved, 0.0, settings)
        model.expect(settings.order[0], ahead.y["V"], ahead.y["U"])
    value = float(moved.value) if wait is None else wait()  # the only wait in an iteration
    if settings.guard and not value <= state.value:
        _take_back(state, settings)
    else:
        fall = state.value - value
        state = ahead or _look_ahead(model, state, moved, fall, settings)
        state.value, state.failures = value, 0
        size = max(model.size, moved.sub.size)
        if moved.by_change and value < 1e5 * model.eps * state.anchor:
            anchor(model, state)
        elif not settings.guard and value < 3e5 * model.eps * size:
            # The value is a difference of three sums, each with a rounding error of eps times its
            # size, which may now exceed the gain. Predictions of missing entries are in two of the
            # sums and may be far larger than X.
            about = 0.0 if size > model.size else np.inf
            state.value = model.exact_value(state.x["V"], state.x["U"], about)
    state.n += 1
    state.history.append(float(state.value))
    return state, moved.residual


def _both_steps(
    model: Model, state: State, step: Step, settings: Settings, look: bool
) -> Asking[Moved]:
    """Update both factors, and extrapolate the first one."""
    first, second = tuple(settings.order)
    move, weight = _step_and_weight(state, step, settings)
    rho = misfit(state.value, model.size, model.least, settings.tol) if look else 1.0
    y = state.y
    sub = yield Request(first, y["V"], y["U"])
    residual = kkt_residual(sub, y[first], rho) if look and settings.stationary else np.inf
    one = _half_step(move, sub, y[first], state, first, weight)
    beyond = one.beyond
    if beyond is None:
        beyond = _beyond(one.new, state.old[first], weight, settings)
    z = {first: beyond, second: y[second]}
    by_change = settings.guard and sub.measures_change and state.fine
    value = state.value + state.ahead
    if by_change:
        known = one.beyond is not None
        value += one.change + one.ahead if known else sub.change(beyond, y[first])
    del sub  # free its product, which is as large as the factor
    if first == "U" and model.unit:
        z["V"], z["U"] = model.normalize(z["V"], z["U"])
    sub = yield Request(second, z["V"], z["U"])
    if residual <= settings.tol:
        residual = max(residual, kkt_residual(sub, z[second], rho))
    two = _half_step(move, sub, z[second], state, second, weight)
    if not by_change:
        value = sub.value(two.new)
    else:
        known = two.beyond is not None
        value = value + (two.change if known else sub.change(two.new, z[second]))
    new, measured = {first: one.new, second: two.new}, one.beyond is not None
    return Moved(new, z[first], two, sub, weight, value, by_change, residual, measured)


def _half_step(
    move: Step, sub: Subproblem, Z: Array, state: State, side: str, weight: float
) -> HalfStep:
    """Update one factor; extrapolate it in the same pass if the back end supports it."""
    found = move.extrapolated and move.extrapolated(sub, Z, state.old[side], weight)
    if found:
        return HalfStep(*found)
    if sub.terms and state.n < PATIENCE and move.can_empty:
        return HalfStep(_patient(move, sub, Z))
    return HalfStep(move(sub, Z))


def _patient(move: Step, sub: Subproblem, Z: Array) -> Array:
    """Return Z after an early step, which keeps parts whose other factor is zero.

    The loss does not depend on a part whose other factor is zero, so a penalty would set it to zero
    immediately. Neither factor could become positive again, although the other parts are still far
    from their final values.
    """
    new = move(sub, Z)
    assert isinstance(sub, Quadratic)
    xp = namespace(sub.G)
    seen = xp.any(xp.abs(sub.G) > 0, axis=0)
    return namespace(new).where(seen[None], new, Z)


def _look_ahead(model: Model, state: State, moved: Moved, fall: float, settings: Settings) -> State:
    """Return the next state after the objective decreased by ``fall``.

    The next state contains the extrapolated point. The change of the objective at this point is
    computed exactly only if necessary. The difference of two values is cheaper, and its rounding
    error of about eps ½‖X‖² is harmless while iterations decrease the objective by far more.
    """
    state, (first, second) = replace(state), tuple(settings.order)
    new, beyond = moved.new, moved.second.beyond
    x = {first: moved.first, second: new[second]}
    scaled = second == "U" and model.unit
    if scaled:
        x["V"], x["U"] = model.normalize(x["V"], x["U"])
    state.ahead, known = moved.second.ahead, beyond is not None
    if beyond is None:
        beyond = _beyond(x[second], state.old[second], moved.weight, settings)
    y = {first: x[first], second: beyond}
    if moved.weight and scaled:
        y["U"] = model.normalize(y["V"], y["U"])[1]
    state.x, state.y, state.old = x, y, {first: new[first], second: x[second]}
    if settings.extrapolate:
        # γ = 1.05, its ceiling grows by 1.01 (Ang & Gillis 2019)
        state.weight = min(state.ceiling, 1.05 * max(state.weight, 0.1))
        state.ceiling = min(1.0, 1.01 * state.ceiling)
    # With Dask, the change of V is not computed together with V, and takes another pass over it.
    state.fine = (
        (known and moved.measured) or model.eps > 1e-10 or fall <= 1e4 * model.eps * model.size
    )
    measured = settings.guard and moved.sub.measures_change and state.fine
    if measured and not known and state.y[second] is not state.x[second]:
        # The subproblem was made before `normalize` scaled the factors, so the scaling is undone.
        back = model.lengths(moved.new["U"]) if scaled else 1
        state.ahead = moved.sub.change(state.y[second] * back, moved.new[second])
    return state


def _take_back(state: State, settings: Settings) -> None:
    """Return to the last accepted point, with less extrapolation or without any."""
    state.failures += 1 if settings.extrapolate and state.failures < SAFE else SAFE
    state.y, state.old, state.ahead, state.fine = dict(state.x), dict(state.x), 0.0, True
    if settings.extrapolate:
        state.weight, state.ceiling = state.weight / 1.5, state.weight  # η = 1.5


def _step_and_weight(state: State, step: Step, settings: Settings) -> tuple[Step, float]:
    """Return the step of the next iteration, and the weight of its extrapolation."""
    if state.n < settings.warmup:
        return mu, 0.0
    weight = 0.0 if state.failures >= PLAIN else state.weight
    if state.failures >= SAFE and settings.safe is not None:
        return settings.safe, weight
    if settings.rough is not None and not state.failures and not _near(state.history):
        return settings.rough, weight
    return step, weight


def _beyond(new: Array, old: Array, weight: float, settings: Settings) -> Array:
    """Return ``new + weight * (new - old)``, kept non-negative."""
    if not weight:
        return new
    out = extrapolate(new, old, weight)
    if settings.keep:
        return namespace(out).maximum(out, settings.keep * new)
    return clip_at_zero(out)


def _near(history: list[float]) -> bool:
    """Return whether the last decrease was so small that steps need full precision."""
    return len(history) > 1 and history[-2] - history[-1] <= 1e-5 * abs(history[-1])


# -- stopping -------------------------------------------------------------------------------------


def residual_at(
    model: Model, x: Point, value: float, tol: float = 0.0, codes: Subproblem | None = None
) -> float:
    """Return the KKT residual of both subproblems at x, where the objective is ``value``.

    ``codes`` is the subproblem for V with this U, if it has been computed already.
    """
    return answered(model, _residual(model, x, value, tol, codes))


def _residual(
    model: Model, x: Point, value: float, tol: float, codes: Subproblem | None = None
) -> Asking[float]:
    rho, worst = misfit(value, model.size, model.least, tol), 0.0
    for side in "VU":
        ready = codes if side == "V" else None
        sub = ready if ready is not None else (yield Request(side, x["V"], x["U"]))
        worst = max(worst, kkt_residual(sub, x[side], rho))
    return worst


def _fallen(model: Model, state: State, tol: float) -> float:
    """Return the relative decrease of the objective in the last iterations.

    If ‖X - Y‖ is below tol ‖X‖, the decrease is relative to ‖X‖, since the objective of a perfect
    fit decreases for ever.
    """
    if len(state.history) <= LOOK_BACK:
        return np.inf
    least = max(model.least, tol**2) * model.size
    scale = max(abs(state.history[-1]), least)
    fall = state.history[-1 - LOOK_BACK] - state.history[-1]
    return fall / scale if scale > 0 else 0.0


def _stuck(state: State) -> bool:
    """Return whether even the safest step failed, as only rounding errors remain."""
    return state.failures > SAFE


def _change(new: Point, old: Point) -> float:
    return max(norm64(new[s] - old[s]) / max(norm64(old[s]), 1e-300) for s in "VU")


def _judge(
    model: Model,
    state: State,
    before: Point,
    solution: Solution,
    residual: float,
    settings: Settings,
) -> Asking[None]:
    """Set the status if a stopping rule holds."""
    stuck = _stuck(state)
    if not settings.stationary:
        residual = _change(state.x, before)
    elif residual <= settings.tol or stuck:
        # The residual so far is from between the two updates of the iteration, so it is recomputed.
        residual = yield from _residual(model, state.x, state.value, settings.tol)
    n, tol = solution.n_iter, settings.tol
    if residual <= tol:
        what = "relative KKT residual" if settings.stationary else "relative change of the factors"
        solution.converged = True
        solution.status = f"converged: {what} at most {tol:g} after {n} iterations"
    elif stuck:
        solution.status = (
            f"no further progress at working precision after {n} iterations: relative KKT "
            f"residual {residual:.1e}, above tol={tol:g}"
        )


def anchor(model: Model, state: State) -> None:
    """Compute the objective from the factors, and shift the history to end there.

    The history is a sum of the changes in each update. The rounding error of the first, large
    changes may exceed the final objective.
    """
    exact = model.exact_value(state.x["V"], state.x["U"], state.value)
    state.history[:] = shifted(state.history, exact - state.value, exact)
    least = model.least * model.size
    state.value, state.anchor = exact, exact if exact > least else 0.0


def shifted(history: list[float], shift: float, least: float) -> list[float]:
    """Return the history plus ``shift``, non-increasing and at least ``least``.

    The lower limit is necessary because a rounded sum could be slightly below ``least``.
    """
    return [max(value + shift, least) for value in history]
