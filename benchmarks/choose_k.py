"""Share of planted numbers of parts that `choose_k` finds, over a grid of made data.

Ranks 3, 5, 8; Gaussian noise of 0.3 of the signal's deviation, or Poisson counts of mean 2; parts
drawn alone, or with half of a profile that all share; 200 x 100; tried: 1 to 11.
"""

from __future__ import annotations

import itertools
import sys
import time

import numpy as np

from partwise import choose_k


def made(rank: int, noise: str, correlated: bool, seed: int) -> np.ndarray:
    """One set."""
    rng = np.random.default_rng(seed)
    H = rng.gamma(0.3, size=(rank, 100))
    if correlated:
        H = H + 0.5 * H.mean(axis=0)
    Y = rng.gamma(0.5, size=(200, rank)) @ H
    if noise == "counts":
        return rng.poisson(2 * Y / Y.mean()).astype(float)
    return np.maximum(Y + 0.3 * Y.std() * rng.standard_normal(Y.shape), 0)


def main(seeds: int) -> None:
    """Print what was found for each set, and the shares."""
    off = []
    began = time.perf_counter()
    cells = itertools.product((3, 5, 8), ("counts", "gaussian"), (False, True), range(seeds))
    for rank, noise, correlated, seed in cells:
        X = made(rank, noise, correlated, seed)
        found = choose_k(X, range(1, 12), n_runs=0, random_state=0)
        off.append(found.k - rank)
        print(rank, noise, "correlated" if correlated else "alone", found.k, found.good, flush=True)
    wrong = np.abs(off)
    seconds = time.perf_counter() - began
    print(f"{len(off)} sets, {seconds:.0f} s: exact {(wrong == 0).mean():.0%}, ", end="")
    print(f"within one {(wrong <= 1).mean():.0%}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
