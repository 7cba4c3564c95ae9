"""Tests of model files saved with `for_predict=True`: small, with the same predictions.

The reference is a file of the full model.
"""

import os

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError

import partwise
from partwise import PartsClassifier
from partwise.classify import compact


def pictures(n, side=32, n_classes=10, seed=0):
    """Return noisy images of smooth random shapes at random positions, and their classes."""
    rng = np.random.RandomState(seed)
    wave = np.cos(np.outer(np.arange(side), np.arange(5)) * np.pi / side)
    shapes = np.einsum("ia,jb,cab->cij", wave, wave, rng.standard_normal((n_classes, 5, 5)))
    shapes = (shapes - shapes.min((1, 2), keepdims=True)) / np.ptp(shapes, (1, 2), keepdims=True)
    y = rng.randint(n_classes, size=n)
    X = np.empty((n, side * side), np.float32)
    for i in range(n):
        moved = np.roll(shapes[y[i]], rng.randint(-4, 5, 2), (0, 1))
        noise = rng.normal(0, 0.25, (side, side))
        X[i] = np.clip(moved * rng.uniform(0.5, 1.1) + noise, 0, 1).ravel()
    return X, y


def saved(model, folder):
    """Save a model for prediction and in full.

    Return the model read from the small file, and the sizes of both files.
    """
    small = model.save(folder / "small.partwise", for_predict=True)
    full = model.save(folder / "full.partwise")
    return partwise.load(small), os.path.getsize(small), os.path.getsize(full)


def fitted(X, y, per_class=10):
    """Return a PartsClassifier fitted with `per_class` labels of each class."""
    known = np.full(len(y), -1)
    for c in np.unique(y):
        known[np.flatnonzero(y == c)[:per_class]] = c
    return PartsClassifier(random_state=0).fit(X, known)


def agreement(first, second, X):
    """Return the share of equal predictions and the largest difference of probabilities."""
    p, q = (model.predict_proba(X) for model in (first, second))
    return np.mean(p.argmax(1) == q.argmax(1)), np.abs(p - q).max()


@pytest.mark.parametrize("keep", [compact.SAMPLES, 0])
def test_file_for_prediction_labels_new_digits_as_the_full_model(keep, tmp_path, monkeypatch):
    monkeypatch.setattr(compact, "SAMPLES", keep)
    X, y = load_digits(return_X_y=True)
    model = fitted(X[:1200], y[:1200])
    small, size, full = saved(model, tmp_path)
    same, difference = agreement(model, small, X[1200:])
    assert same >= 0.99 and difference <= 0.02
    assert size < 0.6 * full
    np.testing.assert_allclose(small.transform(X[1200:]), model.transform(X[1200:]), atol=1e-4)
    np.testing.assert_allclose(
        small.outlyingness(X[1200:1300]), model.outlyingness(X[1200:1300]), atol=1e-3
    )
    assert small.expected_accuracy_ == pytest.approx(model.expected_accuracy_, abs=1e-3)
    assert str(small.explain(3)) == str(model.explain(3))


@pytest.mark.long
def test_file_of_20_000_pictures_has_at_most_30_MB(tmp_path):
    X, y = pictures(21_000, side=64)
    model = fitted(X[:20_000], y[:20_000])
    small, size, full = saved(model, tmp_path)
    assert size <= 30e6 and full > 300e6
    same, difference = agreement(model, small, X[20_000:])
    assert same >= 0.99 and difference <= 0.02


def test_methods_that_need_training_samples_are_refused_by_name(tmp_path):
    X, y = load_digits(return_X_y=True)
    model = fitted(X[:300], y[:300])
    small, _, _ = saved(model, tmp_path)
    for name, call in {
        "relabel": lambda: small.relabel(y[:300]),
        "edit_parts": lambda: small.edit_parts([("merge", 0, 1)]),
        "suggest": lambda: small.suggest(),
    }.items():
        with pytest.raises(ValueError, match=name):
            call()
    # A new fit stores the training samples.
    again = small.set_params(warm_start=True).fit(X[:300], y[:300])
    assert again.suggest(exclude=range(300)).size == 0
    assert hasattr(model.relabel(y[:300]), "classes_")


def test_a_file_for_prediction_can_be_saved_again(tmp_path):
    X, y = load_digits(return_X_y=True)
    small, size, _ = saved(fitted(X[:300], y[:300]), tmp_path)
    again, resaved, _ = saved(small, tmp_path)
    assert resaved == size
    assert agreement(small, again, X[300:600]) == (1, 0)


def test_a_model_without_classes_is_refused(tmp_path):
    X, _ = load_digits(return_X_y=True)
    with pytest.raises(NotFittedError):
        PartsClassifier().prepare(X[:100]).save(tmp_path / "m.partwise", for_predict=True)
