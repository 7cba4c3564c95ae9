"""Commands ``partwise transform`` and ``partwise predict``."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from partwise.apps.cli import outputs, work
from partwise.apps.cli.cluster import (
    assignment_rows,
    codes_text,
    own_columns,
    predicted,
    result_columns,
)
from partwise.apps.cli.progress_bar import Bar
from partwise.apps.view.describe import names_classes
from partwise.estimators import saving
from partwise.io import Samples, read_samples
from partwise.io.sheets import csv_text
from partwise.io.write_back import SUFFIXES, named_table
from partwise.persistence.atomic import check_target, write_whole

CODES = (".csv", ".npy")


def _load(model: Path, new: str, bar: Bar, reading: dict[str, Any]) -> tuple[Any, Samples]:
    bar.start("loading the model")
    estimator, recipe = saving.read(model)
    if recipe is None:
        raise ValueError(
            f"{model} does not contain the preparation of its data, as models of the command and "
            "the studio do; use partwise.load in Python."
        )
    if not hasattr(estimator, "embedding_"):
        raise ValueError(f"{model} contains a model that was not fitted.")
    try:
        samples = read_samples(new, recipe=recipe, step=bar.step, **reading)
    except KeyError as error:
        raise ValueError(f"{model}: the preparation of the data lacks {error}.") from error
    known = estimator.n_features_in_
    if samples.X.shape[1] != known:
        raise ValueError(f"{new} has {samples.X.shape[1]} features; the model needs {known}.")
    return estimator, samples


def run_transform(
    model: Path, new: str, *, out: Path, force: bool, as_json: bool, reading: dict[str, Any]
) -> None:
    """Write the part weights of new samples to a .csv or .npy file."""
    if out.suffix.lower() not in CODES:
        raise ValueError(f"--out {out}: the name of the file must end in .csv or .npy.")
    check_target(out, force=force)
    notes: list[str] = []
    with Bar(Console(stderr=True)) as bar:
        estimator, samples = _load(model, new, bar, reading)
        bar.start("coding")
        with work.as_notes(notes):
            V = np.asarray(estimator.transform(samples.X, **work.beside(estimator, samples)))
        if out.suffix.lower() == ".npy":
            buffer = io.BytesIO()
            np.save(buffer, V, allow_pickle=False)
            write_whole(out, buffer.getvalue(), force=force)
        else:
            write_whole(out, codes_text(samples.ids, V), force=force)
    summary = {
        "samples": samples.n_samples,
        "parts": int(V.shape[1]),
        "preparation": samples.preparation,
        "notes": [*samples.notes, *notes],
        "out": str(out),
    }
    _say(summary, f"Coded {samples.n_samples} samples by {V.shape[1]} parts.", as_json)


def run_predict(
    model: Path,
    new: str,
    *,
    out: Path | None,
    write_back: bool = False,
    force: bool,
    as_json: bool,
    reading: dict[str, Any],
) -> None:
    """Write the predictions of new samples to a CSV file or standard output."""
    if write_back and (out is None or Path(new).suffix.lower() not in SUFFIXES):
        raise ValueError("--write-back needs a table and --out FILE.")
    if out is not None:
        check_target(out, force=force)
    notes: list[str] = []
    with Bar(Console(stderr=True)) as bar:
        estimator, samples = _load(model, new, bar, reading)
        if not hasattr(estimator, "clustering_") and not names_classes(estimator):
            raise ValueError(f"{model}: {type(estimator).__name__} does not predict clusters.")
        bar.start("predicting")
        with work.as_notes(notes):
            names, confidence = predicted(estimator, samples)
    rows = [row[:3] for row in assignment_rows(samples.ids, names, confidence, None)]
    heading = ["id", *result_columns(estimator)]
    text: str | bytes = csv_text(*_with_skipped(heading, rows, samples))
    if write_back:
        text = named_table(samples, own_columns(estimator, samples, new=True))
    sizes = Counter(str(name) for name in names)
    summary: dict[str, Any] = {
        "samples": samples.n_samples,
        "preparation": samples.preparation,
        "clusters": dict(sorted(sizes.items())),
        "scores": work.scores(samples.y, None, names),
        "notes": [*samples.notes, *notes],
        "out": None if out is None else str(out),
    }
    if samples.skipped:
        summary["skipped"] = [{"id": name, "why": why} for name, why in samples.skipped]
    if out is not None:
        write_whole(out, text, force=force)
    elif as_json:
        summary["assignments"] = [
            {"id": a, heading[1]: b, heading[2]: float(c) if c else None} for a, b, c in rows
        ]
    else:
        print(text, end="")
    _say(summary, f"{samples.n_samples} samples in {len(sizes)} clusters.", as_json)


def _with_skipped(
    heading: list[str], rows: list[list[Any]], samples: Samples
) -> tuple[list[str], list[list[Any]]]:
    """Return rows in the order of the source, including skipped samples with the reason."""
    if not samples.skipped:
        return heading, rows
    blank = [[name, *([""] * (len(heading) - 1)), why] for name, why in samples.skipped]
    rows = [[*row, ""] for row in rows]
    if samples.rows is not None:
        placed = dict(zip(samples.rows.tolist(), rows))
        rest = iter(blank)
        n = len(rows) + len(blank)
        return [*heading, "skipped"], [placed[i] if i in placed else next(rest) for i in range(n)]
    return [*heading, "skipped"], [*rows, *blank]


def _say(summary: dict[str, Any], line: str, as_json: bool) -> None:
    if as_json:
        print(outputs.as_json(summary))
        return
    outputs.say_notes(summary["notes"])
    if summary["out"] is not None:
        outputs.printer().print(f"{line} Wrote {summary['out']}.")
