"""The commands ``compare``, ``methods`` and ``datasets``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from sklearn.cluster import KMeans

from partwise.apps.cli import outputs, work
from partwise.apps.cli.auto_method import choose, profile
from partwise.apps.cli.progress_bar import Bar
from partwise.estimators.methods import METHODS
from partwise.evaluation.held_out import label_folds
from partwise.evaluation.kmeans import cluster_representation
from partwise.evaluation.metrics import adjusted_rand
from partwise.io.sheets import csv_text
from partwise.knowledge.labels import encode_labels
from partwise.persistence.atomic import check_target, write_whole

#: Columns of the table for methods that cluster, and for methods that classify.
COLUMNS: tuple[str, ...] = (
    "method", "matched_accuracy", "nmi", "ari", "stability", "seconds", "note",
)  # fmt: skip
CLASSIFIED: tuple[str, ...] = ("method", "accuracy", "standard_error", "seconds", "note")
#: Number of folds of a cross-validation over given labels.
FOLDS = 5
#: Seconds after which the methods that were not named by --methods are left out.
PATIENCE = 180.0
#: Baselines that every comparison of classifiers includes.
BASELINES = ("logistic-regression", "linear-svc", "label-spreading")
#: Suffix of a baseline that uses the embeddings instead of the data.
ON_EMBEDDINGS = "-on-embeddings"


def run_methods(*, as_json: bool) -> None:
    """Print the table of methods."""
    if as_json:
        rows = [
            {
                "name": m.name,
                "estimator": m.estimator,
                "settings": dict(m.settings),
                "labels": m.uses_labels,
                "negative_values": m.signed,
                "when": m.when,
            }
            for m in METHODS.values()
        ]
        print(json.dumps(rows, indent=2))
        return
    table = outputs.plain_table("--method!", "when", "labels", "in Python")
    for m in METHODS.values():
        table.add_row(m.name, m.when, "yes" if m.uses_labels else "", m.in_python)
    console = Console(markup=False, highlight=False)
    console.print(table)
    console.print(
        "--method auto chooses by labels, signs, counts and size, and reports the reason."
    )


def run_datasets(data_home: Path | None, *, as_json: bool) -> None:
    """Print the table of data sets."""
    from partwise.io.datasets import available
    from partwise.io.datasets.catalogue import CATALOGUE

    found = available(data_home)
    if as_json:
        rows = [
            {"name": name, "description": entry.description, "found": found[name]}
            for name, entry in CATALOGUE.items()
        ]
        print(json.dumps(rows, indent=2))
        return
    table = outputs.plain_table("name!", "what it is", "found in")
    for name, entry in CATALOGUE.items():
        table.add_row(name, entry.description, found[name] or f"absent; from {entry.get_from}")
    Console(markup=False).print(table)


def run_compare(
    data: str,
    *,
    out: Path | None,
    methods: str | None,
    k: int | str | None,
    parts: int | None,
    label_share: float | None,
    seed: int,
    runs: int,
    max_iter: int,
    force: bool,
    as_json: bool,
    reading: dict[str, Any],
) -> None:
    """Compare methods by accuracy on held-out labels, or without labels by stability."""
    if out is not None:
        check_target(out, force=force)
    with Bar(Console(stderr=True)) as bar:
        task = work.read_task(data, bar, label_share=label_share, seed=seed, reading=reading)
        size = work.n_clusters(task, k, bar, seed=seed)
        names = _names(methods, task)
        found = profile(task.samples.X, task.given, kind=task.samples.kind)
        chosen = choose(found, size).method
        rounds = Rounds(task, seed) if task.n_labelled else None
        if rounds is not None and rounds.n_scored:
            columns, scored = CLASSIFIED, rounds.sentence(task.n_labelled)
            names = names if methods is not None else default_methods(names, task)
            rows = _rows(
                names,
                columns,
                lambda name: _accuracy(rounds, runner(task, name, size, parts, seed, max_iter)),
                bar.step,
                patient=methods is not None,
            )
            task.notes += [note for note in [too_close(rows)] if note]
        else:
            columns, scored = COLUMNS, _unscored(task)
            rows = _rows(
                names,
                columns,
                lambda name: _agreement(task, name, size, parts, seed, runs, max_iter),
                bar.step,
            )
    if task.samples.also is not None:
        task.notes.append(
            "Only classify uses both views; the other methods use the first one, or the embeddings "
            f"where their name ends in {ON_EMBEDDINGS}."
        )
    rows = [{c: row[c] for c in columns} for row in rows]
    if out is not None:
        cells = [["" if row[c] is None else row[c] for c in columns] for row in rows]
        write_whole(out, csv_text(columns, cells), force=force)
    if as_json:
        result = {"scored": scored, "auto": chosen, "runs": runs, "methods": rows}
        print(outputs.as_json({**result, "notes": task.notes}))
        return
    _print(rows, columns, scored, chosen, runs)
    outputs.say_notes(task.notes)
    if out is not None:
        print(f"Wrote {out}")


def _names(methods: str | None, task: work.Task) -> list[str]:
    """Return the names in --methods, or all methods that can use the data."""
    if methods is not None:
        names = [name.strip() for name in methods.split(",") if name.strip()]
        for name in names:
            if name.removesuffix(ON_EMBEDDINGS) not in ("k-means", *BASELINES):
                work.find_method(name)
            elif name.endswith(ON_EMBEDDINGS) and task.samples.also is None:
                raise ValueError(f"{name} needs --embeddings.")
        return names
    negative = profile(task.samples.X).lowest < 0
    fits = [
        m.name
        for m in METHODS.values()
        if (m.signed or not negative)
        and (task.n_labelled or not m.uses_labels)
        and not (m.images or m.square)
    ]
    return ["k-means", *fits]


def _unscored(task: work.Task) -> str:
    """Describe the scores of methods that cluster."""
    if task.given is None and task.samples.y is not None:
        return "Scored on all labels in the data, which the methods did not use."
    if task.n_labelled:
        task.notes.append("Each class has one label, so no label can be held out.")
        return "All labels were used, so methods are compared by their stability."
    return "There are no labels, so methods are compared by their stability."


def _rows(
    names: list[str],
    columns: Sequence[str],
    score: Callable[[str], dict[str, Any]],
    step: Callable[[int, int, str], None],
    *,
    patient: bool = True,
) -> list[dict[str, Any]]:
    """Return a row per method with its scores, or with a note that explains why it has none."""
    rows, began = [], time.perf_counter()
    for number, name in enumerate(names):
        step(number, len(names), f"comparing ({name})")
        row = dict.fromkeys(columns) | {"method": name, "note": ""}
        rows.append(row)
        if not patient and time.perf_counter() - began > PATIENCE:
            row["note"] = (
                f"left out after {PATIENCE / 60:.0f} minutes; use --methods {name} to run it"
            )
            continue
        try:
            with work.as_notes([]):
                row |= score(name)
        except (ValueError, ImportError) as error:
            row["note"] = " ".join(str(error).split())
    step(len(names), len(names), "comparing")
    return rows


def _agreement(
    task: work.Task, name: str, k: int, parts: int | None, seed: int, runs: int, max_iter: int
) -> dict[str, Any]:
    """Return mean scores over runs with different seeds, and how well the runs agree."""
    found, seconds = [], []
    for run in range(runs):
        began = time.perf_counter()
        found.append(_clusters(task, name, k, parts, seed + run, max_iter, fresh=run > 0))
        seconds.append(time.perf_counter() - began)
    results = [work.scores(task.samples.y, task.given, clusters) for clusters in found]
    scored = [result for result in results if result is not None]
    means = {
        key: round(float(np.mean([result[key] for result in scored])), 4)
        for key in ("matched_accuracy", "nmi", "ari")
        if scored
    }
    return {**means, "stability": _stability(found), "seconds": round(float(np.median(seconds)), 3)}


def _clusters(
    task: work.Task, name: str, k: int, parts: int | None, seed: int, max_iter: int, *, fresh: bool
) -> Any:
    """Return the clusters of one run; ``fresh`` draws a start if the usual one is fixed."""
    X = task.samples.X
    if name == "k-means":
        return KMeans(k, n_init=20, random_state=seed).fit_predict(X)
    model, _, _ = work.build(task, name, k=k, parts=parts, seed=seed, max_iter=max_iter)
    if fresh and getattr(model, "init", "") is None:
        model.set_params(init="random")
    return model.fit_predict(X, task.given)


def _stability(found: list[Any]) -> float | None:
    if len(found) < 2:
        return None
    texts = [[str(name) for name in clusters] for clusters in found]
    return round(float(np.mean([adjusted_rand(a, b) for a, b in combinations(texts, 2)])), 4)


def _print(
    rows: list[dict[str, Any]], columns: tuple[str, ...], scored: str, chosen: str, runs: int
) -> None:
    shown = [c for c in columns if c == "method" or any(row[c] not in (None, "") for row in rows)]
    marks = {"method": "!", "note": ""}
    table = outputs.plain_table(*(f"{column}{marks.get(column, '>')}" for column in shown))
    key = next((c for c in ("accuracy", "matched_accuracy") if c in shown), columns[1])
    key = key if key in shown else "stability"
    for row in sorted(rows, key=lambda row: -(row[key] if row[key] is not None else -1)):
        mark = " (auto)" if row["method"] == chosen else ""
        cells = [row["method"] + mark]
        for column in shown[1:]:
            value = row[column]
            cells.append(
                "" if value is None else value if isinstance(value, str) else f"{value:.2f}"
            )
        table.add_row(*cells)
    console = outputs.printer()
    console.print(scored)
    console.print(table)
    if columns is COLUMNS and runs > 1:
        console.print(f"Means of {runs} runs. Stability is their mean adjusted Rand index.")


# -- accuracy on held-out labels ------------------------------------------------------------------


class Rounds:
    """The labels that a method sees, and those that it is scored on, in each round.

    If some labels in the data were hidden from the methods, there is one round. Otherwise the given
    labels are held out in turn, except for the only label of a class.
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

    def sentence(self, n_labels: int) -> str:
        """Describe the scored labels."""
        if not self.cross:
            return f"Accuracy on the {self.n_scored:,} labels that the methods did not see."
        return (
            f"Accuracy on {self.n_scored:,} of the {n_labels:,} labels, each held out once "
            f"({len(self.rounds)} rounds)."
        )

    def right(self, run: Callable[[Any], Any]) -> np.ndarray:
        """Return whether each scored label was predicted by ``run`` from the other labels."""
        found = []
        for seen, out in self.rounds:
            names = np.array([str(name) for name in np.asarray(run(seen), dtype=object)[out]])
            found.append(names == self.truth[out])
        return np.concatenate(found)


def default_methods(names: list[str], task: work.Task) -> list[str]:
    """Return the best method with labels, the baselines, then the other methods with labels."""
    ours = [name for name in names if name in METHODS and METHODS[name].uses_labels]
    second = [name + ON_EMBEDDINGS for name in BASELINES if task.samples.also is not None]
    return [*ours[:1], *BASELINES, *second, *ours[1:]]


def runner(
    task: work.Task, name: str, k: int, parts: int | None, seed: int, max_iter: int
) -> Callable[[Any], Any]:
    """Return a function that predicts labels of all samples from those that it sees."""
    X = task.samples.X
    if name.removesuffix(ON_EMBEDDINGS) in BASELINES:
        Z = task.samples.also if name.endswith(ON_EMBEDDINGS) else X
        return lambda seen: _baseline(name.removesuffix(ON_EMBEDDINGS), Z, seen)

    def run(seen: Any) -> Any:
        if name == "k-means":
            labels = encode_labels(seen, X.shape[0])
            return cluster_representation(
                _dense(X, k, seed), k, labels=labels, random_state=seed
            ).labels
        model = work.build(task, name, k=k, parts=parts, seed=seed, max_iter=max_iter)[0]
        both = work.beside(model, task.samples) if hasattr(model, "relabel") else {}
        return model.fit(X, seen, **both).labels_

    return run


def _dense(X: Any, k: int, seed: int) -> Any:
    """Return X, or for a sparse X the indicators of its k-means clusters."""
    if not hasattr(X, "toarray"):
        return X
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


def _accuracy(rounds: Rounds, run: Callable[[Any], Any]) -> dict[str, Any]:
    """Return accuracy, standard error, seconds, and whether each scored label was correct."""
    began = time.perf_counter()
    right = rounds.right(run)
    share = float(right.mean())
    return {
        "accuracy": round(share, 4),
        "standard_error": round(float(np.sqrt(share * (1 - share) / right.size)), 4),
        "seconds": round(time.perf_counter() - began, 3),
        "right": right,
    }


def too_close(rows: list[dict[str, Any]]) -> str:
    """Return a sentence on methods that do not differ significantly from the best one, or "".

    Two methods differ if the labels that only one of them predicts correctly are divided more
    unevenly than by a fair coin in 95% of cases.
    """
    scored = sorted(
        (row for row in rows if row["accuracy"] is not None), key=lambda row: -row["accuracy"]
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
    return f"{n} labels are too few to separate {best['method']} from {', '.join(close)}."
