"""What the loop knows between two iterations of one start: all of it, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass, field

from partwise.backends.arrays import Array

#: A pair of factors by the names of their sides, "V" and "U".
Point = dict[str, Array]


@dataclass
class State:
    """One start after ``n`` iterations. A checkpoint holds these fields under these names.

    Momentum, guard and history belong to the start, not to the loop, so that several starts can be
    moved side by side, each with its own.

    Parameters
    ----------
    x : Point
        The reported factors, whose objective is ``value``.
    y : Point
        Where the next half-steps begin: x, or beyond it.
    old : Point
        The factors before the last extrapolation, from which the next one points away.
    value, ahead : float
        The objective at x, and by how much it is higher at y.
    fine : bool
        Whether that was measured, so that the next iteration is judged by what its half-steps
        change and not by the difference of two values.
    anchor : float
        The objective when it was last summed from the factors, not added up from decreases.
    weight, ceiling : float
        The extrapolation weight of Ang & Gillis (2019), and the most it may grow to.
    failures : int
        Iterations in a row that the guard took back.
    history : list of float
        The objective after each iteration.
    """

    x: Point
    y: Point
    old: Point
    value: float
    ahead: float = 0.0
    fine: bool = True
    anchor: float = 0.0
    n: int = 0
    weight: float = 0.0
    ceiling: float = 1.0
    failures: int = 0
    history: list[float] = field(default_factory=list)
