"""Mutational signatures from synthetic counts: precision and recall at cosine 0.9.

A catalogue of 40 profiles of 96 channels, two thirds of them peaked (Dirichlet 0.15) and one third
flat (Dirichlet 1), serves as the reference. A set draws 5 to 10 of them; each of its 200 genomes
uses a signature with probability 0.5 and then has a lognormal number of mutations from it (median
500, deviation 1 of the logarithm); counts are Poisson. A found signature is correct if
its closest profile in the catalogue was drawn and has a cosine of 0.9 or more.

    python -m benchmarks.signatures                          # Partwise, six data sets
    python -m benchmarks.signatures --save FOLDER            # write the data as .npy
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np

GENOMES, CHANNELS, CATALOGUE = 200, 96, 40
RANKS = (5, 6, 7, 8, 9, 10)


def catalogue() -> np.ndarray:
    """Return the reference profiles, which are the same for every data set."""
    rng = np.random.default_rng(2026)
    peaked = rng.dirichlet(np.full(CHANNELS, 0.15), CATALOGUE * 2 // 3)
    flat = rng.dirichlet(np.full(CHANNELS, 1.0), CATALOGUE - len(peaked))
    return np.concatenate([peaked, flat])


def made(rank: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the counts of one data set, and the profiles that they were drawn from."""
    rng = np.random.default_rng([rank, seed])
    drawn = np.sort(rng.choice(CATALOGUE, rank, replace=False))
    used = rng.random((GENOMES, rank)) < 0.5
    numbers = used * rng.lognormal(np.log(500), 1.0, (GENOMES, rank))
    return rng.poisson(numbers @ catalogue()[drawn]).astype(float), drawn


def score(parts: np.ndarray, drawn: np.ndarray) -> tuple[float, float]:
    """Return the precision and the recall of the found signatures."""
    from partwise import match_parts

    table = match_parts(parts, catalogue(), threshold=0.9)
    right = [name for name in table["match"] if name in set(drawn)]
    return len(right) / len(table), len(right) / len(drawn)


def ours(X: np.ndarray, n_runs: int) -> tuple[int, np.ndarray]:
    """Return the number of signatures that held-out entries choose, and consensus signatures."""
    from partwise import NMF, choose_k, consensus

    model = NMF(beta_loss="kullback-leibler", tol=1e-4)
    k = choose_k(X, range(2, 15), estimator=model, n_runs=0, random_state=0).k
    found = consensus(
        X, k, n_runs=n_runs, estimator=model, unit_variance=False, bootstrap="poisson",
        density_threshold=2.0, random_state=0,
    )  # fmt: skip
    return k, found.spectra


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--save", type=Path, help="write the sets there and end")
    parser.add_argument("--parts", nargs=2, metavar=("RANK", "FILE"), help="score parts of a .npy")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--ranks", type=int, nargs="+", default=RANKS)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.parts:
        found = np.load(given.parts[1])
        print(len(found), score(found, made(int(given.parts[0]), 0)[1]))
        return
    both = []
    for rank in given.ranks:
        X, drawn = made(rank, 0)
        if given.save:
            np.save(given.save / f"set{rank}.npy", X)
            continue
        began = time.perf_counter()
        k, parts = ours(X, given.runs)
        both.append(score(parts, drawn))
        seconds = time.perf_counter() - began
        precision, recall = both[-1]
        print(f"{rank:2d} signatures: found {k}, precision {precision:.2f}, recall {recall:.2f}, "
              f"{seconds:.1f} s", flush=True)  # fmt: skip
    if both:
        precision, recall = np.mean(both, axis=0)
        print(f"mean precision {precision:.3f}, recall {recall:.3f}")


if __name__ == "__main__":
    main()
