"""Imports run only downwards, in the order of the design's list of modules."""

import ast
from pathlib import Path

import pytest

import partwise

ROOT = Path(partwise.__file__).parent

# From the bottom up. A module may import from its own layer and from those before it. Inside the
# packages of `DEEP` each module has a place of its own.
DEEP = {"engine", "io"}
LAYERS = [
    {"_lazy", "_versions", "engine", "io"},
    {
        "engine.arrays",
        "engine.curvature",
        "engine.numeric",
        "engine.rows",
        "engine.sweeps",
        "engine.data",
        "engine.kernels",
        "engine.kernels_torch",
        "engine.kernels_curvature",
        "engine.kernels_products",
        "engine.kernels_ratio",
        "engine.kernels_sampled",
        "engine.kernels_triton",
        "io.files",
    },
    {"knowledge"},
    {
        "engine.losses",
        "engine.maps",
        "engine.terms",
        "engine.graph_terms",
        "engine.sparseness",
        "engine.residual",
        "engine.robust",
        "engine.seen",
        "engine.subproblems",
    },
    {"engine.problem", "engine.concepts"},
    {"engine.solvers"},
    {"evaluation"},  # below the estimators: those with labels cluster
    {"io._values", "io.models"},  # below the estimators, which have `save`
    {"estimators"},
    {"__init__"},  # the public face: `import partwise`, `from partwise import NMF`
    {
        "io._common",
        "io._disk",
        "io.annotated",
        "io.cells",
        "io.cnmf_folder",
        "io.columns",
        "io.formulas",
        "io.unpacked",
        "io.encoding",
        "io.numbers",
        "io.tokens",
        "io.datasets",
        "io.images",
        "io.known",
        "io.labels",
        "io.matrices",
        "io.read",
        "io.samples",
        "io.sheets",
        "io.tables",
        "io.texts",
        "io.vectors",
        "io.write_back",
    },
    {"view"},
    {"cluster", "datasets", "graph", "metrics", "plot", "report", "terms"},  # public names
    {"papers", "studio"},
    {"cli", "__main__"},
]
#: Packages whose ``__init__`` only names what lies inside them.
PUBLIC = {"__init__", "io"}
LAYER = {name: layer for layer, names in enumerate(LAYERS) for name in names}

FILES = sorted(ROOT.rglob("*.py"))


def part_of(file):
    """The module or package that has a place in the list and that a file belongs to."""
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


def imported_parts(file):
    """Parts of partwise that a file imports, anywhere in it: a late import is one too."""
    package = ("partwise", *file.relative_to(ROOT).parent.parts)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            modules = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = list(package[: len(package) + 1 - node.level]) if node.level else []
            base += node.module.split(".") if node.module else []
            # `from partwise import data` names a module, `from partwise import NMF` does not
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
    """What ``importlib.import_module("partwise.x")`` or ``__import__("partwise.x")`` imports."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    text = call.args[0] if call.args else None
    if name not in ("import_module", "__import__") or not isinstance(text, ast.Constant):
        return []
    return [text.value.split(".")] if isinstance(text.value, str) else []


def test_an_import_by_name_is_seen():
    text = 'import importlib\nimportlib.import_module("partwise.cli")\n__import__("partwise")\n'
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    assert [named_modules(call) for call in calls] == [[["partwise", "cli"]], [["partwise"]]]


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
