"""Run benchmark cases with Partwise and other packages, each package in a worker process."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import race
from benchmarks.cases import KL, Case, start
from benchmarks.objective import OBJECTIVES
from benchmarks.peers import DENSE_ONLY, DIVERGENCE, FROBENIUS
from benchmarks.settings import Settings, memory_bytes
from benchmarks.workers import ContestantError, Worker, save_problem

_SETTLE = 0.1  # seconds until the threads of the last package stop spinning


class Remote:
    """A package in a worker process; the benchmark computes the objective of its factors."""

    def __init__(
        self, name: str, worker: Worker, package: str, method: str, case: Case, X: Any, folder: Path
    ) -> None:
        self.name = name
        self.worker = worker
        self.package, self.method = package, method
        self.loss, self.X = case.loss, X
        self.factors = folder / f"{name.replace(' ', '-')}.npz"

    def run(self, iterations: int, *, evaluate: bool = False, timeout: float = 3600) -> race.Run:
        time.sleep(_SETTLE)
        reply = self.worker.ask(
            "fit",
            timeout=timeout,
            package=self.package,
            method=self.method,
            loss=self.loss,
            iterations=iterations,
            factors=str(self.factors) if evaluate else None,
        )
        value = None
        if evaluate:
            with np.load(self.factors) as file:
                value = OBJECTIVES[self.loss](self.X, file["W"], file["H"])
        return race.Run(reply["seconds"], reply["iterations"], reply["history"], value)


def run_case(
    case: Case, settings: Settings, python: Path | None, earlier: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """Run one benchmark case and return its result, or the reason why it was skipped."""
    base = {"kind": "race", "case": case.name, "title": case.title, "goal": case.goal}
    base |= {"loss": case.loss, "small": case.small, "against": case.against, "k": case.k}
    try:
        X = case.make(settings.quick)
    except FileNotFoundError as error:
        return {**base, "skipped": str(error).split(". ")[0], "entries": [], "curve": []}
    W, H = start(X, case.k)
    base["data"] = {
        "shape": list(X.shape),
        "dtype": str(X.dtype),
        "filled": X.nnz / np.prod(X.shape, dtype=float) if sp.issparse(X) else 1.0,
    }
    table = DIVERGENCE if case.loss == KL else FROBENIUS
    absent = dict.fromkeys(table, "the peers' environment could not be made") if not python else {}
    absent |= _too_large(table, X)
    if case.against and not settings.full:
        others = (peer for peer in table if not peer.startswith(case.against))
        absent |= dict.fromkeys(others, "left to the full run")
    if not case.small:
        slow = race.too_slow(list(earlier), case.loss)
        # The package with which the goal of the case compares always runs.
        absent |= {
            p: w for p, w in slow.items() if not (case.against and p.startswith(case.against))
        }
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        save_problem(folder / "problem.npz", X, W, H)

        def remote(label: str, package: str, method: str, python: str | Path) -> Remote:
            worker = stack.enter_context(Worker(python))
            worker.ask("data", path=str(folder / "problem.npz"))
            return Remote(label, worker, package, method, case, X, folder)

        ours = remote("partwise", "partwise", "auto", sys.executable)
        result = race.hold(
            ours,
            _Started(remote, table, absent, python),
            iterations=20 if settings.quick else case.iterations,
            runs=settings.runs,
            patience=settings.patience,
            limit=settings.limit,
            must=lambda peer: peer.startswith("scikit-learn"),
            say=lambda text: print(f"    {text}", flush=True),
        )
    for peer, why in absent.items():
        result["entries"].append(vars(race.Entry(peer, status=why)))
    best = race.best_ratio(result, case.against)
    seen = {"seen": best[0] if best else None, "seen_against": best[1] if best else None}
    missed = race.not_reached(result, case.against)
    reached = False if missed else None if best is None else best[0] >= case.goal
    return {**base, **result, **seen, "not_reached": missed, "reached": reached}


class _Started:
    """Iterator over other packages, each in a worker that ends before the next one starts."""

    def __init__(self, remote: Any, table: dict[str, Any], absent: Any, python: Any) -> None:
        self.remote, self.python = remote, python
        self.table = {peer: how for peer, how in table.items() if peer not in absent}

    def __iter__(self) -> Any:
        for peer, (package, method) in self.table.items():
            contestant: Any
            try:
                contestant = self.remote(peer, package, method, self.python)
            except ContestantError as error:
                yield _Broken(peer, error)
                continue
            try:
                yield contestant
            finally:
                contestant.worker.close()


class _Broken:
    """A package whose worker did not start, so that the result contains its error."""

    def __init__(self, name: str, error: ContestantError) -> None:
        self.name, self.error = name, error

    def run(self, iterations: int, **options: Any) -> race.Run:
        raise self.error


def _too_large(table: dict[str, tuple[str, str]], X: Any) -> dict[str, str]:
    """Return the packages that would need over a tenth of the memory for X as a dense array."""
    size = np.prod(X.shape, dtype=float) * X.dtype.itemsize
    if not sp.issparse(X) or size <= 0.1 * (memory_bytes() or np.inf):
        return {}
    why = f"left out: takes no sparse array, and X dense is {size / 2**30:.1f} GiB"
    return {peer: why for peer, (package, _) in table.items() if package in DENSE_ONLY}
