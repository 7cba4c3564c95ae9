"""Measurements in a fresh process: peak memory, import time, the first fit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from statistics import median
from typing import Any

from benchmarks.rows import failed, row
from benchmarks.settings import HERE, Settings


def fresh(operation: str, cache: str | None = None, **request: Any) -> dict[str, Any]:
    """Run one operation of `fresh.py` in a new process.

    ``cache`` is a folder for compiled code.
    """
    done = subprocess.run(
        [sys.executable, "-P", str(HERE / "fresh.py"), operation, json.dumps(request)],
        capture_output=True,
        text=True,
        env=None if cache is None else {**os.environ, "NUMBA_CACHE_DIR": cache},
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise RuntimeError(lines[-1] if lines else f"exit code {done.returncode}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def peak_memory(request: dict[str, Any], runs: int) -> float:
    """Return the peak memory of a fit in addition to X, the median over fresh processes."""
    return median(fresh("memory", **request)["bytes"] for _ in range(runs))


def memory(settings: Settings) -> dict[str, Any]:
    """Compare the memory of a Frobenius fit on dense float32 X with 6(n+p)k floats."""
    n, p = (4_000, 500) if settings.quick else (20_000, 2_000)
    rows = []
    for k in (20, 100):
        what = f"NMF, dense {n:,} x {p:,} float32, k={k}: peak beyond X over 6(n+p)k floats"
        goal = 6 * (n + p) * k * 4
        request = {"kind": "NMF", "n": n, "p": p, "k": k, "dtype": "float32", "max_iter": 10}
        try:
            seen = peak_memory(request, settings.runs)
        except RuntimeError as error:
            rows.append(failed(what, error, 1, at_most=True))
            continue
        floats = seen / (4 * (n + p) * k)
        note = f"{seen / 2**20:.1f} MiB of {goal / 2**20:.1f} MiB: {floats:.1f}(n+p)k floats"
        rows.append(row(what, seen / goal, 1, at_most=True, note=note))
    return {"kind": "rows", "rows": rows}


def imports(settings: Settings) -> dict[str, Any]:
    """Compare the times of importing NMF from partwise and from scikit-learn."""
    turns = 3 if settings.quick else 4 * settings.runs
    pairs, loaded = [], False
    for turn in range(turns + 1):
        ours, theirs = fresh("import", what="partwise"), fresh("import", what="sklearn")
        loaded |= ours["numba"]
        if turn:  # the first import is not counted, because it reads the files from disk
            pairs.append((ours["seconds"], theirs["seconds"]))
    seen = median(a / b for a, b in pairs)
    note = f"{median(a for a, _ in pairs):.2f} s against {median(b for _, b in pairs):.2f} s"
    return {
        "kind": "rows",
        "rows": [
            row("import, ours / scikit-learn's NMF", seen, 1.2, at_most=True, note=note),
            row("numba loaded by the import", float(loaded), 0, at_most=True, unit=""),
        ],
    }


def first_fit(settings: Settings) -> dict[str, Any]:
    """Time the first fit minus the second, with compiled code on disk."""
    rows = []
    for what, request in {
        "dense, Frobenius": {"n": 400, "p": 1024, "k": 40, "loss": "frobenius", "density": 1.0},
        "sparse, Frobenius": {"n": 2000, "p": 3000, "k": 20, "loss": "frobenius", "density": 0.01},
        "sparse, KL": {"n": 2000, "p": 3000, "k": 10, "loss": "kullback-leibler", "density": 0.01},
        "dense, KL": {"n": 400, "p": 1024, "k": 10, "loss": "kullback-leibler", "density": 1.0},
    }.items():
        try:
            fresh("first_fit", **request)  # compiles the kernels if they are not in the cache
            seen = [fresh("first_fit", **request) for _ in range(settings.runs)]
        except RuntimeError as error:
            rows.append(failed(f"first fit - second fit, {what}", error, 1, at_most=True))
            continue
        extra = median(run["first"] - run["second"] for run in seen)
        note = f"first {seen[0]['first']:.2f} s, second {seen[0]['second']:.2f} s"
        name = f"first fit - second fit, {what}"
        rows.append(row(name, extra, 1, at_most=True, unit=" s", note=note))
    return {"kind": "rows", "rows": [*rows, *_nothing_compiled(settings)]}


def _nothing_compiled(settings: Settings) -> list[dict[str, Any]]:
    """Time the first small fit without compiled code, as after installation."""
    rows = []
    for what, request in {
        "dense, Frobenius": {"loss": "frobenius"},
        "dense, Frobenius, k=40": {"loss": "frobenius", "k": 40},
        "dense, float32": {"loss": "frobenius", "dtype": "float32"},
        "dense, KL": {"loss": "kullback-leibler"},
        "GNMF": {"loss": "frobenius", "kind": "GNMF"},
    }.items():
        name, seen = f"first fit, nothing compiled, {what}", []
        try:
            for _ in range(settings.runs):
                with tempfile.TemporaryDirectory() as cache:
                    seen.append(fresh("small_fit", cache, **request)["seconds"])
        except RuntimeError as error:
            rows.append(failed(name, error, 1, at_most=True))
            continue
        rows.append(row(name, median(seen), 1, at_most=True, unit=" s"))
    return rows
