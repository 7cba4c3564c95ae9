"""A synthetic tissue with known domains: NMF, GNMF, and GNMF with a spatial graph.

    python -m benchmarks.places --cells 20000 --genes 500 -k 10

Cells lie on a grid that is divided into domains (nearest of some random centres). Each cell mixes
the program of its domain with that of a random type, and its counts are drawn from the mixture
(Poisson). The script reports seconds, Moran's I of the part weights (mean over parts), and the
adjusted Rand index between the domains and k-means on part weights of length one. The weight of the
spatial graph is the best of three by `select` on hidden entries, on a patch of the tissue. With
``--only nmf@cuda,gnmf@cuda,places@cpu`` each method has its own device.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import MiniBatchKMeans

from partwise import GNMF, NMF, select
from partwise.backends.arrays import to_numpy
from partwise.evaluation.metrics import adjusted_rand
from partwise.graph import morans_i, neighbor_graph, pixel_places, spatial_graph

WEIGHTS = (0.0, 0.1, 1.0, 10.0)


def tissue(n: int, p: int, domains: int, types: int, depth: float, seed: int) -> Any:
    """Return counts (CSR, float32), positions, and the domain of each cell."""
    rng = np.random.default_rng(seed)
    side = int(np.ceil(np.sqrt(n)))
    places = pixel_places((side, side))[:n]
    centres = rng.uniform(0, side, (domains, 2))
    domain = np.argmin(((places[:, None] - centres) ** 2).sum(-1), axis=1)
    H = rng.gamma(0.3, size=(domains + types, p))
    H *= depth / H.sum(axis=1, keepdims=True)
    own = rng.beta(2, 2, n)[:, None]
    kind = domains + rng.integers(types, size=n)
    return counts_of(own, H, domain, kind, seed), places, domain


def counts_of(own: Any, H: Any, domain: Any, kind: Any, seed: int) -> sp.csr_array:
    """Return Poisson counts, drawn in blocks, and on a GPU if there is one."""
    try:
        import torch

        cuda = torch.cuda.is_available()
    except ImportError:
        cuda = False
    blocks = []
    rng = np.random.default_rng(seed + 1)
    if cuda:
        torch.manual_seed(seed)
        parts = torch.from_numpy(H.astype(np.float32)).cuda()
    for lo in range(0, len(own), 20_000):
        at = slice(lo, lo + 20_000)
        if cuda:
            share = torch.from_numpy(own[at].astype(np.float32)).cuda()
            a, b = (torch.from_numpy(i[at]).cuda() for i in (domain, kind))
            drawn = torch.poisson(share * parts[a] + (1 - share) * parts[b]).to_sparse_csr().cpu()
            arrays = drawn.values(), drawn.col_indices(), drawn.crow_indices()
            blocks.append(sp.csr_array(tuple(t.numpy() for t in arrays), shape=drawn.shape))
        else:
            mean = own[at] * H[domain[at]] + (1 - own[at]) * H[kind[at]]
            blocks.append(sp.csr_array(rng.poisson(mean).astype(np.float32)))
    X = sp.csr_array(sp.vstack(blocks, format="csr"))
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def expression_graph(X: Any, neighbors: int = 5) -> Any:
    """Return GNMF's graph of the counts, computed on a GPU from all pairs of cells.

    Whole numbers up to 2,048 are exact in TF32, and so are their sums below 2²⁴.
    """
    import torch

    if not torch.cuda.is_available():
        return neighbor_graph(X, neighbors)
    torch.backends.cuda.matmul.allow_tf32 = True
    dense = torch.from_numpy(X.toarray()).cuda()
    squares, found = (dense * dense).sum(axis=1), []
    for lo in range(0, len(dense), 4096):
        block = dense[lo : lo + 4096]
        distances = torch.addmm(squares[None, :], block, dense.t(), alpha=-2)
        own = torch.arange(len(block), device="cuda")
        distances[own, lo + own] = torch.inf
        found.append(distances.topk(neighbors, largest=False).indices.cpu().numpy())
    torch.backends.cuda.matmul.allow_tf32 = False
    columns = np.concatenate(found).ravel()
    starts = np.arange(0, len(columns) + 1, neighbors)
    W = sp.csr_array((np.ones(len(columns), X.dtype), columns, starts), shape=(len(dense),) * 2)
    return sp.csr_array(W.maximum(W.T))


def judged(V: Any, domain: Any, W: Any, k: int) -> dict[str, float]:
    V = to_numpy(V).astype(np.float64)
    unit = V / np.maximum(np.linalg.norm(V, axis=1, keepdims=True), 1e-300)
    found = MiniBatchKMeans(k, n_init=5, batch_size=4096, random_state=0).fit_predict(unit)
    best = MiniBatchKMeans(domain.max() + 1, n_init=5, batch_size=4096, random_state=0)
    return {
        "moran": float(np.nanmean(morans_i(V, W))),
        "ari": float(adjusted_rand(domain, best.fit_predict(unit))),
        "ari_k": float(adjusted_rand(domain, found)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cells", type=int, default=20_000)
    parser.add_argument("--genes", type=int, default=500)
    parser.add_argument("-k", type=int, default=10)
    parser.add_argument("--domains", type=int, default=8)
    parser.add_argument("--types", type=int, default=6)
    parser.add_argument("--depth", type=float, default=100)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="A fit before, which compiles.")
    parser.add_argument("--device", default=None)
    parser.add_argument("--weight", type=float, default=None, help="None: by select.")
    parser.add_argument("--only", default="nmf,gnmf,places")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    X, places, domain = tissue(
        given.cells, given.genes, given.domains, given.types, given.depth, given.seed
    )
    began = time.perf_counter()
    W = spatial_graph(places, 6)
    graph_seconds = time.perf_counter() - began
    print(f"{X.shape}, {X.nnz:,} counts; graph of places in {graph_seconds:.1f} s", flush=True)
    weight = given.weight
    if weight is None:
        patch = (places < np.sqrt(min(given.cells, 2500))).all(axis=1)
        model = GNMF(given.k, beta_loss="kullback-leibler", max_iter=100, random_state=0)
        inner = W[patch][:, patch]
        found = select(
            X[patch], model, {"graph_reg": WEIGHTS}, graph=inner, n_splits=3, random_state=0
        )
        weight = found.best["graph_reg"]
        print(found.table(), flush=True)
    common = {"beta_loss": "kullback-leibler", "max_iter": given.iterations, "random_state": 0}
    common |= {"init": "random", "tol": 1e-4}
    for word in given.only.split(","):
        name, _, device = word.partition("@")
        device = device or given.device or "cpu"
        reg = weight if name == "places" else 1.0
        model = NMF(given.k, **common) if name == "nmf" else GNMF(given.k, graph_reg=reg, **common)
        model.set_params(device=None if device == "cpu" else device)
        row: dict[str, Any] = {"model": name, "device": device}
        began = time.perf_counter()
        more = {} if name == "nmf" else {"graph": W if name == "places" else expression_graph(X)}
        row["graph"] = round(time.perf_counter() - began, 2) if name == "gnmf" else None
        for iterations in (given.first, given.iterations):
            if iterations:
                began = time.perf_counter()
                model.set_params(max_iter=iterations).fit(X, **more)
                row |= {"seconds": time.perf_counter() - began, "iterations": int(model.n_iter_)}
                print(json.dumps({**row, "weight": weight}), flush=True)
        row |= {**judged(model.embedding_, domain, W, given.k), "loss": model.reconstruction_err_}
        print(json.dumps({**row, "weight": weight}), flush=True)


if __name__ == "__main__":
    main()
