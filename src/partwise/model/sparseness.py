"""Projection of vectors onto a given value of Hoyer's sparseness."""

from __future__ import annotations

import numpy as np

from partwise.backends.arrays import AnyArray, Array


def project_sparse(x: AnyArray, sparseness: float) -> AnyArray:
    """Return the unit vector s >= 0 of the given sparseness with the largest ⟨x, s⟩.

    The sparseness is (√n - ‖s‖₁/‖s‖₂)/(√n - 1), so ‖s‖₁ is determined if ‖s‖₂ = 1. The algorithm of
    Hoyer (2004) projects x onto the hyperplane Σs = ‖s‖₁, then moves away from its centre to the
    unit sphere. Entries that become negative are fixed at zero, and the steps are repeated for the
    others.
    """
    n = x.size
    l1 = np.sqrt(n) - sparseness * (np.sqrt(n) - 1)
    if n == 1 or l1 <= 1 + 1e-12:  # only one entry is positive
        out = np.zeros_like(x)
        out[x.argmax()] = 1
        return out
    scale = np.linalg.norm(x)
    s = x.astype(np.float64) / (scale if scale > 0 else 1.0)
    s += (l1 - s.sum()) / n
    free = np.ones(n, dtype=bool)
    for _ in range(n):
        count = int(free.sum())
        middle = np.where(free, l1 / count, 0.0)
        w = s - middle
        # Solve ‖middle + t w‖ = 1 for t >= 0.
        a, b, c = w @ w, 2 * (middle @ w), middle @ middle - 1.0
        if a <= 1e-30:  # x is constant, so choose the first free entries
            w = np.where(free, np.linspace(1, -1, n), 0.0)
            w -= np.where(free, w[free].mean(), 0.0)
            a, b = w @ w, 2 * (middle @ w)
        t = (-b + np.sqrt(max(b * b - 4 * a * c, 0.0))) / (2 * a)
        s = middle + t * w
        if (s >= -1e-15).all():
            break
        free &= s > 0
        s = np.where(free, s, 0.0)
        s[free] += (l1 - s.sum()) / int(free.sum())
    return np.maximum(s, 0).astype(x.dtype)


def project_columns(Z: Array, sparseness: float, *, unit: bool) -> AnyArray:
    """Project columns to the given sparseness, with length one or any length."""
    out = np.empty_like(Z)
    for j in range(Z.shape[1]):
        s = project_sparse(Z[:, j], sparseness)
        out[:, j] = s if unit else s * max(float(Z[:, j] @ s), np.finfo(Z.dtype).tiny)
    return out
