"""Time per iteration of each model relative to NMF, and of the solvers of each model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from benchmarks.cases import KL, counts, images, load, start, text
from benchmarks.clock import timed_fit
from benchmarks.rows import failed, row, skipped
from benchmarks.settings import Settings

SETS: dict[str, tuple[Callable[[bool], Any], int]] = {
    "orl": (images("orl"), 40),
    "coil20": (images("coil20"), 20),
    "pie": (images("pie"), 68),
    "tdt2": (text("tdt2"), 30),
    "tdt2 counts": (counts("tdt2"), 10),
}


@dataclass
class Problem:
    """Data, initial factors, labels of a fifth of each class, and a neighbour graph."""

    name: str
    X: Any
    k: int
    W: np.ndarray
    H: np.ndarray
    y: np.ndarray
    graph: Any


def problem(name: str, quick: bool) -> Problem:
    from partwise.io.datasets import keep_labels
    from partwise.knowledge.graph import neighbor_graph

    make, k = SETS[name]
    X, y = make(quick), load(name.split()[0], quick)[1]
    k = min(k, X.shape[0] // 2)
    per_class = max(2, int(np.bincount(y)[np.unique(y)].min()) // 5)
    y = keep_labels(np.unique(y, return_inverse=True)[1], per_class, random_state=0)
    return Problem(name, X, k, *start(X, k), y, neighbor_graph(X, 5))


def model(kind: str, problem: Problem, solver: str, loss: str, iterations: int) -> Any:
    """Return the estimator, and the arguments of its fit in addition to X."""
    import partwise

    options: dict[str, Any] = {"solver": solver, "init": "custom", "tol": 0, "max_iter": iterations}
    given: dict[str, Any] = {"W": problem.W, "H": problem.H}
    if kind != "NMFDC":
        options["beta_loss"] = loss
    if kind != "NMF":
        options["n_clusters"] = 1
    if kind == "GNMF":
        given["graph"] = problem.graph
    if kind in ("CNMF", "CDNMF", "NMFDC"):
        given["y"] = problem.y
    return getattr(partwise, kind)(problem.k, **options), given


def run(kind: str, problem: Problem, solver: str, loss: str, iterations: int) -> tuple[Any, Any]:
    estimator, given = model(kind, problem, solver, loss, iterations)
    return timed_fit(estimator, problem.X, **given)


# -- time of one iteration ---------------------------------------------------------------------


def iteration_costs(settings: Settings) -> dict[str, Any]:
    """Compare an iteration of each model with one of NMF with the same solver."""
    rows = []
    plans = [(name, "frobenius", solver) for name in ("coil20", "pie", "tdt2") for solver in FAST]
    plans += [(name, KL, s) for name in ("coil20", "tdt2 counts") for s in ("mu", "newton")]
    for name in dict.fromkeys(name for name, *_ in plans):
        try:
            data = problem(name, settings.quick)
        except FileNotFoundError as error:
            rows.append(skipped(f"one iteration, {name}", error))
            continue
        for _, loss, solver in (plan for plan in plans if plan[0] == name):
            rows += list(_costs(data, loss, solver, settings))
    return {"kind": "rows", "rows": rows}


FAST = ("mu", "hals")


def _costs(data: Problem, loss: str, solver: str, settings: Settings) -> Iterator[dict[str, Any]]:
    run("NMF", data, solver, loss, 3)
    spent, _ = run("NMF", data, solver, loss, 5)
    lasting = 0.05 if settings.quick else 0.6
    n = int(np.clip(lasting / spent.each, 10, 200))
    for kind in ("GNMF", "CNMF", "CDNMF", "NMFDC", "NSNMF"):
        if loss == KL and (kind == "NMFDC" or (kind == "GNMF" and solver != "mu")):
            continue
        goal = 3.0 if loss == KL and kind == "GNMF" else 1.2
        short = "KL " if loss == KL else ""
        what = f"one iteration, {short}{kind} / NMF, {solver}, {data.name} k={data.k}"
        try:
            # Compiles the kernels, also those used after the first iterations.
            run(kind, data, solver, loss, 5)
            pairs = [
                (
                    run(kind, data, solver, loss, n)[0].each,
                    run("NMF", data, solver, loss, n)[0].each,
                )
                for _ in range(settings.runs)
            ]
        except (ValueError, RuntimeError) as error:
            yield failed(what, error, goal, at_most=True)
            continue
        seen = median(a / b for a, b in pairs)
        seconds = {"theirs": [a for a, _ in pairs], "nmf": [b for _, b in pairs]}
        yield row(what, seen, goal, at_most=True, iterations=n, seconds=seconds)


# -- solvers with scale="unit" -----------------------------------------------------------------


def unit_solvers(settings: Settings) -> dict[str, Any]:
    """Return how much faster other solvers reach the objective of 1,000 multiplicative updates.

    The papers print multiplicative updates, which are the slowest solver that never raises the
    objective.
    """
    iterations = 30 if settings.quick else 1000
    rows = []
    for name in ("orl", "coil20", "pie") if settings.full else ("orl", "coil20"):
        try:
            data = problem(name, settings.quick)
        except FileNotFoundError as error:
            rows.append(skipped(f"solvers, {name}", error))
            continue
        for kind in ("GNMF", "CNMF", "CDNMF", "NMFDC", "NSNMF"):
            rows.append(_solvers(kind, data, "frobenius", iterations, settings.runs))
        rows.append(_solvers("CDNMF", data, KL, iterations, settings.runs))
    return {"kind": "rows", "rows": rows}


def _solvers(
    kind: str, data: Problem, loss: str, iterations: int, runs: int, goal: float = 10
) -> dict[str, Any]:
    names = ("mu", "newton") if loss == KL else ("mu", "hals", "nesterov")
    what = f"solvers, {'KL ' if loss == KL else ''}{kind}, {data.name} k={data.k}"
    histories, times = {}, {}
    for solver in names:
        try:
            run(kind, data, solver, loss, 2)
            few = iterations if solver == "mu" else max(30, iterations // 4)
            spent, fitted = run(kind, data, solver, loss, few)
        except (ValueError, RuntimeError) as error:
            return failed(what, f"{solver}: {error}", goal)
        histories[solver], times[solver] = fitted.objective_history_, spent.seconds
    slowest, others = "mu", [solver for solver in names if solver != "mu"]
    if np.any(np.diff(histories["mu"]) > 1e-9 * np.abs(histories["mu"][:-1])):
        return failed(what, "mu is not monotone", goal)
    target = histories[slowest][-1]
    found = {}
    for solver in others:
        m = int(np.argmax(histories[solver] <= target)) + 1
        if histories[solver][m - 1] > target:
            continue
        ratios = []
        for turn in range(runs):  # the long run is repeated only if it is short
            if turn and times[slowest] < 5:
                times[slowest] = run(kind, data, slowest, loss, iterations)[0].seconds
            ratios.append(times[slowest] / run(kind, data, solver, loss, m)[0].seconds)
        found[solver] = (median(ratios), m)
    if not found:
        return failed(what, f"no solver reached the objective of {slowest}", goal)
    fastest = max(found, key=lambda solver: found[solver][0])
    ratio, m = found[fastest]
    note = f"{fastest}, {m} iterations, against {slowest}, {iterations}"
    return row(what, ratio, goal, note=note, solvers={s: list(r) for s, r in found.items()})


# -- NMF-DC as its paper compares it -----------------------------------------------------------

# Seconds of CNMF over those of NMF-DC, from Tables II and IV of the paper.
PRINTED = {"orl": 1.39 / 0.26, "yale": 1.40 / 0.28}


def nmfdc_printed(settings: Settings) -> dict[str, Any]:
    """Compare NMF-DC and CNMF with multiplicative updates, on c classes with 10% labels.

    The paper does not specify when either stops. Here each stops when its objective is within 1% of
    that after 2000 iterations. The goal is the ratio of the printed running times.
    """
    rows = []
    for name, printed in PRINTED.items():
        for solver in ("auto", "nesterov"):
            what = f"NMF-DC ({solver}) against CNMF (mu), {name}, c = 2..10"
            try:
                X, y = load(name)
            except FileNotFoundError as error:
                rows.append(skipped(what, error))
                continue
            classes = (3, 6) if settings.quick else range(2, 11)
            times = [_printed_pair(X, y, c, solver, settings) for c in classes]
            theirs, ours = (sum(median(t[i]) for t in times) for i in (0, 1))
            note = f"{theirs / len(times):.3f} s and {ours / len(times):.3f} s on average"
            rows.append(row(what, theirs / ours, round(printed, 2), note=note))
    return {"kind": "rows", "rows": rows}


def _printed_pair(X: Any, y: Any, c: int, solver: str, settings: Settings) -> Any:
    from partwise.io.datasets import keep_labels, unit_rows

    kept = np.isin(y, np.unique(y)[:c])
    X, y = unit_rows(X[kept]), np.unique(y[kept], return_inverse=True)[1]
    y = keep_labels(y, 1, random_state=0)
    data = Problem("", X, c, *start(X, c), y, None)
    long = 100 if settings.quick else 2000
    plan = []
    for kind, used in (("CNMF", "mu"), ("NMFDC", solver)):
        history = run(kind, data, used, "frobenius", long)[1].objective_history_
        plan.append((kind, used, int(np.argmax(history <= 1.01 * history[-1])) + 1))
    turns = [
        [run(kind, data, used, "frobenius", m)[0].seconds for kind, used, m in plan]
        for _ in range(settings.runs)
    ]
    return [t[0] for t in turns], [t[1] for t in turns]
