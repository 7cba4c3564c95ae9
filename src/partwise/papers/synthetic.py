"""Data made here, where a paper's own set was made by computer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Made = tuple[NDArray[np.float64], NDArray[np.int64]]


def gaussians(seed: int = 0) -> Made:
    """Three Gaussians of 50 points each in the plane, kept positive."""
    rng = np.random.default_rng([seed, 5])
    centres = np.array([[4.0, 12.0], [10.0, 5.0], [12.0, 13.0]])
    y = np.repeat(np.arange(3), 50)
    return np.maximum(centres[y] + rng.standard_normal((150, 2)), 0.05), y


def noisy100(seed: int = 0) -> Made:
    """As `classes100` with a pull of 0.85: nearer within a class on average only.

    Three in ten samples have a sample of their own class for the nearest one; methods that use
    neighbours or labels then find what the plain ones do not.
    """
    return _pulled(*_drawn(seed), 0.85)


def classes100(seed: int = 0) -> Made:
    """100 classes of 20 samples in 2500 dimensions, nearer within a class than between.

    Uniform samples are drawn towards a uniform class centre. In so many dimensions distances
    concentrate: two samples of a class at pull ``t`` lie about ``t`` times the distance of two
    free samples apart, so a pull just below one keeps the classes as close as the condition
    "every distance within a class is below every distance between classes" lets them be. The
    largest such pull on a grid is taken, by measuring it.
    """
    drawn = _drawn(seed)
    for pull in np.arange(0.95, 0.0, -0.05):
        X, y = _pulled(*drawn, pull)
        squared = (X**2).sum(axis=1)
        distance = squared[:, None] + squared - 2.0 * (X @ X.T)
        same = y[:, None] == y
        if distance[same].max() < distance[~same].min():
            return X, y
    raise AssertionError("a pull of zero puts every sample on its centre")  # pragma: no cover


def _drawn(seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng([seed, 2500])
    return rng.random((100, 2500)), rng.random((2000, 2500))


def _pulled(centres: NDArray[np.float64], free: NDArray[np.float64], pull: float) -> Made:
    y = np.repeat(np.arange(100), 20)
    return centres[y] + pull * (free - centres[y]), y


MADE: dict[str, Callable[[], Made]] = {
    "gaussians": gaussians,
    "classes100": classes100,
    "noisy100": noisy100,
}
