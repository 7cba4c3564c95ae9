"""The command ``classify --label-separator``: several labels per sample."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from rich.console import Console

from partwise._versions import versions
from partwise.apps.cli import outputs, work
from partwise.apps.cli.options import Asked
from partwise.apps.cli.progress_bar import Bar, duration
from partwise.apps.view.report.pictures import render
from partwise.classify.multilabel import MultilabelClassifier
from partwise.io.sheets import csv_text
from partwise.persistence.atomic import write_whole

#: Number of samples in label_next.csv, which should be labelled next.
NEXT = 20


def label_lists(labels: Any, separator: str) -> list[list[str] | None]:
    """Return the list of labels of each sample; None for an unlabelled sample.

    Examples
    --------
    >>> from partwise.apps.cli.multilabel_command import label_lists
    >>> label_lists(["red; round", None, ";"], ";")
    [['red', 'round'], None, []]
    """
    split = [None if v is None else [s.strip() for s in str(v).split(separator)] for v in labels]
    return [None if row is None else [label for label in row if label] for row in split]


def run_multilabel(asked: Asked) -> None:
    """Read the data, fit a multilabel classifier and write the results."""
    refused = {"--method": asked.method not in ("auto", "classify")}
    for name in ("k", "known", "seed_words", "links", "write_back"):
        refused[f"--{name.replace('_', '-')}"] = bool(getattr(asked, name))
    for option, given in refused.items():
        if given:
            raise ValueError(f"{option} cannot be used with --label-separator; leave it out.")
    began = time.perf_counter()
    outputs.check_folder(asked.out, force=asked.force)
    with Bar(Console(stderr=True)) as bar:
        task = work.read_task(asked, bar)
        samples, lists = task.samples, label_lists(task.given, asked.label_separator)
        model = MultilabelClassifier(
            asked.parts or "auto", max_iter=asked.max_iter, random_state=asked.seed
        )
        model.set_params(**task.settings)
        bar.start("fitting several labels")
        with work.as_notes(task.notes):
            model.fit(samples.X, lists, **work.beside(model, samples))
        rows = [row._asdict() for row in model.expected_]
        next_ids = [samples.ids[i] for i in model.suggest(NEXT)]
        summary: dict[str, Any] = {
            "command": asked.command,
            "source": samples.source,
            "kind": samples.kind,
            "samples": samples.n_samples,
            "labelled": sum(row is not None for row in lists),
            "labels": [_plain(row) for row in rows],
            "preparation": samples.preparation,
            "seconds": round(time.perf_counter() - began, 3),
            "versions": versions(),
        }
        with outputs.whole_folder(asked.out, force=asked.force) as folder:
            heading, table = assignments(model, samples.ids, lists, asked.label_separator)
            write_whole(folder / "assignments.csv", csv_text(heading, table))
            write_whole(folder / "label_next.csv", csv_text(["id"], [[i] for i in next_ids]))
            recipe = {**samples.recipe, "label_separator": asked.label_separator}
            model.save(folder / "model.partwise", recipe=recipe, for_predict=asked.for_predict)
            if asked.report:
                page = render(
                    "multilabel.html", rows=rows, samples=samples, labelled=summary["labelled"],
                    asked=next_ids, command=asked.command, versions=versions(),
                )  # fmt: skip
                write_whole(folder / "report.html", page)
            outputs.write_summary(folder, summary, task.notes)
    if asked.as_json:
        print(outputs.as_json(summary))
        return
    console = outputs.printer()
    console.print(
        f"Predicted {len(rows)} labels of {samples.n_samples:,} samples, from "
        f"{summary['labelled']:,} labelled samples."
    )
    console.print(_table(rows))
    console.print(
        "Expected on the unlabelled samples, with 95% intervals, if the labelled samples were "
        "drawn at random."
    )
    outputs.say_notes(task.notes)
    console.print(f"Wrote {asked.out} in {duration(summary['seconds'])}.")
    outputs.say_next(next_ids)


def assignments(
    model: Any, ids: list[str], given: Any, separator: str
) -> tuple[list[str], list[list[Any]]]:
    """Return heading and rows of assignments.csv.

    Each row has the predicted labels, the given labels, and the probability of each label.
    """
    names = [str(name) for name in model.classes_]
    rows = []
    for i, name in enumerate(ids):
        own = [label for label, has in zip(names, model.transduction_[i], strict=True) if has]
        known = "" if given[i] is None else separator.join(given[i])
        shares = [f"{p:.4f}" for p in model.label_distributions_[i]]
        rows.append([name, separator.join(own), known, *shares])
    return ["id", "predicted_labels", "given_labels", *(f"p_{name}" for name in names)], rows


def _table(rows: list[dict[str, Any]]) -> Any:
    """Return the printed table of expected accuracies per label."""
    table = outputs.plain_table("label", "given>", "accuracy>", "F1>")
    for row in rows:
        cells = [str(row["label"]), str(row["positive"])]
        for value, low, high in (("accuracy", "low", "high"), ("f1", "f1_low", "f1_high")):
            share = f"{row[value]:.0%} ({row[low]:.0%} to {row[high]:.0%})"
            cells.append("-" if np.isnan(row[value]) else share)
        table.add_row(*cells)
    return table


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row of expected scores for JSON, with None instead of NaN."""
    values = {k: round(v, 4) if isinstance(v, float) else v for k, v in row.items()}
    return {k: None if v != v else v for k, v in values.items()}
