"""Measure NMF with prior knowledge: missing entries, known spectra, topics from a few words.

    python -m benchmarks.knowledge --data FOLDER [--rows masks peers samson topics]

Earlier rows stay in ``results/knowledge.json``; the page contains all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.knowledge_masks import load, masks
from benchmarks.knowledge_peers import peers, pymcr_third
from benchmarks.knowledge_table import write_page
from partwise import NMF
from partwise.io.known_parts import seed_parts
from partwise.metrics import clustering_accuracy

RESULTS = Path(__file__).parent / "results"
#: Words that describe the sections of a newspaper, chosen before any accuracy was measured. The
#: data set contains only stems (compani, elect).
TOPICS = {
    "business": ["bank", "market", "profit"],
    "entertainment": ["film", "music", "award"],
    "politics": ["elect", "minist", "labour"],
    "sport": ["match", "player", "coach"],
    "tech": ["comput", "softwar", "internet"],
}


def samson(folder: Path, times: int, jobs: int) -> dict[str, Any]:
    """Fix two of three spectra, and return the angle between the third and its reference."""
    X, held = load(folder, "samson_hsi")
    ends = held["endmembers"].astype(float).T
    names = [str(name) for name in held["names"]]
    plain = NMF(3, random_state=0, max_iter=500, tol=1e-4).fit(X)
    found = {}
    for third, name in enumerate(names):
        known = np.delete(ends, third, axis=0)
        began = time.perf_counter()
        model = NMF(3, fixed_components=known, random_state=0, max_iter=500, tol=1e-4).fit(X)
        seconds = time.perf_counter() - began
        row: dict[str, Any] = {
            "known": degrees(model.components_[2], ends[third]),
            "plain": min(degrees(h, ends[third]) for h in plain.components_),
            "seconds": seconds,
        }
        other = pymcr_third(X, known)
        row["pymcr"] = (
            other
            if "skipped" in other
            else {
                "degrees": degrees(np.asarray(other["part"]), ends[third]),
                "seconds": other["seconds"],
            }
        )
        found[f"third: {name}"] = row
        print(name, row, flush=True)
    return found


def degrees(a: np.ndarray, b: np.ndarray) -> float:
    """Return the angle between two spectra in degrees."""
    cosine = a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))


def topics(folder: Path, times: int, jobs: int) -> dict[str, Any]:
    """Return the share of BBC news documents with the correct topic."""
    from sklearn.linear_model import LogisticRegression

    X, held = load(folder, "bbc_news")
    y = held["y"].astype(int) - 1
    classes = [str(name) for name in held["class_names"]]
    words = {str(w): j for j, w in enumerate(held["terms"])}
    topics = {name: [words[w] for w in TOPICS[name]] for name in classes}
    seeded = []
    for seed in range(5):
        model = NMF(
            5,
            seed_components=seed_parts(X, list(topics.values())),
            init="random",
            random_state=seed,
        )
        seeded.append(float((topic_of(model.fit(X)) == y).mean()))
    unseeded = [
        float(clustering_accuracy(y, topic_of(NMF(5, init="random", random_state=seed).fit(X))))
        for seed in range(5)
    ]
    logistic = []
    for draw in range(20):
        rng = np.random.default_rng(draw)
        given = np.concatenate(
            [rng.choice(np.flatnonzero(y == c), 5, replace=False) for c in range(5)]
        )
        rest = np.setdiff1d(np.arange(len(y)), given)
        model = LogisticRegression(C=10, max_iter=1000).fit(X[given], y[given])
        logistic.append(float((model.predict(X[rest]) == y[rest]).mean()))
    found = {
        "topics": TOPICS,
        "words alone": float(
            (np.stack([X[:, w].sum(axis=1) for w in topics.values()]).argmax(axis=0) == y).mean()
        ),
        "seeded": seeded,
        "unseeded, best matching": unseeded,
        "logistic regression, five labels a class": logistic,
    }
    print(found, flush=True)
    return found


def topic_of(model: NMF) -> np.ndarray:
    """Return the index of the largest part of each document, with parts of norm one."""
    return np.argmax(model.embedding_ * np.linalg.norm(model.components_, axis=1), axis=1)


ROWS = {"masks": masks, "peers": peers, "samson": samson, "topics": topics}


def main() -> None:
    """Run the chosen measurements, store their results, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("PARTWISE_DATA"))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--times", type=int, default=5, help="runs whose median is taken")
    parser.add_argument("--jobs", type=int, default=1, help="masks, peers: processes side by side")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.data is None:
        parser.error("--data FOLDER, or PARTWISE_DATA, names the folder of the data sets")
    store = given.out / "knowledge.json"
    held = json.loads(store.read_text()) if store.exists() else {}
    for name in given.rows:
        held[name] = ROWS[name](Path(given.data), given.times, given.jobs)
        held[name]["machine"] = f"{platform.machine()}, {os.cpu_count()} cores"
        store.write_text(json.dumps(held, indent=1) + "\n")
        write_page(held, given.out / "knowledge.md")


if __name__ == "__main__":
    main()
