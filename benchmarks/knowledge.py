"""What a person knows, measured: hidden entries, peers, known spectra, topics from a few words.

    python -m benchmarks.knowledge --data FOLDER [--rows masks peers samson topics]

Rows that were measured before stay in ``results/knowledge.json``; the page is made of all of them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.knowledge_peers import pymcr_third, rcppml, sklearn_filling
from benchmarks.knowledge_table import write_page
from partwise import NMF
from partwise.io.known import seed_parts
from partwise.metrics import clustering_accuracy, hold_out

RESULTS = Path(__file__).parent / "results"
FROBENIUS, KL = "frobenius", "kullback-leibler"
#: Name, data set, share hidden, parts.
MASKS = [
    ("ORL, 10 % hidden", "orl_32x32", 0.1, 20),
    ("ORL, 50 % hidden", "orl_32x32", 0.5, 20),
    ("TDT2 tf-idf, 10 % of stored entries and as many zeros", "tdt2_top30", 0.1, 30),
    ("worm counts, 10 % of stored entries and as many zeros", "worm_neuron_sc", 0.1, 10),
]
#: Iterations of ours, and of the reference.
OURS, REFERENCE = 100, 1000
#: Of fits that run until they have converged.
TOL = 1e-3
#: Close enough to the reference.
WITHIN = 1.005
#: Chosen before any accuracy was looked at: what the section of a newspaper is about. The set has
#: stems only (compani, elect).
TOPICS = {
    "business": ["bank", "market", "profit"],
    "entertainment": ["film", "music", "award"],
    "politics": ["elect", "minist", "labour"],
    "sport": ["match", "player", "coach"],
    "tech": ["comput", "softwar", "internet"],
}


def load(folder: Path, name: str) -> tuple[Any, dict[str, Any]]:
    """X of a set, texts as tf-idf of unit length, and what else its file has."""
    held = dict(np.load(folder / f"{name}.npz"))
    if "indptr" not in held:
        X = held["X"].astype(float)
        return (X / held["scale"] if "scale" in held else X), held
    parts = (held["data"].astype(float), held["indices"].astype(np.int32), held["indptr"])
    X = sp.csr_array(parts, shape=tuple(held["shape"]))
    used = np.flatnonzero(np.diff(X.tocsc().indptr))
    X = X[:, used]
    if "terms" in held:
        held["terms"] = held["terms"][used]
    return (tf_idf(X) if name in ("tdt2_top30", "bbc_news") else X), held


def tf_idf(X: sp.csr_array) -> sp.csr_array:
    """(1 + log tf) log(n / df), rows of length one."""
    from sklearn.preprocessing import normalize

    X = X.copy()
    df = np.diff(X.tocsc().indptr)
    X.data = (1 + np.log(X.data)) * np.log(X.shape[0] / df)[X.indices]
    X.eliminate_zeros()
    return sp.csr_array(normalize(X))


def start(X: Any, k: int) -> dict[str, np.ndarray]:
    """The same positive start for everyone."""
    rng = np.random.default_rng(0)
    size = np.sqrt(X.mean() / k)
    W, H = (size * (0.1 + rng.random(shape)) for shape in ((X.shape[0], k), (k, X.shape[1])))
    return {"W": W, "H": H}


def ours(X: Any, k: int, loss: str, begin: dict[str, np.ndarray], n: int, **more: Any) -> NMF:
    settings = {"tol": 0.0, "beta_loss": loss, "missing_values": np.nan, **more}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # max_iter reached: that is the point
        return NMF(k, init="custom", max_iter=n, **settings).fit(X, **begin)


def naive(held: Any, k: int, loss: str, begin: dict[str, np.ndarray], n: int) -> Any:
    """The factors of the naive updates after n iterations.

    Dense: tests/reference.py, which knows nothing of the package. Sparse, where that would take
    gigabytes and days: solver="mu", which tests/test_gaps.py holds equal to it to 1e-9.
    """
    if sp.issparse(held.X):
        return ours(held.X, k, loss, begin, n, solver="mu")
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import reference  # type: ignore[import-not-found]

    seen = (~np.isnan(held.X)).astype(float)
    X = np.where(seen > 0, held.X, 0.0)
    V, U, _ = reference.nmf_weighed(X, begin["W"], begin["H"].T, n, weight=seen, loss=loss)
    return V, np.ascontiguousarray(U.T)


def error_of(held: Any, pair: Any, loss: str) -> float:
    """The mean loss at hidden entries."""
    if not isinstance(pair, NMF):
        model = NMF(pair[1].shape[0], beta_loss=loss, missing_values=np.nan)
        model.embedding_, model.components_ = pair
        model.n_components_ = model._n_components = pair[1].shape[0]
        pair = model
    return float(held.error(pair))


def first_below(run: Callable[[int], float], target: float, most: int) -> int | None:
    """The first number of iterations of a grid after which the error is at most the target."""
    grid = sorted({round(1.3**j) for j in range(5, 40)})
    return next((n for n in grid if n <= most and run(n) <= target), None)


def in_turns(runs: dict[str, Callable[[], Any]], times: int) -> dict[str, float]:
    """Median seconds of each, measured one after the other ``times`` times; one run first."""
    spent: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in range(times):
        for name, run in runs.items():
            began = time.perf_counter()
            run()
            spent[name].append(time.perf_counter() - began)
    return {name: statistics.median(seconds) for name, seconds in spent.items()}


def masks(folder: Path, times: int) -> dict[str, Any]:
    """Error on hidden entries against the naive reference, and time against a plain fit."""
    found = {}
    for name, file, share, k in MASKS:
        X, _ = load(folder, file)
        held = hold_out(X, share, random_state=0)
        begin = start(X, k)
        for loss in (FROBENIUS, KL):
            found[f"{name}, {loss}"] = row = _mask(X, held, k, loss, begin, times)
            print(name, loss, {key: round(v, 4) for key, v in row.items() if v}, flush=True)
    return found


def _mask(
    X: Any, held: Any, k: int, loss: str, begin: dict[str, np.ndarray], times: int
) -> dict[str, Any]:
    reference = error_of(held, naive(held, k, loss, begin, REFERENCE), loss)
    error = error_of(held, ours(held.X, k, loss, begin, OURS), loss)
    target = WITHIN * reference
    n = first_below(lambda n: error_of(held, ours(held.X, k, loss, begin, n), loss), target, OURS)
    # a plain fit is as far when its own loss is within the same share of a naive one's
    plain_goal = WITHIN * ours(X, k, loss, begin, REFERENCE, solver="mu").objective_
    m = first_below(lambda n: float(ours(X, k, loss, begin, n).objective_), plain_goal, OURS)
    to_tol = [ours(Z, k, loss, begin, 500, tol=TOL).n_iter_ for Z in (held.X, X)]
    seconds = in_turns(
        {
            "masked": lambda: ours(held.X, k, loss, begin, n or OURS),
            "plain": lambda: ours(X, k, loss, begin, m or OURS),
            "masked, 50": lambda: ours(held.X, k, loss, begin, 50),
            "plain, 50": lambda: ours(X, k, loss, begin, 50),
            "masked, tol": lambda: ours(held.X, k, loss, begin, 500, tol=TOL),
            "plain, tol": lambda: ours(X, k, loss, begin, 500, tol=TOL),
        },
        times,
    )
    return {
        "error": error / reference,
        "iterations": n,
        "plain iterations": m,
        "time": seconds["masked"] / seconds["plain"],
        "time of 50": seconds["masked, 50"] / seconds["plain, 50"],
        "time to tol": seconds["masked, tol"] / seconds["plain, tol"],
        "iterations to tol": to_tol[0],
        "plain iterations to tol": to_tol[1],
        "seconds": seconds["masked"],
    }


def peers(folder: Path, times: int) -> dict[str, Any]:
    """ORL, Frobenius: seconds to the reference's error, in scikit-learn and RcppML beside ours."""
    found: dict[str, Any] = {}
    for name, file, share, k in MASKS[:2]:
        X, _ = load(folder, file)
        held = hold_out(X, share, random_state=0)
        found[name] = _peer(held, k, start(X, k), times)
        print(name, found[name], flush=True)
    return found


def _peer(held: Any, k: int, begin: dict[str, np.ndarray], times: int) -> dict[str, Any]:
    def score(pair: Any) -> float:
        return error_of(held, pair, FROBENIUS)

    def fit(n: int) -> NMF:
        return ours(held.X, k, FROBENIUS, begin, n)

    reference = score(naive(held, k, FROBENIUS, begin, REFERENCE))
    target = WITHIN * reference
    n = first_below(lambda n: score(fit(n)), target, OURS) or OURS
    seconds = in_turns({"ours": lambda: fit(n)}, times)["ours"]
    rows = {
        "partwise": {"seconds": seconds, "error": score(fit(n)), "iterations": n},
        "scikit-learn, iterated filling": sklearn_filling(held.X, k, begin, target, score),
        "RcppML 0.3.7": rcppml(held.X, k, begin, target, score),
    }
    for row in rows.values():
        if "error" in row:
            row["error"] /= reference
    return rows


def samson(folder: Path, times: int) -> dict[str, Any]:
    """Two endmembers known, the third found: degrees to its reference."""
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
    """The spectral angle."""
    cosine = a @ b / (np.linalg.norm(a) * np.linalg.norm(b))
    return float(np.degrees(np.arccos(np.clip(cosine, -1, 1))))


def topics(folder: Path, times: int) -> dict[str, Any]:
    """BBC news: the share of documents whose topic is right."""
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
    """The part that has most of each document, parts at length one."""
    return np.argmax(model.embedding_ * np.linalg.norm(model.components_, axis=1), axis=1)


ROWS = {"masks": masks, "peers": peers, "samson": samson, "topics": topics}


def main() -> None:
    """Measure rows, keep them, write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("PARTWISE_DATA"))
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    parser.add_argument("--times", type=int, default=5, help="runs whose median is taken")
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    if given.data is None:
        parser.error("--data FOLDER, or PARTWISE_DATA, names the folder of the data sets")
    store = given.out / "knowledge.json"
    held = json.loads(store.read_text()) if store.exists() else {}
    for name in given.rows:
        held[name] = ROWS[name](Path(given.data), given.times)
        held[name]["machine"] = f"{platform.machine()}, {os.cpu_count()} cores"
        store.write_text(json.dumps(held, indent=1) + "\n")
        write_page(held, given.out / "knowledge.md")


if __name__ == "__main__":
    main()
