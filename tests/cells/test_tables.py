"""Tests of `partwise.cells` with SpatialData and MuData objects, which hold AnnData tables."""

import warnings
from collections import UserDict

import numpy as np
import pytest

from partwise import cells

anndata = pytest.importorskip("anndata", reason="needs the extra cells")


class Spatial:
    """Stand-in for SpatialData; its attribute `tables` is a mapping but not a dict."""

    def __init__(self, **tables):
        self.tables = UserDict(tables)


class Mu:
    """Stand-in for MuData, which holds its tables in the attribute `mod`."""

    def __init__(self, **mod):
        self.mod = mod


@pytest.fixture
def counts():
    return anndata.AnnData(np.random.default_rng(0).poisson(2, (40, 20)).astype(np.float32))


@pytest.mark.parametrize("kind", [Spatial, Mu])
def test_the_only_table_is_filled(kind, counts):
    expected = counts.copy()
    cells.factorize(expected, 2, random_state=0, tol=1e-2)
    data = kind(rna=counts)
    cells.factorize(adata=data, n_components=2, random_state=0, tol=1e-2)
    np.testing.assert_array_equal(counts.obsm["X_parts"], expected.obsm["X_parts"])
    new = kind(rna=counts[:5].copy())
    assert cells.project(new, data).shape == (5, 2)


@pytest.mark.parametrize(("kind", "named"), [(Spatial, "tables"), (Mu, "mod")])
def test_one_of_several_tables_must_be_chosen(kind, named, counts):
    with pytest.raises(ValueError, match=rf"data\.{named}\['a'\], data\.{named}\['b'\]"):
        cells.factorize(kind(a=counts, b=counts), 2)
    with pytest.raises(ValueError, match="0 tables"):
        cells.factorize(kind(), 2)


def test_a_spatialdata(counts):
    spatialdata = pytest.importorskip("spatialdata")
    counts.obsm["spatial"] = np.random.default_rng(1).random((40, 2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = spatialdata.SpatialData(
            tables={"cells": spatialdata.models.TableModel.parse(counts)}
        )
    cells.spatial_graph(data)
    graph = {"graph": "spatial_connectivities"}
    cells.factorize(data, 2, random_state=0, tol=1e-2, **graph)
    assert data.tables["cells"].obsm["X_parts"].shape == (40, 2)


def test_a_mudata(counts):
    mudata = pytest.importorskip("mudata")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = mudata.MuData({"rna": counts})
    cells.consensus(data, 2, n_runs=4, n_genes=0, density_threshold=2.0)
    assert data["rna"].obsm["X_parts"].shape == (40, 2)
