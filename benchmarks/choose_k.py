"""Share of true numbers of components that `choose_k` and other methods find, and its time.

    python -m benchmarks.choose_k --jobs 16 --out results/       # the grid
    python -m benchmarks.choose_k --off                          # smaller and noisier than the grid
    python -m benchmarks.choose_k --cost                         # time compared with scikit-learn

The data has E X = Y, where Y is a product of ``rank`` components. The grid was fixed before any
result was seen: ranks 3, 5, 8, 12, 16, 20; Poisson counts, or Gaussian noise of mean zero;
independent components, or components that share half of a profile; 300 x 150; candidates 1 to 25.
The signal-to-noise ratio is the variance of Y divided by the mean variance of the noise. It is 10
in **moderate** noise (seeds 100 to 104: 120 sets) and 3 in heavy noise (seeds 100 and 101).
Gaussian noise has a constant deviation; for small entries it is half of the entry, which keeps the
mean at zero. "clipped" is max(Y + noise, 0), as others use it. Its mean is not a product of
``rank`` components, so it is reported separately. Seeds from 1000 on were used for development,
and seeds 0 to 4 once, with a version that had a bug.

Other methods choose among the same candidates: the highest cophenetic correlation, and the one
before its largest fall (Brunet et al. 2004); the elbow of scikit-learn's error, which is the point
farthest below the chord; and block bi-cross-validation (Owen & Perry 2009) with scikit-learn's NMF.
The last one uses five blocks of a fifth of the rows and columns, and either the lowest error or the
one-standard-error rule.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

if __name__ == "__main__":  # each process uses one core; libraries read this when they are imported
    for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(_name, "1")

import numpy as np

RANKS = (3, 5, 8, 12, 16, 20)
TRIED = tuple(range(1, 26))
MODERATE, HEAVY = 10.0, 3.0
SHAPE = (300, 150)


def made(
    rank: int, noise: str, correlated: bool, seed: int, *, ratio: float = MODERATE,
    shape: tuple[int, int] = SHAPE,
) -> np.ndarray:  # fmt: skip
    """Return one synthetic data set, where ``ratio`` is the signal-to-noise ratio."""
    rng = np.random.default_rng([seed, rank, noise == "counts", correlated])
    H = rng.gamma(0.3, size=(rank, shape[1]))
    if correlated:
        H = H + 0.5 * H.mean(axis=0)
    Y = rng.gamma(0.5, size=(shape[0], rank)) @ H
    if noise == "counts":
        return rng.poisson(ratio * Y.mean() / Y.var() * Y).astype(float)
    wanted = Y.var() / ratio
    deviation: Any = np.sqrt(wanted)
    if noise == "gaussian":
        low, high = 0.0, float(Y.max())
        for _ in range(60):
            middle = (low + high) / 2
            short = (np.minimum(middle, Y / 2) ** 2).mean() < wanted
            low, high = (middle, high) if short else (low, middle)
        deviation = np.minimum(high, Y / 2)
    return np.maximum(Y + deviation * rng.standard_normal(Y.shape), 0)


def sets() -> list[dict[str, Any]]:
    """Return rank, noise, correlation, seed and noise ratio of all data sets of the grid."""
    cells = itertools.product(RANKS, ("counts", "gaussian"), (False, True))
    found = []
    for rank, noise, correlated in cells:
        cell = {"rank": rank, "noise": noise, "correlated": correlated}
        found += [{**cell, "seed": seed, "ratio": MODERATE} for seed in range(100, 105)]
        found += [{**cell, "seed": seed, "ratio": HEAVY} for seed in range(100, 102)]
        if noise == "gaussian":
            clipped = {**cell, "noise": "clipped", "ratio": MODERATE}
            found += [{**clipped, "seed": seed} for seed in range(100, 102)]
    return found


# -- the numbers that each method chooses ---------------------------------------------------------


def answers(X: np.ndarray) -> dict[str, int]:
    """Return the numbers of components that `choose_k` and other methods choose for X."""
    from partwise import choose_k

    found = choose_k(X, TRIED, random_state=0)
    cophenetic = found.cophenetic[1:]  # the correlations for k = 2 and above
    training, blocks = sklearn_errors(X)
    low, one = lowest(blocks)
    return {
        "ours": found.k,
        "ours, lowest error": int(found.numbers[found.errors.mean(axis=1).argmin()]),
        "cophenetic, highest": TRIED[1 + int(cophenetic.argmax())],
        "cophenetic, before its fall": TRIED[1 + int((cophenetic[:-1] - cophenetic[1:]).argmax())],
        "elbow": elbow(training),
        "bi-cross-validation": low,
        "bi-cross-validation, one s.e.": one,
    }


def elbow(errors: np.ndarray) -> int:
    """Return the number of components at which the curve is farthest below its chord."""
    x = np.linspace(0, 1, len(errors))
    y = (errors - errors[-1]) / (errors[0] - errors[-1])
    return TRIED[int((1 - x - y).argmax())]


def lowest(errors: np.ndarray) -> tuple[int, int]:
    """Return the number of lowest mean error, and the smallest within one standard error of it."""
    best = errors.mean(axis=1).argmin()
    above = errors - errors[best]
    room = above.std(axis=1, ddof=1) / np.sqrt(errors.shape[1])
    return TRIED[int(best)], TRIED[int(np.flatnonzero(above.mean(axis=1) <= room)[0])]


def sklearn_errors(X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return squared errors of scikit-learn for each number, in total and on held-out blocks."""
    from sklearn.decomposition import NMF, non_negative_factorization

    rng = np.random.RandomState(0)
    rows, columns = (np.array_split(rng.permutation(size), 5) for size in X.shape)
    training, blocks = np.empty(len(TRIED)), np.empty((len(TRIED), 5))
    for at, k in enumerate(TRIED):
        training[at] = NMF(k, random_state=0).fit(X).reconstruction_err_ ** 2
        for number, (out, off) in enumerate(zip(rows, columns, strict=True)):
            kept = np.setdiff1d(np.arange(X.shape[0]), out)
            left = np.setdiff1d(np.arange(X.shape[1]), off)
            model = NMF(k, random_state=0)
            W = model.fit_transform(X[np.ix_(kept, left)])
            codes = model.transform(X[np.ix_(out, left)])
            fixed = {"n_components": k, "update_H": False}
            H = non_negative_factorization(X[np.ix_(kept, off)].T, H=W.T.copy(), **fixed)[0].T
            blocks[at, number] = ((X[np.ix_(out, off)] - codes @ H) ** 2).mean()
    return training, blocks


def run_one(cell: dict[str, Any]) -> dict[str, Any]:
    """Run all methods on one data set and measure the seconds."""
    warnings.simplefilter("ignore")
    began = time.perf_counter()
    X = made(cell["rank"], cell["noise"], cell["correlated"], cell["seed"], ratio=cell["ratio"])
    return {**cell, **answers(X), "seconds": round(time.perf_counter() - began, 1)}


# -- tables of the results ------------------------------------------------------------------------


def table(rows: list[dict[str, Any]]) -> str:
    """Return the shares of exact answers and of those off by one, by method and kind of data."""
    kinds = {
        "moderate": lambda row: row["ratio"] == MODERATE and row["noise"] != "clipped",
        "- counts": lambda row: row["ratio"] == MODERATE and row["noise"] == "counts",
        "- gaussian": lambda row: row["ratio"] == MODERATE and row["noise"] == "gaussian",
        "heavy": lambda row: row["ratio"] == HEAVY,
        "clipped": lambda row: row["noise"] == "clipped",
    }
    chosen = {name: [row for row in rows if among(row)] for name, among in kinds.items()}
    heads = " | ".join(f"{name} ({len(some)})" for name, some in chosen.items())
    lines = [f"| exact / within one, % | {heads} |", "| --- " * (len(kinds) + 1) + "|"]
    for answer in [name for name in rows[0] if name.split(",")[0] in ANSWERS]:
        cells = []
        for some in chosen.values():
            off = np.array([abs(row[answer] - row["rank"]) for row in some] or [np.nan])
            cells.append(f"{100 * (off == 0).mean():.0f} / {100 * (off <= 1).mean():.0f}")
        lines.append(f"| {answer} | " + " | ".join(cells) + " |")
    wrong = [row for row in rows if row["ours"] != row["rank"]]
    lines += ["", "Sets that ours missed (rank, answer):"]
    lines += [
        f"- {row['noise']}, {'correlated' if row['correlated'] else 'alone'}, ratio "
        f"{row['ratio']:g}, seed {row['seed']}: {row['rank']}, {row['ours']}"
        for row in wrong
    ]
    return "\n".join(lines)


ANSWERS = ("ours", "cophenetic", "elbow", "bi-cross-validation")


def off_grid() -> str:
    """Run 16 data sets of 100 x 60 at each signal-to-noise ratio of 10, 3 and 1."""
    from partwise import choose_k

    lines = ["| ratio | exact | within one | answers (rank: answers) |", "|---|---|---|---|"]
    cells = list(itertools.product((3, 5), ("counts", "gaussian"), (False, True), (200, 201)))
    for ratio in (10.0, 3.0, 1.0):
        told: dict[int, list[int]] = {}
        for rank, noise, correlated, seed in cells:
            X = made(rank, noise, correlated, seed, ratio=ratio, shape=(100, 60))
            found = choose_k(X, range(1, 16), n_runs=0, random_state=0)
            told.setdefault(rank, []).append(found.k)
        off = np.array([abs(k - rank) for rank, ks in told.items() for k in ks])
        said = "; ".join(f"{rank}: {' '.join(map(str, sorted(ks)))}" for rank, ks in told.items())
        exact, near = int((off == 0).sum()), int((off <= 1).sum())
        lines.append(f"| {ratio:g} | {exact} of {len(off)} | {near} of {len(off)} | {said} |")
    return "\n".join(lines)


def cost() -> str:
    """Measure the seconds of `choose_k`, and of one scikit-learn NMF per candidate."""
    from sklearn.decomposition import NMF

    from partwise import choose_k

    warnings.simplefilter("ignore")
    tried, X = range(2, 21), made(10, "gaussian", False, 0, shape=(2000, 1000))
    choose_k(X, [2, 3])  # the first call compiles the kernels
    lines = []
    for runs in (0, None):
        began = time.perf_counter()
        found = choose_k(X, tried, n_runs=runs, random_state=0)
        ours = time.perf_counter() - began
        began = time.perf_counter()
        for k in tried:
            NMF(k, random_state=0).fit(X)
        theirs = time.perf_counter() - began
        lines.append(
            f"2000 x 1000, rank 10, k = 2 to 20: choose_k(n_runs={runs}) says {found.k} in "
            f"{ours:.1f} s; scikit-learn's NMF once at each {theirs:.1f} s."
        )
    return "\n".join(lines)


def main() -> None:
    """Run the grid of data sets, or measure the time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--cost", action="store_true")
    parser.add_argument("--off", action="store_true")
    parser.add_argument("--some", type=int, default=1, help="every so many of the sets")
    given = parser.parse_args()
    if given.cost:
        print(cost())
        return
    if given.off:
        print(off_grid())
        return
    cells = sets()[:: given.some]
    # Long runs begin first, so that no process is idle at the end.
    cells.sort(key=lambda cell: -cell["rank"])
    rows: list[dict[str, Any]] = []
    began = time.perf_counter()
    with ProcessPoolExecutor(given.jobs) as pool:
        for row in pool.map(run_one, cells):
            rows.append(row)
            print(json.dumps(row), flush=True)
    text = table(rows) + f"\n\n{len(rows)} sets, {time.perf_counter() - began:.0f} s."
    print(text)
    if given.out is not None:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "choose_k.json").write_text(json.dumps(rows), encoding="utf-8")
        (given.out / "choose_k.md").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
