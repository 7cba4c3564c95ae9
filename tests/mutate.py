"""Make small wrong changes to modules, and report those that no test detects.

    python tests/mutate.py                       a sample of all modules of `TESTS`
    python tests/mutate.py journal labels -n 20  twenty of each of these
    python tests/mutate.py journal --list        what would be tried
    python tests/mutate.py -j 16 --seconds 200   so many processes, for so long

A mutant is a module with one change: another comparison, sign, operator or number, a negated
condition, a deleted statement, or two swapped arguments. First, all tests of `TESTS` run once while
the lines that they reach are recorded. Then each mutant is tested by the tests that reach its line,
the fastest first. Each trial runs in its own process, which is forked after numpy, scipy and
scikit-learn are imported. Results are kept in build/mutants/, and a later run continues where the
last one ended; a module or a test that has changed is tried again. `mutants.toml` lists the mutants
that no test can detect, with the reason.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import signal
import sys
import threading
import time
import tomllib
import traceback
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import joblib

import anywhere

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src"
FOLDER = Path(os.environ.get("PARTWISE_MUTANTS", HERE.parent / "build" / "mutants"))
EQUIVALENT = HERE / "mutants.toml"
#: Time limit in seconds for the tests of one mutant. The fastest tests that reach its line run
#: first.
SECONDS = 30.0
#: A mutant that exceeds the time of its tests by this factor counts as an endless loop.
PATIENCE = 60.0
#: Results of a mutant that no test detected.
LEFT = ("survived", "unreached")
#: Required share of detected mutants.
WANTED = 0.9

_ANSWERS = [
    "test_calibration",
    "test_parts_classifier",
    "test_expected_accuracy",
    "test_query",
    "test_ordered",
    "test_features",
    "test_preparation",
    "test_trees",
    "test_ensemble",
]
_ENGINE = [
    "test_factor_model",
    "test_subproblems",
    "test_graph_terms",
    "test_steps",
    "test_codes",
    "test_publishing",
    "test_terms",
    "test_gaps",
    "test_convergence",
    "test_limits",
    "test_l21",
    "test_loop",
]
#: Test files of each module.
# fmt: off
TESTS = {
    "partwise.classify.calibration": _ANSWERS,
    "partwise.classify.classifiers": _ANSWERS,
    "partwise.classify.ensemble": _ANSWERS,
    "partwise.classify.features": _ANSWERS,
    "partwise.classify.preparation": _ANSWERS,
    "partwise.classify.query": _ANSWERS,
    "partwise.classify.outlying": _ANSWERS,
    "partwise.selection.consensus": ["test_consensus"],
    "partwise.selection.rank": ["test_choose", "test_consensus"],
    "partwise.selection.search_log": ["test_parameters", "test_choose"],
    "partwise.selection.intervals": ["test_intervals"],
    "partwise.selection.refits": ["test_intervals", "test_by_chunks"],
    "partwise.evaluation.held_out": ["test_held_out"],
    "partwise.evaluation.linkage": ["test_links"],
    "partwise.evaluation.metrics": ["test_metrics"],
    "partwise.evaluation.resampling": ["test_intervals", "test_consensus"],
    "partwise.knowledge.labels": ["test_labels", "test_probabilities"],
    "partwise.knowledge.links": ["test_links"],
    "partwise.knowledge.graph._incomplete": ["test_incomplete"],
    "partwise.knowledge.graph._rows": ["test_graph", "test_incomplete"],
    "partwise.knowledge.graph._search": ["test_graph"],
    "partwise.knowledge.graph._sketch": ["test_graph"],
    "partwise.knowledge.graph.places": ["test_places", "test_graph"],
    "partwise.persistence.atomic": ["test_atomic", "test_model_files"],
    "partwise.persistence.model_files": ["test_model_files"],
    "partwise.persistence.values": ["test_model_files"],
    "partwise.estimators.minibatch": ["test_minibatch"],
    "partwise.solvers.online": ["test_minibatch"],
    "partwise.backends.batches": ["test_minibatch"],
    "partwise.apps.cells.programmes": ["test_programmes"],
    "partwise.apps.cells.tables": ["test_tables"],
    "partwise.apps.cli.copies": ["test_copies", "test_consensus_command"],
    "partwise.backends.gaps": ["test_gaps"],
    "partwise.backends.threads": ["test_threads", "test_crew"],
    "partwise.apps.studio.journal": ["test_journal", "test_studio"],
    "partwise.io.columns": ["test_columns", "test_odd_columns", "test_messy_tables"],
    "partwise.io.label_files": [
        "test_read", "test_ids", "test_archives", "test_unknown_labels", "test_write_back",
    ],
    "partwise.io.tables": [
        "test_columns", "test_messy_tables", "test_read", "test_archives", "test_odd_columns",
        "test_options",
    ],
    "partwise.solvers.loop": _ENGINE,
    "partwise.model.factor_model": _ENGINE,
    "partwise.model.terms": _ENGINE,
    "partwise.model.losses": _ENGINE,
}
# fmt: on


def test_file(name: str) -> Path:
    """Return the path of the test file with this name in any folder of tests."""
    return next(HERE.rglob(f"{name}.py"))


def path_of(module: str) -> Path:
    return SOURCE.joinpath(*module.split(".")).with_suffix(".py")


# -- creating mutants -----------------------------------------------------------------------------

FLIPPED = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OTHER = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.FloorDiv: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


#: Functions that are symmetric in their first two arguments.
ANY_ORDER = {"max", "min", "maximum", "minimum", "logaddexp", "array_equal"}


def name_of(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def wrong_versions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield copies of a syntax node with one small error each."""
    new = copy.deepcopy(node)
    if isinstance(new, ast.Compare) and len(new.ops) == 1:
        new.ops = [FLIPPED[type(new.ops[0])]()]
        yield new
    elif isinstance(new, ast.BinOp) and type(new.op) in OTHER:
        new.op = OTHER[type(new.op)]()
        yield new
    elif isinstance(new, ast.UnaryOp) and isinstance(new.op, (ast.USub, ast.Not, ast.Invert)):
        yield new.operand
    elif isinstance(new, ast.BoolOp):
        new.op = ast.Or() if isinstance(new.op, ast.And) else ast.And()
        yield new
    elif isinstance(new, ast.Constant) and type(new.value) in (bool, int, float):
        value = new.value
        new.value = (
            (not value) if isinstance(value, bool) else value + 1 if value < 10 else value / 10
        )
        yield new
    elif isinstance(new, (ast.If, ast.IfExp, ast.While)) and not isinstance(
        new.test, (ast.Compare, ast.BoolOp, ast.UnaryOp)
    ):
        new.test = ast.UnaryOp(ast.Not(), new.test)
        yield new
    elif isinstance(new, ast.Call) and len(new.args) >= 2 and name_of(new) not in ANY_ORDER:
        new.args[:2] = new.args[1::-1]
        if ast.dump(new) != ast.dump(node):
            yield new
    elif isinstance(new, (ast.AugAssign, ast.Expr)) or (
        isinstance(new, ast.Assign) and isinstance(new.targets[0], (ast.Subscript, ast.Attribute))
    ):
        yield ast.Pass()


def is_message_or_type(node: ast.AST) -> bool:
    """Return whether a node is a message or a type, whose change gives no wrong result."""
    return (
        isinstance(node, (ast.Raise, ast.Assert, ast.JoinedStr, ast.Import, ast.ImportFrom))
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        or (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "warn")
    )


class Swap(ast.NodeTransformer):
    """Syntax-tree transformer that replaces the node with a given number by a wrong version."""

    def __init__(self, wanted: int | None = None, which: int = 0) -> None:
        self.wanted, self.which, self.count = wanted, which, 0
        self.found: list[tuple[int, int, ast.AST, ast.AST]] = []

    def visit(self, node: ast.AST) -> Any:
        if is_message_or_type(node):
            return node
        number, self.count = self.count, self.count + 1
        if self.wanted is None:
            for which, new in enumerate(wrong_versions(node)):
                self.found.append((number, which, node, new))
        elif number == self.wanted:
            new = list(wrong_versions(node))[self.which]
            return ast.copy_location(new, node)
        return getattr(self, f"visit_{type(node).__name__}", self.generic_visit)(node)

    def visit_arg(self, node: ast.arg) -> Any:  # annotations are not mutated
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> Any:
        node.body = [self.visit(child) for child in node.body]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.body = [self.visit(child) for child in node.body]
        node.args.kw_defaults = [d and self.visit(d) for d in node.args.kw_defaults]
        return node


def said(node: ast.AST) -> str:
    text = ast.unparse(node).splitlines()
    return text[0] if text else "pass"


def mutants(module: str) -> list[dict[str, Any]]:
    """Return all mutants of a module, each with its place, old code and new code."""
    text = path_of(module).read_text()
    swap, lines = Swap(), text.splitlines()
    swap.visit(ast.parse(text))
    made = []
    for number, which, old, new in swap.found:
        line = getattr(old, "lineno", 0)
        made.append({
            "module": module, "number": number, "which": which, "line": line,
            "last": getattr(old, "end_lineno", line), "source": lines[line - 1].strip(),
            "change": f"{said(old)} -> {said(new)}",
        })  # fmt: skip
    return made


def code_of(mutant: dict[str, Any]) -> Any:
    path = path_of(mutant["module"])
    tree = Swap(mutant["number"], mutant["which"]).visit(ast.parse(path.read_text()))
    return compile(ast.fix_missing_locations(tree), str(path), "exec")


# -- running tests on mutants ---------------------------------------------------------------------


class Changed(importlib.abc.MetaPathFinder):
    """Importer that loads one module from changed code."""

    def __init__(self, module: str, code: Any) -> None:
        self.module, self.code = module, code

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.module:
            return None
        file = str(path_of(name))
        loader = importlib.machinery.SourceFileLoader(name, file)
        loader.get_code = lambda _: self.code  # type: ignore[method-assign]
        return importlib.util.spec_from_file_location(name, file, loader=loader)


def preload() -> None:
    """Import packages that every test needs and no mutant changes."""
    for name in (
        "numpy", "scipy.sparse", "scipy.optimize", "scipy.stats", "scipy.cluster.hierarchy",
        "sklearn.cluster", "sklearn.linear_model", "sklearn.semi_supervised", "sklearn.datasets",
        "sklearn.decomposition", "sklearn.metrics", "pandas", "numba", "pytest",
        "matplotlib.pyplot", "torch", "dask.array", "anndata", "PIL.Image", "typer",
    ):  # fmt: skip
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def forked(works: Iterable[tuple[Any, Any, float]], jobs: int) -> Iterator[tuple[Any, int | None]]:
    """Run each (key, work, time limit) in its own process; yield the key and the exit code.

    At most `jobs` processes run at a time. The code is None if the process exceeded its time limit.
    """
    FOLDER.mkdir(parents=True, exist_ok=True)
    running: dict[int, tuple[Any, float]] = {}
    waiting, more = iter(works), True
    while more or running:
        while more and len(running) < jobs:
            one = next(waiting, None)
            if one is None:
                more = False
            else:
                running[started(one[1])] = (one[0], time.monotonic() + one[2])
        for pid, (key, end) in list(running.items()):
            done, status = os.waitpid(pid, os.WNOHANG)
            late = not done and time.monotonic() > end
            if late:
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            if done or late:
                del running[pid]
                yield key, None if late else os.waitstatus_to_exitcode(status)
        time.sleep(0.02)


def started(work: Any) -> int:
    """Start a process for the work, which prints to build/mutants/log-N, and return its id."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.setpgid(pid, pid)  # parent and child both call this, as either may run first
        return pid
    code = 3
    try:
        os.setpgid(0, 0)
        how = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        log = os.open(FOLDER / f"log-{os.getpid() % 32}", how)
        os.dup2(log, 1), os.dup2(log, 2)
        code = int(work())
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(code)


def pytest_main(arguments: list[str], plugins: list[Any] | None = None) -> int:
    import pytest

    usual = ["-q", "-x", "--assert=plain", "-o", "addopts=", "-m", "not long", "-p", "anywhere"]
    for name in ("cacheprovider", "xdist", "benchmark"):
        usual += ["-p", f"no:{name}"]
    return int(pytest.main([*usual, *arguments], plugins=plugins or []))


def watch_lines(code: Any) -> None:
    """Record the executed lines of a code object and of those nested in it."""
    sys.monitoring.set_local_events(2, code, sys.monitoring.events.LINE)
    for inner in code.co_consts:
        if hasattr(inner, "co_code"):
            watch_lines(inner)


class Reach:
    """Pytest plugin that records the lines that each test reaches, and its time."""

    def __init__(self, files: dict[str, str]) -> None:
        self.files, self.now = files, ""
        self.lines: dict[str, set[tuple[str, int]]] = {}
        self.seconds: dict[str, float] = {}
        self.uses: dict[str, list[str]] = {}
        self.failed: set[str] = set()

    def watch(self) -> None:
        """Record lines by the monitoring of Python 3.12, which is much faster than tracing."""
        if hasattr(sys, "monitoring"):
            sys.monitoring.use_tool_id(2, "reach")
            sys.monitoring.register_callback(2, sys.monitoring.events.LINE, self.line)
            for module in self.files.values():
                code = code_of({"module": module, "number": -1, "which": 0})
                sys.meta_path.insert(0, Changed(module, code))
                watch_lines(code)

    def line(self, code: Any, number: int) -> Any:
        self.lines.setdefault(self.now, set()).add((self.files[code.co_filename], number))
        return sys.monitoring.DISABLE  # each line is recorded once per test

    def go(self, name: str) -> None:
        self.now = name
        if hasattr(sys, "monitoring"):
            sys.monitoring.restart_events()
        else:
            sys.settrace(self.trace)
            threading.settrace(self.trace)

    def stop(self) -> None:
        if not hasattr(sys, "monitoring"):
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]

    def trace(self, frame: Any, event: str, _: Any) -> Any:
        module = self.files.get(frame.f_code.co_filename)
        if module is None:
            return None
        into = self.lines.setdefault(self.now, set())

        def line(frame: Any, event: str, _: Any) -> Any:
            into.add((module, frame.f_lineno))
            return line

        into.add((module, frame.f_lineno))
        return line

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed.add(report.nodeid)

    def hook(self) -> Any:
        import pytest

        reach = self

        class Hook:
            @pytest.hookimpl(hookwrapper=True)
            def pytest_runtest_protocol(self, item: Any) -> Iterator[None]:
                reach.uses[item.nodeid] = list(getattr(item, "fixturenames", ()))
                begun = sum(os.times()[:4])  # processor time, as other processes may use the cores
                reach.go(item.nodeid)
                yield
                reach.stop()
                reach.seconds[item.nodeid] = sum(os.times()[:4]) - begun

            @pytest.hookimpl(hookwrapper=True)
            def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
                before = reach.now
                # A fixture of wider scope is created once for several tests.
                if fixturedef.scope != "function":
                    reach.go(f"fixture {fixturedef.argname}")
                yield
                reach.go(before)

        return Hook()


def reach(modules: list[str], jobs: int) -> dict[str, Any]:
    """Return the tests of these modules with their seconds, and the tests that reach each line."""
    names = {name for module in modules for name in TESTS[module]}
    parts = {}
    for name in sorted(names, key=lambda name: -anywhere.SHARES.get(name[5:], 1)):
        n = anywhere.SHARES.get(name[5:], 1)
        parts |= {FOLDER / f"reach-{name}-{i}-{n}.json": (name, f"{i}/{n}") for i in range(n)}

    def works() -> Iterator[tuple[Any, Any, float]]:
        for kept, (name, share) in parts.items():
            about = [module for module in TESTS if name in TESTS[module]]
            mark = digest(test_file(name), *map(path_of, about))
            if not kept.exists() or json.loads(kept.read_text())["mark"] != mark:
                print(f"tracing {name} {share}", flush=True)
                yield kept, partial(trace, kept, name, share, about, mark), 3600

    for kept, code in forked(works(), jobs):
        if code != 0:
            print(f"the tests of {kept.stem} cannot be run, see the logs in {FOLDER}")
    found: dict[str, Any] = {"seconds": {}, "lines": {}}
    for kept in filter(Path.exists, parts):
        one = json.loads(kept.read_text())
        found["seconds"] |= one["seconds"]
        for line, tests in one["lines"].items():
            found["lines"].setdefault(line, []).extend(tests)
        for test in one["failed"]:
            print(f"fails as it is, and is left out: {test}")
    return found


def trace(kept: Path, name: str, share: str, modules: list[str], mark: str) -> int:
    """Run a part of a test file, and write the lines that each test reached."""
    plugin = Reach({str(path_of(module)): module for module in modules})
    plugin.watch()
    os.environ[anywhere.SHARE] = share
    code = pytest_main(["--maxfail=1000", str(test_file(name))], [plugin, plugin.hook()])
    lines: dict[str, list[str]] = {}
    plugin.lines.pop("", None)  # lines that run when a module is imported, before any test
    for test, reached in plugin.lines.items():
        users = [test]
        if test.startswith("fixture "):
            users = [t for t, names in plugin.uses.items() if test[8:] in names]
        users = [user for user in users if user not in plugin.failed]
        for module, line in reached:
            lines.setdefault(f"{module}:{line}", []).extend(users)
    lines = {key: sorted(set(tests)) for key, tests in lines.items()}
    found = {"mark": mark, "seconds": plugin.seconds, "lines": lines}
    kept.write_text(json.dumps(found | {"failed": sorted(plugin.failed)}))
    return code if code not in (0, 1, 5) else 0


@cache
def digest(*paths: Path) -> str:
    hashed = hashlib.blake2b()
    for path in paths:
        hashed.update(path.read_bytes())
    return hashed.hexdigest()


def tests_for(mutant: dict[str, Any], known: dict[str, Any]) -> list[str]:
    """Return the fastest tests that reach the lines of a mutant.

    For a line that runs at import, return all test files of the module.
    """
    keys = [f"{mutant['module']}:{line}" for line in range(mutant["line"], mutant["last"] + 1)]
    found = {test for key in keys for test in known["lines"].get(key, ())}
    if not found and at_import(mutant):
        files = {f"{name}.py" for name in TESTS[mutant["module"]]}
        found = {t for t in known["seconds"] if t.partition("::")[0].rpartition("/")[2] in files}
    order, total = sorted(found, key=lambda test: known["seconds"].get(test, 0.0)), 0.0
    chosen = []
    for test in order:
        total += known["seconds"].get(test, 0.0)
        if chosen and total > SECONDS:
            break
        chosen.append(test)
    return chosen


def at_import(mutant: dict[str, Any]) -> bool:
    """Return whether the changed line is outside all functions, so that it runs at import."""
    tree = ast.parse(path_of(mutant["module"]).read_text())
    return not any(
        isinstance(node, (ast.FunctionDef, ast.Lambda))
        and node.lineno <= mutant["line"] <= (node.end_lineno or 0)
        for node in ast.walk(tree)
    )


def trial(mutant: dict[str, Any], known: dict[str, Any]) -> tuple[Any, float] | str:
    """Return the work for a process and its time limit, or the known result of the mutant."""
    tests = tests_for(mutant, known)
    if not tests:
        return "unreached"
    try:
        code = code_of(mutant)
    except (SyntaxError, ValueError):
        return "killed"

    def work() -> int:
        sys.meta_path.insert(0, Changed(mutant["module"], code))
        return pytest_main(tests, [Noticed(noticed_in(mutant))])

    return work, PATIENCE + 3 * sum(known["seconds"].get(test, 0.0) for test in tests)


class Noticed:
    """Pytest plugin that writes the name of the first failing test to a file."""

    def __init__(self, into: Path) -> None:
        self.into = into
        into.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and not self.into.exists():
            self.into.write_text(report.nodeid)

    pytest_collectreport = pytest_runtest_logreport


def noticed_in(mutant: dict[str, Any]) -> Path:
    return FOLDER / f"by-{mutant['module']}-{mutant['number']}-{mutant['which']}"


# -- reporting results ----------------------------------------------------------------------------


def undetectable() -> dict[tuple[str, str, str], str]:
    """Return the mutants that no test can detect, each with the reason."""
    if not EQUIVALENT.exists():
        return {}
    listed = tomllib.loads(EQUIVALENT.read_text()).get("mutant", [])
    return {(m["module"], m["source"], m["change"]): m["why"] for m in listed}


def marks_of(module: str) -> dict[str, str]:
    """Return the hashes on which a result depends: those of the module and of its tests."""
    tests = digest(*(test_file(test) for test in TESTS[module]))
    return {"of": digest(path_of(module)), "tests": tests}


def key(mutant: dict[str, Any]) -> str:
    return f"{mutant['module']} {mutant['number']} {mutant['which']} {mutant['change']}"


def sample(modules: list[str], count: int, seed: int) -> list[dict[str, Any]]:
    """Return a random sample of the mutants of each module."""
    chosen = []
    for module in modules:
        every = mutants(module)
        random.Random(f"{seed} {module}").shuffle(every)
        chosen += every[:count]
    return chosen


def table(rows: list[dict[str, Any]]) -> str:
    why = undetectable()
    lines = [
        "| module | tried | killed | survived | of them explained |",
        "|---|---:|---:|---:|---:|",
    ]
    total = [0, 0, 0, 0]
    for module in dict.fromkeys(row["module"] for row in rows):
        mine = [row for row in rows if row["module"] == module]
        left = [row for row in mine if row["end"] in LEFT]
        known = sum((r["module"], r["source"], r["change"]) in why for r in left)
        counts = [len(mine), len(mine) - len(left), len(left), known]
        total = [a + b for a, b in zip(total, counts)]
        lines.append(f"| {module.removeprefix('partwise.')} | {' | '.join(map(str, counts))} |")
    return "\n".join([*lines, f"| all | {' | '.join(map(str, total))} |"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", help="the ends of names in TESTS; all by default")
    parser.add_argument("-n", type=int, default=14, help="mutants of each module")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("-j", type=int, default=joblib.cpu_count(), help="processes")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no mutant after these")
    parser.add_argument("--tests", nargs="+", help="test files to meet instead of those of TESTS")
    parser.add_argument("--list", action="store_true", help="show them and stop")
    parser.add_argument("--fresh", action="store_true", help="forget what was seen before")
    given = parser.parse_args()
    ends = given.modules or [""]
    modules = [name for name in TESTS if any(name.endswith(end) for end in ends)]
    gone = [name for name in modules if not path_of(name).exists()]
    if gone or not modules:
        raise SystemExit(
            f"no such module: {gone or given.modules}; TESTS in {__file__} lists them."
        )
    TESTS.update(dict.fromkeys(modules, given.tests) if given.tests else {})
    chosen = sample(modules, given.n, given.seed)
    if given.list:
        for mutant in chosen:
            print(f"{mutant['module']}:{mutant['line']}  {mutant['change']}")
        return
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ[name] = "1"
    sys.path[:0] = [str(HERE), str(SOURCE)]
    preload()
    begun, kept = time.monotonic(), FOLDER / "results.json"
    old = json.loads(kept.read_text()) if kept.exists() and not given.fresh else {}
    known = reach(modules, given.j)

    def works() -> Iterator[tuple[Any, Any, float]]:
        """Alternate between modules, so that an interrupted run covers all of them."""
        for mutant in sorted(chosen, key=lambda m: chosen.index(m) % given.n):
            last = old.get(key(mutant), {})
            marks = marks_of(mutant["module"])
            # A detected mutant is tried again if the module changed, an undetected one if the tests
            # changed.
            same = last.get("of") == marks["of"]
            if same and (last["end"] not in LEFT or last["tests"] == marks["tests"]):
                continue
            old.pop(key(mutant), None)
            todo = trial(mutant, known)
            if isinstance(todo, str):
                old[key(mutant)] = {**mutant, **marks, "end": todo}
            elif time.monotonic() - begun < given.seconds:
                yield mutant, *todo

    for mutant, code in forked(works(), given.j):
        end = "endless" if code is None else "survived" if code == 0 else "killed"
        by = noticed_in(mutant)
        noticed = by.read_text() if by.exists() else f"exit code {code}"
        found = {**mutant, **marks_of(mutant["module"]), "end": end, "by": noticed}
        old[key(mutant)] = found
        kept.write_text(json.dumps(old, indent=0))
    rows = [old[key(mutant)] for mutant in chosen if key(mutant) in old]
    kept.write_text(json.dumps(old, indent=0))
    for row in rows:
        if row["end"] in LEFT:
            reason = undetectable().get((row["module"], row["source"], row["change"]), "")
            print(f"{row['end']} {row['module']}:{row['line']}  {row['source']}\n"
                  f"      {row['change']}  {reason}", flush=True)  # fmt: skip
    print(table(rows))
    left = [row for row in rows if row["end"] in LEFT]
    unexplained = [r for r in left if (r["module"], r["source"], r["change"]) not in undetectable()]
    sys.exit(len(unexplained) > (1 - WANTED) * len(rows))


if __name__ == "__main__":
    main()
