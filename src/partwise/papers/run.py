"""Run tables without the command's libraries: ``python -m partwise.papers.run gnmf --jobs 16``.

It only fills a result folder, which ``partwise reproduce --store`` reads; for a large machine that
has numpy, scipy, scikit-learn and numba but no terminal tools. With ``--budget-seconds`` it does
the most valuable cells first and stops in time; the same command goes on from there.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

from partwise._versions import versions
from partwise.papers import runner
from partwise.papers.estimate import cell_seconds, machine
from partwise.papers.protocol import expand, load_protocol
from partwise.papers.representations import DEVICE
from partwise.papers.runner import by_value, until
from partwise.papers.store import Store
from partwise.papers.trials import Cell, PartOfProtocol


def main(arguments: list[str] | None = None) -> int:
    """Fill a result folder; 0 where all went well, 1 where a cell failed."""
    asked = _parser().parse_args(arguments)
    if asked.device:
        os.environ[DEVICE] = asked.device  # the workers', who inherit it
    began = time.monotonic()
    wanted = [n for name in asked.names for n in expand(name)]
    protocols = [p for p in map(load_protocol, wanted) if p.data and not p.runs_of]
    selection = PartOfProtocol(runs=asked.runs, quick=asked.quick, readings=tuple(asked.reading))
    present = runner.present(protocols, asked.data_home)
    store = Store(asked.store)
    todo = store.missing(
        [c for c in by_value(protocols, selection) if (c.table, c.data.name) in present]
    )
    hours = sum(map(cell_seconds, todo)) / 3600
    print(f"{len(todo)} cells to do, about {60 * hours:.0f} core-minutes here", flush=True)
    limit = began + asked.budget_seconds if asked.budget_seconds else float("inf")
    return _work(todo, limit, store, asked)


def _work(todo: list[Cell], limit: float, store: Store, asked: argparse.Namespace) -> int:
    began = said = time.monotonic()
    ran, spent, failed, left_out = 0, 0.0, {}, Counter[str]()
    with runner.pool(min(asked.jobs or runner.cores(), max(1, len(todo)))) as submit:
        for cell, result in submit(until(todo, limit, slack=asked.slack), asked.data_home, store):
            if result is None:
                continue
            if "error" in result:
                if not result["error"].startswith("ImportError"):
                    failed[cell.slug] = result["error"]
                left_out[result["error"]] += 1
                continue
            store.put(cell, result | {"versions": versions()})
            ran, spent = ran + 1, spent + result["wall_seconds"]
            if time.monotonic() - said > 20:
                said = time.monotonic()
                print(f"{said - began:.0f} s: {ran} of {len(todo)} cells", flush=True)
    for reason, number in left_out.items():
        print(f"{number} cells did not run: {reason}")
    took = time.monotonic() - began
    print(
        f"{ran} cells in {took:.0f} s ({spent:.0f} s of cores), {len(failed)} failed, "
        f"{len(todo) - ran - left_out.total()} left; {', '.join(machine().values())}"
    )
    return 1 if failed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m partwise.papers.run", description=__doc__)
    parser.add_argument("names", nargs="+", help='tables, papers or "all"')
    parser.add_argument("--store", type=Path, required=True, help="the result folder")
    parser.add_argument("--jobs", type=int, help="processes; by default one for each core")
    parser.add_argument("--budget-seconds", type=float, help="stop in time for this limit")
    parser.add_argument(
        "--slack",
        type=float,
        default=1.5,
        help="times its estimate that a cell gets before the limit",
    )
    parser.add_argument("--device", help="a torch device for large fits, as cuda")
    parser.add_argument("--runs", type=int, help="runs a row instead of the declared ones")
    parser.add_argument("--quick", action="store_true", help="a small part of each table")
    parser.add_argument("--reading", action="append", default=[], help="only this reading")
    parser.add_argument("--data-home", help="a folder to look for data in")
    return parser


if __name__ == "__main__":
    sys.exit(main())
