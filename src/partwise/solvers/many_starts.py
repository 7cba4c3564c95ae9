"""Many starts of one problem side by side: their products with X are one wide product.

R starts of k parts have X [U₁ … U_R] in common, one pass over X instead of R. The rest is the
loop's, start by start: Gram matrices (the R diagonal blocks alone), sweeps, momentum, guard and the
end. So the result of each start is that of the loop alone, up to rounding in the products and, with
gaps, to how old their filling is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from partwise.backends.arrays import Array, numpy_dtype
from partwise.model.factor_model import FactorModel
from partwise.model.subproblems import Subproblem
from partwise.solvers.loop import Asking, Request, Settings, Solution, alternating
from partwise.solvers.steps import Step

#: What makes a start when its turn comes: its factors, and the step that moves them.
Start = Callable[[], tuple[Array, Array, Step]]

#: Columns of a wide product beyond which it is no faster a column.
WIDEST = 256
#: Arrays as large as a factor that a start holds in an iteration.
ARRAYS = 8
#: Bytes that the factors of a group may always take; where X is larger, as much as X.
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
    """Return how many starts of k parts run together in bounded memory."""
    n, p = data.shape
    size = float(numpy_dtype(data.dtype).itemsize)
    room = max(ROOM, size * data.density * n * p)
    most = min(WIDEST / k, room / (ARRAYS * size * (n + p) * k))
    return max(1, int(most))


def _together(
    model: FactorModel, begun: Sequence[tuple[Array, Array, Step]], settings: Settings
) -> list[Solution]:
    """Run the loops in step: each asks for a subproblem, all of a side are made at once."""
    runs: list[Asking[Solution]] = [alternating(model, *start, settings) for start in begun]
    solutions: dict[int, Solution] = {}
    asked: dict[int, Request] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(runs)))  # a generator begins with None
    while answers:
        while answers:  # taken out one by one: a subproblem is as large as its factor
            number = next(iter(answers))
            try:
                asked[number] = runs[number].send(answers.pop(number))
            except StopIteration as end:
                solutions[number] = end.value
        answers = _answer(model, asked)
    return [solutions[number] for number in range(len(runs))]


def _answer(model: FactorModel, asked: dict[int, Request]) -> dict[int, Subproblem]:
    """Answer all requests for subproblems of one side; the others wait for the next turn.

    The loops ask for both sides in turn, so all soon ask for the same.
    """
    if not asked:
        return {}
    side = next(iter(asked.values())).side
    numbers = [number for number, request in asked.items() if request.side == side]
    points = [(request.Z, request.U) for request in map(asked.pop, numbers)]
    return dict(zip(numbers, model.subproblems(side, points), strict=True))
