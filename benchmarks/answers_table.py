"""The results of `benchmarks.answers` as a page."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.answers import SETS

OURS = "PartsClassifier"
SHORT = {
    "LogisticRegression": "logistic",
    "LinearSVC": "SVC",
    "LabelSpreading": "spreading",
    "1-NN": "1-NN",
    "SelfTraining": "self-training",
    "SVD + LogisticRegression": "SVD + log.",
    "Spectral + LogisticRegression": "spectral + log.",
}


HEAD = """# Right names from a few labels

`PartsClassifier()` as it is, beside what a user would pick instead: scikit-learn's logistic
regression (C=10), LinearSVC, LabelSpreading (7 neighbours), 1-NN, SelfTraining on logistic
regression, TruncatedSVD (100) and SpectralEmbedding (30) with logistic regression on top, all on
unit rows or, for counts, tf-idf. Eight public sets, 3,000 samples drawn with seed 0 where there
are more; 2, 5 and 10 labels a class where every class keeps two others; draws of the labels that
were not looked at while the method was made. Made by `python -m benchmarks.answers --data
FOLDER`.
"""


def write_table(store: dict[str, Any], path: Path) -> None:
    """All that is in the store, as markdown."""
    parts = [HEAD, accuracy(store), new_samples(store), calibrated(store), seconds(store)]
    path.write_text("\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def cells(store: dict[str, Any], kind: str) -> dict[tuple[str, int], list[Any]]:
    """Draws of each (set, labels a class)."""
    found: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for key, value in store.items():
        where = key.split("/")
        if where[0] == kind:
            found[where[1], int(where[2])].append(value)
    order = {name: number for number, name in enumerate(SETS)}
    return dict(sorted(found.items(), key=lambda cell: (order.get(cell[0][0], 99), cell[0][1])))


def mean(draws: list[Any], method: str, what: str = "accuracy") -> float:
    values = [draw[method][what] for draw in draws if what in draw.get(method, {})]
    return float(np.mean(values)) if values else float("nan")


def gains(store: dict[str, Any]) -> dict[tuple[str, int], tuple[float, float, str]]:
    """For each cell: ours, the best baseline in hindsight, and which it is; in per cent."""
    made = {}
    for cell, draws in cells(store, "whole").items():
        best = max(SHORT, key=lambda name: mean(draws, name))
        made[cell] = (100 * mean(draws, OURS), 100 * mean(draws, best), best)
    return made


def accuracy(store: dict[str, Any]) -> str:
    found = cells(store, "whole")
    if not found:
        return ""
    rows = ["| set | labels a class | ours | best baseline | gain | " + " | ".join(SHORT.values())]
    rows[0] += " |"
    rows.append("|---|---:|" + "---:|" * (len(SHORT) + 3))
    best = gains(store)
    for cell, draws in found.items():
        ours, other, _ = best[cell]
        line = [cell[0], str(cell[1]), f"**{ours:.1f}**", f"{other:.1f}", f"{ours - other:+.1f}"]
        line += [f"{100 * mean(draws, each):.1f}" for each in SHORT]
        rows.append("| " + " | ".join(line) + " |")
    gain = np.array([ours - other for ours, other, _ in best.values()])
    n = max(len(draws) for draws in found.values())
    return (
        "## Right names on samples without a label\n\n"
        f"Per cent, mean of {n} draws of the labels. Best baseline: the best of the seven in that "
        "row, chosen in hindsight.\n\n" + "\n".join(rows) + "\n\n"
        f"Mean gain over the best baseline in hindsight: **{gain.mean():+.2f}** points over "
        f"{gain.size} cells; the least is {gain.min():+.1f}, {int((gain < 0).sum())} are below "
        "zero.\n"
    )


def new_samples(store: dict[str, Any]) -> str:
    found = cells(store, "halves")
    if not found:
        return ""
    rows = ["| set | labels a class | transduction | new samples | difference |"]
    rows.append("|---|---:|---:|---:|---:|")
    gaps = []
    for (name, m), draws in found.items():
        inside = 100 * float(np.mean([d["transduction"] for d in draws]))
        new = 100 * float(np.mean([d["new"] for d in draws]))
        gaps.append(new - inside)
        rows.append(f"| {name} | {m} | {inside:.1f} | {new:.1f} | {new - inside:+.1f} |")
    return (
        "## New samples\n\nHalf of each set is kept out of `fit`; `predict` on it beside the names "
        "of the other half.\n\n" + "\n".join(rows) + "\n\n"
        f"Mean difference {np.mean(gaps):+.2f} points, the least {np.min(gaps):+.1f}.\n"
    )


def calibration_error(draws: list[Any]) -> tuple[float, float]:
    """Expected calibration error pooled over draws, and that of a perfectly calibrated classifier.

    With the same confidences its right answers in a bin scatter by Σ conf (1 - conf), and the mean
    of a normal variable's size is √(2/π) of its spread.
    """
    n, sure, right, spread = np.sum([draw[OURS]["calibration"] for draw in draws], axis=0)
    error = np.abs(right - sure).sum() / n.sum()
    return float(error), float(np.sqrt(2 / np.pi * spread).sum() / n.sum())


def calibrated(store: dict[str, Any]) -> str:
    found = cells(store, "whole")
    if not found:
        return ""
    rows = [
        "| set | labels a class | ECE | perfect | excess | log loss | best baseline's | expected |"
    ]
    rows.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for (name, m), draws in found.items():
        error, perfect = calibration_error(draws)
        other = min(
            mean(draws, each, "log_loss") for each in SHORT if each not in ("LinearSVC", "1-NN")
        )
        expected = float(np.mean([draw[OURS]["expected"][0] for draw in draws]))
        rows.append(
            f"| {name} | {m} | {error:.3f} | {perfect:.3f} | {error - perfect:+.3f} | "
            f"{mean(draws, OURS, 'log_loss'):.3f} | {other:.3f} | {100 * expected:.1f} |"
        )
    return (
        "## Probabilities\n\nExpected calibration error (ten bins, pooled over draws) beside that "
        "of a perfectly calibrated classifier with the same confidences; log loss; the accuracy "
        "that cross-validation over the labels expected.\n\n" + "\n".join(rows) + "\n"
    )


def seconds(store: dict[str, Any]) -> str:
    found = store.get("time")
    if not found:
        return ""
    n, p = found["shape"]
    fit, more = np.median(found["fit"]), np.median(found["another label"])
    return (
        f"## Seconds\n\nSparse texts, {n} x {p}, {found['cores']} cores, median of "
        f"{len(found['fit'])}: {fit:.2f} s for a fit with all candidates, {more:.2f} s for another "
        "label (`warm_start=True`).\n"
    )
