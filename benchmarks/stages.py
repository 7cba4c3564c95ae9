"""Time of a fit by stage, compared with another checkout.

    python -m benchmarks.stages coil20 dense pie-kl --threads 16 --before TREE/src

Rows, starts and iterations are those of `threads.py`. Each checkout has its own process with the
given number of threads. They fit alternately, each while the threads of the other sleep. A cell is
the median of the fits; the rest is the time outside all stages.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.threads import ASLEEP, ROWS, Process, known_targets, make

#: Functions that are counted for each stage; a stage inside another one is not counted twice.
STAGES = {
    "checks": ["partwise.fitting.check"],
    "problem, with squares of X": ["partwise.fitting.state"],
    "start": ["partwise.solvers.loop.begin"],
    "iterations": ["partwise.fitting.solving.alternate"],
    "exact codes": ["partwise.fitting.solving.solve_codes"],
    "KKT residual": ["partwise.fitting.solving.residual_at"],
    "other ends": ["partwise.fitting.solving.finish", "partwise.fitting.publish"],
}


def watch() -> dict[str, float]:
    """Start measuring all stages, and return the dictionary that collects their seconds."""
    spent: dict[str, float] = {}
    open_: list[float] = []  # seconds spent in stages that ran inside the current one

    def clocked(original: Any, stage: str) -> Any:
        def run(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            open_.append(0.0)
            try:
                return original(*args, **kwargs)
            finally:
                took = time.perf_counter() - began
                spent[stage] = spent.get(stage, 0.0) + took - open_.pop()
                if open_:
                    open_[-1] += took

        return run

    for stage, places in STAGES.items():
        for place in places:
            where, _, name = place.rpartition(".")
            try:
                owner: Any = importlib.import_module(where)
            except ModuleNotFoundError:
                module, _, kind = where.rpartition(".")
                owner = getattr(importlib.import_module(module), kind)
            setattr(owner, name, clocked(getattr(owner, name), stage))
    return spent


def worker() -> None:
    """Serve requests as JSON lines: load X of a row of `threads.py`, or fit it."""
    import warnings

    import numpy as np
    from sklearn.decomposition._nmf import _initialize_nmf

    from partwise import NMF

    warnings.simplefilter("ignore")
    spent = watch()
    X: Any = None
    W: Any = None
    H: Any = None
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "load":
            X = make(order["data"])
            W, H = _initialize_nmf(X, order["k"], init="random", random_state=0)
            W, H = np.ascontiguousarray(W, X.dtype), np.ascontiguousarray(H, X.dtype)
            print("{}", flush=True)
            continue
        model = NMF(W.shape[1], init="custom", beta_loss=order["loss"], tol=0, max_iter=order["m"])
        own = W.copy(), H.copy()
        spent.clear()
        began = time.perf_counter()
        model.fit_transform(X, W=own[0], H=own[1])
        whole = time.perf_counter() - began
        rest = whole - sum(spent.values())
        print(json.dumps({**spent, "rest": rest, "whole": whole}), flush=True)


def measure(names: list[str], threads: int, trees: dict[str, Path], fits: int) -> dict[str, Any]:
    """Return the seconds of each stage of a fit, by row and checkout."""
    steps = known_targets(Path(__file__).parent / "results")
    running = {who: Process(threads, tree, __file__) for who, tree in trees.items()}
    found: dict[str, Any] = {}
    for name in names:
        row = next(row for row in ROWS if row.name == name)
        order = {"loss": row.loss, "m": steps[name]["steps"][0]}
        every: dict[str, list[dict[str, float]]] = {who: [] for who in trees}
        for process in running.values():
            process.ask("load", data=row.data, k=row.k)
            process.ask("fit", **order)
        for _ in range(fits):
            for who, process in running.items():
                time.sleep(ASLEEP)
                every[who].append(process.ask("fit", **order))
        found[row.title] = {
            who: {stage: median(one.get(stage, 0.0) for one in told) for stage in told[0]}
            for who, told in every.items()
        }
    for process in running.values():
        process.close()
    return found


def markdown(found: dict[str, Any], about: str) -> str:
    """Return the page with one table of stages for each data set."""
    text = (__doc__ or "").split("\n\n")
    lines = ["# Where a fit's time goes", "", about, "", text[1], "", text[2].strip(), ""]
    for title, trees in found.items():
        lines += [f"## {title}", "", f"| ms | {' | '.join(trees)} |"]
        lines.append("|---|" + "---:|" * len(trees))
        for stage in [*STAGES, "rest", "whole"]:
            cells = [f"{1e3 * told.get(stage, 0.0):.1f}" for told in trees.values()]
            lines.append(f"| {stage} | {' | '.join(cells)} |")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    from benchmarks.settings import HERE, machine
    from benchmarks.store import write_json, write_text

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="+", choices=[row.name for row in ROWS])
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--before", type=Path, help="src of another checkout")
    parser.add_argument("--fits", type=int, default=7)
    parser.add_argument("--out", type=Path, default=HERE / "results" / "stages.md")
    given = parser.parse_args()
    trees = {"before": given.before} if given.before else {}
    trees |= {"now": HERE.parent / "src"}
    facts = machine()
    about = (
        f"{facts['processor']}, {facts['cores']} cores, {given.threads} threads, {facts['date']}."
    )
    found = measure(given.rows, given.threads, trees, given.fits)
    page = markdown(found, about)
    write_json(given.out.with_suffix(".json"), {"machine": facts, "seconds": found})
    write_text(given.out, page)
    print(page)


if __name__ == "__main__":
    worker() if "--worker" in sys.argv else main()
