"""The linear maps of the model that are never built as matrices."""

from __future__ import annotations

from partwise.backends.arrays import StandardArray as Array


class Smoothing:
    """S = (1-δ) I + δ/k 11ᵀ, applied from the right: Z S mixes each row with its mean."""

    def __init__(self, delta: float = 0.0) -> None:
        self.delta = delta

    def __call__(self, Z: Array) -> Array:
        if self.delta == 0:
            return Z
        return (1 - self.delta) * Z + self.delta * Z.mean(axis=1, keepdims=True)
