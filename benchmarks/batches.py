"""Batch correction: mixing of neighbours and agreement of cell types, compared with harmony.

    python -m benchmarks.batches --data FOLDER --python HARMONY_ENV/bin/python

There are two data sets. The synthetic one has two batches of 1,000 cells of six types with Poisson
counts. The second batch multiplies each gene by its own factor (log-normal, 0.5) and adds one gene
expression program to every cell. The real one has worm neurons (the 2,000 most variable genes) in
two random halves; the second half is shifted in the same way.

Mixing is the share of the 15 nearest neighbours of a cell from the other batch, divided by the
share of that batch: 1 is perfect. Agreement is the share of cells whose type is that of most of
their 15 nearest neighbours in the *other* batch. All methods get counts scaled to 10,000 per cell
and log(1 + x). ``--python`` is the Python of an environment with ``harmonypy``, which gets the 20
principal components.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

HARMONY = """
import sys, numpy as np, pandas as pd, harmonypy
Z, batch = np.load(sys.argv[1]), np.load(sys.argv[2])
out = harmonypy.run_harmony(Z, pd.DataFrame({"batch": batch.astype(str)}), ["batch"])
R = np.asarray(out.Z_corr)
np.save(sys.argv[3], R if R.shape[0] == len(Z) else R.T)
"""


def shifted(counts: Any, batch: Any, rng: Any) -> Any:
    """Return counts in which the second batch has gene factors and an additional gene program."""
    n, p = counts.shape
    factor = rng.lognormal(0, 0.5, p)
    own = rng.gamma(0.2, size=p)
    own *= 0.1 * counts.sum(axis=1).mean() / own.sum()
    mean = counts * np.where(batch[:, None] == 1, factor, 1.0)
    drawn = rng.poisson(own * rng.gamma(4, 0.25, (n, 1))) * (batch[:, None] == 1)
    return rng.poisson(mean) + drawn


def made(seed: int) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(seed)
    n, p, types = 2000, 600, 6
    H = rng.gamma(0.2, size=(types, p))
    H *= 800 / H.sum(axis=1, keepdims=True)
    label = rng.integers(types, size=n)
    share = rng.beta(4, 2, n)[:, None]
    base = rng.poisson(share * H[label] + (1 - share) * H[rng.integers(types, size=n)])
    batch = rng.integers(2, size=n)
    return shifted(base, batch, rng), batch, label


def worms(folder: str, seed: int) -> tuple[Any, Any, Any]:
    from partwise.io.genes import variable_genes

    with np.load(Path(folder) / "worm_neuron_sc.npz") as file:
        arrays = (file["data"].astype(float), file["indices"].astype(np.int32), file["indptr"])
        X, label = sp.csr_array(arrays, shape=tuple(file["shape"])), file["y"]
    X = X[:, variable_genes(X, 2000)].toarray()
    rng = np.random.default_rng(seed)
    batch = rng.integers(2, size=len(X))
    return shifted(X, batch, rng), batch, label


def judged(Z: Any, batch: Any, label: Any, k: int = 15) -> tuple[float, float]:
    from sklearn.neighbors import NearestNeighbors

    near = NearestNeighbors(n_neighbors=k + 1).fit(Z).kneighbors(Z, return_distance=False)[:, 1:]
    other = np.array([(batch != b).mean() for b in (0, 1)])[batch]
    mixing = float(((batch[near] != batch[:, None]).mean(axis=1) / other).mean())
    right = np.zeros(len(Z), bool)
    for b in (0, 1):
        here, there = np.flatnonzero(batch == b), np.flatnonzero(batch != b)
        at = (
            NearestNeighbors(n_neighbors=k).fit(Z[there]).kneighbors(Z[here], return_distance=False)
        )
        most = [np.bincount(label[there][row]).argmax() for row in at]
        right[here] = np.array(most) == label[here]
    return mixing, float(right.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=".")
    parser.add_argument("--python", default=None)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    import anndata
    from sklearn.decomposition import PCA

    from partwise import cells

    def unit(V: Any) -> Any:
        return V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-12)

    for name, make in (("made", made), ("worm neurons", lambda s: worms(given.data, s))):
        X, batch, label = make(given.seed)
        logs = np.log1p(1e4 * X / np.maximum(X.sum(axis=1, keepdims=True), 1))
        adata = anndata.AnnData(logs)
        adata.obs["batch"] = batch.astype(str)
        pcs = PCA(20, random_state=0).fit_transform(logs)
        found = {"principal components": pcs}
        cells.factorize(adata, 20, key_added="plain", random_state=0, tol=1e-3)
        found["NMF"] = unit(adata.obsm["X_plain"])
        for own in (1, 3):
            cells.integrate(adata, "batch", 20, own=own)
            found[f"integrate, own={own}"] = unit(adata.obsm["X_parts"])
        if given.python:
            with tempfile.TemporaryDirectory() as folder:
                paths = [str(Path(folder) / f"{part}.npy") for part in ("z", "b", "out")]
                np.save(paths[0], pcs)
                np.save(paths[1], batch)
                subprocess.run(
                    [given.python, "-c", HARMONY, *paths], check=True, capture_output=True
                )
                found["harmony"] = np.load(paths[2])
        for how, Z in found.items():
            mixing, agreement = judged(Z, batch, label)
            row = {"set": name, "by": how, "mixing": round(mixing, 3)}
            print(json.dumps({**row, "agreement": round(agreement, 3)}), flush=True)


if __name__ == "__main__":
    main()
