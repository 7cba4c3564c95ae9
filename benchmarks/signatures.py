"""Mutational signatures from made counts: precision and recall at cosine 0.9.

A catalogue of 40 profiles of 96 channels, two thirds of them peaked (Dirichlet 0.15) and one third
flat (Dirichlet 1), stands for the reference. A set draws 5 to 10 of them; each of its 200 genomes
uses a signature with probability 0.5 and then has a lognormal number of mutations from it (median
500, deviation 1 of the logarithm); counts are Poisson. A signature that is found counts as right if
the closest of the catalogue is one of those drawn, at a cosine of 0.9 or more.

    python -m benchmarks.signatures                          # ours, six sets
    python -m benchmarks.signatures --save FOLDER            # the sets as .npy, for other programs
"""

from __future__ import annotations

import numpy as np

GENOMES, CHANNELS, CATALOGUE = 200, 96, 40
RANKS = (5, 6, 7, 8, 9, 10)


def catalogue() -> np.ndarray:
    """The reference profiles, the same for every set."""
    rng = np.random.default_rng(2026)
    peaked = rng.dirichlet(np.full(CHANNELS, 0.15), CATALOGUE * 2 // 3)
    flat = rng.dirichlet(np.full(CHANNELS, 1.0), CATALOGUE - len(peaked))
    return np.concatenate([peaked, flat])


def made(rank: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Counts of one set, and which profiles it was made from."""
    rng = np.random.default_rng([rank, seed])
    drawn = np.sort(rng.choice(CATALOGUE, rank, replace=False))
    used = rng.random((GENOMES, rank)) < 0.5
    numbers = used * rng.lognormal(np.log(500), 1.0, (GENOMES, rank))
    return rng.poisson(numbers @ catalogue()[drawn]).astype(float), drawn
