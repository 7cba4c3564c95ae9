"""Tables without runs: operation counts, the data's sizes, and the definition of an index."""

from __future__ import annotations

from collections.abc import Callable
from math import comb

import numpy as np

from partwise.papers.document import Fold, Grid, Section, Text
from partwise.papers.operations import count, printed_count
from partwise.papers.protocol import DataSpec, Protocol, read_rows, read_settings
from partwise.papers.sampling import data_found, draw, load_data


def operations(protocol: Protocol, name: str, data_home: str | None) -> Section:
    """Printed formulas at given sizes beside the operations counted."""
    section = _section(protocol)
    for sizes in read_settings(name)["sizes"]:
        section.blocks.append("## " + ", ".join(f"{key} = {value}" for key, value in sizes.items()))
        lines = []
        for row in read_rows(name):
            printed = printed_count(row["formula"], sizes)
            line = [row["formulation"], row["method"], row["operation"], row["formula"]]
            if printed is None:
                counts = ["", "", ""]
            else:
                counted = count(row["formulation"], row["method"], sizes)[row["operation"]]
                gap = (counted - printed) / printed
                counts = [f"{printed:,}", f"{counted:,}", f"{gap:+.2%}" if gap else "equal"]
            lines.append([Text.of(text) for text in line + counts])
        header = ["formulation", "method", "operation", "printed formula"]
        section.blocks.append(Grid([*header, "printed", "counted", "difference"], lines))
    return _with_notes(section, protocol)


def statistics(protocol: Protocol, name: str, data_home: str | None) -> Section:
    """The sizes of the data sets, printed and measured."""
    section = _section(protocol)
    lines, equal, absent = [], 0, 0
    for row in read_rows(name):
        spec = DataSpec(row["data"], "none")
        line = [Text.of(row["name"])]
        if data_found(spec, data_home):
            X, y = load_data(spec, data_home)
            found = {"samples": X.shape[0], "features": X.shape[1], "classes": len(np.unique(y))}
        else:
            found, absent = {}, absent + 1
        for key in ("samples", "features", "classes"):
            line.append(Text.of(row[key], "quiet"))
            value = found.get(key)
            same = value == int(row[key])
            equal += same
            kind = "" if value is None else "yes" if same else "far"
            line.append(Text.of("–" if value is None else str(value), kind))
        lines.append(line)
    header = ["data set", "samples: printed", "measured", "features: printed", "measured"]
    section.blocks.append(Grid([*header, "classes: printed", "measured"], lines))
    section.line = f"{equal} of {3 * (len(lines) - absent)} numbers equal"
    return _with_notes(section, protocol)


def contingency(protocol: Protocol, name: str, data_home: str | None) -> Section:
    """A contingency table of one clustering, and the adjusted Rand index by its printed formula."""
    from sklearn.cluster import KMeans

    from partwise.evaluation.metrics import adjusted_rand

    section = _section(protocol)
    wanted = protocol.data[0]
    spec = wanted if data_found(wanted, data_home) else DataSpec("digits", "unit_rows")
    sample = draw(protocol.name, spec, 3, 0, data_home=data_home)
    seed = sample.integer_seed("kmeans")
    found = KMeans(3, n_init=1, random_state=seed).fit_predict(sample.X)
    table = np.zeros((3, 3), dtype=int)
    np.add.at(table, (sample.truth, found), 1)
    rows = [[*map(str, row), str(row.sum())] for row in table]
    rows.append([*map(str, table.sum(axis=0)), str(table.sum())])
    names = [*(f"U{i + 1}" for i in range(3)), "Total"]
    lines = [[Text.of(n), *map(Text.of, row)] for n, row in zip(names, rows, strict=True)]
    by_formula, ours = ari_by_formula(table), float(adjusted_rand(sample.truth, found))
    section.blocks += [
        f"k-means with one start on three classes of {spec.name}: classes U, clusters Z.",
        Grid(["U \\ Z", "Z1", "Z2", "Z3", "Total"], lines, last=True),
        f"Formula (32) on this table: {by_formula:.6f}; the library's index: {ours:.6f}.",
    ]
    section.line = "equal" if abs(by_formula - ours) < 1e-12 else "differs"
    return _with_notes(section, protocol)


def ari_by_formula(table: np.ndarray) -> float:
    """(32) of the NMF-DC paper, term by term."""
    pairs = sum(comb(int(n), 2) for n in table.ravel())
    a = sum(comb(int(n), 2) for n in table.sum(axis=1))
    b = sum(comb(int(n), 2) for n in table.sum(axis=0))
    expected = a * b / comb(int(table.sum()), 2)
    return (pairs - expected) / (0.5 * (a + b) - expected)


def _section(protocol: Protocol) -> Section:
    return Section(f"{protocol.name}: {protocol.title}", protocol.name, [f"{protocol.paper}."])


def _with_notes(section: Section, protocol: Protocol) -> Section:
    if protocol.notes:
        section.blocks.append(Fold("Notes", [list(protocol.notes)]))
    if protocol.slips:
        section.blocks.append(Fold("Slips in print", [[s["text"] for s in protocol.slips]]))
    return section


PLAIN: dict[str, Callable[[Protocol, str, str | None], Section]] = {
    "operations": operations,
    "statistics": statistics,
    "contingency": contingency,
}
