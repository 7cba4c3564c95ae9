"""Rows of the result table: a measurement, its goal and its result."""

from __future__ import annotations

from typing import Any


def row(
    what: str,
    seen: float | None,
    goal: float,
    *,
    at_most: bool = False,
    unit: str = "x",
    **more: Any,
) -> dict[str, Any]:
    """Return a row of the result table.

    ``reached`` is None without a result, and ``more`` is stored in the JSON file.
    """
    reached = None
    if seen is not None:
        reached = bool(seen <= goal if at_most else seen >= goal)
    goal_text = f"{'≤' if at_most else '≥'} {goal:g}{unit}"
    return {"what": what, "seen": seen, "unit": unit, "goal": goal_text, "reached": reached, **more}


def failed(what: str, why: object, goal: float, *, at_most: bool = False) -> dict[str, Any]:
    return row(what, None, goal, at_most=at_most, note=f"failed: {why}")


def skipped(what: str, why: object) -> dict[str, Any]:
    text = str(why).split(". ")[0]
    return {"what": what, "seen": None, "unit": "", "goal": "", "reached": None, "note": text}
