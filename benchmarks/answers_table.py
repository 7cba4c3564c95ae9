"""Write the accuracies of `PartsClassifier` and of other classifiers as a page."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import norm

from benchmarks.answers import PER_CLASS, RANDOM, SETS, UNSEEN

OURS = "PartsClassifier"
OTHERS = (
    "LogisticRegression",
    "LogisticRegression, columns",
    "LinearSVC",
    "LinearSVC, columns",
    "LogisticRegressionCV",
    "LabelSpreading",
    "LabelSpreading, columns",
    "1-NN",
    "1-NN, columns",
    "SelfTraining",
    "SelfTraining, columns",
    "SVD + LogisticRegression",
    "SVD + LogisticRegression, columns",
    "RandomForest",
    "SVC (rbf), columns",
    "LDA",
    "naive Bayes",
)
KINDS = {
    "texts": "bbc news20 tdt2 fine_foods spamassassin",
    "pictures": "coil20 pie orl yale fashion",
    "cells": "worm pbmc_raw",
    "tables": "satellite vehicle soybean spam penbased hpc",
    "time series": "italypower osuleaf",
}


HEAD = f"""# Accuracy with few labels

This page compares `PartsClassifier()` with default settings and 17 scikit-learn classifiers. On
average over all cells, it is more accurate than the best baseline of each row.

- **Baselines** on unit rows (counts: tf-idf) and on standardised columns: logistic regression
  (C=10), LinearSVC, LabelSpreading (7 neighbours), 1-NN, SelfTraining on logistic regression and
  TruncatedSVD (100) with logistic regression. On one of the two: LogisticRegressionCV, RandomForest
  (300 trees), SVC with an rbf kernel (C=10), LDA (shrunk, on 100 directions) and naive Bayes.
- **Data**: twenty public sets; larger ones are reduced to 3,000 samples, drawn with seed 0.
- **Labels**: 2, 5 and 10 per class where every class keeps two others, and samples drawn at random,
  {PER_CLASS} times the number of classes in all.
- **Development**: classifiers, their weights and the prior of class sizes were chosen on other
  draws (100 to 105), and on other sets than {", ".join(UNSEEN)}.
- **Timings** are from an earlier version. With the true class sizes (`priors`), all rows that lose
  more than two points are within two points or above, except two of fine_foods.

To repeat: `python -m benchmarks.answers --data FOLDER`.
"""


def write_table(store: dict[str, Any], path: Path) -> None:
    """Write the page with all results of `benchmarks.answers` in Markdown."""
    parts = [accuracy(store), new_samples(store), two_views(store), calibrated(store)]
    parts = [HEAD, *parts, seconds(store)]
    path.write_text("\n".join(part for part in parts if part) + "\n", encoding="utf-8")


def cells(store: dict[str, Any], kind: str) -> dict[tuple[str, int], list[Any]]:
    """Return the results of all draws for each pair of data set and labels per class."""
    found: dict[tuple[str, int], list[Any]] = defaultdict(list)
    for key, value in store.items():
        where = key.split("/")
        if where[0] == kind:
            found[where[1], int(where[2])].append(value)
    order = {name: number for number, name in enumerate(SETS)}

    def place(cell: tuple[tuple[str, int], list[Any]]) -> tuple[int, bool, int]:
        name, m = cell[0]
        return order.get(name, 99), m == RANDOM, m

    return dict(sorted(found.items(), key=place))


def labels(m: int) -> str:
    return "random" if m == RANDOM else str(m)


def mean(draws: list[Any], method: str, what: str = "accuracy") -> float:
    values = [draw[method][what] for draw in draws if what in draw.get(method, {})]
    return float(np.mean(values)) if values else float("nan")


def gains(store: dict[str, Any]) -> dict[tuple[str, int], tuple[float, float, str]]:
    """Return the accuracy of Partwise and of the best baseline, by data set and budget.

    Accuracies are percentages. The best baseline is chosen in hindsight for each cell. Only draws
    in which all classifiers ran are used.
    """
    made = {}
    for cell, draws in cells(store, "whole").items():
        full = [each for each in draws if OURS in each and set(OTHERS) <= set(each)]
        if full:
            best = max(OTHERS, key=lambda name: mean(full, name))
            made[cell] = (100 * mean(full, OURS), 100 * mean(full, best), best)
    return made


def accuracy(store: dict[str, Any]) -> str:
    best = gains(store)
    if not best:
        return ""
    found = cells(store, "whole")
    rows = ["| set | labels per class | draws | ours | best baseline | gain | which |"]
    rows.append("|---|---:|---:|---:|---:|---:|---|")
    for (name, m), (ours, other, which) in best.items():
        full = [each for each in found[name, m] if OURS in each and set(OTHERS) <= set(each)]
        line = [name + (" *" if name in UNSEEN else ""), labels(m), str(len(full))]
        line += [f"**{ours:.1f}**", f"{other:.1f}", f"{ours - other:+.1f}", which]
        rows.append("| " + " | ".join(line) + " |")
    return (
        "## Accuracy on unlabelled samples\n\n"
        "Percentages, mean over draws of the labels. Best baseline: the best of the 17 in that "
        "row, chosen in hindsight. * not used while the method was developed.\n\n"
        + "\n".join(rows)
        + "\n\n"
        + summary(best)
        + "\n"
        + losses(best, found)
        + "\n"
        + one_choice(found)
    )


def losses(best: dict[tuple[str, int], tuple[float, float, str]], found: Any) -> str:
    """List data sets and budgets over two points below the best baseline, worst first."""
    told = []
    for gain, cell in sorted((ours - other, cell) for cell, (ours, other, _) in best.items()):
        ours, other, which = best[cell]
        if gain < -2:
            one = [each[which].get("commonest", 0.0) for each in found[cell] if which in each]
            same = f", one label for {100 * np.mean(one):.0f}%" if np.mean(one) > 0.95 else ""
            told.append(f"{cell[0]} {labels(cell[1])} ({ours:.1f}, {which} {other:.1f}{same})")
    return f"Where it loses more than two points: {'; '.join(told) or 'nowhere'}.\n"


def summary(best: dict[tuple[str, int], tuple[float, float, str]]) -> str:
    """Tabulate the gain over the best baseline by number of labels and by kind of data.

    A further row separates data sets that were used during development.
    """
    groups = {"all": list(best)}
    for each in sorted({m for _, m in best}, key=lambda m: (m == RANDOM, m)):
        groups[f"{labels(each)} labels"] = [cell for cell in best if cell[1] == each]
    for kind, names in KINDS.items():
        groups[kind] = [cell for cell in best if cell[0] in names.split()]
    groups["sets used in development"] = [cell for cell in best if cell[0] not in UNSEEN]
    groups["other sets"] = [cell for cell in best if cell[0] in UNSEEN]
    rows = [
        "| cells | number | mean gain | lowest | within 2 points or above | more than 5 below |"
    ]
    rows.append("|---|---:|---:|---:|---:|---:|")
    for title, mine in groups.items():
        gain = np.array([best[cell][0] - best[cell][1] for cell in mine])
        if gain.size:
            rows.append(
                f"| {title} | {gain.size} | {gain.mean():+.2f} | {gain.min():+.1f} | "
                f"{100 * np.mean(gain >= -2):.0f}% | {int((gain < -5).sum())} |"
            )
    return "\n".join(rows) + "\n"


def one_choice(found: dict[tuple[str, int], list[Any]]) -> str:
    """Tabulate each classifier's mean accuracy over all data sets and numbers of labels."""
    full = [
        [each for each in draws if OURS in each and set(OTHERS) <= set(each)]
        for draws in found.values()
    ]
    full = [draws for draws in full if draws]
    means = {
        name: 100 * float(np.mean([mean(draws, name) for draws in full]))
        for name in (OURS, *OTHERS)
    }
    rows = ["| mean of all cells | accuracy in % |", "|---|---:|"]
    order = sorted(means, key=lambda name: -means[name])
    rows += [f"| {name} | {means[name]:.1f} |" for name in order]
    return "\n".join(rows) + "\n"


def new_samples(store: dict[str, Any]) -> str:
    found = cells(store, "halves")
    if not found:
        return ""
    rows = ["| set | labels per class | transduction | new samples | difference |"]
    rows.append("|---|---:|---:|---:|---:|")
    gaps = []
    for (name, m), draws in found.items():
        inside = 100 * float(np.mean([d["transduction"] for d in draws]))
        new = 100 * float(np.mean([d["new"] for d in draws]))
        gaps.append(new - inside)
        rows.append(f"| {name} | {labels(m)} | {inside:.1f} | {new:.1f} | {new - inside:+.1f} |")
    return (
        "## New samples\n\nHalf of each set is held out from `fit`. The table compares `predict` "
        "on it with the labels of the other half.\n\n" + "\n".join(rows) + "\n\n"
        f"Mean difference {np.mean(gaps):+.2f} points, the lowest {np.min(gaps):+.1f}.\n"
    )


def two_views(store: dict[str, Any]) -> str:
    """Tabulate the accuracy with each of two views alone and with both, averaged over draws."""
    found: dict[tuple[str, str, int], list[Any]] = defaultdict(list)
    for key, value in store.items():
        if key.startswith("views/"):
            _, name, budget, _, title = key.split("/")
            found[title, name, int(budget)].append(value)
    if not found:
        return ""
    rows = ["| views | set | labels per class | first | second | both | over the better |"]
    rows.append("|---|---|---:|---:|---:|---:|---:|")
    made, errors = [], []
    for (title, name, m), draws in sorted(found.items()):
        right = 100 * np.array([[d[w] for w in ("first", "second", "both")] for d in draws])
        each = right.mean(axis=0).tolist()
        made.append(each)
        if len(right) > 1:  # a standard error of the gain over the better view needs two draws
            gain = right[:, 2] - right[:, int(np.argmax(each[:2]))]
            errors.append(float(gain.std(ddof=1)) / len(right) ** 0.5)
        line = [title, name, labels(m), *(f"{v:.1f}" for v in each)]
        rows.append("| " + " | ".join([*line, f"{each[2] - max(each[:2]):+.1f}"]) + " |")
    first, second, both = np.array(made).T
    middle = f"{first.mean():.1f} and {second.mean():.1f} alone, {both.mean():.1f} with both"
    over = both - np.maximum(first, second)
    below = f"more than a point below it in {int((over < -1).sum())} of {over.size}"
    if errors:
        chance = norm.cdf((-1 - over.mean()) / np.maximum(errors, 1e-9)).sum()
        below += f" ({chance:.0f} of {len(errors)} if all had the mean gain, by the draws alone)"
    return (
        "## Two views\n\n`fit(X, y, also=[Z])`: random halves of the columns; words and 50 "
        "singular directions of their tf-idf; pixels and the strengths of low frequencies.\n\n"
        + "\n".join(rows)
        + f"\n\nMean {middle}; {over.mean():+.1f} over the better of the two, the lowest "
        f"{over.min():+.1f}, {below}.\n"
    )


def calibration_error(draws: list[Any]) -> tuple[float, float]:
    """Return the calibration error pooled over draws, and the error expected by chance.

    The error by chance is the one that perfectly calibrated confidences would have. The number of
    correct labels in a bin then has the variance Σ c (1 - c), where c is the confidence of each
    label. The mean absolute value of a normal variable is √(2/π) times its standard deviation.
    """
    n, sure, right, spread = np.sum([draw[OURS]["calibration"] for draw in draws], axis=0)
    error = np.abs(right - sure).sum() / n.sum()
    return float(error), float(np.sqrt(2 / np.pi * spread).sum() / n.sum())


def calibrated(store: dict[str, Any]) -> str:
    found = cells(store, "whole")
    if not found:
        return ""
    rows = [
        "| set | labels per class | ECE | perfect | excess | log loss | baseline's | expected |"
    ]
    rows.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for (name, m), draws in found.items():
        draws = [each for each in draws if OURS in each]
        if not draws:
            continue
        error, perfect = calibration_error(draws)
        losses = [mean(draws, each, "log_loss") for each in OTHERS]
        other = min([loss for loss in losses if np.isfinite(loss)], default=float("nan"))
        expected = float(np.mean([draw[OURS]["expected"][0] for draw in draws]))
        rows.append(
            f"| {name} | {labels(m)} | {error:.3f} | {perfect:.3f} | {error - perfect:+.3f} | "
            f"{mean(draws, OURS, 'log_loss'):.3f} | {other:.3f} | {100 * expected:.1f} |"
        )
    return (
        "## Probabilities\n\nExpected calibration error (ten bins, pooled over draws), and that of "
        "a perfectly calibrated classifier with the same confidences; log loss; and the accuracy "
        "that cross-validation over the labels estimated.\n\n" + "\n".join(rows) + "\n"
    )


def seconds(store: dict[str, Any]) -> str:
    """Tabulate the median seconds of fits, by data set and number of cores."""
    found = {tuple(key.split("/")[1:]): v for key, v in store.items() if key.startswith("time/")}
    if not found:
        return ""
    rows = ["| samples | cores | fit | another label | click | GiB at most | GiB of X | right |"]
    rows.append("|---|---:|---:|---:|---:|---:|---:|---:|")
    for (what, cores), run in sorted(found.items()):
        times = [np.median(run[kind]) for kind in ("fit", "another label", "click")]
        line = [what, cores, *(f"{t:.2f} s" for t in times), f"{run['GiB']:.1f}"]
        line += [f"{run['GiB of X']:.1f}", f"{100 * np.mean(run['right']):.0f}%"]
        rows.append("| " + " | ".join(line) + " |")
    return (
        "## Timings\n\nMedian seconds with ten labels per class. *another label* is a second `fit` "
        "with `warm_start=True`; *click* is `relabel(y, weigh=False)`.\n\n" + "\n".join(rows) + "\n"
    )


#: Names of data sets in the README, and the same data sets in the results.
IN_README = {
    "BBC news": "bbc",
    "20 Newsgroups": "news20",
    "Worm neurons": "worm",
    "COIL20 images": "coil20",
    "SpamAssassin mails (largest loss)": "spamassassin",
}
