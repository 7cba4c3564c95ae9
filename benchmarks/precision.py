"""float32 against float64: where they end, and whether they tell the truth about it.

    python -m benchmarks.precision [--before TREE] [--small]

Writes ``benchmarks/results/precision.md``. Each case is fitted in both precisions from one start.
"true" is how far ``objective_`` is from the naive formula in float64 at the factors that came out;
the residual is the KKT residual of those factors, in float64. ``--before`` names another checkout,
whose figures come first.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
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


#: name: (X, class, parameters)
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


def fit(name: str, small: bool) -> dict[str, Any]:
    """Both precisions of one case; runs in any version of the library."""
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
            "residual": residual(model, X, kind, params),
        }
    return found


def objective(model: Any, X: Any, kind: str, params: dict[str, Any]) -> float:
    """The naive formula in float64."""
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
    except ImportError:  # where it was
        from partwise.graph import neighbor_graph
    return neighbor_graph(X, 5, weighting=params.get("weighting", "binary"))


def residual(model: Any, X: Any, kind: str, params: dict[str, Any]) -> float | None:
    """The KKT residual in float64; None where fixed points are not KKT points, or before."""
    try:
        from partwise.engine.data import as_data
        from partwise.engine.losses import make_loss
        from partwise.engine.problem import FactorModel
        from partwise.engine.solvers.loop import residual_at
    except ImportError:
        return None
    if kind != "NMF":
        return None
    problem = FactorModel(as_data(X.astype(float)), make_loss(params.get("beta_loss", "frobenius")))
    point = {"V": model.embedding_.astype(float), "U": model.components_.T.astype(float)}
    return residual_at(problem, point, problem.exact_value(point["V"], point["U"]))


def ask(name: str, small: bool, tree: str | None) -> dict[str, Any]:
    """One case in a process of its own, with the library of ``tree``."""
    env = dict(os.environ)
    if tree is not None:
        env["PYTHONPATH"] = os.pathsep.join([os.path.join(tree, "src"), str(HERE.parent)])
    command = [sys.executable, "-m", "benchmarks.precision", "--case", name]
    done = subprocess.run(
        command + ["--small"] * small, env=env, cwd=HERE.parent, capture_output=True, text=True
    )
    if done.returncode:
        return {"error": done.stderr.strip().splitlines()[-1]}
    return json.loads(done.stdout)


def lines(name: str, when: str, found: dict[str, Any]) -> list[str]:
    if "error" in found:
        return [f"| {name} | {when} | {found['error'][:80]} | | | | | |"]
    both = (found["float64"], found["float32"])
    cells = [name, when, *(f"{d['true']:.6g}" for d in both)]
    cells.append(f"{both[1]['true'] / both[0]['true'] - 1:+.1e}")
    cells.append(" / ".join(f"{d['off']:.0e}" for d in both))
    cells.append(" / ".join(f"{d['end']} ({d['iterations']})" for d in both))
    cells.append(" / ".join(f"{d['residual']:.1e}" for d in both if d["residual"] is not None))
    return ["| " + " | ".join(cells) + " |"]


HEAD = """# float32 against float64

`python -m benchmarks.precision`; see there. Objectives are those of the factors, by the naive
formula in float64. "off" is by how much `objective_` differs from that (float64 / float32), the
residual that of the KKT conditions in float64. Converged asks for a residual of at most 1e-4.

| case | | float64 | float32 | apart | off | end (iterations) | residual |
| --- | --- | --- | --- | --- | --- | --- | --- |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--before", help="another checkout of the project")
    parser.add_argument("--small", action="store_true", help="small data: does it run?")
    parser.add_argument("--case", help="one case, as JSON on standard output")
    given = parser.parse_args()
    if given.case:
        print(json.dumps(fit(given.case, given.small)))
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
