"""Projected gradient steps for factors with a constraint set, such as sparse ones."""

from __future__ import annotations

from partwise.backends.arrays import Array
from partwise.model.subproblems import Quadratic
from partwise.solvers.steps import Step, hals


def _projected(sub: Quadratic, Z: Array, steps: int = 5) -> Array:
    """Take a projected gradient step if the factor is projected, else coordinate descent.

    A step of 1/L minimises a majoriser over the constraint set, so the objective never rises.
    """
    project = sub.project
    if project is None:
        return hals(sub, Z)
    lipschitz = sub.lipschitz()
    if lipschitz == 0:
        return Z
    for _ in range(steps):
        neg, pos = sub.split(Z)
        Z = project(Z - (pos - neg) / Z.dtype.type(lipschitz))
    return Z


projected = Step("projected", _projected, {"frobenius": ("lipschitz",)})
