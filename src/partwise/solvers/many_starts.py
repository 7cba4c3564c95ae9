"""Fits from several initial values, with joint products with X.

R starts of k parts need X [U₁ … U_R], which is one pass over X instead of R. All else is done per
start by the loop: Gram matrices, sweeps, momentum, guard and stopping. Each start therefore has
the result of a single fit, up to rounding of the products and, with missing values, up to the
iteration from which their filling comes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from partwise.backends.arrays import Array, numpy_dtype
from partwise.model.factor_model import FactorModel
from partwise.model.subproblems import Subproblem
from partwise.solvers.loop import Asking, Request, Settings, Solution, alternating
from partwise.solvers.steps import Step

#: Function that returns the initial factors of a start, and the solver step for them.
Start = Callable[[], tuple[Array, Array, Step]]

#: Number of columns beyond which a product with more columns is not faster per column.
WIDEST = 256
#: Number of arrays of the size of a factor that one start needs during an iteration.
ARRAYS = 8
#: Bytes that the factors of starts that run together may use. If X is larger, they may use as many
#: bytes as X.
ROOM = 2**28


def solve_many(
    model: FactorModel, starts: Sequence[Start], settings: Settings
) -> Iterator[Solution]:
    """Yield the solution of each start in order; `group_size` starts run in parallel."""
    rest = list(starts)
    while rest:
        begun = [rest.pop(0)()]
        size = group_size(model.R, begun[0][1].shape[1])
        begun += [start() for start in rest[: size - 1]]
        del rest[: size - 1]
        yield from _together(model, begun, settings)


def group_size(data: Any, k: int) -> int:
    """Return how many starts of k parts can run together within the memory limit."""
    n, p = data.shape
    size = float(numpy_dtype(data.dtype).itemsize)
    room = max(ROOM, size * data.density * n * p)
    most = min(WIDEST / k, room / (ARRAYS * size * (n + p) * k))
    return max(1, int(most))


def _together(
    model: FactorModel, begun: Sequence[tuple[Array, Array, Step]], settings: Settings
) -> list[Solution]:
    """Run the loops together, and compute all requested subproblems of a side at once."""
    runs: list[Asking[Solution]] = [alternating(model, *start, settings) for start in begun]
    solutions: dict[int, Solution] = {}
    asked: dict[int, Request] = {}
    answers: dict[int, Any] = dict.fromkeys(
        range(len(runs))
    )  # None, the first value sent to a generator, starts it
    while answers:
        while answers:  # remove answers one by one, since a subproblem is as large as its factor
            number = next(iter(answers))
            try:
                asked[number] = runs[number].send(answers.pop(number))
            except StopIteration as end:
                solutions[number] = end.value
        answers = _answer(model, asked)
    return [solutions[number] for number in range(len(runs))]


def _answer(model: FactorModel, asked: dict[int, Request]) -> dict[int, Subproblem]:
    """Answer all requests for subproblems of one side; the others wait for the next turn.

    Each loop alternates between the sides, so all loops soon request the same side.
    """
    if not asked:
        return {}
    side = next(iter(asked.values())).side
    numbers = [number for number, request in asked.items() if request.side == side]
    points = [(request.Z, request.U) for request in map(asked.pop, numbers)]
    return dict(zip(numbers, model.subproblems(side, points), strict=True))
