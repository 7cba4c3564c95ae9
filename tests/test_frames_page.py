"""The examples on data frames and model registries, each with the package that it needs."""

import re
import textwrap
import warnings
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits, load_iris

PAGE = Path(__file__).parents[1] / "docs/how_to/frames.rst"


def example(title):
    """The Python code of one section."""
    section = re.search(
        rf"^{title}\n-+\n(.*?)(?=^\w+\n---|\Z)", PAGE.read_text("utf-8"), re.S | re.M
    )
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


@pytest.mark.parametrize(
    ("title", "check"),
    [
        ("polars", polars),
        ("Arrow", pyarrow),
        ("xarray", xarray),
        ("MLflow", mlflow),
        ("skops", skops),
    ],
)
def test_an_example_works_as_printed(title, check, tmp_path, monkeypatch):
    pytest.importorskip(check.__name__, reason=f"the example needs {check.__name__}")
    monkeypatch.chdir(tmp_path)
    found = {}
    with warnings.catch_warnings():  # of the other packages
        warnings.simplefilter("ignore")
        exec(compile(example(title), f"{PAGE.name}: {title}", "exec"), found)
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
