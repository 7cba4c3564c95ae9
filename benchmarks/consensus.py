"""The pipelines of `consensus` and of the package ``cnmf``: time, memory and components.

    python -m benchmarks.consensus --data FOLDER --folder TMP --python CNMF_ENV/bin/python

The data are 4,186 worm neurons with the 1,000 genes that cnmf selects; k = 5 to 15, 20 runs each.
``--python`` is the Python of an environment with ``cnmf`` (PyPI), and ``--site`` a folder with its
requirements. cnmf runs prepare, factorize with one worker per core, combine, k_selection_plot and
consensus without clustergrams. Partwise runs ``partwise consensus`` on the same file with all
tables and the report; "bare" is without the report. One run before the measurement compiles the
kernels. ``--cpus 0-15`` selects the processors. ``--table`` prints the results of several calls
in the folder: seconds, processor seconds of all processes, and their peak memory together.

A component is stable in a pipeline if the mean silhouette of its group is above 0.9 and 15 of 20
runs contain it.
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
from typing import Any

BEGAN = time.time()
QUICK = "--quick" in sys.argv
NUMBERS, RUNS, GENES = (range(5, 7), 4, 1000) if QUICK else (range(5, 16), 20, 1000)


def make(data: str, path: Path) -> None:
    """Write the counts to a file for both pipelines, without genes that no cell has."""
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
    """Run cnmf, and return the seconds of each of its stages."""
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
    command = [sys.executable, "-W", "ignore", "-c", "from cnmf.cnmf import main; main()"]
    command += ["factorize", "--output-dir", out, "--name", "worm"]
    cores = len(os.sched_getaffinity(0))
    command += ["--total-workers", str(cores), "--worker-index"]
    alone = {**os.environ, **threads(1)}
    workers = [
        subprocess.Popen([*command, str(i)], stdout=subprocess.DEVNULL, env=alone)
        for i in range(cores)
    ]
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


def threads(count: int) -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, str(count))


def bare(path: str, out: str) -> dict[str, float]:
    return ours(path, out, "--no-report")


def ours(path: str, out: str, *more: str) -> dict[str, float]:
    """Run the command ``partwise consensus``, and return the seconds of each of its stages."""
    words = ["consensus", path, "--range", f"{NUMBERS[0]}-{NUMBERS[-1]}", "--runs", str(RUNS)]
    words += ["--genes", str(GENES), "--device", "cpu", "--out", str(Path(out) / "worm")]
    Path(out).mkdir()
    from partwise.apps.cli import main as command

    with contextlib.suppress(SystemExit):
        command([*words, *more, "--json"])
    told = json.loads((Path(out) / "worm" / "summary.json").read_text())
    return {"import": time.time() - BEGAN - told["seconds"], "command": told["seconds"]}


def matched(theirs: Path, ours: Path) -> str:
    """Count the components that are stable in both pipelines and equal in both."""
    import numpy as np
    from scipy.optimize import linear_sum_assignment

    from partwise import io
    from partwise.selection.consensus import unit_rows

    cosines: list[float] = []
    for k in NUMBERS:
        a, b = (io.read_cnmf(folder, "worm", k)[0] for folder in (theirs, ours))
        C = unit_rows(a.spectra) @ unit_rows(b.spectra).T
        i, j = linear_sum_assignment(-C)
        stable = [
            (side.stability > 0.9) & (np.bincount(side.groups[side.groups >= 0], minlength=k) >= 15)
            for side in (a, b)
        ]
        cosines += C[i, j][stable[0][i] & stable[1][j]].tolist()
    same = sum(cosine > 0.99 for cosine in cosines)
    return f"{same} of {len(cosines)} parts that are stable in both have a cosine above 0.99"


def memory(group: int) -> int:
    """Return the memory of all processes of a group in bytes; shared pages count for each."""
    pages = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            pages += int(fields[21]) if int(fields[2]) == group else 0
    return pages * resource.getpagesize()


def timed(given: argparse.Namespace, whose: str) -> dict[str, Any]:
    """Run one pipeline in its own process, and return its time and memory."""
    lo, _, hi = given.cpus.partition("-")
    cpus = range(int(lo), int(hi or lo) + 1)
    out = given.folder / f"{whose}-{len(cpus)}"
    python = given.python if given.python and whose == "theirs" else sys.executable
    env = {**os.environ, **threads(len(cpus))}
    paths = [] if whose == "theirs" else env.pop("PYTHONPATH", "").split(os.pathsep)
    env["PYTHONPATH"] = os.pathsep.join([*filter(None, paths), *([given.site or ""])])
    began, before = time.time(), resource.getrusage(resource.RUSAGE_CHILDREN)
    process = subprocess.Popen(
        [python, __file__, "--folder", given.folder, "--only", whose, "--out", out,
         *(["--quick"] if QUICK else [])],
        env=env, stdout=subprocess.PIPE, text=True,
        start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, cpus),
    )  # fmt: skip
    most = 0
    while process.poll() is None:
        most = max(most, memory(process.pid))
        time.sleep(0.1)
    seconds, used = time.time() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert process.stdout is not None and not process.returncode, whose
    return {
        "whose": whose,
        "cores": len(cpus),
        "seconds": round(seconds, 2),
        "processor": round(used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime, 1),
        "GB": round(most / 2**30, 2),
        "stages": json.loads(process.stdout.read().splitlines()[-1]),
    }


def table(folder: Path) -> None:
    """Print the results of all calls, and how many components are equal."""
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    for cores in sorted({row["cores"] for row in rows}):
        last = {row["whose"]: row for row in rows if row["cores"] == cores}
        for whose, row in last.items():
            faster = last["theirs"]["seconds"] / row["seconds"] if "theirs" in last else 0
            print(f"{cores} cores, {whose}: {row['seconds']:.1f} s ({faster:.1f}x), processor "
                  f"{row['processor']:.1f} s, {row['GB']:.2f} GB")  # fmt: skip
        if {"theirs", "ours"} <= set(last):  # the results of both pipelines are available
            print(matched(folder / f"theirs-{cores}", folder / f"ours-{cores}"), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", default=".")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--python", default=None)
    parser.add_argument("--site", default=None)
    parser.add_argument("--whose", default="ours,ours,bare,theirs")
    parser.add_argument("--cpus", default="0-1")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--only", choices=("theirs", "ours", "bare"), default=None)
    parser.add_argument("--out", default="")
    parser.add_argument("--quick", action="store_true", help="two numbers, four runs each")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    path = given.folder / "worm.h5ad"
    if given.only is not None:
        shutil.rmtree(given.out, ignore_errors=True)
        run = {"theirs": theirs, "ours": ours, "bare": bare}[given.only]
        print(json.dumps(run(str(path), given.out)))
        return
    if given.table:
        table(given.folder)
        return
    given.folder.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        make(given.data, path)
    for whose in given.whose.split(","):  # the first run compiles the kernels
        row = timed(given, whose)
        with (given.folder / "rows.jsonl").open("a") as kept:
            kept.write(json.dumps(row) + "\n")
        each = ", ".join(f"{name} {seconds:.1f}" for name, seconds in row["stages"].items())
        print({name: row[name] for name in row if name != "stages"}, each, flush=True)


if __name__ == "__main__":
    main()
