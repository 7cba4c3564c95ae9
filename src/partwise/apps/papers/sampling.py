"""Random subsets, labels and initial values, equal for all methods of a table.

One `numpy.random.SeedSequence` over (table, data, K, run) determines all random choices, so that
each run can be repeated alone. Two methods of one table always have the same samples, labels and
initial values, so their differences are paired.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from partwise import datasets
from partwise.apps.papers.protocol import Budget, DataSpec

Synthetic = tuple[NDArray[np.float64], NDArray[np.int64]]


def gaussians(seed: int = 0) -> Synthetic:
    """Return 50 positive random points in the plane from each of three Gaussians."""
    rng = np.random.default_rng([seed, 5])
    centres = np.array([[4.0, 12.0], [10.0, 5.0], [12.0, 13.0]])
    y = np.repeat(np.arange(3), 50)
    return np.maximum(centres[y] + rng.standard_normal((150, 2)), 0.05), y


def classes100(seed: int = 0) -> Synthetic:
    """Return 100 separated classes of 20 random samples with 2,500 features each.

    Uniform samples are moved towards a uniform class centre. In high dimensions distances
    concentrate: after scaling by ``t``, two samples of one class are about ``t`` times as far apart
    as two unscaled samples. The largest ``t`` on a grid is used for which every distance within a
    class is smaller than every distance between classes.
    """
    rng, y = np.random.default_rng([seed, 2500]), np.repeat(np.arange(100), 20)
    centres, free = rng.random((100, 2500)), rng.random((2000, 2500))
    for pull in np.arange(0.95, 0.0, -0.05):
        X = centres[y] + pull * (free - centres[y])
        squared = (X**2).sum(axis=1)
        distance = squared[:, None] + squared - 2.0 * (X @ X.T)
        same = y[:, None] == y
        if distance[same].max() < distance[~same].min():
            break
    return X, y


SYNTHETIC: dict[str, Callable[[], Synthetic]] = {
    "gaussians": gaussians,
    "classes100": classes100,
}

UNLABELLED = -1


@dataclass(frozen=True)
class Sample:
    """Samples of K random classes for one run; ``truth`` contains classes 0 to K - 1."""

    X: Any
    truth: NDArray[np.int64]
    # random order of the samples of each class, in which they get labels
    order: tuple[NDArray[np.int64], ...]
    seeds: dict[str, np.random.SeedSequence]

    def shown(self, budget: Budget | None) -> NDArray[np.int64]:
        """Return the visible labels for a label budget; others are `UNLABELLED`.

        Budgets are nested: a larger budget contains all labels of a smaller one.
        """
        y = np.full(self.truth.shape, UNLABELLED, dtype=np.int64)
        if budget is not None:
            for label, members in enumerate(self.order):
                y[members[: budget.count(len(members))]] = label
        return y

    def start(self, k: int, subrun: int = 0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return uniform random initial factors V0 (n, k) and U0 (p, k)."""
        rng = np.random.default_rng(self._seed("start", subrun))
        n, p = self.X.shape
        # Values are in (0, 1], because a multiplicative update never changes a zero.
        return 1.0 - rng.random((n, k)), 1.0 - rng.random((p, k))

    def integer_seed(self, what: str, subrun: int = 0) -> int:
        """Return an integer ``random_state`` for the named purpose."""
        return int(self._seed(what, subrun).generate_state(1)[0] & 0x7FFFFFFF)

    def _seed(self, what: str, subrun: int) -> np.random.SeedSequence:
        """Return the random seed of one sub-run for a purpose, such as initial values."""
        words = [int(word) for word in self.seeds[what].generate_state(4)]
        return np.random.SeedSequence([*words, subrun])


def seed_sequence(table: str, data: str, k: int, run: int) -> np.random.SeedSequence:
    """Return the random seed of one run on a data set with K classes."""
    words = np.frombuffer(hashlib.sha256(f"{table}|{data}".encode()).digest()[:16], dtype="<u4")
    return np.random.SeedSequence([*(int(w) for w in words), k, run])


@lru_cache(maxsize=3)
def load_data(spec: DataSpec, data_home: str | None) -> tuple[Any, NDArray[np.int64]]:
    """Return a prepared data set, with classes numbered from 0."""
    if spec.name.startswith("synthetic:"):
        X, y = SYNTHETIC[spec.name.removeprefix("synthetic:")]()
    else:
        loaded = datasets.load(spec.name, data_home=data_home)
        X, y = loaded.X, np.asarray(loaded.y)
    _, y = np.unique(np.asarray(y), return_inverse=True)
    if spec.classes or spec.per_class:
        rows = _part(y, spec)
        X, y = X[rows], np.unique(y[rows], return_inverse=True)[1]
    return _prepare(X, spec.prepare), y


def data_found(spec: DataSpec, data_home: str | Path | None) -> bool:
    """Return whether the data set is on this machine."""
    made = spec.name.startswith("synthetic:")
    return made or datasets.available(data_home).get(spec.name) is not None


def _part(y: NDArray[np.int64], spec: DataSpec) -> NDArray[np.int64]:
    """Return fixed random rows of the first classes that have enough samples."""
    rng = np.random.default_rng(seed_sequence("part", spec.name, spec.classes or 0, 0))
    kept = np.flatnonzero(np.bincount(y) >= (spec.per_class or 1))[: spec.classes]
    rows = [np.flatnonzero(y == label) for label in kept]
    if spec.per_class:
        rows = [np.sort(rng.permutation(members)[: spec.per_class]) for members in rows]
    return np.concatenate(rows)


def _prepare(X: Any, how: str) -> Any:
    """Return X prepared in the way that the settings name, for example "tfidf"."""
    ways: dict[str, Callable[[Any], Any]] = {
        "none": lambda X: X,
        "unit_rows": datasets.unit_rows,
        "max_one": lambda X: X / X.max(),
        "tfidf": datasets.tfidf,
    }
    if how not in ways:
        raise ValueError(f"prepare must be one of {', '.join(ways)}, got {how!r}")
    return ways[how](X)


def draw(table: str, spec: DataSpec, k: int, run: int, *, data_home: str | None = None) -> Sample:
    """Return the samples of K random classes for one run.

    ``table`` is the name of the protocol that determines the random seed.
    """
    names = ("subset", "labels", "start", "kmeans", "data")
    seeds = dict(zip(names, seed_sequence(table, spec.name, k, run).spawn(5), strict=True))
    X: Any
    if spec.name == "synthetic:gaussians":  # each run needs new data
        X, y = gaussians(int(seeds["data"].generate_state(1)[0]))
    else:
        X, y = load_data(spec, data_home)
    classes = np.unique(y)
    if k > len(classes):
        raise ValueError(f"{spec.name} has {len(classes)} classes, cannot draw {k}")
    chosen = np.sort(np.random.default_rng(seeds["subset"]).permutation(classes)[:k])
    rows = np.flatnonzero(np.isin(y, chosen))
    truth = np.searchsorted(chosen, y[rows]).astype(np.int64)
    rng = np.random.default_rng(seeds["labels"])
    order = tuple(rng.permutation(np.flatnonzero(truth == label)) for label in range(k))
    subset = X[rows]
    if sp.issparse(subset):  # drop features without values to save time
        subset = subset[:, np.flatnonzero(np.bincount(subset.indices, minlength=subset.shape[1]))]
    return Sample(subset, truth, order, seeds)
