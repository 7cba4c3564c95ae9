"""Array types for tests, and fits to them; a type whose package is missing skips the test."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from methods import FROBENIUS, GRAPH, KL, NAMED, combination, make_problem
from partwise.backends.arrays import to_numpy

NEEDS = {"torch": "gpu", "dask": "dask", "distributed": "dask"}


def missing(package: str) -> bool:
    return importlib.util.find_spec(package) is None


def needs(package: str) -> Any:
    """Return a pytest mark that skips a test if a package is not installed."""
    reason = f"{package} is not installed: partwise[{NEEDS[package]}]"
    return pytest.mark.skipif(missing(package), reason=reason)


if not missing("torch"):
    import torch

    torch.set_num_threads(1)

ANY = [
    combination(loss, hard=True, graph=GRAPH if loss == FROBENIUS else 0.0, class_reg=1.5,
                smoothing=0.4, elastic=(0.004, 0.003, 0.4), weights=True, name=f"any-{loss[:1]}")
    for loss in (FROBENIUS, KL)
]  # fmt: skip
#: Methods with which array types are compared; "any" is ConstrainedNMF with most of its options.
METHODS = [m for m in NAMED if m.everywhere] + ANY
#: Array types other than ndarrays: those that NumPy reads, those in blocks of rows, and all of
#: them. "workers" is "dask" with two processes.
HERE, ON_DASK = ("csr", "memmap"), ("dask", "dask-csr")
KINDS = (*HERE, "torch", "torch-csr", *ON_DASK)
ELSEWHERE = tuple(kind for kind in KINDS if kind not in HERE)
q = make_problem(0, n=60, p=40)


def method(name: str) -> Any:
    return next(m for m in METHODS if m.name == name)


class Forms:
    """Mapping from the name of an array type to X as such an array."""

    def __init__(self, X: np.ndarray, folder: Any) -> None:
        self.X, self.folder = X, folder

    def __getitem__(self, kind: str) -> Any:
        package = kind.partition("-")[0]
        if package in NEEDS and missing(package):
            pytest.skip(f"{package} is not installed: partwise[{NEEDS[package]}]")
        return getattr(self, "_" + kind.replace("-", "_"))()

    def _numpy(self) -> Any:
        return self.X

    def _csr(self) -> Any:
        return sp.csr_array(self.X)

    def _memmap(self) -> Any:
        path = self.folder / "X.npy"
        if not path.exists():
            np.save(path, self.X)
        return np.load(path, mmap_mode="r")

    def _torch(self) -> Any:
        return torch.from_numpy(self.X.copy())

    def _torch_csr(self) -> Any:
        return self._torch().to_sparse_csr()

    def _dask(self) -> Any:
        import dask.array as da

        return da.from_array(self.X, chunks=(17, 40))

    def _dask_csr(self) -> Any:
        import dask.array as da

        return da.from_array(self.X, chunks=(23, 20)).map_blocks(sp.csr_array)


def fitted(method: Any, X: Any, solver: str = "mu", scale: str = "unit", **params: Any) -> Any:
    # "mu" runs 10 iterations, in which the residual is checked twice. Solvers with extrapolation
    # take another path to the same minimum, so they run 20.
    settings = {"max_iter": 10 if solver == "mu" else 20, "tol": 0.0, **params}
    model = method.make(solver, scale, init="custom", **settings)
    return model.fit(X, W=q.V, H=np.ascontiguousarray(q.U.T), **method.data(q))


def product(model: Any) -> np.ndarray:
    return np.asarray(to_numpy(model.embedding_)) @ to_numpy(model.components_)


def two_workers(processes: bool = True) -> Any:
    """Yield a Dask client of two workers; use it with ``as_current()``.

    With `processes=False` the workers live in this process, which starts at once. All data still
    passes through a socket.
    """
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=processes,
            protocol="tcp",
            dashboard_address=":0",
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        yield client


#: Code that measures the peak memory of a new process in MB. ru_maxrss would include the peak of
#: the parent process.
PEAK = """
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) / 1024
"""
linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
