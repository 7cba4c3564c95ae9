"""Tests that modules of the package import only from lower layers, in the order of a list."""

import ast
import subprocess
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import partwise

ROOT = Path(partwise.__file__).parent

# The layers are listed from the bottom up. A module may import from its own layer and from lower
# ones. In the packages of `DEEP`, each module has its own place in the list.
DEEP = {"persistence", "apps"}
LAYERS = [
    {"_lazy", "_sklearn", "_versions", "persistence.atomic"},
    {"backends"},  # arrays of every kind; all code that reads X
    {"knowledge"},  # modules for labels, graphs and links
    {"model"},  # the objective and its two subproblems
    {"solvers"},
    {"evaluation"},  # clusters and scores, which estimators with labels use
    # Estimators have the method `save`.
    {"persistence", "persistence.values", "persistence.model_files"},
    {"fitting"},
    {"estimators"},
    {"classify", "selection"},  # classifiers and searches, which use fitted estimators
    {"__init__"},  # names that `import partwise` provides
    {"io"},
    {"apps"},  # an empty package; its applications follow
    {"apps.view"},
    {"apps.cells"},  # single-cell data, with all layers above
    # Modules of public names.
    {"cells", "cluster", "datasets", "graph", "metrics", "plot", "report", "terms"},
    {"apps.papers", "apps.studio"},
    {"apps.label_studio", "apps.topics"},
    {"studio"},
    {"apps.cli", "__main__"},
]
#: Packages whose ``__init__`` only imports names from their modules.
PUBLIC = {"__init__", "io"}
LAYER = {name: layer for layer, names in enumerate(LAYERS) for name in names}

FILES = sorted(ROOT.rglob("*.py"))


def part_of(file):
    """Return the name under which LAYERS lists the module or package of a file."""
    return place(file.relative_to(ROOT).with_suffix("").parts)


def place(parts):
    if (
        parts[0] in DEEP
        and len(parts) > 1
        and parts[1] != "__init__"
        and exists("/".join(parts[:2]))
    ):
        return f"{parts[0]}.{parts[1]}"
    return parts[0]


def exists(name):
    return (ROOT / name).is_dir() or (ROOT / f"{name}.py").is_file()


@cache
def imported_parts(file):
    """Return the modules of partwise that a file imports anywhere, also inside functions."""
    return list(_imported_parts(file))


def _imported_parts(file):
    package = ("partwise", *file.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) + 1 - node.level]) if node.level else []
            base += node.module.split(".") if node.module else []
            # `from partwise import data` imports a module, but `from partwise import NMF` does not.
            modules = [[*base, alias.name] for alias in node.names]
        elif isinstance(node, ast.Call):
            modules = named_modules(node)
        else:
            continue
        for module in modules:
            if module[0] == "partwise":
                inside = len(module) > 1 and exists(module[1])
                yield node.lineno, place(module[1:]) if inside else "__init__"


def named_modules(call):
    """Return the modules that a call of ``importlib.import_module`` or ``__import__`` imports."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    text = call.args[0] if call.args else None
    if name not in ("import_module", "__import__") or not isinstance(text, ast.Constant):
        return []
    return [text.value.split(".")] if isinstance(text.value, str) else []


def test_an_import_by_name_is_seen():
    text = 'import importlib\nimportlib.import_module("partwise.io")\n__import__("partwise")\n'
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    assert [named_modules(call) for call in calls] == [[["partwise", "io"]], [["partwise"]]]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_run_downwards(file):
    part = part_of(file)
    assert part in LAYER, f"{part} is new: give it a place in LAYERS"
    if part in PUBLIC:
        return
    upwards = [
        f"line {line}: {part} imports {other}"
        for line, other in imported_parts(file)
        if LAYER[other] > LAYER[part]
    ]
    assert not upwards


PUBLIC_MODULES = next(names for names in LAYERS if "graph" in names)


def outside_the_public_names(text, own):
    """Yield imports of private names of partwise from outside the application `own`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.startswith("partwise."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("partwise"):
            package, module = (node.module + ".").split(".")[:2]
            for name in (alias.name for alias in node.names):
                public = {*partwise.__all__, *PUBLIC_MODULES}
                if module in PUBLIC_MODULES and node.module == f"{package}.{module}":
                    public = import_module(node.module).__all__
                elif module:
                    public = [name] if node.module.startswith(own) else []
                if name not in public:
                    yield f"{node.module}.{name}"


def test_the_rule_of_public_names_finds_the_others():
    text = "from partwise import NMF, graph\nfrom partwise.metrics import purity\n"
    text += "from partwise.metrics import sneaky\nfrom partwise.io.files import read\n"
    text += "from partwise.apps.papers.store import Store\nimport partwise.fitting\n"
    found = set(outside_the_public_names(text, "partwise.apps.papers"))
    assert found == {"partwise.metrics.sneaky", "partwise.io.files.read", "partwise.fitting"}


@pytest.mark.parametrize(
    "file", sorted((ROOT / "apps" / "papers").glob("*.py")), ids=lambda file: file.name
)
def test_the_papers_use_public_names_alone(file):
    assert not list(outside_the_public_names(file.read_text("utf-8"), "partwise.apps.papers"))


def private_of_scikit_learn(text):
    """Yield the lines of a file that import private names of scikit-learn."""
    for node in ast.walk(ast.parse(text)) if "sklearn" in text else ():
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sklearn":
            parts = [*node.module.split("."), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Import):
            parts = [
                p for a in node.names for p in a.name.split(".") if a.name.startswith("sklearn")
            ]
        else:
            continue
        if any(part.startswith("_") for part in parts):
            yield node.lineno


def test_private_names_of_scikit_learn_are_in_one_file():
    text = "import sklearn.base\nimport sklearn.utils._x\nfrom sklearn.base import a, _b\n"
    assert list(private_of_scikit_learn(text)) == [2, 3]
    tests = Path(__file__).parent.rglob("*.py")
    texts = {file.name: file.read_text("utf-8") for file in (*FILES, *tests)}
    found = [name for name, text in texts.items() if list(private_of_scikit_learn(text))]
    assert found == ["_sklearn.py"]


def test_no_cycle_within_a_layer():
    edges = {
        part: {
            other
            for file in FILES
            if part_of(file) == part
            for _, other in imported_parts(file)
            if other != part
        }
        for part in {part_of(file) for file in FILES} - PUBLIC
    }
    settled = set(PUBLIC)
    while edges:
        ready = {part for part, needs in edges.items() if needs <= settled}
        assert ready, f"a cycle among {sorted(edges)}"
        settled |= ready
        edges = {part: needs for part, needs in edges.items() if part not in ready}


def test_the_map_of_contributing_is_the_disk():
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    _, _, listed = text.partition("    src/partwise/\n")
    lines = listed.partition("\n\n")[0].splitlines()
    names, folder = set(), ""
    for line in lines:
        indent, first = len(line) - len(line.lstrip()), line.split()[0]
        if first.endswith("/"):
            folder = first if indent == 6 else folder
            names.add(first if indent == 6 else folder + first)
    on_disk = {
        f.relative_to(ROOT).as_posix() + "/"
        for f in ROOT.rglob("*")
        if (f / "__init__.py").exists()
    }
    small = {"backends/numpy/kernels/", "knowledge/graph/", "io/datasets/", "apps/view/report/"}
    assert names == on_disk - small
    for file in lines[-1].split()[:9]:
        assert (ROOT / file).is_file()


def test_imports_are_light():
    """Check which packages each import loads, in one process, the lightest import first."""
    code = """
import sys
def without(*names):
    assert not (found := [name for name in names if name in sys.modules]), found
import partwise.graph, partwise.cluster, partwise.metrics
without("numba", "pynndescent")
import partwise.apps.view.plot
without("matplotlib")
import partwise.apps.papers, partwise.apps.papers.runner
without("matplotlib", "typer", "sklearn.cluster")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
