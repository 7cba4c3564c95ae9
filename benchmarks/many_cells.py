"""Time `partwise consensus` on a million synthetic cells.

    python -m benchmarks.many_cells --cells 1000000 --genes 2000 --numbers 5-15 --runs 100

The script first writes Poisson counts of ten programmes (uint8) as .npy, or uses --counts. It
prints the seconds of the whole command and the peak memory. After --limit seconds it stops the
command and prints the number of finished runs; --follow writes it to a file.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np


def make(path: Path, n: int, p: int, k: int = 10, seed: int = 0) -> None:
    """Write counts of k gene programs in blocks, drawn on a GPU if there is one."""
    rng = np.random.default_rng(seed)
    H = rng.gamma(0.3, size=(k, p))
    H *= 1500 / H.sum(axis=1, keepdims=True)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(n, p))
    try:
        import torch

        device = "cuda" if torch.cuda.is_available() else None
    except ImportError:
        device = None
    for lo in range(0, n, 50_000):
        V = rng.dirichlet(np.full(k, 0.2), min(50_000, n - lo))
        if device is None:
            out[lo : lo + 50_000] = np.minimum(rng.poisson(V @ H), 255)
        else:
            a, b = (torch.from_numpy(M.astype(np.float32)).to(device) for M in (V, H))
            drawn = torch.poisson(a @ b).clamp_(max=255).to(torch.uint8)
            out[lo : lo + 50_000] = drawn.cpu().numpy()
    out.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--genes", type=int, default=2000)
    parser.add_argument("--numbers", default="5-15")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--max-iter", type=int, default=100)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--counts", type=Path, help="a file that is made if it is not there")
    parser.add_argument("--make", action="store_true", help="make the counts and nothing else")
    parser.add_argument("--limit", type=float, default=3600.0)
    parser.add_argument("--follow", type=Path)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="many-cells-"))
    counts = given.counts or folder / "counts.npy"
    try:
        if not counts.is_file():
            began = time.perf_counter()
            make(counts, given.cells, given.genes)
            print(f"made in {time.perf_counter() - began:.1f} s", flush=True)
        if not given.make:
            print(json.dumps(timed(given, counts, folder)), flush=True)
    finally:
        shutil.rmtree(folder)


def timed(given: argparse.Namespace, counts: Path, folder: Path) -> dict[str, Any]:
    """Run the command on the counts; return its seconds, or the number of finished runs."""
    words = [counts, "--range", given.numbers, "--runs", given.runs, "--genes", 0, "--no-counts"]
    words += ["--max-iter", given.max_iter, "--device", given.device]
    words += ["--out", folder / "out", "--json"]
    row = {"cells": given.cells, "genes": given.genes, "numbers": given.numbers, "runs": given.runs}
    began = time.perf_counter()
    with (folder / "told.json").open("w") as out:
        command = [sys.executable, "-m", "partwise", "consensus", *map(str, words)]
        process = subprocess.Popen(command, stdout=out, text=True)
        while process.poll() is None and time.perf_counter() - began < given.limit:
            time.sleep(0.5)
            if given.follow is not None:
                given.follow.write_text(json.dumps(so_far(folder / "out", began)) + "\n")
        if process.poll() is None:
            process.kill()
            return {**row, "stopped": True, **so_far(folder / "out", began)}
    wall = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(process.returncode)
    told = json.loads((folder / "told.json").read_text())
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return {**row, "device": told["device"], "wall": round(wall, 1),
            "estimate": told["estimate"], "host_GB": round(peak, 1),
            "stability": {one["k"]: one["stability"] for one in told["numbers"]}}  # fmt: skip


def so_far(out: Path, began: float) -> dict[str, Any]:
    """Return the stages and runs that a running command has written so far."""
    hidden = out / "cnmf_tmp"
    return {
        "wall": round(time.perf_counter() - began, 1),
        "runs_done": len(list(hidden.glob("out.spectra.k_*.iter_*.df.npz"))),
    }


if __name__ == "__main__":
    main()
