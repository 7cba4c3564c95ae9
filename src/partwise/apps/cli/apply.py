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
from partwise.apps.cli.options import Asked
from partwise.apps.cli.progress_bar import Bar
from partwise.apps.view.describe import names_classes
from partwise.estimators import saving
from partwise.io import Samples, read_samples
from partwise.io.sheets import csv_text
from partwise.io.write_back import SUFFIXES, named_table
from partwise.persistence.atomic import check_target, write_whole

CODES = (".csv", ".npy")


def _load(asked: Asked, bar: Bar) -> tuple[Any, Samples]:
    """Return the estimator of a model file, and new samples prepared for it."""
    model, new = asked.model, asked.new
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
        samples = read_samples(new, recipe=recipe, step=bar.step, **asked.reading)
    except KeyError as error:
        raise ValueError(f"{model}: the preparation of the data lacks {error}.") from error
    known = estimator.n_features_in_
    if samples.X.shape[1] != known:
        raise ValueError(f"{new} has {samples.X.shape[1]} features; the model needs {known}.")
    return estimator, samples


def run_transform(asked: Asked) -> None:
    """Write the part weights of new samples to a .csv or .npy file."""
    out = asked.out
    if out.suffix.lower() not in CODES:
        raise ValueError(f"--out {out}: the name of the file must end in .csv or .npy.")
    check_target(out, force=asked.force)
    notes: list[str] = []
    with Bar(Console(stderr=True)) as bar:
        estimator, samples = _load(asked, bar)
        bar.start("coding")
        with work.as_notes(notes):
            V = np.asarray(estimator.transform(samples.X, **work.beside(estimator, samples)))
        content: str | bytes = codes_text(samples.ids, V)
        if out.suffix.lower() == ".npy":
            buffer = io.BytesIO()
            np.save(buffer, V, allow_pickle=False)
            content = buffer.getvalue()
        write_whole(out, content, force=asked.force)
    line = f"Coded {samples.n_samples} samples by {V.shape[1]} parts."
    _say({**_facts(samples, notes, out), "parts": int(V.shape[1])}, line, asked)


def run_predict(asked: Asked) -> None:
    """Write the predictions of new samples to a CSV file or standard output."""
    out = asked.out
    _check_out(asked)
    notes: list[str] = []
    with Bar(Console(stderr=True)) as bar:
        estimator, samples = _load(asked, bar)
        if not hasattr(estimator, "clustering_") and not names_classes(estimator):
            kind = type(estimator).__name__
            raise ValueError(f"{asked.model}: {kind} does not predict clusters.")
        bar.start("predicting")
        with work.as_notes(notes):
            names, confidence = predicted(estimator, samples)
    rows = [row[:3] for row in assignment_rows(samples.ids, names, confidence, None)]
    heading = ["id", *result_columns(estimator)]
    sizes = Counter(str(name) for name in names)
    summary = {
        **_facts(samples, notes, out),
        "clusters": dict(sorted(sizes.items())),
        "scores": work.scores(samples.y, None, names),
    }
    if samples.skipped:
        summary["skipped"] = [{"id": name, "why": why} for name, why in samples.skipped]
    if out is None and asked.as_json:
        summary["assignments"] = [
            {"id": a, heading[1]: b, heading[2]: float(c) if c else None} for a, b, c in rows
        ]
    elif out is None:
        print(csv_text(*_with_skipped(heading, rows, samples)), end="")
    elif asked.write_back:
        table = named_table(samples, own_columns(estimator, samples, new=True))
        write_whole(out, table, force=asked.force)
    else:
        write_whole(out, csv_text(*_with_skipped(heading, rows, samples)), force=asked.force)
    _say(summary, f"{samples.n_samples} samples in {len(sizes)} clusters.", asked)


def _check_out(asked: Asked) -> None:
    """Raise an error if the results cannot be written where the options say."""
    is_table = Path(asked.new).suffix.lower() in SUFFIXES
    if asked.write_back and (asked.out is None or not is_table):
        raise ValueError("--write-back needs a table and --out FILE.")
    if asked.out is not None:
        check_target(asked.out, force=asked.force)


def _facts(samples: Samples, notes: list[str], out: Path | None) -> dict[str, Any]:
    """Return the entries of the summary that ``transform`` and ``predict`` share."""
    return {
        "samples": samples.n_samples,
        "preparation": samples.preparation,
        "notes": [*samples.notes, *notes],
        "out": None if out is None else str(out),
    }


def _with_skipped(
    heading: list[str], rows: list[list[Any]], samples: Samples
) -> tuple[list[str], list[list[Any]]]:
    """Return table rows that include skipped samples with the reason, in file order."""
    if not samples.skipped:
        return heading, rows
    blank = [[name, *([""] * (len(heading) - 1)), why] for name, why in samples.skipped]
    whole = [[*row, ""] for row in rows] + blank
    if samples.rows is not None:
        kept = samples.rows.tolist()
        rest = sorted(set(range(len(whole))) - set(kept))
        whole = [row for _, row in sorted(zip([*kept, *rest], whole), key=lambda pair: pair[0])]
    return [*heading, "skipped"], whole


def _say(summary: dict[str, Any], line: str, asked: Asked) -> None:
    """Print the summary as JSON, or its notes and one line."""
    if asked.as_json:
        print(outputs.as_json(summary))
        return
    outputs.say_notes(summary["notes"])
    if summary["out"] is not None:
        outputs.printer().print(f"{line} Wrote {summary['out']}.")
