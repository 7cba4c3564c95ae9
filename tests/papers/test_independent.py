"""Tests that cells of the papers' tables equal the results of an independent program.

Each cell follows the full protocol of the GNMF authors' laboratory.
"""

from __future__ import annotations

from dataclasses import replace

import laboratory
import numpy as np
import pytest

from partwise.apps.papers.protocol import load_protocol
from partwise.apps.papers.representations import FitTask, fit
from partwise.apps.papers.sampling import draw
from partwise.apps.papers.trials import Selection, cells_of, run_cell

CELLS = [
    ("cnmf/table1", "NMF", "orl"),
    ("cnmf/table1", "CNMF", "orl"),
    ("cnmf/table1", "GNMF[graph_reg=100.0]", "orl"),
    ("cnmf/table1", "SemiGNMF[graph_reg=100.0]", "orl"),
    ("lcf/table2", "NMF", "yale"),
    ("gnmf/table3", "NMF", "coil20"),
    ("gnmf/table3", "GNMF", "coil20"),
    ("nmfdc/table4", "NMF", "yale"),
    ("nmfdc/table4", "CNMF", "yale"),
    ("nmfdc/table4", "GNMF", "yale"),
    ("cdnmf/table1", "NMF", "yale"),
    ("cdnmf/table1", "CNMF-F", "yale"),
    ("cdnmf/table1", "GNMF", "yale"),
]


def the_method(cell, sample):
    """Return the method of a table cell in the independent program."""
    X = laboratory.unit_rows(np.asarray(sample.X))
    estimator, params = cell.column.method.estimator, cell.column.params(cell.data.name)
    if estimator == "CNMF":
        return laboratory.Method(X, A=laboratory.label_matrix(sample.shown(cell.budget)))
    if estimator == "NMF":
        return laboratory.Method(X, ncw=cell.column.method.weights == "ncw")
    W = laboratory.neighbor_graph(X)
    if estimator == "SemiGNMF":
        W = laboratory.with_labels(W, sample.shown(cell.budget), params["label_weight"])
    return laboratory.Method(X, W=W, lam=params["graph_reg"])


@pytest.mark.long
@pytest.mark.parametrize(("table", "column", "data"), CELLS)
def test_a_cell_is_that_of_an_independent_program(table, column, data, dataset):
    dataset(data)
    main = load_protocol(table).under()
    cells = cells_of(main, Selection(runs=1))
    cell = next(c for c in cells if (c.column.name, c.k) == (column, 4))
    raw = draw(cell.table, replace(cell.data, prepare="none"), cell.k, cell.run)
    method = the_method(cell, raw)
    starts = [raw.start(cell.k, i) for i in range(cell.column.method.restarts)]
    V, U, n_iter = laboratory.fit(method, starts)
    found = laboratory.clusters(method, V, cell.k, raw.integer_seed("kmeans"))

    sample = draw(cell.table, cell.data, cell.k, cell.run)
    y = sample.shown(cell.budget) if cell.column.method.labels else None
    params = cell.column.params(cell.data.name)
    ours = fit(FitTask(sample, y, cell.k, cell.column.method, params))
    # Hundreds of multiplicative updates carry rounding errors on. Entries that vanish are far below
    # the tolerance.
    assert ours.n_iter == n_iter
    np.testing.assert_allclose(ours.embedding, V, rtol=1e-6, atol=1e-9 * V.max())
    np.testing.assert_allclose(ours.components, U.T, rtol=1e-6, atol=1e-9)
    result = run_cell(cell)["attempts"][0]["readouts"]
    name = "root random" if "root random" in result else "random"
    assert result[name]["all"]["ac"] == pytest.approx(laboratory.accuracy(raw.truth, found))
