"""The commands ``compare``, ``methods`` and ``datasets``."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from rich.console import Console
from sklearn.cluster import KMeans

from partwise.apps.cli import outputs, work
from partwise.apps.cli.auto_method import choose, profile
from partwise.apps.cli.options import Asked, names_of
from partwise.apps.cli.progress_bar import Bar
from partwise.estimators.methods import METHODS
from partwise.evaluation.held_out import label_folds
from partwise.evaluation.kmeans import cluster_representation
from partwise.evaluation.metrics import adjusted_rand
from partwise.io._common import lowest
from partwise.io.sheets import csv_text
from partwise.knowledge.labels import encode_labels
from partwise.persistence.atomic import check_target, write_whole

#: Columns of the comparison table, for clustering methods and for classifiers.
COLUMNS: tuple[str, ...] = (
    "method", "matched_accuracy", "nmi", "ari", "stability", "seconds", "note",
)  # fmt: skip
CLASSIFIED: tuple[str, ...] = ("method", "accuracy", "standard_error", "seconds", "note")
#: Number of cross-validation folds over the given labels.
FOLDS = 5
#: Seconds after which remaining methods are left out, unless --methods lists them.
PATIENCE = 180.0
#: Baselines that every comparison of classifiers includes.
BASELINES = ("logistic-regression", "linear-svc", "label-spreading")
#: Suffix in the name of a baseline that uses embeddings instead of the data.
ON_EMBEDDINGS = "-on-embeddings"


def run_methods(asked: Asked) -> None:
    """Print the table of methods for the command ``methods``."""
    if asked.as_json:
        fields = {"name": "name", "estimator": "estimator", "settings": "settings"}
        fields |= {"uses_labels": "labels", "signed": "negative_values", "when": "when"}
        rows = [{key: getattr(m, name) for name, key in fields.items()} for m in METHODS.values()]
        print(json.dumps(rows, indent=2, default=dict))
        return
    table = outputs.plain_table("--method!", "when", "labels", "in Python")
    for m in METHODS.values():
        table.add_row(m.name, m.when, "yes" if m.uses_labels else "", m.in_python)
    console = Console(markup=False, highlight=False)
    console.print(table)
    console.print(
        "--method auto chooses by labels, signs, counts and size, and reports the reason."
    )


def run_datasets(asked: Asked) -> None:
    """Print the table of public data sets for the command ``datasets``."""
    from partwise.io.datasets import available
    from partwise.io.datasets.catalogue import CATALOGUE

    found = available(asked.data_home)
    if asked.as_json:
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


def run_compare(asked: Asked) -> None:
    """Compare methods by accuracy on held-out labels, or by stability without labels."""
    if asked.out is not None:
        check_target(asked.out, force=asked.force)
    with Bar(Console(stderr=True)) as bar:
        task = work.read_task(asked, bar)
        size = work.n_clusters(task, asked, bar, k=asked.k)
        names = _names(asked.methods, task)
        found = profile(task.samples.X, task.given, kind=task.samples.kind)
        chosen = choose(found, size).method
        rounds = _rounds(task, asked.seed) if task.n_labelled else None
        if rounds is not None and rounds.rounds:
            columns, scored, patience = CLASSIFIED, rounds.scored, np.inf
            if asked.methods is None:
                names, patience = default_methods(names, task), PATIENCE
            run = partial(_accuracy, rounds, task, asked, size)
            rows = _rows(names, columns, run, bar.step, patience)
            task.notes += too_close(rows)
        else:
            columns, scored = COLUMNS, _unscored(task)
            rows = _rows(names, columns, partial(_agreement, task, asked, size), bar.step, np.inf)
    if task.samples.also is not None:
        task.notes.append(
            "Only classify uses both views; the other methods use the first one, or the embeddings "
            f"where their name ends in {ON_EMBEDDINGS}."
        )
    rows = [{c: row[c] for c in columns} for row in rows]
    if asked.out is not None:
        cells = [["" if row[c] is None else row[c] for c in columns] for row in rows]
        write_whole(asked.out, csv_text(columns, cells), force=asked.force)
    if asked.as_json:
        result = {"scored": scored, "auto": chosen, "runs": asked.runs, "methods": rows}
        print(outputs.as_json({**result, "notes": task.notes}))
        return
    _print(rows, columns, scored, chosen, asked.runs)
    outputs.say_notes(task.notes)
    if asked.out is not None:
        print(f"Wrote {asked.out}")


def _names(methods: str | None, task: work.Task) -> list[str]:
    """Return the methods listed in --methods, or all methods that accept the data."""
    if methods is None:
        negative = lowest(task.samples.X) < 0
        fits = ["k-means"]
        for m in METHODS.values():
            usable = (m.signed or not negative) and (task.n_labelled or not m.uses_labels)
            if usable and not (m.images or m.square):
                fits.append(m.name)
        return fits
    names = list(names_of(methods))
    for name in names:
        if name.removesuffix(ON_EMBEDDINGS) not in ("k-means", *BASELINES):
            work.find_method(name)
        elif name.endswith(ON_EMBEDDINGS) and task.samples.also is None:
            raise ValueError(f"{name} needs --embeddings.")
    return names


def _unscored(task: work.Task) -> str:
    """Return a sentence about how clustering methods are compared."""
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
    patience: float,
) -> list[dict[str, Any]]:
    """Return one row per method with its scores, or a note about why it has no scores.

    If ``patient`` is false, methods are left out after `PATIENCE` seconds.
    """
    rows, began = [], time.perf_counter()
    for number, name in enumerate(names):
        step(number, len(names), f"comparing ({name})")
        row = dict.fromkeys(columns) | {"method": name, "note": ""}
        rows.append(row)
        if time.perf_counter() - began > patience:
            row["note"] = f"left out after {patience / 60:.0f} minutes; use --methods {name}"
            continue
        try:
            with work.as_notes([]):
                row |= score(name)
        except (ValueError, ImportError) as error:
            row["note"] = " ".join(str(error).split())
    step(len(names), len(names), "comparing")
    return rows


def _agreement(task: work.Task, asked: Asked, k: int, name: str) -> dict[str, Any]:
    """Return mean scores over runs with different seeds, and their agreement."""
    found, seconds = [], []
    for run in range(asked.runs):
        began = time.perf_counter()
        found.append(_clusters(task, asked, k, name, run))
        seconds.append(time.perf_counter() - began)
    results = [work.scores(task.samples.y, task.given, clusters) for clusters in found]
    scored = [result for result in results if result is not None]
    means = {
        key: round(float(np.mean([result[key] for result in scored])), 4)
        for key in ("matched_accuracy", "nmi", "ari")
        if scored
    }
    pairs = list(combinations([[str(name) for name in clusters] for clusters in found], 2))
    stable = round(float(np.mean([adjusted_rand(a, b) for a, b in pairs])), 4) if pairs else None
    return {**means, "stability": stable, "seconds": round(float(np.median(seconds)), 3)}


def _clusters(task: work.Task, asked: Asked, k: int, name: str, run: int) -> Any:
    """Return the clusters of one run of a method.

    ``fresh`` uses random initial values instead of deterministic ones.
    """
    X = task.samples.X
    if name == "k-means":
        return KMeans(k, n_init=20, random_state=asked.seed + run).fit_predict(X)
    model = work.build(task, name, asked, k, seed=asked.seed + run)[0]
    if run > 0 and getattr(model, "init", "") is None:
        model.set_params(init="random")
    return model.fit_predict(X, task.given)


def _print(
    rows: list[dict[str, Any]], columns: tuple[str, ...], scored: str, chosen: str, runs: int
) -> None:
    """Print the table of methods, sorted by their main score."""
    shown = [c for c in columns if c == "method" or any(row[c] not in (None, "") for row in rows)]
    marks = {"method": "!", "note": ""}
    table = outputs.plain_table(*(f"{column}{marks.get(column, '>')}" for column in shown))
    keys = ("accuracy", "matched_accuracy", "stability")
    key = next((c for c in keys if c in shown), "seconds")
    for row in sorted(rows, key=lambda row: -1 if row[key] is None else row[key], reverse=True):
        mark = " (auto)" if row["method"] == chosen else ""
        table.add_row(row["method"] + mark, *(_cell(row[column]) for column in shown[1:]))
    console = outputs.printer()
    console.print(scored)
    console.print(table)
    if columns is COLUMNS and runs > 1:
        console.print(f"Means of {runs} runs. Stability is their mean adjusted Rand index.")


def _cell(value: Any) -> str:
    """Return a value as the text of a table cell."""
    return f"{value:.2f}" if isinstance(value, float) else value or ""


# -- accuracy on held-out labels ------------------------------------------------------------------


class Rounds(NamedTuple):
    """Rounds of training labels and held-out labels, by which methods are scored.

    If --label-share hid some labels from the methods, there is one round with these. Otherwise each
    given label is held out in one round, except for the only label of a class.
    """

    truth: np.ndarray
    rounds: list[tuple[np.ndarray, np.ndarray]]
    scored: str


def _rounds(task: work.Task, seed: int) -> Rounds:
    """Return the rounds of known and held-out labels for this data."""
    given = np.asarray(task.given, dtype=object)
    truth = _texts(given if task.samples.y is None else task.samples.y)
    known = np.array([v is not None for v in given])
    hidden = np.flatnonzero(~known & np.array([v is not None for v in truth]))
    if hidden.size:
        scored = f"Accuracy on the {hidden.size:,} labels that the methods did not see."
        return Rounds(truth, [(given, hidden)], scored)
    rows = np.flatnonzero(known)
    fold = label_folds(truth[known].astype(str), FOLDS, np.random.RandomState(seed))
    rounds = []
    for f in range(int(fold.max(initial=-1)) + 1):
        seen, out = given.copy(), rows[fold == f]
        seen[out] = None
        rounds.append((seen, out))
    n = sum(out.size for _, out in rounds)
    scored = f"Accuracy on {n:,} of the {task.n_labelled:,} labels, each held out once "
    return Rounds(truth, rounds if n else [], f"{scored}({len(rounds)} rounds).")


def _texts(labels: Any) -> np.ndarray:
    """Return labels as text, with None for unlabelled samples."""
    return np.array([None if v is None else str(v) for v in labels], dtype=object)


def default_methods(names: list[str], task: work.Task) -> list[str]:
    """Return one method with labels, the baselines, and other methods with labels."""
    ours = [name for name in names if name in METHODS and METHODS[name].uses_labels]
    second = [name + ON_EMBEDDINGS for name in BASELINES if task.samples.also is not None]
    return [*ours[:1], *BASELINES, *second, *ours[1:]]


def _predict(task: work.Task, asked: Asked, k: int, name: str, seen: Any) -> Any:
    """Return the labels that a method predicts for all samples from the known labels."""
    X, seed = task.samples.X, asked.seed
    if name.removesuffix(ON_EMBEDDINGS) in BASELINES:
        Z = task.samples.also if name.endswith(ON_EMBEDDINGS) else X
        return _baseline(name.removesuffix(ON_EMBEDDINGS), Z, seen)
    if name == "k-means":
        labels = encode_labels(seen, X.shape[0])
        Z = _dense(X, k, seed)
        return cluster_representation(Z, k, labels=labels, random_state=seed).labels
    model = work.build(task, name, asked, k)[0]
    both = work.beside(model, task.samples) if hasattr(model, "relabel") else {}
    return model.fit(X, seen, **both).labels_


def _dense(X: Any, k: int, seed: int) -> Any:
    """Return X, or the indicators of k-means clusters if X is sparse."""
    if not hasattr(X, "toarray"):
        return X
    return np.eye(k)[KMeans(k, n_init=20, random_state=seed).fit_predict(X)]


def _baseline(name: str, X: Any, seen: Any) -> Any:
    """Return the labels that a scikit-learn baseline predicts for all samples."""
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


def _accuracy(rounds: Rounds, task: work.Task, asked: Asked, k: int, name: str) -> dict[str, Any]:
    """Return accuracy, standard error, seconds, and which labels were correct."""
    began = time.perf_counter()
    right = np.concatenate(
        [
            _texts(_predict(task, asked, k, name, seen))[out] == rounds.truth[out]
            for seen, out in rounds.rounds
        ]
    )
    share = float(right.mean())
    return {
        "accuracy": round(share, 4),
        "standard_error": round(float(np.sqrt(share * (1 - share) / right.size)), 4),
        "seconds": round(time.perf_counter() - began, 3),
        "right": right,
    }


def too_close(rows: list[dict[str, Any]]) -> list[str]:
    """Return a sentence about methods that are not significantly worse than the best.

    The labels that only one of two methods predicts correctly are counted. The methods differ if a
    fair coin would divide these labels more evenly in 95% of cases. The sentence is "" if there is
    no such method.
    """
    scored = [row for row in rows if row["accuracy"] is not None]
    if not scored:
        return []
    best, *others = sorted(scored, key=lambda row: -row["accuracy"])
    close = []
    for row in others:
        better = int((best["right"] & ~row["right"]).sum())
        worse = int((row["right"] & ~best["right"]).sum())
        if better - worse < 1.96 * np.sqrt(better + worse) or better + worse < 6:
            close.append(row["method"])
    n = best["right"].size
    note = f"{n} labels are too few to separate {best['method']} from {', '.join(close)}."
    return [note] if close else []
