"""The command ``demo``: parts of handwritten digits, by many methods.

All methods use the same data and are scored on the same samples. If a method uses labels, only
unlabelled samples are scored.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numba
import numpy as np
import sklearn.decomposition
from rich.console import Console
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from partwise._versions import versions
from partwise.apps.cli.options import Asked
from partwise.apps.cli.progress_bar import Bar
from partwise.apps.view import report
from partwise.estimators.methods import METHODS as TABLE
from partwise.evaluation.kmeans import cluster_representation
from partwise.evaluation.metrics import clustering_accuracy, normalized_mutual_info
from partwise.io.datasets import Dataset, keep_labels, load, unit_rows
from partwise.persistence.atomic import check_target, write_whole

N_COMPONENTS = 10
LABELS_PER_CLASS = 5
SEED = 0
#: Number of digits and of iterations if NUMBA_DISABLE_JIT is set, because kernels are then slow.
FEW_DIGITS, FEW_ITERATIONS = 200, 10
HEADING = f"{'method':<22}{'AC':>7}{'NMI':>7}{'seconds':>9}"


@dataclass(frozen=True)
class Shown:
    """A method of the demonstration.

    ``make`` returns its estimator for a number of components and a seed; ``loss`` describes what it
    minimises.
    """

    name: str
    make: Callable[[int, int], Any]
    loss: str = "squares"
    takes_labels: bool = False


def _ours(name: str) -> Shown:
    """Return a method of Partwise for the demonstration."""
    method = TABLE[name]

    def make(k: int, seed: int) -> Any:  # the classifier chooses its number of parts itself
        """Return the estimator of the method for k components and a random seed."""
        return method.make(None if method.names else k, n_clusters=k, seed=seed)

    loss = "KL" if method.settings.get("beta_loss") == "kullback-leibler" else "squares"
    return Shown(name, make, loss, method.uses_labels)


METHODS: tuple[Shown, ...] = (
    _ours("classify"),
    Shown("k-means on pixels", lambda k, seed: KMeans(k, n_init=20, random_state=seed)),
    Shown(
        "NMF of scikit-learn",
        lambda k, seed: sklearn.decomposition.NMF(k, init="nndsvda", random_state=seed),
    ),
    *map(_ours, ("nmf", "nmf-kl", "nsnmf", "cf", "lcf", "gnmf")),
    *map(_ours, ("cnmf", "nmfdc", "cdnmf", "semignmf", "combined")),
)

EXAMPLE = """\
from partwise import PartsClassifier
from partwise.datasets import keep_labels, load

digits = load("digits")
y = keep_labels(digits.y, 5, random_state=0)  # five labels per class, -1 for all others
model = PartsClassifier(random_state=0).fit(digits.X, y)
labels, hidden = model.transduction_, y == -1
print(model.expected_accuracy_, (labels[hidden] == digits.y[hidden]).mean())
"""


@dataclass(frozen=True)
class Result:
    """Scores of one method.

    `objective` is ½‖X - WH‖² or the KL divergence, with penalties.
    """

    name: str
    accuracy: float
    nmi: float
    seconds: float
    iterations: int
    loss: str
    objective: float
    remark: str
    parts: np.ndarray = field(repr=False)
    history: Sequence[float] = field(repr=False)


@dataclass(frozen=True)
class Score:
    """Scores of all methods, with the data and settings that they share."""

    results: tuple[Result, ...]
    dataset: Dataset = field(repr=False)
    scored: str

    def _row(self, name: str) -> Any:
        """Return the result of the method with this name, or None."""
        return next((row for row in self.results if row.name == name), None)

    @property
    def lead(self) -> str:
        """Sentence that compares the classifier with scikit-learn's NMF, or ""."""
        ours, theirs = self._row("classify"), self._row("NMF of scikit-learn")
        if ours is None or theirs is None:
            return ""
        return (
            f"With {LABELS_PER_CLASS} labels per class, Partwise labels {ours.accuracy:.1%} of the "
            "other digits correctly. Clusters of scikit-learn's NMF without labels match "
            f"{theirs.accuracy:.1%}."
        )

    @property
    def why(self) -> str:
        """Sentence about why k-means on pixels is better than plain NMF, or ""."""
        pixels, plain = self._row("k-means on pixels"), self._row("nmf")
        if pixels is None or plain is None or pixels.accuracy <= plain.accuracy:
            return ""
        X = unit_rows(self.dataset.X)
        kept = 1 - 2 * plain.objective / float(((X - X.mean(axis=0)) ** 2).sum())
        return (
            f"k-means on pixels beats plain NMF here, since {N_COMPONENTS} parts keep {kept:.0%} "
            "of the variance of the pixels, and parts that overlap do not keep distances. A graph "
            "or labels make up for this loss."
        )


def run(
    methods: Sequence[Shown] | None = None,
    *,
    dataset: Dataset | None = None,
    step: Callable[[int, str], None] = lambda done, name: None,
    seen: Callable[[Result], None] = lambda row: None,
) -> Score:
    """Run every method of a list, by default `METHODS`, and return the scores.

    `step` is called with the number of finished methods and the name of the next one. `seen` is
    called with each result as soon as it is computed.
    """
    methods = METHODS if methods is None else methods
    slow = dataset is None and bool(numba.config.DISABLE_JIT)  # type: ignore[attr-defined]
    dataset = load("digits") if dataset is None else dataset
    assert dataset.y is not None
    if slow:
        dataset = replace(dataset, X=dataset.X[:FEW_DIGITS], y=dataset.y[:FEW_DIGITS])
    X, truth = unit_rows(dataset.X), np.asarray(dataset.y)
    known = keep_labels(truth, LABELS_PER_CLASS, random_state=SEED)
    hidden = np.ones(len(known), dtype=bool)
    scored = f"Scored on all {len(known)} samples."
    if any(method.takes_labels for method in methods):
        hidden = known == -1
        scored = (
            f"Methods that use labels get {LABELS_PER_CLASS} per class; "
            f"all are scored on the other {hidden.sum()} samples."
        )
    if slow:
        scored += (
            f" NUMBA_DISABLE_JIT is set, so only {FEW_DIGITS} digits and {FEW_ITERATIONS} "
            "iterations are used."
        )
    results = []
    # Such small products gain nothing from threads, and can take minutes while other programs run.
    with threadpool_limits(1, user_api="blas"):
        for done, method in enumerate(methods):
            step(done, method.name)
            y = known if method.takes_labels else None
            results.append(_one(method, X, y, truth, hidden, slow))
            seen(results[-1])
    step(len(methods), "")
    return Score(tuple(results), dataset, scored)


def _one(
    method: Shown, X: np.ndarray, y: Any, truth: np.ndarray, hidden: np.ndarray, slow: bool
) -> Result:
    """Return the scores of one method."""
    model = method.make(N_COMPONENTS, SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the result's remark reports it
        if slow:
            # Python's version of kernels warns about intended overflow
            warnings.simplefilter("ignore", RuntimeWarning)
            model.set_params(max_iter=FEW_ITERATIONS)
        else:  # compiles kernels, not timed
            method.make(N_COMPONENTS, SEED).set_params(max_iter=20).fit(X, y)
        start = time.perf_counter()
        V = model.fit_transform(X, y)
        seconds = time.perf_counter() - start
    named = hasattr(model, "predict_proba")
    if named:
        clusters, parts, objective = model.transduction_, model.components_, model.objective_
    elif isinstance(model, KMeans):
        clusters, parts, objective = model.labels_, model.cluster_centers_, model.inertia_ / 2
    else:
        clusters = cluster_representation(V, N_COMPONENTS, random_state=SEED).labels
        parts = model.components_
        # scikit-learn reports sqrt(2 * divergence) for every loss
        objective = getattr(model, "objective_", None)
        objective = model.reconstruction_err_**2 / 2 if objective is None else objective
    limit = f"stopped at max_iter={model.max_iter}" if model.n_iter_ >= model.max_iter else ""
    matches = clustering_accuracy(truth[hidden], clusters[hidden])
    return Result(
        name=method.name,
        accuracy=float(np.mean(truth[hidden] == clusters[hidden])) if named else matches,
        nmi=normalized_mutual_info(truth[hidden], clusters[hidden]),
        seconds=seconds,
        iterations=int(model.n_iter_),
        loss=method.loss,
        objective=float(objective),
        remark=getattr(model, "status_", limit),
        parts=parts[:N_COMPONENTS],  # a classifier has more parts than are shown
        history=tuple(getattr(model, "objective_history_", ())),
    )


def page(outcome: Score) -> str:
    """Return the scores and pictures of parts as one self-contained HTML page."""
    dataset, results = outcome.dataset, outcome.results
    assert dataset.image_shape is not None
    height, width = dataset.image_shape
    histories = {row.name: row.history for row in results if len(row.history) > 1}
    pictures = {
        row.name: [report.image_uri(part) for part in dataset.images(row.parts)] for row in results
    }
    return report.render(
        "demo.html",
        results=results,
        best=max(results, key=lambda row: row.accuracy).name,
        lead=outcome.lead,
        pictures=pictures,
        convergence=report.convergence_uri(histories) if histories else None,
        n_samples=dataset.X.shape[0],
        n_components=N_COMPONENTS,
        height=height,
        width=width,
        seed=SEED,
        scored=f"{outcome.scored} {outcome.why}".strip(),
        example=EXAMPLE,
        versions=versions(),
        machine=f"{sys.platform}, {platform.machine()}, {os.cpu_count()} cores",
    )


# -- the command `partwise demo` ------------------------------------------------------------------


def run_demo(asked: Asked) -> None:
    """Run all methods, write the page and print the scores."""
    out = asked.out
    check_target(out, force=asked.force)
    console = Console()
    piped = not (asked.as_json or console.is_terminal)
    with Bar(Console(stderr=True)) as bar:
        if piped:
            print(HEADING, flush=True)
        outcome = run(
            step=lambda done, name: bar.step(done, len(METHODS), name),
            seen=_line if piped else lambda row: None,
        )
    write_whole(out, page(outcome), force=asked.force)
    if asked.as_json:
        columns = [f.name for f in fields(Result) if f.repr]
        summary = {
            "data": outcome.dataset.name,
            "n_components": N_COMPONENTS,
            "seed": SEED,
            "scored": outcome.scored,
            "methods": [{c: getattr(row, c) for c in columns} for row in outcome.results],
            "page": str(out),
        }
        print(json.dumps(summary, indent=2))
        return
    if not piped:
        print(HEADING)
        for row in outcome.results:
            _line(row)
    for text in filter(None, (outcome.scored, outcome.why, f"Wrote {out}")):
        console.print(text, highlight=False, soft_wrap=piped or text.startswith("Wrote"))


def _line(row: Result) -> None:
    """Print the scores of one method as soon as they are computed.

    This is used if the output is not a terminal, which would show the progress.
    """
    scores = f"{row.accuracy:>7.3f}{row.nmi:>7.3f}{row.seconds:>9.2f}"
    print(f"{row.name:<22}{scores}", flush=True)
