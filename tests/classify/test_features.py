"""Tests of the features of PartsClassifier: new samples, data on disk, equal samples, units."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

import partwise
from partwise import PartsClassifier
from partwise.classify import features
from partwise.classify.features import row_stochastic


@pytest.fixture
def made(rng):
    X = rng.random((40, 12))
    options = {"n_parts": 3, "n_neighbors": 4, "graph_reg": 1.0, "max_iter": 5, "seed": 0}
    return lambda Z=X: features.build_features(Z, **options)


def test_new_samples_are_smoothed_like_training_samples(made, rng):
    """Check that a new sample is averaged with its neighbours twice, like the training samples."""
    known = made().first
    new = rng.random((5, 12))
    views, near, _ = known.new(new, np.full(5, -1))
    data, walk = known._project(new)[1], row_stochastic(known.graph)
    once = 0.5 * data + 0.5 * (near @ known.data)
    moved = 0.5 * known.data + 0.5 * (walk @ known.data)
    twice = known.preparation.unit(0.5 * once + 0.5 * (near @ moved))
    expected = (twice - known.shift["smooth"]) * known.scale["smooth"]
    # The features are rounded to single precision at the end.
    limit = 8 * np.finfo(np.float32).eps * np.abs(expected).max()
    np.testing.assert_allclose(views["smooth"], expected, rtol=0, atol=limit)


def test_samples_that_do_not_differ_leave_the_unit_of_others_as_it_is():
    view = SimpleNamespace(shift={}, scale={})
    none = features.Prepared._standardized(view, "data", np.ones((4, 2)))
    np.testing.assert_array_equal(none, 0)
    other = features.Prepared._standardized(view, "data", np.array([[1.0, 3.0]]))
    np.testing.assert_array_equal(other, [[0, 2]])


def on_disk(X, folder):
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


def test_directions_of_samples_on_disk_are_the_leading_ones(rng, tmp_path, monkeypatch):
    monkeypatch.setattr(features, "DIRECTIONS", 3)
    U, _, Vt = np.linalg.svd(rng.random((40, 12)), full_matrices=False)
    X = (U[:, :4] * [100, 50, 25, 1]) @ Vt[:4]
    Q = features.leading_directions(on_disk(X, tmp_path), 0)
    assert Q.shape == (12, 3)
    angles = np.linalg.svd(Vt[:3] @ Q, compute_uv=False)
    # After four passes over X the fourth direction has a share of (1/25)^8, which is below
    # rounding.
    np.testing.assert_allclose(angles, 1, atol=12 * np.finfo(float).eps * 10)


def test_parts_of_samples_on_disk_are_over_their_columns(made, rng, tmp_path):
    known = made(on_disk(rng.random((40, 12)), tmp_path)).first
    assert known.preparation.components(known.H).shape == (3, 12)


@pytest.mark.parametrize("size", [1.0, 7e-10, 7e-12])
def test_equal_samples_have_no_spread(size, tmp_path):
    """Check PartsClassifier for samples that are all equal.

    Regression test: their spread was only rounding, and dividing by it gave infinite distances.
    """
    X, y = np.full((28, 1), size), np.full(28, -1)
    y[:4] = [0, 0, 1, 1]
    model = PartsClassifier(max_iter=5).fit(X, y)
    for far in (size, 1.0, 1e6, 1e30):
        np.testing.assert_allclose(model.predict_proba(np.full((1, 1), far)).sum(), 1)
    loaded = partwise.load(model.save(tmp_path / "m.partwise"))
    np.testing.assert_allclose(loaded.label_distributions_, model.label_distributions_)


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(("dtype", "power"), [("f", -60), ("f", -110), ("f", 70), ("d", -700)])
def test_the_unit_of_x_does_not_change_the_features(rng, kind, dtype, power):
    """Check that the graph and the part weights do not depend on the unit of X.

    Squares of 1e20 overflow in float32, so none may be computed before X is scaled.
    """
    X = (rng.random((90, 60)) * (rng.random((90, 60)) < 0.4)).astype(dtype)
    options = {"n_parts": 5, "n_neighbors": 5, "graph_reg": 1.0, "max_iter": 10, "seed": 0}
    one, other = (features.build_features(kind(Z), **options) for Z in (X, np.ldexp(X, power)))
    assert (other.first.V.max(axis=0) > 0).all()
    assert one.prepared.keys() == other.prepared.keys()
    for name, mine in one.prepared.items():
        assert (mine.graph != other.prepared[name].graph).nnz == 0
    new = X[:5] + X[5:10]
    views = [made.new(kind(Z))[0] for made, Z in ((one, new), (other, np.ldexp(new, power)))]
    for name in ("data", "columns"):
        # The directions may have another order or sign, so only the lengths of the rows are
        # compared.
        lengths = [np.linalg.norm(sp.csr_array(made[""][name]).toarray(), axis=1) for made in views]
        np.testing.assert_allclose(*lengths, rtol=1e-4)
