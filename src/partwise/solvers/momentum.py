"""Extrapolation with restart (Ang & Gillis 2019): how far beyond the last step the next begins.

A number for one start, an array for many side by side: both loops have these rules in common.
"""

from __future__ import annotations

from typing import Any

import numpy as np

#: The weight of the first extrapolation.
FIRST = 0.5
#: Failures in a row after which a step is tried without extrapolation, and after which it is mu.
PLAIN, SAFE = 2, 3


def grown(weight: Any, ceiling: Any) -> tuple[Any, Any]:
    """(weight, ceiling) after a step that lowered the objective."""
    return np.minimum(ceiling, 1.05 * np.maximum(weight, 0.1)), np.minimum(1.0, 1.01 * ceiling)


def shrunk(weight: Any) -> tuple[Any, Any]:
    """(weight, ceiling) after a step that was taken back."""
    return weight / 1.5, weight
