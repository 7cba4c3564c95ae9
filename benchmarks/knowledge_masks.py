"""Missing entries: error and time, compared with naive updates and with a complete X.

`masks` is a row of `benchmarks.knowledge`. Every fit has one thread and its own process. Processor
time is compared, because other programs on the machine affect it little.
"""

from __future__ import annotations

import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from joblib import Parallel, delayed, parallel_config

from partwise import NMF
from partwise.metrics import hold_out

FROBENIUS, KL = "frobenius", "kullback-leibler"
#: Each case: name, data set, share of hidden entries, number of parts.
MASKS = [
    ("ORL, 10 % hidden", "orl_32x32", 0.1, 20),
    ("ORL, 50 % hidden", "orl_32x32", 0.5, 20),
    ("TDT2 tf-idf, 10 % of stored entries and as many zeros", "tdt2_top30", 0.1, 30),
    ("worm counts, 10 % of stored entries and as many zeros", "worm_neuron_sc", 0.1, 10),
]
#: Numbers of iterations of Partwise and of the naive reference.
OURS, REFERENCE = 100, 1000
#: Numbers of iterations after which the error is computed.
GRID = [4, 6, 9, 13, 20, 30, 45, 68, OURS]
#: Tolerance and maximum number of iterations of fits that run until they converge.
TOL, MOST = 1e-3, 300
#: Largest ratio to the reference's error that counts as equal.
WITHIN = 1.005
#: Maximum seconds for the repetitions of one timing. Fits that take longer than `LONG` are not run
#: until they converge.
BUDGET, LONG = 30.0, 15.0


def load(folder: Path, name: str) -> tuple[Any, dict[str, Any]]:
    """Return X of a data set (texts as tf-idf of unit length), and the other arrays of its file."""
    held = dict(np.load(folder / f"{name}.npz"))
    if "indptr" not in held:
        X = held["X"].astype(float)
        return (X / held["scale"] if "scale" in held else X), held
    parts = (held["data"].astype(float), held["indices"].astype(np.int32), held["indptr"])
    X = sp.csr_array(parts, shape=tuple(held["shape"]))
    used = np.flatnonzero(np.diff(X.tocsc().indptr))
    X = X[:, used]
    if "terms" in held:
        held["terms"] = held["terms"][used]
    return (tf_idf(X) if name in ("tdt2_top30", "bbc_news") else X), held


def tf_idf(X: sp.csr_array) -> sp.csr_array:
    """Return the tf-idf weights (1 + log tf) log(n / df), with rows of norm one."""
    from sklearn.preprocessing import normalize

    X = X.copy()
    df = np.diff(X.tocsc().indptr)
    X.data = (1 + np.log(X.data)) * np.log(X.shape[0] / df)[X.indices]
    X.eliminate_zeros()
    return sp.csr_array(normalize(X))


def start(X: Any, k: int) -> dict[str, np.ndarray]:
    """Return the same positive initial factors for every method."""
    rng = np.random.default_rng(0)
    size = np.sqrt(X.mean() / k)
    W, H = (size * (0.1 + rng.random(shape)) for shape in ((X.shape[0], k), (k, X.shape[1])))
    return {"W": W, "H": H}


def ours(X: Any, k: int, loss: str, begin: dict[str, np.ndarray], n: int, **more: Any) -> NMF:
    settings = {"tol": 0.0, "beta_loss": loss, "missing_values": np.nan, **more}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # with tol=0, every fit ends at max_iter, with a warning
        return NMF(k, init="custom", max_iter=n, **settings).fit(X, **begin)


def naive(held: Any, k: int, loss: str, begin: dict[str, np.ndarray], n: int) -> Any:
    """Return the factors of the naive updates after n iterations.

    Dense data uses tests/reference.py, which is independent of the package. Sparse data, for which
    that needs too much memory, uses solver="mu"; a test compares the two to 1e-9.
    """
    if sp.issparse(held.X):
        return ours(held.X, k, loss, begin, n, solver="mu")
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    import reference  # type: ignore[import-not-found]

    seen = (~np.isnan(held.X)).astype(float)
    X = np.where(seen > 0, held.X, 0.0)
    V, U, _ = reference.nmf_weighed(X, begin["W"], begin["H"].T, n, weight=seen, loss=loss)
    return V, np.ascontiguousarray(U.T)


def error_of(held: Any, pair: Any, loss: str) -> float:
    """Return the mean loss at the hidden entries, for a fitted model or a pair of factors."""
    if not isinstance(pair, NMF):
        model = NMF(pair[1].shape[0], beta_loss=loss, missing_values=np.nan)
        model.embedding_, model.components_ = pair
        model.n_components_ = model._n_components = pair[1].shape[0]
        pair = model
    return float(held.error(pair))


def masks(folder: Path, times: int, jobs: int) -> dict[str, Any]:
    """Compare the error at hidden entries with a naive fit, and the time with a complete X."""
    cases = [(case, loss) for case in MASKS for loss in (FROBENIUS, KL)]
    plain = list(dict.fromkeys((case[1], case[3], loss) for case, loss in cases))
    with parallel_config("loky", n_jobs=jobs, inner_max_num_threads=1):
        made = Parallel()(
            [delayed(_reference)(folder, *case, loss) for case, loss in reversed(cases)]
            + [delayed(_plain)(folder, *case) for case in reversed(plain)]
        )
        known = dict(zip([*reversed(cases), *reversed(plain)], made, strict=True))
        rows = Parallel()(
            delayed(_mask)(
                folder, *case, loss, known[case, loss], known[case[1], case[3], loss], times
            )
            for case, loss in reversed(cases)
        )
    return {f"{case[0]}, {loss}": row for (case, loss), row in zip(cases, rows[::-1], strict=True)}


def _reference(folder: Path, name: str, file: str, share: float, k: int, loss: str) -> float:
    X, _ = load(folder, file)
    held = hold_out(X, share, random_state=0)
    return error_of(held, naive(held, k, loss, start(X, k), REFERENCE), loss)


def _plain(folder: Path, file: str, k: int, loss: str) -> float:
    X, _ = load(folder, file)
    return float(ours(X, k, loss, start(X, k), REFERENCE, solver="mu").objective_)


def _mask(
    folder: Path, name: str, file: str, share: float, k: int, loss: str, reference: float,
    plain_reference: float, times: int,
) -> dict[str, Any]:  # fmt: skip
    X, _ = load(folder, file)
    held, begin = hold_out(X, share, random_state=0), start(X, k)

    def fit(Z: Any, n: int, tol: float = 0.0) -> NMF:
        return ours(Z, k, loss, begin, n, tol=tol)

    errors = {n: error_of(held, fit(held.X, n), loss) for n in GRID}
    above = [n for n in GRID if errors[n] > WITHIN * reference]
    # The first grid point from which all errors are within the limit.
    n = next((n for n in GRID if n > max(above, default=0)), None)
    # A fit to the complete X stops when its loss is within the same share of a naive fit's loss.
    began = time.process_time()
    history = fit(X, OURS).objective_history_
    long = time.process_time() - began > LONG
    m = int(np.argmax(history <= WITHIN * plain_reference)) + 1
    runs = {"masked": lambda: fit(held.X, n or OURS), "plain": lambda: fit(X, m)}
    if not long:
        runs["masked, tol"] = lambda: fit(held.X, MOST, TOL)
        runs["plain, tol"] = lambda: fit(X, MOST, TOL)
    seconds, ends = in_turns(runs, times)
    row = {
        "error": errors[OURS] / reference,
        "iterations": n,
        "plain iterations": m,
        "time": seconds["masked"] / seconds["plain"],
        "an iteration": seconds["masked"] / (n or OURS) / seconds["plain"] * m,
        "seconds": seconds["masked"],
    }
    if not long:
        row |= {
            "error at tol": error_of(held, ends["masked, tol"], loss) / reference,
            "time to tol": seconds["masked, tol"] / seconds["plain, tol"],
            "iterations to tol": ends["masked, tol"].n_iter_,
            "plain iterations to tol": ends["plain, tol"].n_iter_,
        }
    print(name, loss, {key: round(v, 4) for key, v in row.items() if v}, flush=True)
    return row


def in_turns(
    runs: dict[str, Callable[[], Any]], times: int
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the median processor seconds of each function, and the results.

    The functions run alternately.
    """
    spent: dict[str, list[float]] = {name: [] for name in runs}
    found = {}
    began = time.perf_counter()
    while len(spent[next(iter(runs))]) < times:
        for name, run in runs.items():
            before = time.process_time()
            found[name] = run()
            spent[name].append(time.process_time() - before)
        if time.perf_counter() - began > BUDGET:
            break
    return {name: statistics.median(seconds) for name, seconds in spent.items()}, found
