"""MiniBatchNMF of Partwise and scikit-learn: objective by passes, in memory and on disk.

    python -m benchmarks.streaming news20 --data FOLDER       # 20 news groups, k = 20
    python -m benchmarks.streaming disk --gb 10 --folder TMP  # a synthetic float32 array in a file

The objective is that of all samples (on disk: of 10,000 samples) with the parts after each number
of passes, by `NMF.score` for both packages. On disk it is compared with that of the true parts.
Each fit on disk runs in its own process, whose anonymous memory (without pages of the file) is
sampled 20 times per second.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

K, P = 20, 2000


def objective(X: Any, H: np.ndarray, loss: str) -> float:
    """Return ½‖X - VH‖² or the KL divergence, with the best part weights for H."""
    from partwise import NMF

    model = NMF(len(H), beta_loss=loss)
    model.components_ = np.ascontiguousarray(H, dtype=X.dtype)
    model.n_features_in_ = X.shape[1]
    return -model.score(X) * X.shape[0]


def estimator(whose: str, loss: str, passes: int) -> Any:
    """Return MiniBatchNMF of either package with the same settings, without early stopping."""
    import sklearn.decomposition

    import partwise

    module = partwise if whose == "partwise" else sklearn.decomposition
    return module.MiniBatchNMF(
        K, beta_loss=loss, max_iter=passes, tol=0, max_no_improvement=None, random_state=0
    )


def news20(data: str, passes: int) -> None:
    """Print the objective relative to a fit of NMF, and the seconds, after 1, 3 and more passes."""
    from partwise import NMF, datasets

    X = datasets.load("news20", data_home=data).X
    X = X.astype(np.float64)
    for loss in ("frobenius", "kullback-leibler"):
        began = time.perf_counter()
        whole = NMF(K, beta_loss=loss, random_state=0).fit(X).objective_
        seconds = time.perf_counter() - began
        print(f"{loss}: NMF {whole:.6g} in {seconds:.1f} s", flush=True)
        for whose in ("partwise", "scikit-learn"):
            for number in range(1, passes + 1):
                began = time.perf_counter()
                model = estimator(whose, loss, number).fit(X)
                seconds = time.perf_counter() - began
                value = objective(X, model.components_, loss) / whole
                print(f"  {whose:12s} passes {number}: {value:.4f}, {seconds:.1f} s", flush=True)


def make(path: Path, gigabytes: float) -> np.ndarray:
    """Write a synthetic array of the given size, 50 MB at a time, and return its true parts."""
    rng = np.random.default_rng(0)
    H = rng.gamma(0.3, size=(K, P)).astype(np.float32)
    n = int(gigabytes * 1e9 / 4 / P)
    out = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(n, P))
    noise = rng.random((6250, P), dtype=np.float32)
    for start in range(0, n, 6250):
        V = rng.gamma(0.4, size=(min(6250, n - start), K)).astype(np.float32)
        out[start : start + len(V)] = V @ H + 2 * noise[: len(V)] * rng.random((len(V), 1))
    out.flush()
    return H


def anonymous() -> float:
    """Return the memory of this process in megabytes, without pages of files."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) / 1e3
    return float("nan")


def child(path: str, whose: str, passes: int, out: str) -> None:
    """Fit the array in a file, sample the memory meanwhile, and store the parts in a file."""
    warnings.simplefilter("ignore")
    peak, done = [anonymous()], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            peak[0] = max(peak[0], anonymous())

    threading.Thread(target=watch, daemon=True).start()
    X = np.load(path, mmap_mode="r")
    model = estimator(whose, "frobenius", passes)
    began = time.perf_counter()
    model.fit(X)
    seconds = time.perf_counter() - began
    done.set()
    np.save(out, model.components_)
    history = getattr(model, "objective_history_", np.zeros(0)) / len(X)
    print(json.dumps({"seconds": seconds, "peak": peak[0], "history": history.tolist()}))


def disk(gigabytes: float, folder: Path, passes: list[int], whose: list[str]) -> None:
    """Write the array, fit it in separate processes, and delete it."""
    folder.mkdir(parents=True, exist_ok=True)
    path, parts = folder / "made.npy", folder / "parts.npy"
    try:
        began = time.perf_counter()
        H = make(path, gigabytes)
        size = path.stat().st_size / 1e9
        print(f"{size:.2f} GB written in {time.perf_counter() - began:.0f} s", flush=True)
        X = np.load(path, mmap_mode="r")
        at = np.sort(np.random.default_rng(1).choice(len(X), 10_000, replace=False))
        sample = np.array(X[at])
        true = objective(sample, H, "frobenius")
        for name in whose:
            for number in passes:
                command = [sys.executable, "-m", "benchmarks.streaming", "child", str(path), name]
                done = subprocess.run(
                    [*command, str(number), str(parts)], capture_output=True, text=True
                )
                if done.returncode:
                    print(name, done.stderr.strip().splitlines()[-1:])
                    continue
                found = json.loads(done.stdout.splitlines()[-1])
                value = objective(sample, np.load(parts), "frobenius") / true
                met = ", ".join(f"{v:.5g}" for v in found["history"])
                print(
                    f"  {name:12s} passes {number}: {value:.4f} of the true parts' objective, "
                    f"{found['seconds']:.0f} s, {found['peak']:.0f} MB"
                    + (f"; as met, a sample: {met}" if met else ""),
                    flush=True,
                )
    finally:
        path.unlink(missing_ok=True)
        parts.unlink(missing_ok=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    news = commands.add_parser("news20")
    news.add_argument("--data", required=True)
    news.add_argument("--passes", type=int, default=3)
    big = commands.add_parser("disk")
    big.add_argument("--gb", type=float, default=1.0)
    big.add_argument("--folder", type=Path, required=True)
    big.add_argument("--passes", type=int, nargs="+", default=[1, 3])
    big.add_argument("--whose", nargs="+", default=["partwise", "scikit-learn"])
    one = commands.add_parser("child")
    for name in ("path", "whose", "passes", "out"):
        one.add_argument(name, type=int if name == "passes" else str)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.command == "news20":
        news20(given.data, given.passes)
    elif given.command == "disk":
        disk(given.gb, given.folder, given.passes, given.whose)
    else:
        child(given.path, given.whose, given.passes, given.out)


if __name__ == "__main__":
    main()
