"""A contestant in its own process, with JSON lines as requests and arrays in files.

It runs under the Python that has the requested package, so it imports nothing of the benchmark, and
each package only on use. Input that a package needs in another form (a dense array, its own sparse
format) is converted before the clock starts. The clock measures the call that users make, from the
given start and without a tolerance.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

KL = "kullback-leibler"
Fit = Callable[[], tuple[Any, Any, int, list[float]]]


def partwise(X: Any, W: Any, H: Any, loss: str, iterations: int, solver: str) -> Fit:
    from partwise import NMF

    model = NMF(
        W.shape[1], init="custom", solver=solver, beta_loss=loss, tol=0, max_iter=iterations
    )

    def fit() -> tuple[Any, Any, int, list[float]]:
        model.fit(X, W=W, H=H)
        return (
            model.embedding_,
            model.components_,
            model.n_iter_,
            model.objective_history_.tolist(),
        )

    return fit


def scikit_learn(X: Any, W: Any, H: Any, loss: str, iterations: int, solver: str) -> Fit:
    from sklearn.decomposition import NMF

    model = NMF(
        W.shape[1], init="custom", solver=solver, beta_loss=loss, tol=0, max_iter=iterations
    )
    W, H = W.copy(), H.copy()  # scikit-learn changes the initial factors in place

    def fit() -> tuple[Any, Any, int, list[float]]:
        codes = model.fit_transform(X, W=W, H=H)
        return codes, model.components_, model.n_iter_, []

    return fit


def nmf_rs(X: Any, W: Any, H: Any, loss: str, iterations: int, method: str) -> Fit:
    from nmf_rs import nmf  # type: ignore[import-not-found]

    X = _filled(X)

    def fit() -> tuple[Any, Any, int, list[float]]:
        found = nmf(X, W.shape[1], method, W0=W, H0=H, max_iter=iterations)
        return found.W, found.H, found.n_iter, []

    return fit


def nmf_torch(X: Any, W: Any, H: Any, loss: str, iterations: int, algorithm: str) -> Fit:
    import torch
    from nmf.nmf_models import NMFBatchHALS, NMFBatchMU  # type: ignore[import-not-found]

    parent = {"halsvar": NMFBatchHALS, "mu": NMFBatchMU}[algorithm]

    class Started(parent):  # type: ignore[misc, valid-type]
        """Set the initial factors through the package's only hook; it has no custom start."""

        def _initialize_H_W(self, eps: float = 1e-6) -> None:
            self.H, self.W = torch.from_numpy(W.copy()), torch.from_numpy(H.copy())

    X = torch.from_numpy(_filled(X))
    model = Started(
        n_components=W.shape[1],
        init="random",
        beta_loss=1.0 if loss == KL else 2.0,
        tol=0.0,
        random_state=0,
        alpha_W=0.0,
        l1_ratio_W=0.0,
        alpha_H=0.0,
        l1_ratio_H=0.0,
        fp_precision=X.dtype,
        device_type="cpu",
        max_iter=iterations,
    )

    def fit() -> tuple[Any, Any, int, list[float]]:
        model.fit(X)
        return model.H.numpy(), model.W.numpy(), int(model.num_iters), []

    return fit


def torchnmf(X: Any, W: Any, H: Any, loss: str, iterations: int, method: str) -> Fit:
    import torch
    from torchnmf.nmf import NMF  # type: ignore[import-not-found]

    torch.set_default_dtype(torch.float32 if X.dtype == np.float32 else torch.float64)
    if sp.issparse(X):
        coo = X.tocoo()
        places = torch.from_numpy(np.vstack(coo.coords).astype(np.int64))
        X = torch.sparse_coo_tensor(places, torch.from_numpy(coo.data), coo.shape).coalesce()
    else:
        X = torch.from_numpy(X)
    model = NMF(W=torch.from_numpy(H.T.copy()), H=torch.from_numpy(W.copy()))

    def fit() -> tuple[Any, Any, int, list[float]]:
        n = model.fit(X, beta=1 if loss == KL else 2, tol=-np.inf, max_iter=iterations)
        return model.H.detach().numpy(), model.W.detach().numpy().T, n, []

    return fit


#: R code of a fit, which reads X as (features, samples) and prints the seconds of the fit.
R_SCRIPT = """
a <- commandArgs(trailingOnly = TRUE); f <- a[1]; k <- as.integer(a[2]); n <- as.integer(a[3])
suppressMessages({library(Matrix); library(RcppML)})
setRcppMLthreads(as.integer(a[4]))
size <- readBin(file.path(f, "shape"), "integer", 2)
read <- function(name, what, count) readBin(file.path(f, name), what, count)
if (file.exists(file.path(f, "indptr"))) {
  p <- read("indptr", "integer", size[1] + 1); nnz <- p[length(p)]
  A <- new("dgCMatrix", i = read("indices", "integer", nnz), p = p, x = read("data", "double", nnz),
           Dim = size[2:1])
} else A <- matrix(read("data", "double", prod(size)), size[2], size[1])
seconds <- system.time(m <- nmf(A, k, tol = 0, maxit = n, verbose = FALSE, seed = 1))[["elapsed"]]
if (!is.list(m)) m <- list(w = m@w, d = m@d, h = m@h)
writeBin(as.vector(m$w), file.path(f, "w"))
writeBin(as.vector(diag(m$d, k) %*% m$h), file.path(f, "h"))
cat(seconds)
"""


def rcppml(X: Any, W: Any, H: Any, loss: str, iterations: int, method: str) -> Fit:
    """Run RcppML through Rscript in float64, from its own start."""
    if shutil.which("Rscript") is None:
        raise RuntimeError("no Rscript here (Debian: r-cran-rcppml)")
    (n, p), k = X.shape, W.shape[1]
    folder = Path(tempfile.mkdtemp())
    sparse = sp.issparse(X)
    parts = {"shape": np.array([n, p], np.int32), "data": np.float64(X.data if sparse else X)}
    if sparse:
        parts |= {name: np.int32(getattr(X, name)) for name in ("indices", "indptr")}
    for name, values in parts.items():
        np.ascontiguousarray(values).tofile(folder / name)
    threads = os.environ.get("OMP_NUM_THREADS", "0")

    def fit() -> tuple[Any, Any, int, list[float]]:
        words = ["Rscript", "-e", R_SCRIPT, str(folder), str(k), str(iterations), threads]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(done.stderr.strip().splitlines()[-1])
        OWN_CLOCK["seconds"] = float(done.stdout.split()[-1])
        H, W = (np.fromfile(folder / name) for name in "wh")
        shutil.rmtree(folder)
        return W.reshape(n, k), H.reshape(k, p), iterations, []

    return fit


#: The seconds of the last fit, if the package runs in a process of its own (R) and reports them.
#: The start of that process is not included.
OWN_CLOCK: dict[str, float] = {}


def _filled(X: Any) -> np.ndarray:
    global _DENSE
    if not sp.issparse(X):
        return X
    if _DENSE is None:
        _DENSE = X.toarray()
    return _DENSE


_DENSE: np.ndarray | None = None
FITS = {
    "partwise": partwise,
    "scikit-learn": scikit_learn,
    "nmf-rs": nmf_rs,
    "nmf-torch": nmf_torch,
    "torchnmf": torchnmf,
    "RcppML": rcppml,
}


# -- neighbour searches ------------------------------------------------------------------------


def neighbors_partwise(X: Any, k: int) -> tuple[Any, Any]:
    from partwise.knowledge.graph import nearest_neighbors

    return nearest_neighbors(X, k)


def neighbors_scikit_learn(X: Any, k: int) -> tuple[Any, Any]:
    from sklearn.neighbors import NearestNeighbors

    # Without an argument, `kneighbors` excludes the sample itself, as Partwise does.
    distances, indices = NearestNeighbors(n_neighbors=k, algorithm="brute").fit(X).kneighbors()
    return indices, distances


def neighbors_pynndescent(X: Any, k: int) -> tuple[Any, Any]:
    from pynndescent import NNDescent

    indices, distances = NNDescent(X, n_neighbors=k + 1, random_state=0).neighbor_graph
    return indices[:, 1:], distances[:, 1:]  # the first neighbour is the sample itself


NEIGHBORS = {
    "partwise": neighbors_partwise,
    "scikit-learn": neighbors_scikit_learn,
    "pynndescent": neighbors_pynndescent,
}


# -- protocol of requests ----------------------------------------------------------------------


class Session:
    """State of a worker between requests: the data and the initial factors."""

    def __init__(self) -> None:
        self.X: Any = None
        self.W: Any = None
        self.H: Any = None

    def versions(self, names: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = {"python": sys.version.split()[0]}
        for name in names:
            try:
                found[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                found[name] = None
        return {"versions": found}

    def data(self, path: str) -> dict[str, Any]:
        global _DENSE
        _DENSE = None
        with np.load(path) as file:
            if "indptr" in file:
                parts = (file["data"], file["indices"], file["indptr"])
                self.X = sp.csr_array(parts, shape=tuple(file["shape"]))
            else:
                self.X = file["X"]
            self.W, self.H = file.get("W"), file.get("H")
        return {"shape": list(self.X.shape)}

    def fit(
        self, package: str, method: str, loss: str, iterations: int, factors: str | None = None
    ) -> dict[str, Any]:
        call = FITS[package](self.X, self.W, self.H, loss, iterations, method)
        began = time.perf_counter()
        W, H, n, history = call()
        seconds = OWN_CLOCK.pop("seconds", time.perf_counter() - began)
        if factors:
            np.savez(factors, W=W, H=H)
        return {"seconds": seconds, "iterations": n, "history": history}

    def neighbors(
        self, package: str, k: int, rows: int | None = None, out: str | None = None
    ) -> dict[str, Any]:
        X = self.X[:rows]
        began = time.perf_counter()
        indices, distances = NEIGHBORS[package](X, k)
        seconds = time.perf_counter() - began
        if out:
            np.savez(out, indices=indices, distances=distances)
        return {"seconds": seconds}


def main() -> None:
    warnings.simplefilter("ignore")
    # Output of packages goes to stderr, because stdout carries the replies.
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    session = Session()
    for line in sys.stdin:
        request = json.loads(line)
        operation = request.pop("op")
        try:
            reply = {"ok": True, **getattr(session, operation)(**request)}
        except Exception as error:  # the benchmark reports the error and continues
            reply = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies, flush=True)


if __name__ == "__main__":
    main()
