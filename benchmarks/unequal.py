"""Classes of unequal size: 20 random labels that measure the sizes, against the same baselines.

    python -m benchmarks.unequal --data FOLDER [--draws 5]

The cells are those of `benchmarks.answers` where `PartsClassifier` is more than five points below
the best of seventeen baselines. To the labels of these cells come labels of 20 samples drawn at
random. All baselines train on the same labels. Results go to ``benchmarks/results/unequal.json``
after every draw, and the table to ``unequal.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import balanced_accuracy_score

from benchmarks import answers

OUT = Path(__file__).parent / "results" / "unequal.json"
CELLS = (
    ("fine_foods", 2),
    ("fine_foods", 5),
    ("fine_foods", 10),
    ("spamassassin", 2),
    ("hpc", 2),
)
#: Number of random samples whose labels are added.
EXTRA = 20
OURS = ("PartsClassifier, measured", "PartsClassifier, estimated")


def draw(y: Any, m: int, seed: int) -> tuple[Any, Any]:
    """Return m labels per class and `EXTRA` labels of random samples, and these samples."""
    known = answers.draw(y, m, seed)
    drawn = np.random.RandomState(500 + seed).permutation(y.size)[:EXTRA]
    known[drawn] = y[drawn]
    return known, drawn


def scores(names: Any, y: Any, known: Any) -> list[float]:
    """Return accuracy and balanced accuracy of predictions for the unlabelled samples."""
    rest = known < 0
    both = np.mean(names[rest] == y[rest]), balanced_accuracy_score(y[rest], names[rest])
    return [float(value) for value in both]


def measure(folder: Path, name: str, m: int, seed: int) -> dict[str, list[float]]:
    """Return the scores of each method for one draw of the labels."""
    from partwise import PartsClassifier

    X, y = answers.load(folder, name)
    known, drawn = draw(y, m, seed)
    found = {which: scores(run(known)[0], y, known) for which, run in answers.baselines(X).items()}
    for which, extra in zip(OURS, ({"drawn": drawn}, {}), strict=True):
        model = PartsClassifier(priors=which.split()[-1]).fit(X, known, **extra)
        found[which] = scores(model.transduction_, y, known)
    return found


def page(store: dict[str, Any]) -> str:
    """Return the page with the accuracies for classes of unequal size."""
    lines = [
        "# Classes of unequal size",
        "",
        f"Accuracy on samples without a label, per cent, with {EXTRA} labels of random samples in "
        "addition to those per class. The baselines train on the same labels. Best baseline: the "
        "best mean of seventeen, chosen in hindsight.",
        "",
        "| set | labels per class | draws | measured | estimated | best baseline | gain | which |",
        "|---|---:|---:|---:|---:|---:|---:|---|",
    ]
    balanced = ["", "The same for the balanced accuracy:", "", *lines[4:6]]
    for name, m in CELLS:
        cells = [value for key, value in store.items() if key.startswith(f"{name}/{m}/")]
        if not cells:
            continue
        for which, table in enumerate((lines, balanced)):
            means = {k: 100 * np.mean([cell[k][which] for cell in cells]) for k in cells[0]}
            ours, other = (means.pop(k) for k in OURS)
            best = max(means, key=means.__getitem__)
            row = f"{ours:.1f} | {other:.1f} | {means[best]:.1f} | {ours - means[best]:+.1f}"
            table.append(f"| {name} | {m} + {EXTRA} | {len(cells)} | {row} | {best} |")
    tail = ["", "Made by `python -m benchmarks.unequal --data FOLDER`.", ""]
    return "\n".join(lines + balanced + tail)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("PARTWISE_DATA", "."), type=Path)
    parser.add_argument("--draws", default=5, type=int)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    store = json.loads(OUT.read_text()) if OUT.exists() else {}
    for name, m in CELLS:
        for seed in range(given.draws):
            key = f"{name}/{m}/{seed}"
            if key not in store:
                store[key] = measure(given.data, name, m, seed)
                OUT.write_text(json.dumps(store, indent=0, sort_keys=True) + "\n")
                print(key, store[key][OURS[0]], flush=True)
    OUT.with_suffix(".md").write_text(page(store))


if __name__ == "__main__":
    main()
