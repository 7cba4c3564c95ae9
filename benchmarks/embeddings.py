"""Accuracy with words or pixels, with embeddings, and with both, against linear classifiers.

    python -m benchmarks.embeddings --texts FOLDER --data FOLDER [--draws 2]

The folder of texts holds CSV files with the columns ``label`` and ``text``. Pictures are those of
`benchmarks.answers`. Encoders are the packaged ones of ``tests/encoders.txt``, which need no
network. Embeddings are cached, so that a second run does not encode. Results go to
``benchmarks/results/embeddings.json`` after every set, and the table to ``embeddings.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import normalize
from sklearn.svm import LinearSVC

from benchmarks import answers

OUT = Path(__file__).parent / "results" / "embeddings.json"
BUDGETS, MOST = (2, 5, 10), 1500
TEXTS, PICTURES = ("wordllama", "universal"), ("efficientnet-lite0",)
IMAGES = ("fashion", "coil20", "yale")
OWN, EMBEDDED, BOTH = "words or pixels", "embeddings", "both"
OTHERS = {
    "logistic regression": lambda: LogisticRegression(C=10, max_iter=300),
    "LinearSVC": LinearSVC,
    "1-NN": lambda: KNeighborsClassifier(1),
}


def texts(path: Path) -> tuple[Any, Any, Any]:
    """Return tf-idf of the texts in a file, label codes, and the samples for an encoder."""
    from partwise.io import read_samples

    samples = read_samples(path, text_column="text", label_column="label")
    return samples.X, np.unique(samples.y.astype(str), return_inverse=True)[1], samples


def pictures(folder: Path, name: str) -> tuple[Any, Any, Any]:
    """Return the pixels of a data set, class codes, and the samples for an encoder."""
    from partwise.io.samples import Samples

    X, y = answers.load(folder, name)
    some = np.sort(np.random.RandomState(0).permutation(len(y))[:MOST])
    X, y, side = X[some], y[some], round(X.shape[1] ** 0.5)
    if name != "fashion":  # images of the other sets are stored column by column
        X = X.reshape(-1, side, side).swapaxes(1, 2).reshape(len(X), -1)
    ids = [str(i) for i in range(len(y))]
    return X, y, Samples(X, ids, "images", image_shape=(side, side))


def measure(X: Any, y: Any, Z: Any, draws: int) -> dict[str, dict[str, float]]:
    """Return accuracies on unlabelled samples, by number of labels and draw."""
    from partwise import PartsClassifier

    views = {OWN: (X, None), EMBEDDED: (Z, None), BOTH: (X, [Z])}
    models = {name: PartsClassifier(warm_start=True) for name in views}
    unit, found = normalize(Z), {}
    for m in BUDGETS:
        if np.bincount(y).min() < m + 1:
            continue
        for seed in range(draws):
            known = answers.draw(y, m, seed)
            rest = known < 0
            row = {}
            for name, (A, also) in views.items():
                model = models[name].fit(A, known, also=also)
                row[name] = float(np.mean(model.transduction_[rest] == y[rest]))
            for name, make in OTHERS.items():
                other = make().fit(unit[~rest], known[~rest])
                row[name] = float(np.mean(other.predict(unit[rest]) == y[rest]))
            found[f"{m}/{seed}"] = row
    return found


def page(store: dict[str, Any]) -> str:
    """Return the page with the accuracies with words or pixels, with embeddings, and with both."""
    names = [OWN, EMBEDDED, BOTH, *OTHERS]
    lines = [
        "# Embeddings in addition to words and pixels",
        "",
        "Accuracy on samples without a label, per cent, mean over draws of the labels. The first "
        "three columns are `PartsClassifier`; the others are trained on the embeddings. Gain: both "
        "compared with the better single view.",
        "",
        "Texts: 1,500 news of AG's corpus in four topics, 928 BBC articles on sport or politics, "
        "and 1,500 questions of TREC in five classes. Pictures: at most 1,500 of each set.",
        "",
        f"| set | encoder | labels per class | {' | '.join(names)} | gain |",
        "|---|---|---:|" + "---:|" * (len(names) + 1),
    ]
    gains = []
    for key, cell in store.items():
        for m in BUDGETS:
            rows = [row for draw, row in cell["accuracy"].items() if draw.startswith(f"{m}/")]
            if rows:
                means = [100 * np.mean([row[name] for row in rows]) for name in names]
                gains.append(means[2] - max(means[:2]))
                shown = " | ".join(f"{v:.1f}" for v in means)
                lines.append(f"| {' | '.join(key.split('/'))} | {m} | {shown} | {gains[-1]:+.1f} |")
    worst, mean = min(gains), np.mean(gains)
    lines += [
        "",
        f"The mean gain is {mean:+.1f} points, the smallest {worst:+.1f}; "
        f"{sum(g < -1 for g in gains)} of {len(gains)} rows lose more than one point.",
        "",
        "Seconds on two cores that other programs used at the same time:",
        "",
        "| set | encoder | samples | encoding | from the cache |",
        "|---|---|---:|---:|---:|",
    ]
    for key, cell in store.items():
        seconds = " | ".join(f"{v:.2f} s" for v in cell["seconds"])
        lines.append(f"| {' | '.join(key.split('/'))} | {cell['samples']} | {seconds} |")
    lines += ["", "Made by `python -m benchmarks.embeddings --texts FOLDER --data FOLDER`.", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--texts", required=True, type=Path)
    parser.add_argument("--data", default=os.environ.get("PARTWISE_DATA", "."), type=Path)
    parser.add_argument("--draws", default=2, type=int)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    sys.path.append(str(Path(__file__).parents[1] / "tests"))
    import encoders  # the encoders that the tests package
    from partwise import encode

    encoders.register()
    store = json.loads(OUT.read_text()) if OUT.exists() else {}
    words = [path.stem for path in sorted(given.texts.glob("*.csv"))]
    sets = [(what, name) for name in TEXTS[:1] for what in words]
    sets += [(what, name) for name in PICTURES for what in IMAGES]
    # These run last, as the encoders of words in NumPy are slow.
    sets += [(what, name) for name in TEXTS[1:] for what in words]
    for what, encoder in sets:
        key = f"{what}/{encoder}"
        if key in store:
            continue
        path = given.texts / f"{what}.csv"
        X, y, samples = texts(path) if path.exists() else pictures(given.data, what)
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            Z = encode(samples, encoder)
            seconds.append(time.perf_counter() - began)
        accuracy = measure(X, y, Z, given.draws)
        store[key] = {"accuracy": accuracy, "seconds": seconds, "samples": len(y)}
        OUT.write_text(json.dumps(store, indent=0) + "\n")
        print(key, seconds, flush=True)
    OUT.with_suffix(".md").write_text(page(store))


if __name__ == "__main__":
    main()
