"""The demonstration: parts of handwritten digits, by every method in a list.

A method is one line of `METHODS`. All see the same data and are scored on the same samples: where
a method of the list takes labels, those that nobody has labelled.
"""

from __future__ import annotations

import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sklearn.decomposition
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

import partwise
from partwise._versions import versions
from partwise.evaluation.kmeans import cluster_representation
from partwise.evaluation.metrics import clustering_accuracy, normalized_mutual_info
from partwise.io.datasets import Dataset, keep_labels, load, unit_rows
from partwise.view import report

N_COMPONENTS = 10
LABELS_PER_CLASS = 5
SQUARES, KL = "squares", "KL"


@dataclass(frozen=True)
class Shown:
    """A name, the estimator for a number of components and a seed, and what it minimises."""

    name: str
    make: Callable[[int, int], Any]
    loss: str = SQUARES
    takes_labels: bool = False


def _ours(name: str, **settings: Any) -> Callable[[int, int], Any]:
    """An estimator of partwise by name, imported when it is made."""
    return lambda k, seed: getattr(partwise, name)(k, random_state=seed, **settings)


def _classifier(k: int, seed: int) -> Any:
    """It chooses its number of parts by itself."""
    return partwise.PartsClassifier(random_state=seed)


METHODS: tuple[Shown, ...] = (
    Shown("PartsClassifier", _classifier, takes_labels=True),
    Shown("k-means on pixels", lambda k, seed: KMeans(k, n_init=20, random_state=seed)),
    Shown(
        "NMF of scikit-learn",
        lambda k, seed: sklearn.decomposition.NMF(k, init="nndsvda", random_state=seed),
    ),
    Shown("NMF", _ours("NMF", init="nndsvda")),
    Shown("NMF, KL", _ours("NMF", init="nndsvda", beta_loss="kullback-leibler"), loss=KL),
    Shown("NSNMF", _ours("NSNMF")),
    Shown("CF", _ours("CF")),
    Shown("LCF", _ours("LCF")),
    Shown("GNMF", _ours("GNMF")),
    Shown("CNMF", _ours("CNMF"), takes_labels=True),
    Shown("NMFDC", _ours("NMFDC"), takes_labels=True),
    Shown("CDNMF", _ours("CDNMF"), takes_labels=True),
    Shown("SemiGNMF", _ours("SemiGNMF"), takes_labels=True),
    Shown(
        "class cost + graph",
        _ours("ConstrainedNMF", class_reg=1.0, graph_reg=1.0),
        takes_labels=True,
    ),
)

EXAMPLE = """\
from partwise import PartsClassifier
from partwise.datasets import keep_labels, load

digits = load("digits")
y = keep_labels(digits.y, 5, random_state=0)  # five labels a class, -1 for all others
model = PartsClassifier(random_state=0).fit(digits.X, y)
names, hidden = model.transduction_, y == -1
print(model.expected_accuracy_, (names[hidden] == digits.y[hidden]).mean())
"""


@dataclass(frozen=True)
class Result:
    """One method's row. `objective` is ½‖X - WH‖² or the KL divergence, penalties included."""

    name: str
    accuracy: float
    nmi: float
    seconds: float
    iterations: int
    loss: str
    objective: float
    parts: np.ndarray = field(repr=False)
    history: Sequence[float] = field(default=(), repr=False)
    remark: str = ""


@dataclass(frozen=True)
class Score:
    """All rows, and what they have in common."""

    results: tuple[Result, ...]
    dataset: Dataset = field(repr=False)
    n_components: int
    seed: int
    scored: str

    @property
    def why(self) -> str:
        """Why k-means on pixels does better than plain NMF; "" where it does not."""
        rows = {row.name: row for row in self.results}
        pixels, plain = rows.get("k-means on pixels"), rows.get("NMF")
        if pixels is None or plain is None or pixels.accuracy <= plain.accuracy:
            return ""
        X = unit_rows(self.dataset.X)
        kept = 1 - 2 * plain.objective / float(((X - X.mean(axis=0)) ** 2).sum())
        return (
            f"k-means on pixels beats plain NMF here, since {self.n_components} parts keep "
            f"{kept:.0%} of the variance of the pixels, and parts that overlap do not keep "
            "distances; a graph or labels bring back what is lost."
        )


def run(
    methods: Sequence[Shown] | None = None,
    *,
    dataset: Dataset | None = None,
    n_components: int = N_COMPONENTS,
    seed: int = 0,
    step: Callable[[int, str], None] = lambda done, name: None,
    seen: Callable[[Result], None] = lambda row: None,
) -> Score:
    """Run every method of a list (`METHODS`); `step` hears how many are done and which is next.

    `seen` gets each row as it comes.
    """
    methods = METHODS if methods is None else methods
    dataset = load("digits") if dataset is None else dataset
    assert dataset.y is not None
    X = unit_rows(dataset.X)
    known = keep_labels(dataset.y, LABELS_PER_CLASS, random_state=seed)
    hidden = np.ones(len(known), dtype=bool)
    scored = f"Scored on all {len(known)} samples."
    if any(method.takes_labels for method in methods):
        hidden = known == -1
        scored = (
            f"Methods that take labels know {LABELS_PER_CLASS} per class; "
            f"all are scored on the other {hidden.sum()} samples."
        )
    results = []
    # products of these sizes gain nothing by threads, and where other programs run, lose minutes
    with threadpool_limits(1, user_api="blas"):
        for done, method in enumerate(methods):
            step(done, method.name)
            y = known if method.takes_labels else None
            results.append(_one(method, X, y, dataset.y, hidden, n_components, seed))
            seen(results[-1])
    step(len(methods), "")
    return Score(tuple(results), dataset, n_components, seed, scored)


def _one(
    method: Shown,
    X: np.ndarray,
    y: np.ndarray | None,
    truth: np.ndarray,
    hidden: np.ndarray,
    n_components: int,
    seed: int,
) -> Result:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the remark says it
        method.make(n_components, seed).set_params(max_iter=20).fit(X, y)  # compiles, untimed
        model = method.make(n_components, seed)
        start = time.perf_counter()
        V = model.fit_transform(X, y)
        seconds = time.perf_counter() - start
    named = hasattr(model, "predict_proba")
    if named:  # names of classes, and more parts than are shown
        clusters, parts, objective = model.transduction_, model.components_, model.objective_
        parts = parts[:n_components]
    elif isinstance(model, KMeans):
        clusters, parts, objective = model.labels_, model.cluster_centers_, model.inertia_ / 2
    else:
        clusters = cluster_representation(V, n_components, random_state=seed).labels
        parts = model.components_
        # scikit-learn's error is sqrt(2 · divergence), whatever the loss
        objective = getattr(model, "objective_", None)
        objective = model.reconstruction_err_**2 / 2 if objective is None else objective
    limit = f"stopped at max_iter={model.max_iter}" if model.n_iter_ >= model.max_iter else ""
    return Result(
        method.name,
        float(np.mean(truth[hidden] == clusters[hidden]))
        if named
        else clustering_accuracy(truth[hidden], clusters[hidden]),
        normalized_mutual_info(truth[hidden], clusters[hidden]),
        seconds,
        int(model.n_iter_),
        method.loss,
        float(objective),
        parts,
        tuple(getattr(model, "objective_history_", ())),
        getattr(model, "status_", limit),
    )


def page(outcome: Score) -> str:
    """The outcome as one self-contained HTML page."""
    dataset, results = outcome.dataset, outcome.results
    assert dataset.image_shape is not None
    height, width = dataset.image_shape
    histories = {row.name: row.history for row in results if len(row.history) > 1}
    return report.render(
        "demo.html",
        results=results,
        best=max(results, key=lambda row: row.accuracy).name,
        remarks=[(row.name, row.remark) for row in results if row.remark],
        pictures={
            row.name: [report.image_uri(part) for part in dataset.images(row.parts)]
            for row in results
        },
        convergence=report.convergence_uri(histories) if histories else None,
        n_samples=dataset.X.shape[0],
        n_components=outcome.n_components,
        height=height,
        width=width,
        seed=outcome.seed,
        scored=f"{outcome.scored} {outcome.why}".strip(),
        example=EXAMPLE,
        versions=versions(),
        machine=f"{sys.platform}, {platform.machine()}, {os.cpu_count()} cores",
    )
