"""State of the iteration loop between two iterations of one start."""

from __future__ import annotations

from dataclasses import dataclass, field

from partwise.backends.arrays import Array

#: A pair of factors with the keys "V" and "U".
Point = dict[str, Array]


@dataclass
class State:
    """State of one start after ``n`` iterations; checkpoints store its fields by name.

    Each start has its own extrapolation weight and history, so that several starts can run
    together.

    Parameters
    ----------
    x : Point
        The accepted factors, whose objective is ``value``.
    y : Point
        The point from which the next updates begin: x, or its extrapolation.
    old : Point
        The factors before the last extrapolation, which define the direction of the next one.
    value, ahead : float
        The objective at x, and its increase from x to y.
    fine : bool
        Whether ``ahead`` was computed from changes. The next iteration is then accepted or undone
        by the changes in its updates, not by the difference of two values.
    anchor : float
        The objective when it was last computed from the factors.
    weight, ceiling : float
        The extrapolation weight of Ang and Gillis (2019), and its upper limit.
    failures : int
        Number of successive iterations that were undone because the objective rose.
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
