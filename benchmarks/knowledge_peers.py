"""Run other packages on the tasks of `benchmarks.knowledge`; missing packages are skipped."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from joblib import Parallel, delayed, parallel_config

from benchmarks.knowledge_masks import (
    FROBENIUS,
    GRID,
    MASKS,
    REFERENCE,
    WITHIN,
    error_of,
    in_turns,
    load,
    naive,
    ours,
    start,
)
from partwise.metrics import hold_out

#: Number of parts. With 20, as in `knowledge_masks`, RcppML needed half a minute per iteration.
PARTS = 10
#: Maximum number of seconds for another package.
LIMIT = 60
Score = Callable[[Any], float]
#: Path of the Python interpreter of the environment in which pymcr is installed.
PYMCR = os.environ.get("PARTWISE_PYMCR", "/tmp/pymcr/bin/python")


def peers(folder: Path, times: int, jobs: int) -> dict[str, Any]:
    """Time scikit-learn, RcppML and Partwise until they reach the reference's error on ORL."""
    with parallel_config("loky", n_jobs=max(2, jobs), inner_max_num_threads=1):
        rows = Parallel()(delayed(_peer)(folder, *case[1:3], times) for case in MASKS[:2])
    return {f"{case[0]}, {PARTS} parts": row for case, row in zip(MASKS, rows, strict=False)}


def _peer(folder: Path, file: str, share: float, times: int) -> dict[str, Any]:
    X, _ = load(folder, file)
    held, begin = hold_out(X, share, random_state=0), start(X, PARTS)

    def score(pair: Any) -> float:
        return error_of(held, pair, FROBENIUS)

    def fit(n: int) -> Any:
        return ours(held.X, PARTS, FROBENIUS, begin, n)

    reference = score(naive(held, PARTS, FROBENIUS, begin, REFERENCE))
    target = WITHIN * reference
    n = next((n for n in GRID if score(fit(n)) <= target), GRID[-1])
    seconds, found = in_turns({"ours": lambda: fit(n)}, times)
    rows = {
        "partwise": {"seconds": seconds["ours"], "error": score(found["ours"]), "iterations": n},
        "scikit-learn, iterated filling": sklearn_filling(held.X, PARTS, begin, target, score),
        "RcppML 0.3.7": rcppml(held.X, PARTS, target, score),
    }
    for row in rows.values():
        if "error" in row:
            row["error"] /= reference
    print(rows, flush=True)
    return rows


def sklearn_filling(
    gaps: np.ndarray, k: int, begin: dict[str, np.ndarray], target: float, score: Score
) -> dict[str, Any]:
    """Run scikit-learn's NMF; every ten iterations, fill missing entries with its product."""
    from sklearn.decomposition import non_negative_factorization

    hidden = np.isnan(gaps)
    X = np.where(hidden, np.nanmean(gaps), gaps)
    W, H = begin["W"].copy(), begin["H"].copy()
    spent = 0.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for rounds in range(1, 101):  # noqa: B007
            began = time.process_time()
            W, H, _ = non_negative_factorization(
                X, W, H, n_components=k, init="custom", max_iter=10, tol=0.0
            )
            X[hidden] = (W @ H)[hidden]
            spent += time.process_time() - began
            error = score((W, H))
            if error <= target:
                break
    reached = error <= target
    return {"seconds": spent, "error": error, "iterations": 10 * rounds, "reached": reached}


R_SCRIPT = """
suppressMessages({library(Matrix); library(RcppML)})
args <- commandArgs(trailingOnly = TRUE)
A <- as(readMM(args[1]), "CsparseMatrix")
setRcppMLthreads(as.integer(args[3]))
seconds <- c()
for (maxit in as.integer(strsplit(args[4], ",")[[1]])) {
  began <- proc.time()[["user.self"]]
  m <- nmf(A, as.integer(args[2]), tol = 0, maxit = maxit, verbose = FALSE, seed = 1,
           mask_zeros = TRUE)
  seconds <- c(seconds, proc.time()[["user.self"]] - began)
  write.table(m$w %*% diag(m$d), paste0(args[5], "/w", maxit), row.names = FALSE, col.names = FALSE)
  write.table(m$h, paste0(args[5], "/h", maxit), row.names = FALSE, col.names = FALSE)
}
cat(seconds)
"""


def rcppml(gaps: np.ndarray, k: int, target: float, score: Score) -> dict[str, Any]:
    """Run RcppML, which draws its own start and treats every zero as missing."""
    if shutil.which("Rscript") is None:
        return {"skipped": "there is no Rscript here"}
    seen = ~np.isnan(gaps)
    if not (gaps[seen] > 0).all():
        return {"skipped": "a seen entry is zero, which it would mask"}
    grid = [5, 10, 20, 40, 80]
    with tempfile.TemporaryDirectory() as folder:
        # RcppML expects samples as columns.
        scipy.io.mmwrite(f"{folder}/A.mtx", sp.coo_array(np.where(seen, gaps, 0).T))
        Path(folder, "run.R").write_text(R_SCRIPT)
        # RcppML uses one thread: with two, R itself failed ("R_Reprotect"), and Partwise has one
        # for such small data.
        command = ["Rscript", f"{folder}/run.R", f"{folder}/A.mtx", str(k), "1"]
        seconds, errors = [], []
        for n in grid:
            try:
                done = subprocess.run(
                    [*command, str(n), folder], capture_output=True, text=True, check=False,
                    timeout=LIMIT,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                break  # some iterations of this package do not end
            if done.returncode:
                return {"skipped": " ".join(done.stderr.split())[:200]}
            seconds.append(float(done.stdout))
            pair = np.loadtxt(f"{folder}/h{n}").T, np.loadtxt(f"{folder}/w{n}").T
            errors.append(score(pair))
    if not errors:
        return {"skipped": f"{grid[0]} iterations took more than {LIMIT} s"}
    there = [j for j, error in enumerate(errors) if error <= target]
    best = there[0] if there else int(np.argmin(errors))
    return {
        "seconds": seconds[best],
        "error": errors[best],
        "iterations": grid[best],
        "reached": bool(there),
        "all": [[n, *pair] for n, *pair in zip(grid, seconds, errors, strict=False)],
    }


MCR_SCRIPT = """
import json, sys, time, logging
import numpy as np
from pymcr.mcr import McrAR
from pymcr.regressors import NNLS
from pymcr.constraints import ConstraintNonneg
logging.disable(logging.CRITICAL)
held = np.load(sys.argv[1])
began = time.perf_counter()
mcr = McrAR(max_iter=50, st_regr=NNLS(), c_regr=NNLS(), c_constraints=[ConstraintNonneg()],
            st_constraints=[ConstraintNonneg()], tol_increase=1e6, tol_n_increase=1000,
            tol_n_above_min=1000)
mcr.fit(held["X"], ST=held["ST"], st_fix=[0, 1])
print(json.dumps({"part": mcr.ST_opt_[2].tolist(), "seconds": time.perf_counter() - began,
                  "kept": bool(np.array_equal(mcr.ST_opt_[:2], held["ST"][:2]))}))
"""


def pymcr_third(X: np.ndarray, known: np.ndarray) -> dict[str, Any]:
    """Run pymcr with the same two spectra fixed, where the third starts from the mean of X."""
    if not Path(PYMCR).exists():
        return {"skipped": "pymcr is not in an environment of its own (PARTWISE_PYMCR)"}
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/held.npz", X=X, ST=np.vstack([known, X.mean(axis=0)]))
        command = [PYMCR, "-c", MCR_SCRIPT, f"{folder}/held.npz"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"skipped": " ".join(done.stderr.split())[:200]}
    return json.loads(done.stdout.splitlines()[-1])
