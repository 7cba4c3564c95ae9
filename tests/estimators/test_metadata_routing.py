"""Tests of scikit-learn's metadata routing of `fit` arguments through pipelines and searches."""

from __future__ import annotations

import inspect

import numpy as np
import pytest
from sklearn import config_context
from sklearn.datasets import load_digits
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler

import partwise

X, Y = load_digits(n_class=3, return_X_y=True)
X, Y = X[:60], Y[:60]
WEIGHTS = np.random.default_rng(0).uniform(0.5, 2.0, 60)
QUICK = {"max_iter": 10, "tol": 0, "random_state": 0}
PUBLIC = [
    getattr(partwise, name)
    for name in partwise.__all__
    if hasattr(getattr(partwise, name), "get_params")
]


@pytest.fixture(autouse=True)
def routing():
    with config_context(enable_metadata_routing=True):
        yield


@pytest.mark.parametrize("estimator", PUBLIC, ids=lambda e: e.__name__)
def test_everything_that_fit_takes_can_be_requested(estimator):
    plain = {"self", "X", "y"}
    takes = [name for name in inspect.signature(estimator.fit).parameters if name not in plain]
    made = estimator()
    if takes:
        made.set_fit_request(**dict.fromkeys(takes, True))
    asked = made.get_metadata_routing().fit.requests
    assert asked == dict.fromkeys(takes, True)


def test_weights_reach_the_model_in_a_pipeline():
    model = partwise.NMF(3, **QUICK).set_fit_request(sample_weight=True)
    piped = make_pipeline(MaxAbsScaler(), model).fit(X, sample_weight=WEIGHTS)[-1]
    scaled = MaxAbsScaler().fit_transform(X)
    weighted = partwise.NMF(3, **QUICK).fit(scaled, sample_weight=WEIGHTS)
    np.testing.assert_array_equal(piped.components_, weighted.components_)
    assert (piped.components_ != partwise.NMF(3, **QUICK).fit(scaled).components_).any()


def test_weights_that_nobody_requested_are_refused():
    with pytest.raises(UnsetMetadataPassedError, match="sample_weight"):
        make_pipeline(MaxAbsScaler(), partwise.NMF(3, **QUICK)).fit(X, sample_weight=WEIGHTS)


def test_a_search_passes_weights_to_the_fits_alone():
    seen = []

    class Watched(partwise.NMF):
        def fit(self, X, y=None, *, sample_weight=None):
            seen.append(sample_weight)
            return super().fit(X, y, sample_weight=sample_weight)

    model = Watched(2, **QUICK).set_fit_request(sample_weight=True)
    GridSearchCV(model, {"n_components": [2, 3]}, cv=2).fit(X, sample_weight=WEIGHTS)
    assert [len(weights) for weights in seen] == [30, 30, 30, 30, 60]
    np.testing.assert_array_equal(np.concatenate(seen[:2]), np.r_[WEIGHTS[30:], WEIGHTS[:30]])
