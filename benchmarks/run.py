"""`python -m benchmarks.run`: run measurements, store each, and write the page.

python -m benchmarks.run                     what `make bench` runs
python -m benchmarks.run --full --resume     what `make bench-full` runs
python -m benchmarks.run --cases orl tdt2-kl --out build/bench
python -m benchmarks.run --cases orl --quick      the harness on a little data
python -m benchmarks.run --threads 1,2,4,8,16      time against threads (`threads.py`)
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.settings import HERE, SIZES, Settings, available_cores, set_threads

# Measurements other than the comparisons of time: module, function and heading by name.
MEASURES = {
    "iteration": ("models", "iteration_costs", "One iteration of the constrained models"),
    "unit": ("models", "unit_solvers", "Fastest solver against the slowest monotone one"),
    "nmfdc": ("models", "nmfdc_printed", "NMF-DC against CNMF, as printed"),
    "concepts": ("concepts", "concept_costs", "CF and LCF, linear kernel"),
    "graph": ("graphs", "neighbors", "Neighbour graph"),
    "memory": ("processes", "memory", "Peak memory beyond X"),
    "import": ("processes", "imports", "Import"),
    "first-fit": ("processes", "first_fit", "First fit in a fresh process"),
    "scaling": ("scaling", "scaling", "How an iteration grows"),
}
NEEDS_PEERS = {"graph"}
FULL = {"scaling"}  # measurements that only a full run includes


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.run", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--full", action="store_true", help="all cases, slow peers too")
    size.add_argument("--quick", action="store_true", help="small data: a trial of the harness")
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder of the results")
    parser.add_argument("--cases", nargs="+", metavar="PART", help="only these parts")
    parser.add_argument("--resume", action="store_true", help="keep the parts that are done")
    parser.add_argument("--no-peers", action="store_true", help="leave the peers out")
    parser.add_argument("--before", type=Path, help="bench.json of other code, to compare with")
    parser.add_argument("--list", action="store_true", help="print the parts and end")
    parser.add_argument(
        "--threads",
        type=thread_counts,
        default=[available_cores()],
        metavar="N[,N...]",
        help="for every contestant alike; several: time against threads, and nothing else",
    )
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="of time against threads, about"
    )
    return parser.parse_args(arguments)


def thread_counts(words: str) -> list[int]:
    """Return the numbers in a text in which they are separated by commas."""
    counts = [int(word) for word in words.split(",")]
    if not counts or min(counts) < 1:
        raise ValueError(f"--threads takes numbers from 1 on, got {words!r}")
    return counts


def chosen(names: list[str] | None, settings: Settings) -> list[str]:
    """Return the names of the measurements to run, in order; an unknown name ends the command."""
    from benchmarks.cases import CASES

    every = [case.name for case in CASES] + list(MEASURES)
    if names:
        unknown = sorted(set(names) - set(every))
        if unknown:
            sys.exit(f"No part {', '.join(unknown)}; there are {', '.join(every)}.")
        return [name for name in every if name in names]
    large = {case.name for case in CASES if case.full} | FULL
    return [name for name in every if settings.full or name not in large]


def run_part(
    name: str, settings: Settings, python: Path | None, done: dict[str, Any]
) -> dict[str, Any]:
    from benchmarks.against_peers import run_case
    from benchmarks.cases import CASES

    case = next((case for case in CASES if case.name == name), None)
    if case is not None:
        races = [part for part in done.values() if part["kind"] == "race"]
        return run_case(case, settings, python, races)
    module, function, title = MEASURES[name]
    measure = getattr(importlib.import_module(f"benchmarks.{module}"), function)
    result = measure(settings, python) if name in NEEDS_PEERS else measure(settings)
    return {"title": title, "about": _first_paragraphs(measure.__doc__), **result}


def _first_paragraphs(doc: str | None) -> str:
    lines = [line.strip() for line in (doc or "").strip().splitlines()]
    return "\n".join(lines)


def peer_versions(python: Path | None) -> dict[str, Any]:
    from benchmarks.workers import ContestantError, Worker

    if python is None:
        return {}
    names = ["scikit-learn", "numpy", "torch", "nmf-rs", "nmf-torch", "torchnmf", "pynndescent"]
    try:
        with Worker(python) as worker:
            found = worker.ask("versions", names=names)["versions"]
    except ContestantError:
        return {}
    return {f"{name} (peers)": found[name] for name in names}


def main(arguments: list[str] | None = None) -> None:
    given = parse(arguments)
    if len(given.threads) > 1:
        from benchmarks import threads

        threads.run(
            given.threads, given.out, names=given.cases, seconds=given.seconds, resume=given.resume
        )
        return
    set_threads(given.threads[0])
    settings = SIZES["full" if given.full else "quick" if given.quick else "bench"]
    names = chosen(given.cases, settings)
    if given.list:
        print("\n".join(names))
        return

    from benchmarks import peers, plots, report
    from benchmarks.settings import fingerprint, machine
    from benchmarks.store import Store, write_json, write_text
    from partwise._versions import versions

    python = None if given.no_peers else peers.ensure()
    made_with = versions()
    store = Store(
        given.out / f"parts-{settings.name}", {"code": fingerprint(), "size": settings.name}
    )
    done: dict[str, Any] = {}
    began, failures = time.perf_counter(), []
    for name in names:
        stored = store.load(name) if given.resume else None
        minutes = (time.perf_counter() - began) / 60
        print(f"[{minutes:5.1f} min] {name}{' (done before)' if stored else ''}", flush=True)
        if stored is None:
            used = replace(settings, runs=1) if minutes > settings.minutes else settings
            try:
                stored = run_part(name, used, python, done)
            except Exception as error:  # an error in one part must not end the others
                traceback.print_exc()
                failures.append(f"{name}: {type(error).__name__}: {error}")
                continue
            stored["runs"] = used.runs
            stored["minutes"] = round((time.perf_counter() - began) / 60 - minutes, 2)
            store.save(name, stored)
        done[name] = stored
    summary = {"size": settings.name, "runs": settings.runs, "machine": machine()}
    summary |= {"versions": made_with, "peers": peer_versions(python), "parts": done}
    summary["failures"] = failures
    if given.before is not None:
        summary["before"] = json.loads(given.before.read_text(encoding="utf-8"))["parts"]
    summary["plots"] = plots.draw(done, given.out / f"plots-{settings.name}")
    write_json(given.out / f"{settings.name}.json", summary)
    page = report.markdown(summary)
    write_text(given.out / f"{settings.name}.md", page)
    print(page)
    print(f"{(time.perf_counter() - began) / 60:.1f} minutes; results in {given.out}")
    if failures:
        sys.exit("Failed: " + "; ".join(failures))


if __name__ == "__main__":
    main()
