"""Tests of examples in the how-to guides that use other packages.

Each test is skipped if its package is not installed.
"""

import re
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris

PAGES = Path(__file__).parents[1] / "docs/how_to"


def example(page, title):
    """Return the Python code of one section of a how-to guide."""
    text = (PAGES / page).read_text("utf-8")
    section = re.search(rf"^{title}\n-+\n(.*?)(?=^[\w ]+\n---|\Z)", text, re.S | re.M)
    (code,) = re.findall(r"\.\. code-block:: python\n\n(.*?)(?=^\S|\Z)", section[1], re.S | re.M)
    return textwrap.dedent(code)


def polars(found):
    names = load_iris().target_names[load_iris().target]
    assert found["part_weights"].columns[0] == "partsclassifier0"
    assert np.mean(found["labelled"]["species"].to_numpy() == names) > 0.85


def pyarrow(found):
    weights, model = found["part_weights"], found["model"]
    assert model.feature_names_in_.tolist() == load_iris().feature_names
    np.testing.assert_array_equal(
        weights, type(model)(3, random_state=0).fit_transform(load_iris().data)
    )


def xarray(found):
    parts, model = found["parts"], found["model"]
    assert parts.dims == ("part", "y", "x")
    np.testing.assert_array_equal(parts.values, model.components_.reshape(-1, 8, 8))
    np.testing.assert_array_equal(found["part_weights"].sel(part=2), model.embedding_[:, 2])


def mlflow(found):
    np.testing.assert_array_equal(found["labels"], found["model"].predict(found["X"]))
    assert np.mean(found["labels"] == found["y"]) > 0.9
    assert not list(Path("served").rglob("*.pkl"))


def skops(found):
    np.testing.assert_array_equal(found["labels"], found["pipeline"].predict(found["X"]))


def decoupler(found):
    best = found["activity"].to_numpy().argmax(axis=1)
    assert sorted(best) == [0, 1]  # each programme matches one gene set
    assert found["p_values"].to_numpy().max(axis=1).max() < 1e-3


def make_pbmc():
    """Write counts of two gene programs to pbmc.h5ad; the marker genes come first."""
    anndata = pytest.importorskip("anndata", reason="the example needs anndata")
    rng = np.random.default_rng(0)
    programmes = np.full((2, 60), 0.2)
    programmes[[0, 1], :40] += np.repeat([[5, 0], [0, 5]], 20, axis=1)
    counts = rng.poisson(rng.dirichlet([0.3, 0.3], 150) @ programmes)
    adata = anndata.AnnData(counts.astype(np.float32))
    adata.var_names = [f"gene{j}" for j in range(60)]
    adata.layers["counts"] = adata.X.copy()
    adata.write_h5ad("pbmc.h5ad")


@pytest.mark.parametrize(
    ("page", "title", "check"),
    [
        ("frames.rst", "polars", polars),
        ("frames.rst", "Arrow", pyarrow),
        ("frames.rst", "xarray", xarray),
        ("frames.rst", "MLflow", mlflow),
        ("frames.rst", "skops", skops),
        ("cells.rst", "Test programmes for enrichment with decoupler", decoupler),
    ],
)
def test_an_example_works_as_printed(page, title, check, tmp_path, monkeypatch):
    pytest.importorskip(check.__name__, reason=f"the example needs {check.__name__}")
    monkeypatch.chdir(tmp_path)
    found = {}
    with warnings.catch_warnings():  # other packages may raise warnings
        warnings.simplefilter("ignore")
        if check is decoupler:
            make_pbmc()
        exec(compile(example(page, title), f"{page}: {title}", "exec"), found)
    check(found)


@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_transform_of_the_classifier_returns_the_frame_that_was_asked_for(kind):
    frames = pytest.importorskip(kind)
    from partwise import PartsClassifier

    X, y = load_digits(n_class=2, return_X_y=True)
    X, y = X[:40], np.where(np.arange(40) < 10, y[:40], -1)
    model = PartsClassifier(n_parts=4).set_output(transform=kind)
    fitted = model.fit_transform(X, y)
    again = model.transform(X)
    assert isinstance(again, frames.DataFrame) and isinstance(fitted, frames.DataFrame)
    assert list(again.columns) == model.get_feature_names_out().tolist()
