"""Run the tests on many kinds of machine; ``make test-anywhere`` writes build/anywhere/table.md.

Each row of the table is one environment: the kernels of another processor, a newer Python with the
newest packages, the lowest versions, no optional packages, no data, or another number of threads.
If only the processor or the number of threads differs, only the files of ``NUMBERS`` run.
``--whole`` runs all files in every row, and ``--only haswell,core`` selects rows.

The file is also the pytest plugin that counts results (``-p anywhere``), and runs test files in
several processes. It needs neither pytest-xdist nor pytest-timeout.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "anywhere"
#: Environment variables: the file to which the plugin writes its counts, and the part of a test
#: file to run, such as "2/8".
COUNTS, SHARE = "ANYWHERE_COUNTS", "ANYWHERE_SHARE"
#: Test files whose results may depend on the processor and on the number of threads.
NUMBERS = (
    "ansnmf", "backends", "calibration", "cf", "checking", "choose", "classifiers", "codes",
    "consensus", "convergence", "crew", "cupy_data", "curvature", "dask_data", "data_matrix",
    "ensemble", "estimator_checks", "every_estimator", "expected_accuracy", "factor_model",
    "features", "fixed_parts", "gaps", "graph", "graph_terms", "init", "intervals", "kernels",
    "kmeans", "l21", "labels_in_methods", "limits", "links", "loop", "memmap", "methods",
    "minibatch", "new_samples", "nmf", "ordered", "parameters", "parts_classifier",
    "preparation", "probabilities", "properties", "publishing", "reference", "semi_nmf",
    "solving", "sparse_nmf_ntf", "stating", "steps", "subproblems", "sym_nmf", "terms",
    "threads", "torch_data", "trees",
)  # fmt: skip
#: Number of parts into which the slowest test files are split, to run on several cores.
SHARES = {"estimator_checks": 8, "fuzz": 4, "methods": 4, "parts_classifier": 4, "terms": 4,
          "backends": 3, "calibration": 3, "commands": 3, "expected_accuracy": 3, "runner": 3,
          "studio": 3, "cf": 2, "checking": 2, "consensus": 2, "convergence": 2, "dask_data": 2,
          "every_estimator": 2, "fuzz_pairs": 2, "graph": 2, "labels_in_methods": 2,
          "limits": 2, "loop": 2, "nmf": 2, "publishing": 2, "reference": 2, "sklearn_suite": 2,
          "stating": 2, "threads": 2}  # fmt: skip
OUTCOMES = ("passed", "failed", "error", "skipped", "xfailed", "xpassed")


@dataclass(frozen=True)
class Kind:
    """One row of the table: an environment, described by its differences from this machine."""

    name: str
    env: dict[str, str] = field(default_factory=dict)
    python: str = sys.executable
    whole: bool = False


# -- the environments -----------------------------------------------------------------------------


def threads(n: int) -> dict[str, str]:
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
    return dict.fromkeys(names, str(n))


def kinds(install: bool) -> list[Kind]:
    """Return all environments that this machine can run; ``install`` creates missing ones."""
    found = [Kind("here", whole=True), Kind("no-data", {"PARTWISE_DATA": ""}, whole=True)]
    found += [
        Kind(name.lower(), {"OPENBLAS_CORETYPE": name})
        for name in ("Nehalem", "Haswell", "Zen", "SkylakeX")
    ]
    # Haswell stands for most desktops, which have fused multiply-add but no AVX-512. The other row
    # is a processor of unknown type.
    found += [
        Kind("haswell-numba", {"OPENBLAS_CORETYPE": "Haswell", "NUMBA_CPU_NAME": "haswell"}),
        Kind("generic-numba", {"OPENBLAS_CORETYPE": "Haswell", "NUMBA_CPU_NAME": "generic"}),
    ]
    found += [Kind(f"threads-{n}", threads(n)) for n in (1, 2, 16)]
    oldest = ROOT / os.environ.get("OLDEST", ".venv-oldest") / "bin" / "python"
    if oldest.exists():  # `make test-anywhere` creates this environment
        found.append(Kind("oldest", python=str(oldest), whole=True))
    if install:
        found.append(Kind("core", python=environment("core", sys.executable, CORE), whole=True))
        for name, path in newer_pythons().items():
            found.append(Kind(name, python=environment(name, path, ALL), whole=True))
    return found


def newer_pythons() -> dict[str, str]:
    """Return Python interpreters newer than 3.11, found on the path or installed by pyenv."""
    found = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for minor in range(12, 20):
        name = f"python3.{minor}"
        paths = [shutil.which(name), *map(str, sorted(pyenv.glob(f"3.{minor}.*/bin/{name}")))]
        works = [
            p for p in paths if p and subprocess.run([p, "-c", ""], check=False).returncode == 0
        ]
        if works:
            found[name] = works[0]
    return found


#: Optional extras of an environment, and the packages that the tests need.
CORE: tuple[str, ...] = ()
ALL = ("graph", "tensor", "cells", "parquet", "dask", "studio", "test")
TOOLS = ("pytest>=8.3", "pytest-timeout>=2.3", "hypothesis>=6.120")


def environment(name: str, python: str, extras: tuple[str, ...]) -> str:
    """Return the Python interpreter of an environment with these extras; create it if missing."""
    folder = BUILD / name
    own = folder / "bin" / "python"
    if not (folder / "made").exists():
        print(f"making {folder}", flush=True)
        project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        needs = [*project["dependencies"], *TOOLS]
        for extra in extras:
            needs += project["optional-dependencies"][extra]
        needs = [need for need in needs if not need.startswith("partwise")]
        subprocess.run([python, "-m", "venv", folder], check=True)
        subprocess.run([own, "-m", "pip", "-qq", "install", *needs], check=True)
        (folder / "made").touch()
    return str(own)


# -- running the test files -----------------------------------------------------------------------


def pieces(kind: Kind, files: list[str], jobs: int, whole: bool) -> list[tuple[str, str]]:
    """Return pairs of a test file and the part of it that one process runs, the slowest first."""
    there = sorted((ROOT / "tests").rglob("test_*.py"))
    paths = {path.stem.removeprefix("test_"): path.relative_to(ROOT).as_posix() for path in there}
    names = list(paths)
    if files:
        names = [name for name in names if name in files]
    elif not (whole or kind.whole):
        names = [name for name in names if name in NUMBERS]
    found = []
    for name in sorted(names, key=lambda name: (-SHARES.get(name, 0), name)):
        n = SHARES.get(name, 1) if jobs > 4 else 1
        found += [(paths[name], f"{i}/{n}") for i in range(n)]
    if not files and (whole or kind.whole):
        found.append(("src", "0/1"))
    return found


def run(kind: Kind, piece: tuple[str, str], folder: Path, extra: list[str]) -> dict[str, Any]:
    """Run a test file, or a part of it, in a new process, and return the counts of its results."""
    path, share = piece
    counts = folder / f"{Path(path).stem}-{share.replace('/', '-')}.json"
    log = counts.with_suffix(".log")
    env = {**os.environ, **kind.env, COUNTS: str(counts), SHARE: share}
    env["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT / "tests")])
    command = [kind.python, "-m", "pytest", "-q", "-p", "anywhere", "-p", "no:cacheprovider"]
    with log.open("w") as out:
        code = subprocess.run(
            [*command, "-m", "not long", *extra, path],
            cwd=ROOT, env=env, stdout=out, stderr=subprocess.STDOUT, check=False,
        ).returncode  # fmt: skip
    try:
        return json.loads(counts.read_text())
    except FileNotFoundError:  # the run crashed, or no test was collected
        none = code == 5
        bad = [] if none else [f"{path} {share} ended with {code}: see {log}"]
        return {"counts": {} if none else {"error": 1}, "bad": bad, "skips": {}}


def run_kind(kind: Kind, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Run all test files in one environment, and yield the total counts after each file."""
    folder = BUILD / "runs" / kind.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    begun = time.monotonic()
    total: Counter[str] = Counter()
    skips: Counter[str] = Counter()
    bad: list[str] = []
    todo = pieces(kind, options.files, options.jobs, options.whole)
    with ThreadPoolExecutor(options.jobs) as pool:
        running = [pool.submit(run, kind, piece, folder, options.pytest) for piece in todo]
        for one in (done.result() for done in as_completed(running)):
            total.update(one["counts"])
            skips.update(one["skips"])
            bad += one["bad"]
            yield {"kind": kind.name, "files": len({path for path, _ in todo}), "bad": bad,
                   "counts": dict(total), "skips": dict(skips),
                   "seconds": round(time.monotonic() - begun)}  # fmt: skip


def table(rows: list[dict[str, Any]]) -> str:
    head = ("environment", "files", *OUTCOMES, "seconds")
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for row in rows:
        counts = [str(row["counts"].get(name, 0)) for name in OUTCOMES]
        cells = (row["kind"], str(row["files"]), *counts, str(row["seconds"]))
        lines.append("| " + " | ".join(cells) + " |")
    for row in rows:
        lines += ["", *(f"{row['kind']}: {what}" for what in row["bad"])] if row["bad"] else []
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="", help="rows, with commas between; default: all")
    parser.add_argument("--files", default="", help="test files, as nmf,loop; default: by row")
    parser.add_argument("--whole", action="store_true", help="all files in every row")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--no-install", action="store_true", help="make no environments")
    parser.add_argument("--list", action="store_true", help="name the rows, run nothing")
    options, options.pytest = parser.parse_known_args()
    options.files = [name for name in options.files.split(",") if name]
    only = [name for name in options.only.split(",") if name]
    rows = kinds(install=not (options.no_install or options.list))
    if options.list:
        print("\n".join(kind.name for kind in rows))
        return 0
    unknown = set(only) - {kind.name for kind in rows}
    if unknown:
        parser.error(f"no such row here: {', '.join(sorted(unknown))}; --list names them")
    found: dict[str, dict[str, Any]] = {}
    for kind in rows:
        if only and kind.name not in only:
            continue
        for row in run_kind(kind, options):
            found[kind.name] = row
            done = list(found.values())
            (BUILD / "table.md").write_text(table(done), encoding="utf-8")
            (BUILD / "table.json").write_text(json.dumps(done, indent=1), encoding="utf-8")
        print(table(list(found.values())[-1:]).split("\n", 2)[2], end="", flush=True)
    print("\n" + table(list(found.values())))
    return int(any(row["bad"] for row in found.values()))


# -- the pytest plugin ----------------------------------------------------------------------------


def pytest_addoption(parser: Any) -> None:
    # Without the plugin, pytest does not know the option "timeout".
    if importlib.util.find_spec("pytest_timeout") is None:
        parser.addini("timeout", "seconds for a test; not kept, pytest-timeout is not installed")


def pytest_configure(config: Any) -> None:
    if importlib.util.find_spec("pytest_timeout") is None:
        config.addinivalue_line("markers", "timeout: seconds; not kept")


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    i, n = map(int, os.environ.get(SHARE, "0/1").split("/"))
    first, last = len(items) * i // n, len(items) * (i + 1) // n
    config.hook.pytest_deselected(items=items[:first] + items[last:])
    items[:] = items[first:last]


def pytest_terminal_summary(terminalreporter: Any) -> None:
    stats = terminalreporter.stats
    counts = {name: len(stats[name]) for name in OUTCOMES if stats.get(name)}
    bad = [report.nodeid for name in ("failed", "error") for report in stats.get(name, ())]
    bad += [f"{report.nodeid} passed unexpectedly" for report in stats.get("xpassed", ())]
    skips = Counter(str(report.longrepr[-1]) for report in stats.get("skipped", ()))
    where = os.environ.get(COUNTS)
    if where:
        Path(where).write_text(json.dumps({"counts": counts, "bad": bad, "skips": dict(skips)}))


if __name__ == "__main__":
    sys.exit(main())
