"""Tests of the papers' protocols: transcribed numbers, settings, random draws, and claims."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections import Counter
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from partwise.apps.papers import load_protocol, names
from partwise.apps.papers.claims import NOT_RUN, RULES, judge
from partwise.apps.papers.protocol import Budget, DataSpec, read_rows
from partwise.apps.papers.sampling import (
    UNLABELLED,
    classes100,
    data_found,
    draw,
    gaussians,
    load_data,
)
from partwise.apps.papers.static_tables import PLAIN, evaluate
from partwise.apps.papers.summary import summarise
from partwise.apps.papers.trials import Selection, cells

NAMES = (
    *(f"cnmf/{n}" for n in ("table1", "table2", "fig1", "fig2")),
    *(f"lcf/{n}" for n in ("table1", "table2", "table3", "fig1", "fig2", "fig3", "fig4", "fig5")),
    *(f"gnmf/table{n}" for n in range(1, 6)),
    *(f"gnmf/fig{n}" for n in range(1, 8)),
    *(f"nmfdc/table{n}" for n in range(2, 10)),
    *(f"nmfdc/fig{n}" for n in (1, 2, 3, 4, 5, 7)),
    "gnmf/sigma1",  # a sentence of section 4.5 of the GNMF paper
    "nmfdc/time1",  # the running times of the paper's tables
    *(f"cdnmf/{n}" for n in ("table1", "table2", "table3")),
    *(f"cdnmf/fig{n}" for n in range(1, 6)),
)
# Numbers per table: metrics x (cluster numbers + average) x methods, plus a row of running times
# where a table has one.
PRINTED_CELLS = {
    "cnmf/table1": 2 * 10 * 5,
    "cnmf/table2": 2 * 10 * 5,
    "lcf/table2": 2 * 10 * 5,
    "lcf/table3": 2 * 10 * 5,
    "gnmf/table3": 2 * 10 * 5,
    "gnmf/table4": 2 * 8 * 5,
    "gnmf/table5": 2 * 7 * 5,
    "nmfdc/table2": 11 * 8,
    "nmfdc/table3": 10 * 8,
    "nmfdc/table4": 11 * 8,
    "nmfdc/table5": 10 * 8,
    "nmfdc/table6": 8 * 8,
    "nmfdc/table7": 7 * 8,
    "nmfdc/table8": 11 * 8,
    "nmfdc/table9": 10 * 8,
    "cdnmf/table1": 2 * 10 * 8,
    "cdnmf/table2": 2 * 10 * 8,
    "cdnmf/table3": 2 * 10 * 8,
}


def test_every_table_and_figure_of_the_papers_is_there():
    assert set(names()) == set(NAMES)


@pytest.mark.parametrize("name", PRINTED_CELLS)
def test_every_cell_is_transcribed_once(name):
    printed = load_protocol(name).printed
    keys = [(c.metric, c.k, c.method) for c in printed]
    assert len(keys) == len(set(keys)) == PRINTED_CELLS[name]


@pytest.mark.parametrize("name", PRINTED_CELLS)
def test_average_rows_follow_from_their_columns_or_are_listed_as_misprints(name):
    """Check that printed averages equal the mean of their columns or are listed as misprints.

    They agree to one unit of the last digit, since two papers truncate averages.
    """
    protocol, wrong = load_protocol(name), set()
    for average in (n for n in protocol.printed if n.k == "avg" and n.metric != "seconds"):
        key = (average.metric, average.method)
        column = [n for n in protocol.printed if (n.metric, n.method) == key and n.k != "avg"]
        decimals = min(n.decimals for n in (average, *column))
        if abs(np.mean([n.mean for n in column]) - average.mean) > 10.0**-decimals + 1e-9:
            wrong.add(key)
    listed = [entry for entry in protocol.misprints if entry.get("row") == "avg"]
    assert wrong == {(entry["metric"], m) for entry in listed for m in entry["methods"]}


@pytest.mark.parametrize("name", PRINTED_CELLS)
def test_average_deviations_are_the_mean_of_the_deviations(name):
    """Check the mean deviations that CNMF and LCF print, to one unit of the last digit."""
    cells_ = load_protocol(name).printed
    for average in (c for c in cells_ if c.k == "avg" and c.sd is not None):
        sds = [
            c.sd
            for c in cells_
            if (c.metric, c.method) == (average.metric, average.method) and c.k != "avg"
        ]
        assert abs(np.mean(sds) - average.sd) < 10.0**-average.decimals + 1e-9


def test_columns_that_one_paper_takes_from_another():
    """Check that columns that a paper copied from another one are equal, as the protocols state."""
    pairs = {"NMF": "NMF", "GNMF": "GNMF", "SemiGNMF": "sGNMF", "CNMF": "CNMF-F",
             "CNMF-KL": "CNMF-KL"}  # fmt: skip
    for later, earlier in (("nmfdc/table2", "cdnmf/table3"), ("nmfdc/table4", "cdnmf/table1")):
        for method, source in pairs.items():
            for k in range(2, 11):
                new = load_protocol(later).printed_value("ac", k, method).mean
                old = load_protocol(earlier).printed_value("ac", k, source).mean
                if (later, method, k) == ("nmfdc/table2", "GNMF", 9):
                    assert (new, old) == (62.00, 62.22)
                else:
                    assert new == old


@pytest.mark.parametrize("name", NAMES)
def test_protocols_are_complete(name):
    protocol = load_protocol(name)
    assert protocol.title and protocol.paper
    if protocol.printed:
        assert {c.method for c in protocol.printed} == {m.name for m in protocol.methods}
    if protocol.kind not in PLAIN:
        assert protocol.data and protocol.methods and protocol.runs_default >= 1
    for method in protocol.methods:
        assert method.estimator
        assert not (method.labels and not protocol.budgets)
        assert method.start in ("shared", "seed")
    assert all(slip["text"] for slip in protocol.misprints)


@pytest.mark.parametrize("name", NAMES)
def test_claims_name_a_rule_and_columns(name):
    protocol = load_protocol(name)
    known = {m.name for m in protocol.methods}
    known |= {v.name for m in protocol.methods for v in m.columns()}
    for claim in protocol.claims:
        assert claim["type"] in RULES
        assert {claim["method"], *claim.get("over", [])} <= known


@pytest.mark.parametrize("name", NAMES)
def test_graph_methods_name_their_graph(name):
    """Check that protocols state λ and p of a paper, so that defaults of Partwise do not matter."""
    for method in load_protocol(name).methods:
        if method.estimator in ("GNMF", "SemiGNMF"):
            named = {*method.params, *method.grid, *method.sweep}
            assert {"graph_reg", "n_neighbors", "solver", "scale", "max_iter"} <= named


@pytest.mark.parametrize("name", ["nmfdc/table8", "nmfdc/fig7"])
def test_a_part_of_the_data_has_the_classes_that_are_drawn(name):
    for spec in load_protocol(name).data:
        if spec.per_class and data_found(spec, None):
            _, y = load_data(spec, None)
            assert max(spec.clusters) <= y.max() + 1
            assert set(np.bincount(y)) == {spec.per_class}


@pytest.mark.parametrize("name", NAMES)
def test_quick_is_a_part_of_the_protocol(name):
    protocol = load_protocol(name)
    if protocol.kind in PLAIN:
        return
    runs = max(protocol.runs_default, 2)
    whole = {c.slug for c in cells(protocol, Selection(runs=runs))}
    quick = {c.slug for c in cells(protocol, Selection(quick=True))}
    assert quick and quick <= whole


def test_views_share_the_runs_of_their_table():
    for name in NAMES:
        protocol = load_protocol(name)
        if not protocol.own_data:
            one = Selection(runs=1)
            own = {c.slug for c in cells(protocol, one)}
            assert own == {c.slug for c in cells(load_protocol(protocol.runs_of), one)}


def test_names_that_are_not_there():
    with pytest.raises(ValueError, match="--list"):
        load_protocol("gnmf/table99")


# Tests of random draws ----------------------------------------------------------------------


@pytest.fixture
def digits():
    return DataSpec("digits", "unit_rows", (3, 5))


def test_draws_are_equal_for_all_methods_and_differ_between_runs(digits):
    one, again = draw("a/table1", digits, 3, 0), draw("a/table1", digits, 3, 0)
    np.testing.assert_array_equal(one.X, again.X)
    np.testing.assert_array_equal(one.start(3)[0], again.start(3)[0])
    assert one.integer_seed("kmeans") == again.integer_seed("kmeans")
    other = draw("a/table1", digits, 3, 1)
    assert other.X.shape != one.X.shape or not np.array_equal(other.X, one.X)
    assert not np.array_equal(one.start(3, subrun=1)[0], one.start(3)[0])
    table = draw("b/table1", digits, 3, 0)
    assert not np.array_equal(table.start(3)[1], one.start(3)[1])


def test_a_draw_has_k_classes_and_a_positive_start(digits):
    sample = draw("a/table1", digits, 5, 0)
    assert set(sample.truth) == set(range(5))
    V, U = sample.start(5)
    assert V.shape == (sample.X.shape[0], 5) and U.shape == (64, 5)
    assert min(V.min(), U.min()) > 0


def test_label_budgets_are_nested_and_counted_by_class(digits):
    sample = draw("a/table1", digits, 5, 0)
    two, tenth = sample.shown(Budget("2", per_class=2)), sample.shown(Budget("10%", share=0.1))
    for label in range(5):
        size = int(np.sum(sample.truth == label))
        assert np.sum(two == label) == 2
        assert np.sum(tenth == label) == -(-size // 10)
    assert np.all(tenth[two != UNLABELLED] == two[two != UNLABELLED])
    assert np.all(two[two != UNLABELLED] == sample.truth[two != UNLABELLED])
    assert np.all(sample.shown(None) == UNLABELLED)


@pytest.mark.parametrize(("size", "labels"), [(10, 1), (11, 2), (20, 2), (3, 1)])
def test_ten_per_cent_is_at_least_one_label(size, labels):
    assert Budget("10%", share=0.1).count(size) == labels


def test_made_data():
    X, y = gaussians()
    assert X.shape == (150, 2) and X.min() > 0 and list(np.bincount(y)) == [50, 50, 50]
    X, y = classes100()
    assert X.shape == (2000, 2500) and 0 <= X.min() and X.max() <= 1
    some = np.isin(y, [0, 1, 2])
    gaps = np.linalg.norm(X[some][:, None] - X[some], axis=2)
    same = y[some][:, None] == y[some]
    assert gaps[same].max() < gaps[~same].min()


# Tests of claims in the printed tables ------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "words", "holds"),
    [
        ("cnmf/table1", "consistently outperforms all the other algorithms in accuracy", False),
        ("cnmf/table1", "in NMI (at every k)", True),
        ("cnmf/table1", "3.4 points", True),
        ("cnmf/table2", "2.0 points", False),
        ("lcf/table2", "4.41 points", True),
        ("gnmf/table3", "NMF outperforms PCA on COIL20", False),
        ("gnmf/table4", "always results in the best accuracy", False),
        ("gnmf/table5", "always results in the best accuracy", True),
        ("nmfdc/table2", "NMF-DC has the highest accuracy (at every c)", False),
        ("cdnmf/table1", "all the way", False),
    ],
)
def test_claims_in_the_printed_table_itself(name, words, holds):
    verdicts = judge(summarise(load_protocol(name), []))
    chosen = [v for v in verdicts if words in v.text and not v.text.startswith("GNMF outperforms")]
    assert chosen and all(v.printed is holds and v.measured == NOT_RUN for v in chosen)


# Tests of operation counts ------------------------------------------------------------------

SIZES = {"M": 12, "N": 10, "K": 3, "p": 4, "q": 6}


class Tally(Counter[str]):
    """Counter of additions (fladd), multiplications (flmlt) and divisions (fldiv)."""

    def dot(self, rows: int, inner: int, columns: int = 1) -> None:
        """Count a matrix product. For a sparse matrix, ``rows * inner`` is its non-zeros."""
        self.update(fladd=rows * inner * columns, flmlt=rows * inner * columns)

    def apply(self, entries: int, *, add: int = 0, mul: int = 0, div: int = 0) -> None:
        """Count additions, multiplications and divisions of an elementwise operation, per entry."""
        self.update(fladd=add * entries, flmlt=mul * entries, fldiv=div * entries)


def count_by_steps(formulation: str, method: str, sizes: dict[str, int]) -> Tally:
    """Count the operations of one iteration of NMF or GNMF.

    Each product and each update of the paper's equations is counted on its own.
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
    tally.apply(N * p, mul=1)  # λL is computed once
    for _ in range(q * K):  # (Σu I + λL) d; three vector updates and two inner products
        tally.dot(N, p)
        tally.apply(N, add=6, mul=6)
    return tally


COUNTED = [row for row in read_rows("gnmf/table1") if row["counted"]]


@pytest.mark.parametrize("row", COUNTED, ids=lambda row: " ".join(list(row.values())[:3]))
def test_formulas_of_operations_are_those_of_the_updates(row):
    steps = count_by_steps(row["formulation"], row["method"], SIZES)
    assert evaluate(row["counted"], SIZES) == steps[row["operation"]]


def test_where_printed_operation_counts_differ():
    gaps = {
        tuple(list(row.values())[:3]): evaluate(row["formula"], SIZES)
        - evaluate(row["counted"], SIZES)
        for row in COUNTED
    }
    NK = SIZES["N"] * SIZES["K"]
    assert gaps.pop(("frobenius", "GNMF", "fladd")) == NK
    # A conjugate gradient step needs p + 6 of each operation here, and not p + 4: three vector
    # updates, two inner products and the diagonal.
    assert gaps.pop(("divergence", "GNMF", "flmlt")) == -2 * SIZES["q"] * NK
    assert gaps.pop(("divergence", "GNMF", "fladd")) == -2 * SIZES["q"] * NK + NK
    assert set(gaps.values()) == {0}


# Tests that the protocols are installed with the package ------------------------------------

ROOT = Path(__file__).parents[2]
LOOK = (
    "from partwise.apps.papers import load_protocol, names; from importlib import resources; "
    "assert str(resources.files('partwise')).startswith({wheel!r}); "
    "print(len(names()), sum(len(load_protocol(n).printed) for n in names()))"
)


def test_settings_and_printed_numbers_are_package_data():
    # The wheel contains what lies under src/partwise, but not the files that git ignores.
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert wheel["targets"]["wheel"] == {"packages": ["src/partwise"]}
    folder = resources.files("partwise.apps.papers")
    files = [folder / f"{name}.toml" for name in NAMES]
    files += [folder / f"{name}.csv" for name in (*PRINTED_CELLS, "gnmf/table1")]
    assert all(file.is_file() for file in [*files, folder / "timings.toml"])
    if (ROOT / ".git").exists():
        command = ["git", "check-ignore", *map(str, files)]
        ignored = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert not ignored.stdout


def test_a_built_wheel_carries_them(tmp_path):
    builder = pytest.importorskip("hatchling.builders.wheel", reason="hatchling is not installed")
    wheel = next(builder.WheelBuilder(str(ROOT)).build(directory=str(tmp_path)))
    code = LOOK.format(wheel=str(wheel))
    environment = {**os.environ, "PYTHONPATH": str(wheel)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    printed = sum(len(load_protocol(name).printed) for name in NAMES)
    assert done.stdout.split() == [str(len(NAMES)), str(printed)]
