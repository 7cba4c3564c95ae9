"""`consensus` beside the package ``cnmf`` as it is: the whole pipeline of each, and their parts.

    python -m benchmarks.consensus --data FOLDER --folder TMP --python CNMF_ENV/bin/python

4,186 worm neurons, the 1,000 genes that cnmf's own rule picks, k = 5 to 15, 20 runs each.
``--python`` is of an environment with ``cnmf`` (PyPI); it runs prepare, factorize in two worker
processes, combine, k_selection_plot and consensus. Ours is ``partwise consensus`` on the same file,
with all tables and the report. It runs once before the clock starts: an installed package has its
kernels compiled. Beside the seconds there are those of the processor (of all processes) and the
memory of the largest process.

A part is stable in a pipeline where the mean silhouette of its group is above 0.9 and 15 of 20 runs
found it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path

BEGAN = time.time()
NUMBERS, RUNS, GENES = range(5, 16), 20, 1000


def make(data: str, path: Path) -> None:
    """The counts as a file that both read; genes that no cell has are left out."""
    import anndata
    import numpy as np
    import pandas as pd
    import scipy.sparse as sp

    with np.load(Path(data) / "worm_neuron_sc.npz") as file:
        arrays = (file["data"].astype(float), file["indices"].astype(np.int32), file["indptr"])
        X = sp.csr_matrix(arrays, shape=tuple(file["shape"]))
    kept = np.flatnonzero(np.asarray(X.sum(axis=0)).ravel() > 0)
    obs = pd.DataFrame(index=[f"c{i}" for i in range(X.shape[0])])
    var = pd.DataFrame(index=[f"g{j}" for j in kept])
    anndata.AnnData(X[:, kept], obs=obs, var=var).write_h5ad(path)


def theirs(path: str, out: str) -> dict[str, float]:
    """cnmf, stage by stage."""
    seconds: dict[str, float] = {}
    last = BEGAN

    def mark(name: str) -> None:
        nonlocal last
        now = time.time()
        seconds[name], last = now - last, now

    from cnmf import cNMF  # type: ignore[import-not-found]

    model = cNMF(output_dir=out, name="worm")
    mark("import")
    model.prepare(path, components=list(NUMBERS), n_iter=RUNS, seed=1, num_highvar_genes=GENES)
    mark("prepare")
    command = [str(Path(sys.executable).parent / "cnmf"), "factorize", "--output-dir", out]
    command += ["--name", "worm", "--total-workers", "2", "--worker-index"]
    workers = [subprocess.Popen([*command, str(i)], stdout=subprocess.DEVNULL) for i in (0, 1)]
    ends = [worker.wait() for worker in workers]
    assert not any(ends)
    mark("factorize")
    model.combine()
    mark("combine")
    model.k_selection_plot(close_fig=True)
    mark("k_selection_plot")
    for k in NUMBERS:
        model.consensus(k, density_threshold=0.5, show_clustering=False)
    mark("consensus")
    return seconds


def ours(path: str, out: str) -> dict[str, float]:
    """``partwise consensus`` as it is typed."""
    words = ["consensus", path, "-k", f"{NUMBERS[0]}-{NUMBERS[-1]}", "--runs", str(RUNS)]
    words += ["--genes", str(GENES), "--device", "cpu", "--out", str(Path(out) / "worm")]
    Path(out).mkdir()
    from partwise.cli import main as command

    with contextlib.suppress(SystemExit):
        command([*words, "--json"])
    told = json.loads((Path(out) / "worm" / "summary.json").read_text())
    return {"import": time.time() - BEGAN - told["seconds"], **told["stages"]}


def matched(folder: Path) -> str:
    """How many of the parts that are stable in both are the same in both."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    from partwise import io
    from partwise.selection.consensus import unit_rows

    cosines: list[float] = []
    for k in NUMBERS:
        a, b = (io.read_cnmf(folder / whose, "worm", k)[0] for whose in ("theirs", "ours"))
        C = unit_rows(a.spectra) @ unit_rows(b.spectra).T
        i, j = linear_sum_assignment(-C)
        stable = [
            (side.stability > 0.9) & (np.bincount(side.groups[side.groups >= 0], minlength=k) >= 15)
            for side in (a, b)
        ]
        cosines += C[i, j][stable[0][i] & stable[1][j]].tolist()
    same = sum(cosine > 0.99 for cosine in cosines)
    return f"{same} of {len(cosines)} parts that are stable in both have a cosine above 0.99"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=".")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--python", default=None)
    parser.add_argument("--only", choices=("theirs", "ours"), default=None)
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    path = given.folder / "worm.h5ad"
    if given.only is not None:
        out = given.folder / given.only
        shutil.rmtree(out, ignore_errors=True)
        run = theirs if given.only == "theirs" else ours
        stages = run(str(path), str(out))
        most = [resource.getrusage(who).ru_maxrss / 2**20 for who in (
            resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]  # fmt: skip
        print(json.dumps(max(most)))
        print(json.dumps(stages))
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        make(given.data, path)
    total = {}
    for whose in ("ours", "ours", "theirs"):  # the first of ours compiles
        if whose == "theirs" and given.python is None:
            return
        python = sys.executable if whose == "ours" else given.python
        env = dict(os.environ)
        command = [python, str(Path(__file__).resolve()), "--folder", str(given.folder)]
        if whose == "theirs":
            env.pop("PYTHONPATH", None)
        began = time.time()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [*command, "--only", whose], env=env, capture_output=True, text=True, check=True
        )
        total[whose] = time.time() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
        stages = json.loads(done.stdout.splitlines()[-1])
        each = ", ".join(f"{name} {seconds:.1f}" for name, seconds in stages.items())
        memory = json.loads(done.stdout.splitlines()[-2])
        said = f"processor {busy:.1f} s, {memory:.2f} GB"
        print(f"{whose}: {total[whose]:.1f} s, {said} ({each})", flush=True)
    plot = stages["k_selection_plot"]
    print(
        f"{total['theirs'] / total['ours']:.1f}x; without k_selection_plot "
        f"{(total['theirs'] - plot) / total['ours']:.1f}x"
    )
    print(matched(given.folder))


if __name__ == "__main__":
    main()
