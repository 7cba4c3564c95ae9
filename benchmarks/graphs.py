"""Time of the neighbour search compared with scikit-learn's exact search and pynndescent."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.rows import failed, row, skipped
from benchmarks.settings import Settings
from benchmarks.workers import ContestantError, Worker, save_problem

K = 5


def made_samples(n: int, p: int, seed: int = 0) -> np.ndarray:
    """Return n non-negative samples in a hundred noisy clusters, which span 30 dimensions of p."""
    rng = np.random.default_rng(seed)
    centers, basis = rng.gamma(1.0, size=(100, 30)), rng.gamma(0.5, size=(30, p))
    inner = centers[rng.integers(100, size=n)] + 0.3 * np.abs(rng.standard_normal((n, 30)))
    return inner @ basis + 0.1 * rng.random((n, p))


def neighbors(settings: Settings, python: Path | None) -> dict[str, Any]:
    """Time five nearest neighbours of 20,000 x 784; in a full run also in float32."""
    n = 3000 if settings.quick else 20_000
    X = made_samples(n, 784)
    types = (np.float64, np.float32) if settings.full or settings.quick else (np.float64,)
    rows = [line for dtype in types for line in _rows(X.astype(dtype), settings, python)]
    return {"kind": "rows", "rows": rows}


def _rows(X: np.ndarray, settings: Settings, python: Path | None) -> list[dict[str, Any]]:
    n, p = X.shape
    where = f"{n:,} x {p} {X.dtype}"
    if python is None:
        return [skipped(f"neighbours, {where}", "the peers' environment could not be made")]
    with tempfile.TemporaryDirectory() as name, Worker(sys.executable) as ours:
        folder = Path(name)
        save_problem(folder / "samples.npz", X)
        ours.ask("data", path=str(folder / "samples.npz"))
        ours.ask("neighbors", package="partwise", k=K, rows=3000)
        rows = []
        for package, goal in (("scikit-learn", 2.0), ("pynndescent", 0.0)):
            what = f"{package} / ours, {where}"
            try:
                with Worker(python) as peer:
                    peer.ask("data", path=str(folder / "samples.npz"))
                    warm = peer.ask("neighbors", package=package, k=K, rows=3000)["seconds"]
                    runs = settings.runs if goal else 1
                    rows.append(_race(what, goal, package, ours, peer, folder, runs, warm))
            except ContestantError as error:
                rows.append(failed(what, error, goal))
    return rows


def _race(
    what: str,
    goal: float,
    package: str,
    ours: Worker,
    peer: Worker,
    folder: Path,
    runs: int,
    warm_up: float,
) -> dict[str, Any]:
    files = {"partwise": folder / "ours.npz", package: folder / "theirs.npz"}
    times: dict[str, list[float]] = {"partwise": [], package: []}
    for turn in range(runs):
        both = [("partwise", ours), (package, peer)]
        for name, worker in both[:: 1 if turn % 2 else -1]:
            reply = worker.ask("neighbors", package=name, k=K, out=str(files[name]))
            times[name].append(reply["seconds"])
    with np.load(files["partwise"]) as a, np.load(files[package]) as b:
        same, found = compare(a["distances"], b["distances"], a["indices"], b["indices"])
    ratio = median(b / a for a, b in zip(times["partwise"], times[package], strict=True))
    note = (
        f"ours {median(times['partwise']):.2f} s, theirs {median(times[package]):.2f} s (warm-up "
        f"{warm_up:.1f} s); distances differ by at most {same:.1g} (relative), "
        f"{found:.2%} of the neighbours are theirs too"
    )
    result = row(what, ratio, goal, note=note, seconds=times, difference=same, found=found)
    if package == "pynndescent":  # an approximate search is shown for comparison, without a goal
        result |= {"goal": "–", "reached": None}
    return result


def compare(
    ours: np.ndarray, theirs: np.ndarray, our_indices: np.ndarray, their_indices: np.ndarray
) -> tuple[float, float]:
    """Return the largest relative difference of distances, and the share of equal neighbours."""
    difference = float(np.max(np.abs(ours - theirs) / np.maximum(ours, 1e-300)))
    shared = (our_indices[:, :, None] == their_indices[:, None, :]).any(axis=2)
    return difference, float(shared.mean())
