"""The one loop: two half-steps an iteration, extrapolation with restart, guard, stopping.

All that changes from one iteration to the next is in a `State`; `advance` moves one start by one
iteration (both steps, where the next begins, what the objective is) and knows of no other. It is a
generator: it yields a `Request` for each subproblem that it needs and is sent it, so that who runs
it can make those of many starts at once (see `many_starts`).
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

#: Iterations over which "converged" wants a relative fall of at most tol.
LOOK_BACK = 10
#: The weight of the first extrapolation.
FIRST = 0.5
#: Failures in a row after which a step is tried without extrapolation, and after which it is mu.
PLAIN, SAFE = 2, 3
#: Iterations in which an empty part may come back.
PATIENCE = 10

T = TypeVar("T")


class Request(NamedTuple):
    """The problem in one factor ("V" or "U"), asked for with the factors where it begins."""

    side: str
    Z: Array
    U: Array


#: What yields requests and is sent their subproblems, until it returns a T.
Asking = Generator[Request, Subproblem, T]


@dataclass
class Solution:
    """Where the loop ended."""

    Z: Array
    U: Array
    history: list[float] = field(default_factory=list)
    n_iter: int = 0
    converged: bool = False
    status: str = ""
    value: float | None = None  # the objective of these factors, where it is known
    summed: bool = True  # from the factors; else it was added up from decreases


@dataclass(frozen=True)
class Settings:
    """How the loop runs.

    Parameters
    ----------
    max_iter, tol
        Stop after so many iterations, or once the KKT residual is at most tol and the objective
        fell by at most tol of itself in ten iterations (tol 0: never).
    order : "VU" or "UV"
        Which factor moves first.
    extrapolate : bool
        Ang & Gillis (2019): start each half-step beyond the last one, take it back when the
        objective rises.
    guard : bool
        Never report a rise: a step that raises the objective is undone. False leaves the
        multiplicative updates exactly as the papers print them.
    stationary : bool
        False where fixed points are not KKT points (GNMF-KL): then the relative change of the
        factors is compared with tol.
    warmup : int
        First iterations that are multiplicative: a second-order step from a random start empties
        parts before they differ.
    rough : Step or None
        A cheaper step for as long as an iteration gains more than 1e-5 of the objective.
    check_every : int
        Iterations between two looks at the residual.
    keep : float
        Extrapolation leaves each entry at least this share: a multiplicative step cannot leave 0.
    safe : Step or None
        What is tried where the guard took a step without extrapolation back; None where
        multiplicative updates leave the constraint set.
    done : int
        Iterations that an earlier loop of this fit took: they count, but not as this one's first.
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
    """Minimise the model from (Z, U): both half-steps, `max_iter` times or until converged.

    ``on_iteration(n, solution)`` is called after each iteration; True ends the loop. The solution's
    factors are the last point whose objective is in the history. ``keeper`` is a `Checkpoint`: the
    loop goes on from its state, and saves to it.
    """
    return answered(model, alternating(model, Z, U, step, settings, on_iteration, keeper))


def answered(model: Model, asking: Asking[T]) -> T:
    """Run ``asking``, and answer each of its requests with the model alone."""
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
    """Run `alternate`; the caller computes the subproblems that it yields."""
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
            if not settings.stationary:
                residual = _change(state.x, before)
            elif residual <= settings.tol or _stuck(state):
                # so far it was taken between the iterations
                residual = yield from _residual(model, state.x, state.value, settings.tol)
            _judge(solution, residual, _stuck(state), settings)
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
    """A factor after its step, and what one pass over it found besides, if there was one."""

    new: Array
    beyond: Array | None = None  # the extrapolation
    change: float = 0.0  # of the objective by the step
    ahead: float = 0.0  # and by the extrapolation


class Moved(NamedTuple):
    """Both factors after an iteration, before anything is decided."""

    new: Point  # where the steps ended
    first: Array  # the extrapolated first factor: where the second step began
    second: HalfStep
    sub: Subproblem  # of the second factor
    weight: float
    value: Array | float  # the objective there; a device may still be computing it
    by_change: bool  # whether that was added up from what the half-steps changed
    residual: float  # KKT, between the half-steps, if it was asked for
    measured: bool = True  # whether the steps of both factors returned their changes


def advance(
    model: Model, state: State, step: Step, settings: Settings, look: bool
) -> Asking[tuple[State, float]]:
    """Run one iteration; return the state, and the KKT residual if ``look``."""
    moved = yield from _both_steps(model, state, step, settings, look)
    wait = pending_scalar(moved.value)
    # a device goes on as if the value were lower, which it mostly is, while its number comes here;
    # only X waits for it
    ahead = None
    if wait is not None and moved.by_change and model.eps > 1e-10:
        ahead = _look_ahead(model, state, moved, 0.0, settings)
        model.expect(settings.order[0], ahead.y["V"], ahead.y["U"])
    value = float(moved.value) if wait is None else wait()  # the one wait in an iteration
    if settings.guard and not value <= state.value:
        _take_back(state, settings)
    else:
        fall = state.value - value
        state = ahead or _look_ahead(model, state, moved, fall, settings)
        _judge_value(model, state, moved, value, settings)
    state.n += 1
    state.history.append(float(state.value))
    return state, moved.residual


def _both_steps(
    model: Model, state: State, step: Step, settings: Settings, look: bool
) -> Asking[Moved]:
    """Move both factors, the first of them on beyond its step."""
    first, second = tuple(settings.order)
    move, weight = _move(state, step, settings), _weight(state, settings)
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
    del sub  # its product is as large as the factor: gone before the next array is made
    if first == "U":
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
    """Move one factor; where the back end can, extrapolate and measure it in the same pass."""
    found = move.extrapolated and move.extrapolated(sub, Z, state.old[side], weight)
    return HalfStep(*found) if found else HalfStep(_patient(move, sub, Z, state))


def _patient(move: Step, sub: Subproblem, Z: Array, state: State) -> Array:
    """Return Z after the step; early on, parts with a zero other factor stay unchanged.

    The loss does not see such a part, and a penalty alone would take it to zero at once, where
    neither factor can leave again, though the other parts have hardly found their places.
    """
    new = move(sub, Z)
    if not sub.terms or state.n >= PATIENCE or not move.can_empty:
        return new
    assert isinstance(sub, Quadratic)
    xp = namespace(sub.G)
    seen = xp.any(xp.abs(sub.G) > 0, axis=0)
    return namespace(new).where(seen[None], new, Z)


def _judge_value(
    model: Model, state: State, moved: Moved, value: float, settings: Settings
) -> None:
    """Report an objective that did not rise, summed from the factors where rounding shows."""
    state.value, state.failures = value, 0
    sub = moved.sub
    if moved.by_change and value < 1e5 * model.eps * state.anchor:
        anchor(model, state)
    elif not settings.guard and value < 3e5 * model.eps * max(model.size, sub.size):
        # the value is a difference of three sums, each of which rounds to eps of this size:
        # they are 1e-5 of it by now, and the history tells the truth. What the model has in
        # gaps is in two of them, and may be far larger than X
        about = 0.0 if sub.size > model.size else np.inf
        state.value = model.exact_value(state.x["V"], state.x["U"], about)


def _accept(model: Model, state: State, moved: Moved, settings: Settings) -> None:
    """Report the point where the second step ended, and begin the next iteration beyond it."""
    first, second = tuple(settings.order)
    new, weight, beyond = moved.new, moved.weight, moved.second.beyond
    x = {first: moved.first, second: new[second]}
    if second == "U":
        x["V"], x["U"] = model.normalize(x["V"], x["U"])
    if beyond is None:
        beyond = _beyond(x[second], state.old[second], weight, settings)
    y = {first: x[first], second: beyond}
    if weight and second == "U":
        y["U"] = model.normalize(y["V"], y["U"])[1]
    state.x, state.y, state.old = x, y, {first: new[first], second: x[second]}
    if settings.extrapolate:
        # γ = 1.05, its ceiling grows by 1.01 (Ang & Gillis 2019)
        state.weight = min(state.ceiling, 1.05 * max(state.weight, 0.1))
        state.ceiling = min(1.0, 1.01 * state.ceiling)


def _look_ahead(model: Model, state: State, moved: Moved, fall: float, settings: Settings) -> State:
    """Return the state after an iteration with gain ``fall``, including where the next begins.

    The change of the objective there is computed exactly only if necessary. The difference of two
    values is cheaper; its error of about eps ½‖X‖² is harmless while iterations gain far more.
    """
    state, second = replace(state), settings.order[1]
    _accept(model, state, moved, settings)
    state.ahead, known = moved.second.ahead, moved.second.beyond is not None
    # blocks of rows do not return the change of V, and computing it takes a pass over them
    state.fine = (
        (known and moved.measured) or model.eps > 1e-10 or fall <= 1e4 * model.eps * model.size
    )
    measured = settings.guard and moved.sub.measures_change and state.fine
    if measured and not known and state.y[second] is not state.x[second]:
        # sub knows the first factor as it was before lengths moved into it
        back = model.lengths(moved.new["U"]) if second == "U" and model.unit else 1
        state.ahead = moved.sub.change(state.y[second] * back, moved.new[second])
    return state


def _take_back(state: State, settings: Settings) -> None:
    """Begin again from the reported point, with less momentum or without any."""
    state.failures += 1 if settings.extrapolate and state.failures < SAFE else SAFE
    state.y, state.old, state.ahead, state.fine = dict(state.x), dict(state.x), 0.0, True
    if settings.extrapolate:
        state.weight, state.ceiling = state.weight / 1.5, state.weight  # η = 1.5


def _move(state: State, step: Step, settings: Settings) -> Step:
    """Return the step of the next iteration."""
    if state.n < settings.warmup:
        return mu
    if state.failures >= SAFE and settings.safe is not None:
        return settings.safe
    rough = settings.rough is not None and not state.failures and not _near(state.history)
    return settings.rough if rough and settings.rough is not None else step


def _weight(state: State, settings: Settings) -> float:
    """Return the extrapolation weight of the next iteration."""
    plain = state.n < settings.warmup or state.failures >= PLAIN
    return 0.0 if plain else state.weight


def _beyond(new: Array, old: Array, weight: float, settings: Settings) -> Array:
    """Move ``new`` on by ``weight`` times its distance from ``old``, and keep it >= 0."""
    if not weight:
        return new
    out = extrapolate(new, old, weight)
    if settings.keep:
        return namespace(out).maximum(out, settings.keep * new)
    return clip_at_zero(out)


def _near(history: list[float]) -> bool:
    """Return whether the last iteration gained so little that the next should be exact."""
    return len(history) > 1 and history[-2] - history[-1] <= 1e-5 * abs(history[-1])


# -- stopping -------------------------------------------------------------------------------------


def residual_at(
    model: Model, x: Point, value: float, tol: float = 0.0, codes: Subproblem | None = None
) -> float:
    """Return the KKT residual of both halves at x, where the objective is ``value``.

    ``codes`` is the problem in V with this U fixed, where there is one already.
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
    """Return the fall of the objective in the last iterations, relative to its value.

    Where ‖X - Y‖ is below tol ‖X‖ it is relative to that: a perfect fit falls for ever.
    """
    if len(state.history) <= LOOK_BACK:
        return np.inf
    least = max(model.least, tol**2) * model.size
    scale = max(abs(state.history[-1]), least)
    fall = state.history[-1 - LOOK_BACK] - state.history[-1]
    return fall / scale if scale > 0 else 0.0


def _stuck(state: State) -> bool:
    """Return whether the guard rejected even the last resort, so only rounding is left."""
    return state.failures > SAFE


def _change(new: Point, old: Point) -> float:
    return max(norm64(new[s] - old[s]) / max(norm64(old[s]), 1e-300) for s in "VU")


def _judge(solution: Solution, residual: float, stuck: bool, settings: Settings) -> None:
    """Set the status if this is the end."""
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
    """Take the objective from the factors again, and shift the history to end there.

    It is added up from the decreases of the half-steps. Each is exact to its own last bits, but
    those of the first, large ones may be larger than what is left.
    """
    exact = model.exact_value(state.x["V"], state.x["U"], state.value)
    state.history[:] = shifted(state.history, exact - state.value, exact)
    least = model.least * model.size
    state.value, state.anchor = exact, exact if exact > least else 0.0


def shifted(history: list[float], shift: float, least: float) -> list[float]:
    """Return the history plus ``shift``, which never rises and is nowhere below ``least``.

    The minimum is necessary because a rounded sum could be slightly below ``least``.
    """
    return [max(value + shift, least) for value in history]
