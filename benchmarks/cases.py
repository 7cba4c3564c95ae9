"""Benchmark cases, each with data, number of components, loss and goal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

KL = "kullback-leibler"


@dataclass(frozen=True)
class Case:
    """One comparison of times with other packages, called peers.

    Parameters
    ----------
    make : callable
        ``make(quick)`` returns X.
    goal : float
        The ratio of their time to ours that should be reached.
    against : str or None
        Only peers whose name starts with this count for the goal, and only they run outside the
        full run. None: the best of all peers.
    small : bool
        A peer that is 20 times slower in a small case is left out of the other cases.
    full, large : bool
        Cases of the full run only; large cases, in which peers run 50 iterations.
    """

    name: str
    title: str
    make: Callable[[bool], Any]
    k: int
    goal: float
    loss: str = "frobenius"
    against: str | None = None
    small: bool = False
    full: bool = False
    large: bool = False

    @property
    def iterations(self) -> int:
        """Number of iterations of a peer; the objective that it reaches is the target."""
        return 50 if self.large else 100 if self.loss == KL else 200


def start(X: Any, k: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return the initial W and H of all packages, from scikit-learn's ``init="random"``."""
    from sklearn.decomposition._nmf import _initialize_nmf

    W, H = _initialize_nmf(X, k, init="random", random_state=seed)
    return np.ascontiguousarray(W, X.dtype), np.ascontiguousarray(H, X.dtype)


# -- data --------------------------------------------------------------------------------------


def load(name: str, quick: bool = False) -> tuple[Any, Any]:
    """Return X in float64 and y of a public data set; every tenth sample if `quick`."""
    from partwise.io.datasets import load as find

    found = find(name)
    X = found.X.astype(np.float64)
    X = sp.csr_array(X) if sp.issparse(X) else X
    y = None if found.y is None else np.asarray(found.y)
    step = 10 if quick else 1
    return X[::step], None if y is None else y[::step]


def images(name: str) -> Callable[[bool], Any]:
    def make(quick: bool) -> Any:
        from partwise.io.datasets import unit_rows

        return unit_rows(load(name, quick)[0])

    return make


def single(name: str) -> Callable[[bool], Any]:
    return lambda quick: images(name)(quick).astype(np.float32)


def text(name: str) -> Callable[[bool], Any]:
    def make(quick: bool) -> Any:
        from partwise.io.datasets import tfidf

        return sp.csr_array(tfidf(load(name, quick)[0]))

    return make


def counts(name: str) -> Callable[[bool], Any]:
    return lambda quick: load(name, quick)[0]


def made_dense(n: int, p: int, k: int, *, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Return dense data from 2k sparse components of decreasing weight with 10% noise."""
    rng = np.random.default_rng(seed)
    weights = np.exp(-np.arange(2 * k) / k)
    W = (rng.gamma(1.0, size=(n, 2 * k)) * (rng.random((n, 2 * k)) < 0.4) * weights).astype(dtype)
    H = (rng.gamma(1.0, size=(2 * k, p)) * (rng.random((2 * k, p)) < 0.4)).astype(dtype)
    X = W @ H
    noise = dtype(0.1 * X.mean())
    for begin in range(0, n, 4096):  # blocks of rows avoid a second array of the size of X
        rows = slice(begin, begin + 4096)
        X[rows] += noise * np.abs(rng.standard_normal(X[rows].shape, dtype=dtype))
    return X


def made_sparse(
    n: int, p: int, k: int, density: float, *, seed: int = 0, dtype: Any = np.float32
) -> sp.csr_array:
    """Return sparse data like documents of three topics each, with values 1 + log count.

    Of the words, 20% are noise.
    """
    rng = np.random.default_rng(seed)
    # 2% more words are drawn, because a few words are drawn twice.
    words = max(1, round(1.02 * density * p))
    tables = rng.gamma(0.05, size=(k, p))
    cumulated = np.cumsum(tables / tables.sum(axis=1, keepdims=True), axis=1)
    topics = rng.integers(k, size=(n, 3))
    rows = np.repeat(np.arange(n), words)
    chosen = topics[rows, rng.integers(3, size=rows.size)]
    columns = rng.integers(p, size=rows.size)
    order = np.argsort(chosen, kind="stable")
    bounds = np.searchsorted(chosen[order], np.arange(k + 1))
    signal = rng.random(rows.size) < 0.8
    for topic in range(k):
        places = order[bounds[topic] : bounds[topic + 1]]
        places = places[signal[places]]
        drawn = np.searchsorted(cumulated[topic], rng.random(places.size))
        columns[places] = np.minimum(drawn, p - 1)
    X = sp.csr_array((np.ones(rows.size, dtype=dtype), (rows, columns)), shape=(n, p))
    X.sum_duplicates()
    X.data = 1 + np.log(X.data)
    return X


def dense(n: int, p: int, k: int) -> Callable[[bool], Any]:
    return lambda quick: made_dense(n // 20 if quick else n, p // 10 if quick else p, k)


def sparse(n: int, p: int, k: int, density: float) -> Callable[[bool], Any]:
    return lambda quick: made_sparse(
        n // 100 if quick else n, p // 10 if quick else p, k, density * (5 if quick else 1)
    )


CASES = [
    Case("orl", "orl_32x32 k=40", images("orl"), 40, 3, small=True),
    Case("coil20", "coil20 k=20", images("coil20"), 20, 3, small=True),
    Case("coil20-32", "coil20 float32 k=20", single("coil20"), 20, 3, against="scikit-learn"),
    Case("pie", "pie_pose27 k=68", images("pie"), 68, 3),
    Case("pie-100", "pie_pose27 k=100", images("pie"), 100, 3, against="scikit-learn"),
    Case("pie-200", "pie_pose27 k=200", images("pie"), 200, 3, against="scikit-learn"),
    Case("tdt2", "tdt2_top30 tf-idf k=30", text("tdt2"), 30, 5),
    Case("dense-20k", "dense 20,000 x 2,000 float32 k=20", dense(20_000, 2_000, 20), 20, 8),
    Case("coil20-kl", "coil20 KL k=20", images("coil20"), 20, 3, KL, small=True),
    Case("pie-kl", "pie_pose27 KL k=68", images("pie"), 68, 3, KL),
    Case("tdt2-kl", "tdt2_top30 counts KL k=10", counts("tdt2"), 10, 20, KL, "scikit-learn"),
    Case("worm-kl", "worm_neuron_sc counts KL k=10", counts("worm"), 10, 20, KL, "scikit-learn"),
    Case("pie-500", "pie_pose27 k=500", images("pie"), 500, 3, against="scikit-learn", full=True),
    Case("news20", "news20 tf-idf k=20", text("news20"), 20, 5, full=True),
    Case(
        "dense-50k",
        "dense 50,000 x 2,000 float32 k=100",
        dense(50_000, 2_000, 100),
        100,
        5,
        full=True,
        large=True,
    ),
    Case(
        "sparse-200k",
        "sparse 200,000 x 20,000, 0.5 % filled, float32 k=50",
        sparse(200_000, 20_000, 50, 0.005),
        50,
        5,
        full=True,
        large=True,
    ),
]
