"""The one loop: two half-steps an iteration, extrapolation with restart, stopping."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from partwise.engine.arrays import clip_at_zero, extrapolate, namespace
from partwise.engine.numeric import Array, norm64
from partwise.engine.solvers.steps import Step, mu
from partwise.engine.subproblems import kkt_residual


@dataclass
class Solution:
    """Where the loop ended."""

    Z: Array
    U: Array
    history: list[float] = field(default_factory=list)
    n_iter: int = 0
    converged: bool = False
    status: str = ""


@dataclass(frozen=True)
class Settings:
    """How the loop runs.

    Parameters
    ----------
    max_iter, tol
        Stop after so many iterations, or once the relative KKT residual is at most tol (0: never).
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


class Momentum:
    """The extrapolation weight of Ang & Gillis (2019), Algorithm 3, with their constants."""

    def __init__(self, active: bool, keep: float = 0.0) -> None:
        self.active, self.keep = active, keep
        self.weight = 0.5 if active else 0.0
        self.ceiling = 1.0
        self.resting = False

    def grow(self) -> None:
        if self.active:
            self.weight = min(self.ceiling, 1.05 * max(self.weight, 0.1))
            self.ceiling = min(1.0, 1.01 * self.ceiling)

    def shrink(self) -> None:
        if self.active:
            self.ceiling = self.weight
            self.weight /= 1.5

    def __call__(self, new: Array, old: Array) -> Array:
        if not self.weight or self.resting:
            return new
        out = extrapolate(new, old, self.weight)
        return namespace(out).maximum(out, self.keep * new) if self.keep else clip_at_zero(out)


def alternate(
    model: Any,
    Z: Array,
    U: Array,
    step: Step,
    settings: Settings,
    on_iteration: Callable[[int, Solution], bool] | None = None,
    keeper: Any = None,
) -> Solution:
    """Minimise the model from (Z, U): both half-steps, `max_iter` times or until converged.

    ``on_iteration(n, solution)`` is called after each iteration; True ends the loop. The solution's
    factors are the last point whose objective is in the history. ``keeper`` is a `Checkpoint`: the
    loop goes on from its state, and saves to it.
    """
    first, second = tuple(settings.order)
    x = dict(zip("VU", model.normalize(Z, U), strict=True))  # the reported point
    y, old = dict(x), dict(x)  # where the steps begin, and the point before the extrapolation
    state = None if keeper is None else keeper.load()
    f = model.value(x["V"], x["U"]) if settings.guard and state is None else np.inf
    momentum, safe, failures = Momentum(settings.extrapolate, settings.keep), False, 0
    begin = 1
    if state is not None:
        x, y, old, f, begin = state["x"], state["y"], state["old"], state["f"], state["n"] + 1
        safe, failures = state["safe"], state["failures"]
        momentum.weight, momentum.ceiling = state["momentum"]
    solution = Solution(x["V"], x["U"])
    if state is not None:
        solution.history, solution.n_iter = state["history"], state["n"]
    for n in range(begin, settings.max_iter + 1):
        check = settings.tol > 0 and n > 1 and n % settings.check_every == 0
        momentum.resting = n <= settings.warmup
        usual = step if settings.rough is None or _near(solution.history) else settings.rough
        move = mu if safe or momentum.resting else usual
        sub = model.subproblem(first, y["V"], y["U"])
        residual = kkt_residual(sub, y[first]) if check and settings.stationary else np.inf
        new = {first: move(sub, y[first])}
        sub = None  # its product is as large as the factor: gone before the next array is made
        z = {first: momentum(new[first], old[first]), second: y[second]}
        if first == "U":
            z["V"], z["U"] = model.normalize(z["V"], z["U"])
        sub = model.subproblem(second, z["V"], z["U"])
        if residual <= settings.tol and kkt_residual(sub, z[second]) <= settings.tol:
            # so far at points between the iterations; what counts is the reported one
            subs = (model.subproblem(side, x["V"], x["U"]) for side in "VU")
            if all(kkt_residual(s, x[side]) <= settings.tol for s, side in zip(subs, "VU")):
                solution.converged = True
                break
            sub = model.subproblem(second, z["V"], z["U"])
        new[second] = move(sub, z[second])
        value = sub.value(new[second])
        z[second] = new[second]
        if second == "U":
            z["V"], z["U"] = model.normalize(z["V"], z["U"])
        change = _change(z, x) if check and not settings.stationary else np.inf
        if settings.guard and not value <= f:
            extrapolated = momentum.weight > 0 and y["V"] is not x["V"]
            failures += 1
            if not extrapolated:
                if value <= f * (1 + 1e-12) or safe:
                    failures += 2  # rounding is all that is left
                safe = not settings.extrapolate or failures > 2
            momentum.shrink()
            y, old = dict(x), dict(x)
        else:
            y = {first: z[first], second: momentum(z[second], old[second])}
            if momentum.weight and second == "U":
                y["U"] = model.normalize(y["V"], y["U"])[1]
            old = {first: new[first], second: z[second]}
            x, f, safe, failures = z, value, False, 0
            momentum.grow()
        solution.Z, solution.U, solution.n_iter = x["V"], x["U"], n
        solution.history.append(float(f))
        if keeper is not None and n % keeper.every == 0:
            numbers = [f, momentum.weight, momentum.ceiling, safe, failures]
            keeper.save(n, {"x": x, "y": y, "old": old}, numbers, solution.history)
        if on_iteration is not None and on_iteration(n, solution):
            solution.status = f"stopped by a callback after {n} iterations"
            return solution
        if failures > 4:
            solution.status = f"no further progress at working precision after {n} iterations"
            solution.converged = True
            return solution
        if change <= settings.tol:
            solution.converged = True
            break
    n = solution.n_iter
    if solution.converged:
        what = "relative KKT residual" if settings.stationary else "relative change of the factors"
        solution.status = f"converged: {what} at most {settings.tol:g} after {n} iterations"
    else:
        solution.status = f"stopped at max_iter={settings.max_iter}, above tol={settings.tol:g}"
    return solution


def _near(history: list[float]) -> bool:
    """Whether the last iteration gained so little that the next had better be exact."""
    return len(history) > 1 and history[-2] - history[-1] <= 1e-5 * abs(history[-1])


def _change(new: dict[str, Array], old: dict[str, Array]) -> float:
    return max(norm64(new[s] - old[s]) / max(norm64(old[s]), 1e-300) for s in "VU")
