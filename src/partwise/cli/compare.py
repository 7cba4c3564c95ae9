"""``partwise compare``, ``partwise methods`` and ``partwise datasets``"""

from __future__ import annotations

import json
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from partwise.cli import outputs, work
from partwise.cli.auto_method import choose, profile
from partwise.cli.progress_bar import Bar
from partwise.cli.scoring import (
    BASELINES,
    Rounds,
    compare_names,
    default_methods,
    runner,
    too_close,
)
from partwise.estimators.methods import METHODS
from partwise.io.sheets import csv_text
from partwise.persistence.atomic import check_target, write_whole

COLUMNS: tuple[str, ...] = ("method", "accuracy", "nmi", "ari", "stability", "seconds", "note")
NAMED: tuple[str, ...] = ("method", "right_name", "error", "seconds", "note")


def run_methods(*, as_json: bool) -> None:
    """The table of methods."""
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
        inside = ", ".join(f"{key}={value!r}" for key, value in m.settings.items())
        table.add_row(m.name, m.when, "yes" if m.uses_labels else "", f"{m.estimator}({inside})")
    console = Console(markup=False, highlight=False)
    console.print(table)
    console.print("auto looks at labels, signs, counts and size, and says what it chose and why.")


def run_datasets(data_home: Path | None, *, as_json: bool) -> None:
    """The table of data sets."""
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
    """Methods side by side: on labels they have not seen, else by how stable they are."""
    if out is not None:
        check_target(out, force=force)
    with Bar(Console(stderr=True)) as bar:
        task = work.read_task(data, bar, label_share=label_share, seed=seed, reading=reading)
        size = work.n_clusters(task, k, bar, seed=seed)
        names = _names(methods, task)
        looked = profile(task.samples.X, task.given, kind=task.samples.kind)
        chosen = choose(looked, size).method
        rounds = Rounds(task, seed) if task.n_labelled else None
        if rounds is not None and rounds.n_scored:
            columns, scored = NAMED, rounds.said(task.n_labelled)
            wanted = names if methods is not None else default_methods(names)
            rows = compare_names(
                task,
                wanted,
                rounds,
                lambda name: runner(task, name, size, parts, seed, max_iter),
                bar.step,
                patient=methods is not None,
            )
            task.notes += [note for note in [too_close(rows)] if note]
        else:
            columns, scored = COLUMNS, _unscored(task)
            rows = []
            for number, name in enumerate(names):
                bar.step(number, len(names), f"comparing ({name})")
                rows.append(_one(task, name, size, parts, seed, runs, max_iter))
            bar.step(len(names), len(names), "comparing")
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
    """The methods that were asked for, or all that can take the data."""
    if methods is not None:
        names = [name.strip() for name in methods.split(",") if name.strip()]
        for name in names:
            if name not in ("k-means", *BASELINES):
                work.find_method(name)
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
    """Which labels score the methods where none was given to them, or none can be held out."""
    if task.given is None and task.samples.y is not None:
        return "Scored on all labels in the data, of which the methods saw none."
    if task.n_labelled:
        task.notes.append("One label a class: none is left to score on.")
        return "All labels were used: methods are compared by how stable they are."
    return "There are no labels: methods are compared by how stable they are."


def _one(
    task: work.Task, name: str, k: int, parts: int | None, seed: int, runs: int, max_iter: int
) -> dict[str, Any]:
    """A row of the table: means over the runs, which differ in the seed and the random start."""
    row: dict[str, Any] = dict.fromkeys(COLUMNS)
    row["method"], row["note"] = name, ""
    found, seconds, results = [], [], []
    notes: list[str] = []
    try:
        for run in range(runs):
            began = time.perf_counter()
            with work.as_notes(notes):
                clusters = _clusters(task, name, k, parts, seed + run, max_iter, fresh=run > 0)
            seconds.append(time.perf_counter() - began)
            found.append(clusters)
            results.append(work.scores(task.samples.y, task.given, clusters))
    except (ValueError, ImportError) as error:
        row["note"] = " ".join(str(error).split())
        return row
    scored = [r for r in results if r is not None]
    for key in ("accuracy", "nmi", "ari"):
        if scored:
            row[key] = round(float(np.mean([r[key] for r in scored])), 4)
    row["stability"] = _stability(found)
    row["seconds"] = round(float(np.median(seconds)), 3)
    return row


def _clusters(
    task: work.Task, name: str, k: int, parts: int | None, seed: int, max_iter: int, *, fresh: bool
) -> Any:
    """Clusters of one run; `fresh` starts at random where the usual start has no seed."""
    X = task.samples.X
    if name == "k-means":
        from sklearn.cluster import KMeans

        return KMeans(k, n_init=20, random_state=seed).fit_predict(X)
    model, _, _ = work.build(task, name, k=k, parts=parts, seed=seed, max_iter=max_iter)
    if fresh and getattr(model, "init", "") is None:
        model.set_params(init="random")
    return model.fit_predict(X, task.given)


def _stability(found: list[Any]) -> float | None:
    from partwise.evaluation.metrics import adjusted_rand

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
    key = next((c for c in ("right_name", "accuracy") if c in shown), columns[1])
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
    if columns is NAMED:
        console.print(
            "right_name: share of samples with the right name; error: its standard error."
        )
    elif runs > 1:
        console.print(f"Means of {runs} runs; stability: their mean adjusted Rand index.")
