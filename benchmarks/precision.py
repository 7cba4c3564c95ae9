"""float32 compared with float64: final objectives, and errors of reported values.

    python -m benchmarks.precision [--before TREE] [--small]

The script writes ``benchmarks/results/precision.md``. Each case is fitted in both precisions from
the same start. "off" is the difference of ``objective_`` and the naive formula in float64 at the
final factors. The residual is their KKT residual in float64, by this checkout. ``--before`` is
another checkout, whose results come first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from benchmarks.settings import HERE

KL = "kullback-leibler"


def planted(n: int, p: int, k: int, noise: float) -> np.ndarray:
    rng = np.random.RandomState(0)
    V, U = rng.gamma(0.5, 1, (n, k)), rng.gamma(0.5, 1, (p, k))
    return V @ U.T + noise * np.abs(rng.normal(size=(n, p)))


def digits(classes: int) -> np.ndarray:
    from sklearn.datasets import load_digits

    return load_digits(n_class=classes).data


def offset(small: bool) -> np.ndarray:
    return 1000 + (planted(200, 60, 3, 1.0) if small else planted(2000, 300, 5, 1.0))


def dense(small: bool) -> np.ndarray:
    return planted(500, 100, 5, 0.05) if small else planted(20_000, 2_000, 20, 0.05)


#: Each case: a function that returns X, the name of the estimator, and its parameters.
CASES: dict[str, tuple[Callable[[bool], Any], str, dict[str, Any]]] = {
    "dense 20,000 x 2,000, tol=0, 100 iterations": (
        dense, "NMF", {"n_components": 20, "tol": 0, "max_iter": 100},
    ),
    "1000 + structure": (offset, "NMF", {"n_components": 6, "max_iter": 1000}),
    "1000 + structure, KL": (
        offset, "NMF", {"n_components": 6, "beta_loss": KL, "solver": "auto", "max_iter": 300},
    ),
    "1000 + structure, KL, CSR": (
        lambda small: csr_array(offset(small)), "NMF",
        {"n_components": 6, "beta_loss": KL, "solver": "auto", "max_iter": 300},
    ),
    "GNMF dot, three digits x16": (
        lambda small: 16 * digits(3), "GNMF",
        {"n_components": 3, "weighting": "dot", "graph_reg": 100.0, "max_iter": 1000},
    ),
    "GNMF, digits, λ = 1e4": (
        lambda small: digits(10), "GNMF",
        {"n_components": 10, "graph_reg": 1e4, "max_iter": 1000},
    ),
    "GNMF KL, digits": (
        lambda small: digits(4), "GNMF",
        {"n_components": 4, "graph_reg": 100.0, "beta_loss": KL, "max_iter": 300},
    ),
    "CF, digits": (lambda small: digits(4), "CF", {"n_components": 4, "max_iter": 300}),
}  # fmt: skip


def fit(name: str, small: bool, folder: Path) -> dict[str, Any]:
    """Fit a case in both precisions and store the factors.

    Other versions of Partwise run this function too.
    """
    import partwise

    make, kind, params = CASES[name]
    X, found = make(small), {}
    params = {**params, "random_state": 0} | ({"init": "random"} if kind == "CF" else {})
    if kind != "NMF":
        params["n_clusters"] = 1
    for dtype in ("float64", "float32"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = getattr(partwise, kind)(**params).fit(X.astype(dtype))
        true = objective(model, X.astype(dtype), kind, params)
        end = "converged" if model.status_.startswith("converged") else model.status_.split(":")[0]
        found[dtype] = {
            "objective": float(model.objective_),
            "off": abs(float(model.objective_) - true) / true,
            "true": true,
            "iterations": int(model.n_iter_),
            "end": end.split(" after")[0].split(",")[0],
        }
        second = model.concept_weights_ if kind == "CF" else model.components_.T
        np.savez(folder / dtype, V=model.embedding_, U=second)
    return found


def objective(model: Any, X: Any, kind: str, params: dict[str, Any]) -> float:
    """Return the objective of a fitted model, by the naive formula in float64."""
    X = (X.toarray() if hasattr(X, "toarray") else X).astype(float)
    V = model.embedding_.astype(float)
    if kind == "CF":
        return 0.5 * float(np.sum((X - V @ (model.concept_weights_.astype(float).T @ X)) ** 2))
    Y = V @ model.components_.astype(float)
    if params.get("beta_loss") == KL:
        logs = np.log(np.maximum(X, 1e-300) / np.maximum(Y, 1e-300))
        loss = float((np.where(X > 0, X * logs, 0) - X + Y).sum())
    else:
        loss = 0.5 * float(((X - Y) ** 2).sum())
    if kind != "GNMF":
        return loss
    W = graph(X, params).tocoo()
    a, b = V[W.row], V[W.col]
    apart = (a - b) ** 2
    if params.get("beta_loss") == KL:
        low = np.finfo(model.embedding_.dtype).tiny
        apart = (a - b) * (np.log(np.maximum(a, low)) - np.log(np.maximum(b, low)))
    return loss + 0.25 * params["graph_reg"] * float(W.data.astype(float) @ apart.sum(axis=1))


def graph(X: np.ndarray, params: dict[str, Any]) -> Any:
    try:
        from partwise.knowledge.graph import neighbor_graph
    except ImportError:  # the module of this function in older versions
        from partwise.graph import neighbor_graph
    return neighbor_graph(X, 5, weighting=params.get("weighting", "binary"))


def residual(name: str, small: bool, factors: Path) -> float | None:
    """Return the KKT residual in float64.

    Return None for GNMF with KL, whose update (21) does not converge to KKT points.
    """
    import partwise
    from partwise import fitting
    from partwise.fitting.concept_fitting import state_concepts
    from partwise.fitting.description import FitInputs
    from partwise.fitting.sample_kernels import Kernel
    from partwise.solvers.loop import residual_at

    make, kind, params = CASES[name]
    if kind == "GNMF" and params.get("beta_loss") == KL:
        return None
    estimator = getattr(partwise, kind)(**params)
    what = fitting.described(estimator)
    checked = fitting.check(estimator, what, make(small).astype(float), FitInputs())
    if kind == "CF":
        model: Any = state_concepts(what, Kernel("linear"), 0.0, checked).model
    else:
        model = fitting.state(what, checked).model
    with np.load(factors) as kept:
        V, U = kept["V"].astype(float), kept["U"].astype(float)
    return residual_at(model, {"V": V, "U": U}, model.exact_value(V, U))


def ask(name: str, small: bool, tree: str | None) -> dict[str, Any]:
    """Run a case in its own process, with the version of Partwise in ``tree``."""
    env = dict(os.environ)
    if tree is not None:
        env["PYTHONPATH"] = os.pathsep.join([os.path.join(tree, "src"), str(HERE.parent)])
    with TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "benchmarks.precision", "--case", name, "--keep", folder]
        done = subprocess.run(
            command + ["--small"] * small, env=env, cwd=HERE.parent, capture_output=True, text=True
        )
        if done.returncode:
            return {"error": done.stderr.strip().splitlines()[-1]}
        found = json.loads(done.stdout)
        for dtype, figures in found.items():
            figures["residual"] = residual(name, small, Path(folder) / f"{dtype}.npz")
    return found


def lines(name: str, when: str, found: dict[str, Any]) -> list[str]:
    if "error" in found:
        return [f"| {name} | {when} | {found['error'][:80]} | | | | | |"]
    both = (found["float64"], found["float32"])
    cells = [name, when, *(f"{d['true']:.6g}" for d in both)]
    cells.append(f"{both[1]['true'] / both[0]['true'] - 1:+.1e}")
    cells.append(" / ".join(f"{d['off']:.0e}" for d in both))
    cells.append(" / ".join(f"{d['end']} ({d['iterations']})" for d in both))
    residuals = [d["residual"] for d in both]
    cells.append("" if None in residuals else " / ".join(f"{r:.1e}" for r in residuals))
    return ["| " + " | ".join(cells) + " |"]


HEAD = """# float32 against float64

`python -m benchmarks.precision`; see there. Objectives are those of the factors, by the naive
formula in float64. "off" is by how much `objective_` differs from that (float64 / float32), the
residual that of the KKT conditions in float64, as measured now. Converged asks for a residual of at
most 1e-4. float32 is to be within 1e-4 of float64 or, where paths part, to have a residual of at
most that. Under the offset and the heavy graph of "GNMF dot" float32 computes in float64
(`engine.data.doubled`); the offset's half-steps are exact, since its parts are nearly collinear.

| case | | float64 | float32 | apart | off | end (iterations) | residual |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", help="another checkout of the project")
    parser.add_argument("--small", action="store_true", help="small data: does it run?")
    parser.add_argument("--case", help="one case, as JSON on standard output")
    parser.add_argument("--keep", type=Path, help="where that leaves its factors")
    given = parser.parse_args()
    if given.case:
        print(json.dumps(fit(given.case, given.small, given.keep)))
        return
    rows = []
    for name in CASES:
        for when, tree in (("before", given.before), ("now", None)):
            if when == "now" or tree:
                rows += lines(name, when, ask(name, given.small, tree))
                print(rows[-1], flush=True)
    if not given.small:
        path = HERE / "results" / "precision.md"
        path.write_text(HEAD + "\n".join(rows) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
