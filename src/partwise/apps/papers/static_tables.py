"""Tables without runs: operation counts and the sizes of the data sets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

import numpy as np

from partwise.apps.papers.document import FAR, Fold, Section, table
from partwise.apps.papers.protocol import DataSpec, Protocol, read_rows, read_settings
from partwise.apps.papers.sampling import data_found, load_data

FORMULA = ("formulation", "method", "operation", "formula")
SIZES = ("samples", "features", "classes")


class Tally(Counter[str]):
    """Counts of additions, multiplications and divisions: ``fladd``, ``flmlt``, ``fldiv``."""

    def dot(self, rows: int, inner: int, columns: int = 1) -> None:
        """Count a matrix product. For a sparse matrix, ``rows * inner`` is its non-zeros."""
        self.update(fladd=rows * inner * columns, flmlt=rows * inner * columns)

    def apply(self, entries: int, *, add: int = 0, mul: int = 0, div: int = 0) -> None:
        """Count elementwise additions, multiplications and divisions per entry."""
        self.update(fladd=add * entries, flmlt=mul * entries, fldiv=div * entries)


def count(formulation: str, method: str, sizes: dict[str, int]) -> Tally:
    """Count the operations of one iteration of NMF or GNMF.

    The formulation is "frobenius" for (14) and (15) of the paper, or "divergence" for (20) and
    (21), where q conjugate gradient steps solve the systems. ``sizes`` are M, N, K, p and q as in
    the paper.
    """
    M, N, K, p, q = (sizes[name] for name in "MNKpq")
    tally, graph = Tally(), method == "GNMF"
    if formulation == "frobenius":
        for rows, other in ((M, N), (N, M)):  # (14) XV and U(VᵀV); (15) XᵀU and V(UᵀU)
            tally.dot(rows, other, K)
            tally.dot(K, other, K)
            tally.dot(rows, K, K)
            tally.apply(rows * K, mul=1, div=1)
        if graph:  # λW V in the numerator and λD V in the denominator; λW and λD are constant
            tally.dot(N, p, K)
            tally.apply(N * K, add=2, mul=1)
        return tally
    for rows, other in ((M, N), (N, M)):  # UVᵀ, the ratio, its product with V or U, column sums
        tally.dot(M, K, N)
        tally.apply(M * N, div=1)
        tally.dot(rows, other, K)
        tally.apply(rows * K, mul=1)
        tally.apply(other * K, add=1)
    tally.apply(M * K, div=1)
    if not graph:
        tally.apply(N * K, div=1)
        return tally
    tally.apply(N * p, mul=1)  # λL, once
    for _ in range(q * K):  # (Σu I + λL) d; three vector updates and two inner products
        tally.dot(N, p)
        tally.apply(N, add=6, mul=6)
    return tally


def printed_count(formula: str, sizes: dict[str, int]) -> int | None:
    """Evaluate a printed formula at these sizes; None for an order of growth, O(...)."""
    if formula.startswith("O("):
        return None
    # eval is safe here: the formulas are package data, and only these names are available.
    return math.floor(float(eval(formula, {"__builtins__": {}}, dict(sizes))))


def operations(protocol: Protocol, name: str, data_home: str | None) -> Section:
    """Compare the printed formulas at given sizes with the counted operations."""
    section = _section(protocol)
    for sizes in read_settings(name)["sizes"]:
        rows = []
        for row in read_rows(name):
            printed = printed_count(row["formula"], sizes)
            numbers = ["", "", ""]
            if printed is not None:
                counted = count(row["formulation"], row["method"], sizes)[row["operation"]]
                gap = (counted - printed) / printed
                numbers = [f"{printed:,}", f"{counted:,}", f"{gap:+.2%}" if gap else "equal"]
            rows.append([*(row[key] for key in FORMULA), *numbers])
        title = "## " + ", ".join(f"{key} = {value}" for key, value in sizes.items())
        header = ["formulation", "method", "operation", "printed formula"]
        section.blocks += [title, table(rows, [*header, "printed", "counted", "difference"])]
    return _with_notes(section, protocol)


def statistics(protocol: Protocol, name: str, data_home: str | None) -> Section:
    """Compare the printed sizes of the data sets with the measured ones."""
    section, rows, equal, known = _section(protocol), [], 0, 0
    for row in read_rows(name):
        spec, cells = DataSpec(row["data"], "none"), [row["name"]]
        found: dict[str, int] = {}
        if data_found(spec, data_home):
            X, y = load_data(spec, data_home)
            found = {"samples": X.shape[0], "features": X.shape[1], "classes": len(np.unique(y))}
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
    return Section(f"{protocol.name}: {protocol.title}", protocol.name, [f"{protocol.paper}."])


def _with_notes(section: Section, protocol: Protocol) -> Section:
    if protocol.notes:
        section.blocks.append(Fold("Notes", [list(protocol.notes)]))
    if protocol.misprints:
        wrong = [entry["text"] for entry in protocol.misprints]
        section.blocks.append(Fold("Errors in print", [wrong]))
    return section


PLAIN: dict[str, Callable[[Protocol, str, str | None], Section]] = {
    "operations": operations,
    "statistics": statistics,
}
