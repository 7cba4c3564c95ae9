"""Coverage of the 95% intervals for parts and part weights on synthetic data.

    python -m benchmarks.intervals --sets 200 --first 1000

Counts are Poisson with mean V H. Parts and part weights have zeros, which make the factorization
unique (``zeros`` and ``unused`` are their shares). Four kinds of data differ in size, k, depth and
zeros. The multiplier and the floor were chosen on seeds 0 to 15; the results use other seeds.
"""

from __future__ import annotations

import argparse
import json
import warnings
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment

from partwise import NMF, bootstrap_intervals

KINDS: dict[str, dict[str, Any]] = {
    "plain": {"n": 150, "p": 40, "k": 3, "depth": 300, "zeros": 0.5, "unused": 0.4},
    "more parts": {"n": 200, "p": 40, "k": 5, "depth": 300, "zeros": 0.5, "unused": 0.4},
    "deep": {"n": 150, "p": 40, "k": 3, "depth": 1000, "zeros": 0.5, "unused": 0.4},
    "fewer zeros": {"n": 150, "p": 60, "k": 4, "depth": 300, "zeros": 0.3, "unused": 0.3},
}


def planted(seed: int, n: int, p: int, k: int, depth: float, zeros: float, unused: float) -> Any:
    rng = np.random.default_rng(seed)
    H = rng.gamma(1.0, size=(k, p)) * (rng.uniform(size=(k, p)) >= zeros)
    H /= H.sum(axis=1, keepdims=True)
    V = rng.gamma(1.0, size=(n, k)) * (rng.uniform(size=(n, k)) >= unused)
    V[V.sum(axis=1) == 0, 0] = 1
    V *= depth / V.mean() / k
    return rng.poisson(V @ H).astype(float), V, H


def one(seed: int, kind: str, draws: int) -> dict[str, float]:
    X, V, H = planted(seed, **KINDS[kind])
    k = len(H)
    model = NMF(
        k, beta_loss="kullback-leibler", init="random", n_init=5, tol=1e-5, max_iter=500,
        random_state=seed,
    ).fit(X)  # fmt: skip
    found = bootstrap_intervals(X, model, n_draws=draws, random_state=seed)
    mass = found.parts.sum(axis=1)
    order = linear_sum_assignment(-(H @ found.parts.T))[1]
    low, high = (M[order] / mass[order, None] for M in (found.parts_low, found.parts_high))
    inside = (low <= H) & (high >= H)
    codes_low, codes_high = (M[:, order] * mass[order] for M in (found.codes_low, found.codes_high))
    held = (codes_low <= V) & (codes_high >= V)
    return {
        "parts": inside.mean(),
        "parts above 0": inside[H > 0].mean(),
        "codes": held.mean(),
        "codes above 0": held[V > 0].mean(),
        "width": float(np.median((high - low)[H > 0] / H[H > 0])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sets", type=int, default=200)
    parser.add_argument("--first", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
    kinds = [list(KINDS)[number % len(KINDS)] for number in range(given.sets)]
    seeds = range(given.first, given.first + given.sets)
    with ProcessPoolExecutor(given.jobs) as pool:
        for kind, row in zip(kinds, pool.map(one, seeds, kinds, [given.draws] * given.sets)):
            rows[kind].append(row)
    every = [row for some in rows.values() for row in some]
    for kind, some in [*rows.items(), ("all", every)]:
        mean = {name: round(float(np.mean([row[name] for row in some])), 4) for name in some[0]}
        print(json.dumps({"sets": len(some), "kind": kind, **mean}), flush=True)


if __name__ == "__main__":
    main()
