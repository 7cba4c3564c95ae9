"""Tables without runs: numbers of operations, and sizes of data sets."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from partwise.apps.papers.document import FAR, Fold, Section, table
from partwise.apps.papers.protocol import DataSpec, Protocol, read_rows, read_settings
from partwise.apps.papers.sampling import data_found, load_data

FORMULA = ("formulation", "method", "operation", "formula")
SIZES = ("samples", "features", "classes")


def evaluate(formula: str, sizes: dict[str, int]) -> int:
    """Return the number of operations that a formula gives for these sizes."""
    # eval is safe here: the formulas are package data, and only these names are available.
    return math.floor(float(eval(formula, {"__builtins__": {}}, dict(sizes))))


def operations(protocol: Protocol, name: str, data_home: str | None) -> Section:
    """Return a page section that compares printed formulas with counted operations."""
    section = _section(protocol)
    for sizes in read_settings(name)["sizes"]:
        rows = []
        for row in read_rows(name):
            numbers = ["", "", ""]
            if row["counted"]:  # other formulas are orders of growth, O(...)
                printed, counted = (evaluate(row[key], sizes) for key in ("formula", "counted"))
                gap = (counted - printed) / printed
                numbers = [f"{printed:,}", f"{counted:,}", f"{gap:+.2%}" if gap else "equal"]
            rows.append([*(row[key] for key in FORMULA), *numbers])
        title = "## " + ", ".join(f"{key} = {value}" for key, value in sizes.items())
        header = [*FORMULA[:3], "printed formula", "printed", "counted", "difference"]
        section.blocks += [title, table(rows, header)]
    return _with_notes(section, protocol)


def statistics(protocol: Protocol, name: str, data_home: str | None) -> Section:
    """Return a page section that compares printed and actual sizes of data sets."""
    section, rows, equal, known = _section(protocol), [], 0, 0
    for row in read_rows(name):
        spec, cells = DataSpec(row["data"], "none"), [row["name"]]
        found: dict[str, int] = {}
        if data_found(spec, data_home):
            X, y = load_data(spec, data_home)
            found = dict(zip(SIZES, (*X.shape, len(np.unique(y))), strict=True))
        for key in SIZES:
            value = found.get(key)
            same = value == int(row[key])
            equal, known = equal + same, known + (value is not None)
            text = "–" if value is None else str(value) if same else f"{value} {FAR}"
            cells += [row[key], text]
        rows.append(cells)
    header = [f"{key}: {which}" for key in SIZES for which in ("printed", "measured")]
    section.blocks.append(table(rows, ["data set", *header]))
    section.line = f"{equal} of {known} numbers equal"
    return _with_notes(section, protocol)


def _section(protocol: Protocol) -> Section:
    """Return an empty page section with the title of a table."""
    return Section(f"{protocol.name}: {protocol.title}", protocol.name, [f"{protocol.paper}."])


def _with_notes(section: Section, protocol: Protocol) -> Section:
    """Return the section with the notes about a table and errors in its print."""
    if protocol.notes:
        section.blocks.append(Fold("Notes", [list(protocol.notes)]))
    if protocol.misprints:
        wrong = [entry["text"] for entry in protocol.misprints]
        section.blocks.append(Fold("Errors in print", [wrong]))
    return section


PLAIN: dict[str, Callable[[Protocol, str, str | None], Section]]
PLAIN = {"operations": operations, "statistics": statistics}
