"""Imports run only downwards, in the order of the design's list of modules."""

import ast
from pathlib import Path

import pytest

import partwise

ROOT = Path(partwise.__file__).parent

# From the bottom up. A module may import from its own layer and from those before it.
LAYERS = [
    {
        "_arrays",
        "_numeric",
        "_rows",
        "_output",
        "data",
        "kernels",
        "kernels_torch",
        "kernels_triton",
    },
    {"labels", "losses", "maps", "terms", "graph", "sparseness", "subproblems"},
    {"models", "concepts"},
    {"solvers"},
    {"cluster", "metrics"},  # below the estimators: those with labels cluster inside `fit`
    {"_persist_values", "persist"},  # below the estimators, which have `save`
    {"estimators"},
    {"__init__"},  # the public face: `import partwise`, `from partwise import NMF`
    {"datasets", "io"},
    {"choose"},
    {"plot", "report"},
    {"demo"},
    {"commands", "experiments"},
    {"cli", "__main__"},
]
LAYER = {name: layer for layer, names in enumerate(LAYERS) for name in names}

FILES = sorted(ROOT.rglob("*.py"))


def part_of(file):
    """The top-level module or package that a file belongs to."""
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


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
        else:
            continue
        for module in modules:
            if module[0] == "partwise":
                named = module[1] if len(module) > 1 and exists(module[1]) else "__init__"
                yield node.lineno, named


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_run_downwards(file):
    part = part_of(file)
    assert part in LAYER, f"{part} is new: give it a place in LAYERS"
    if part == "__init__":
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
        for part in {part_of(file) for file in FILES} - {"__init__"}
    }
    settled = {"__init__"}
    while edges:
        ready = {part for part, needs in edges.items() if needs <= settled}
        assert ready, f"a cycle among {sorted(edges)}"
        settled |= ready
        edges = {part: needs for part, needs in edges.items() if part not in ready}
