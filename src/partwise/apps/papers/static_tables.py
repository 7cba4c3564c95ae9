"""Tables without runs: operation counts, the data's sizes, and the definition of an index."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from math import comb

import numpy as np
from numpy.typing import NDArray

from partwise.apps.papers.document import Fold, Grid, Section, Text
from partwise.apps.papers.protocol import DataSpec, Protocol, read_rows, read_settings
from partwise.apps.papers.sampling import data_found, draw, load_data

Array = NDArray[np.float64]


class Tally:
    """Array operations that count themselves."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(fladd=0, flmlt=0, fldiv=0)

    def dot(self, A: Array, B: Array, nonzeros: int | None = None) -> Array:
        """A @ B, where A may have ``nonzeros`` entries only."""
        flam = (nonzeros or A.size) * (B.shape[1] if B.ndim == 2 else 1)
        self.counts.update(fladd=flam, flmlt=flam)
        return A @ B

    def add(self, A: Array, B: Array) -> Array:
        """A + B."""
        self.counts.update(fladd=A.size)
        return A + B

    def mul(self, A: Array | float, B: Array) -> Array:
        """A * B, elementwise or by a number."""
        self.counts.update(flmlt=B.size)
        return np.multiply(A, B)

    def div(self, A: Array, B: Array) -> Array:
        """A / B."""
        self.counts.update(fldiv=A.size)
        return A / B

    def total(self, A: Array) -> Array:
        """Column sums."""
        self.counts.update(fladd=A.size)
        return np.asarray(A.sum(axis=0))


def ring_graph(n: int, p: int) -> Array:
    """A symmetric 0-1 graph with p neighbours a row, for even p; p - 1 and one chord for odd."""
    W = np.zeros((n, n))
    for step in range(1, p // 2 + 1):
        W += np.eye(n, k=step) + np.eye(n, k=step - n) + np.eye(n, k=-step) + np.eye(n, k=n - step)
    if p % 2:
        half = n // 2
        W += np.roll(np.eye(n), half, axis=1)
    return np.minimum(W, 1.0)


def frobenius(tally: Tally, X: Array, U: Array, V: Array, W: Array | None, lam: float) -> None:
    """One iteration of (14) and (15); without a graph, of Lee and Seung's rules."""
    U = tally.div(
        tally.mul(U, tally.dot(X, V)), tally.dot(U, tally.dot(V.T, V))
    )  # (14): XV, then U(VᵀV)
    top, bottom = tally.dot(X.T, U), tally.dot(V, tally.dot(U.T, U))
    if W is not None:
        lam_W = lam * W  # λW and λD are constant over the iterations: not counted
        nonzeros = int(np.count_nonzero(W))
        top = tally.add(top, tally.dot(lam_W, V, nonzeros))
        bottom = tally.add(bottom, tally.mul(lam_W.sum(axis=1)[:, None], V))
    tally.div(tally.mul(V, top), bottom)


def divergence(
    tally: Tally, X: Array, U: Array, V: Array, W: Array | None, lam: float, cg: int
) -> None:
    """One iteration of (20) and (21), the systems by ``cg`` conjugate gradient steps."""
    ratio = tally.div(X, tally.dot(U, V.T))
    U = tally.div(tally.mul(U, tally.dot(ratio, V)), np.broadcast_to(tally.total(V), U.shape))
    ratio = tally.div(X, tally.dot(U, V.T))
    right = tally.mul(V, tally.dot(ratio.T, U))
    sums = tally.total(U)
    if W is None:
        tally.div(right, np.broadcast_to(sums, V.shape))
        return
    L = lam * (np.diag(W.sum(axis=1)) - W)
    nonzeros = int(np.count_nonzero(W))
    tally.counts.update(flmlt=nonzeros)  # λL, once
    for k in range(V.shape[1]):
        _conjugate_gradient(tally, L, nonzeros, float(sums[k]), right[:, k], cg)


def _conjugate_gradient(
    tally: Tally, L: Array, nonzeros: int, shift: float, b: Array, steps: int
) -> Array:
    x, r = np.zeros_like(b), b.copy()
    d, rr = r.copy(), float(r @ r)
    for _ in range(steps):
        # (shift I + λL) d: the graph's non-zeros, and the diagonal of both together.
        product = tally.add(tally.dot(L, d, nonzeros), tally.mul(shift, d))
        curvature = float(tally.dot(d[None, :], product)[0])
        alpha = rr / curvature if curvature > 0 else 0.0
        x = tally.add(x, tally.mul(alpha, d))
        r = tally.add(r, tally.mul(-alpha, product))
        new = float(tally.dot(r[None, :], r)[0])
        d = tally.add(r, tally.mul(new / rr if rr > 0 else 0.0, d))
        rr = new
    return x


def count(formulation: str, method: str, sizes: dict[str, int]) -> Counter[str]:
    """Operations of one iteration of NMF or GNMF, counted: ``fladd``, ``flmlt``, ``fldiv``.

    The formulation is "frobenius" or "divergence"; ``sizes`` are M, N, K, p, q as in the paper.
    """
    rng = np.random.default_rng(0)
    M, N, K = sizes["M"], sizes["N"], sizes["K"]
    X, U, V = rng.random((M, N)), rng.random((M, K)), rng.random((N, K))
    W = ring_graph(N, sizes["p"]) if method == "GNMF" else None
    tally = Tally()
    if formulation == "frobenius":
        frobenius(tally, X, U, V, W, 100.0)
    else:
        divergence(tally, X, U, V, W, 100.0, sizes["q"])
    return tally.counts


def printed_count(formula: str, sizes: dict[str, int]) -> int | None:
    """A printed formula at these sizes; None for an order of growth, O(...)."""
    if formula.startswith("O("):
        return None
    # The formulas are package data of sums and products; nothing else is in scope.
    return math.floor(float(eval(formula, {"__builtins__": {}}, dict(sizes))))


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
            lines.append(line + counts)
        header = ["formulation", "method", "operation", "printed formula"]
        section.blocks.append(Grid([*header, "printed", "counted", "difference"], lines))
    return _with_notes(section, protocol)


def statistics(protocol: Protocol, name: str, data_home: str | None) -> Section:
    """The sizes of the data sets, printed and measured."""
    section = _section(protocol)
    lines, equal, absent = [], 0, 0
    for row in read_rows(name):
        spec = DataSpec(row["data"], "none")
        line: list[str | Text] = [row["name"]]
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
    lines = [[n, *row] for n, row in zip(names, rows, strict=True)]
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
