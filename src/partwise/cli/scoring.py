"""Names on labels that a method has not seen: for `partwise compare`."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from partwise.cli import work
from partwise.estimators.methods import METHODS
from partwise.evaluation.held_out import label_folds

#: Folds of a cross-validation over given labels.
FOLDS = 5
#: Seconds after which further methods are left out, unless they were asked for.
PATIENCE = 180.0
#: What a user would pick instead: always beside ours.
BASELINES = ("logistic-regression", "linear-svc", "label-spreading")


class Rounds:
    """Which labels a method sees and on which it is scored, round by round.

    Where some labels in the data were kept from the methods there is one round; else the given
    ones are held out in turn, all but the only label of a class.
    """

    def __init__(self, task: work.Task, seed: int) -> None:
        given = np.asarray(task.given, dtype=object)
        truth = given if task.samples.y is None else np.asarray(task.samples.y, dtype=object)
        self.truth = np.array([None if v is None else str(v) for v in truth], dtype=object)
        known = np.array([v is not None for v in given])
        hidden = np.array([v is not None for v in self.truth]) & ~known
        self.cross = not hidden.any()
        if not self.cross:
            self.rounds = [(given, np.flatnonzero(hidden))]
            return
        names = np.array([str(v) for v in given[known]])
        fold = label_folds(names, FOLDS, np.random.RandomState(seed))
        rows = np.flatnonzero(known)
        self.rounds = []
        for f in range(int(fold.max()) + 1 if fold.size else 0):
            out = rows[fold == f]
            seen = given.copy()
            seen[out] = None
            self.rounds.append((seen, out))

    @property
    def n_scored(self) -> int:
        return sum(out.size for _, out in self.rounds)

    def said(self, n_labels: int) -> str:
        """One sentence for the head of the table."""
        if not self.cross:
            return f"Right names among the {self.n_scored} labels that the methods have not seen."
        return (
            f"Right names of {self.n_scored} of the {n_labels} labels, each held out once "
            f"({len(self.rounds)} rounds)."
        )

    def right(self, run: Callable[[Any], Any]) -> np.ndarray:
        """For every scored label whether its name was right; ``run`` maps labels seen to names."""
        found = []
        for seen, out in self.rounds:
            names = np.array([str(name) for name in np.asarray(run(seen), dtype=object)[out]])
            found.append(names == self.truth[out])
        return np.concatenate(found)


def default_methods(names: list[str]) -> list[str]:
    """Ours that labels steer, the best first, and what a user would pick instead."""
    ours = [name for name in names if name in METHODS and METHODS[name].uses_labels]
    return [*ours[:1], *BASELINES, *ours[1:]]


def runner(
    task: work.Task, name: str, k: int, parts: int | None, seed: int, max_iter: int
) -> Callable[[Any], Any]:
    """Names of all samples from the labels that a method may see."""
    X = task.samples.X
    if name in BASELINES:
        return lambda seen: _baseline(name, X, seen)

    def run(seen: Any) -> Any:
        if name == "k-means":
            from partwise.evaluation.kmeans import cluster_representation
            from partwise.knowledge.labels import encode_labels

            labels = encode_labels(seen, X.shape[0])
            return cluster_representation(
                _dense(X, k, seed), k, labels=labels, random_state=seed
            ).labels
        model = work.build(task, name, k=k, parts=parts, seed=seed, max_iter=max_iter)[0]
        return model.fit(X, seen).labels_

    return run


def _dense(X: Any, k: int, seed: int) -> Any:
    """X, or where it is sparse the clusters of k-means as codes, which then only get names."""
    if not hasattr(X, "toarray"):
        return X
    from sklearn.cluster import KMeans

    return np.eye(k)[KMeans(k, n_init=20, random_state=seed).fit_predict(X)]


def _baseline(name: str, X: Any, seen: Any) -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.semi_supervised import LabelSpreading
    from sklearn.svm import LinearSVC

    known = np.array([v is not None for v in seen])
    classes, codes = np.unique([str(v) for v in seen[known]], return_inverse=True)
    if classes.size == 1:
        return np.full(X.shape[0], classes[0], dtype=object)
    if name == "label-spreading":
        y = np.full(X.shape[0], -1)
        y[known] = codes
        neighbors = min(7, X.shape[0] - 1)
        return classes[LabelSpreading(kernel="knn", n_neighbors=neighbors).fit(X, y).transduction_]
    model = LogisticRegression(C=10, max_iter=500) if name != "linear-svc" else LinearSVC()
    return classes[model.fit(X[known], codes).predict(X)]


def compare_names(
    task: work.Task,
    names: list[str],
    rounds: Rounds,
    make: Callable[[str], Callable[[Any], Any]],
    step: Callable[[int, int, str], None],
    *,
    patient: bool,
) -> list[dict[str, Any]]:
    """A row for each method: share of right names, its standard error, seconds, a note."""
    rows, began = [], time.perf_counter()
    for number, name in enumerate(names):
        step(number, len(names), f"comparing ({name})")
        row: dict[str, Any] = {"method": name, "right_name": None, "error": None, "seconds": None}
        row["note"] = ""
        rows.append(row)
        if not patient and time.perf_counter() - began > PATIENCE:
            row["note"] = f"left out after {PATIENCE / 60:.0f} minutes; --methods {name} runs it"
            continue
        start = time.perf_counter()
        try:
            with work.as_notes([]):
                right = rounds.right(make(name))
        except (ValueError, ImportError) as error:
            row["note"] = " ".join(str(error).split())
            continue
        share = float(right.mean())
        row["right_name"] = round(share, 4)
        row["error"] = round(float(np.sqrt(share * (1 - share) / right.size)), 4)
        row["seconds"] = round(time.perf_counter() - start, 3)
        row["right"] = right
    step(len(names), len(names), "comparing")
    return rows


def too_close(rows: list[dict[str, Any]]) -> str:
    """A sentence on methods that these labels cannot tell from the best one; "" if there are none.

    Two methods are told apart where one is right on more of the labels on which they differ than a
    fair coin would be in 19 of 20 cases.
    """
    scored = sorted(
        (row for row in rows if row["right_name"] is not None), key=lambda row: -row["right_name"]
    )
    if len(scored) < 2:
        return ""
    best, close = scored[0], []
    for row in scored[1:]:
        better = int((best["right"] & ~row["right"]).sum())
        worse = int((row["right"] & ~best["right"]).sum())
        if better - worse < 1.96 * np.sqrt(better + worse) or better + worse < 6:
            close.append(row["method"])
    if not close:
        return ""
    n = best["right"].size
    return (
        f"{n} labels are too few to tell {best['method']} from {', '.join(close)}; more labels "
        "would."
    )
