"""Tests of --method auto, which chooses a method by properties of the data."""

import re

import numpy as np
import pytest
import scipy.sparse as sp

import partwise
from partwise.apps.cli.auto_method import (
    ALIKE,
    CLASS_SIZE,
    GRAPH_SAMPLES,
    Profile,
    choose,
    profile,
)
from partwise.estimators.methods import METHODS

SOME = {"n_labelled": 20, "n_classes": 10}


@pytest.mark.parametrize(
    ("seen", "method", "numbers"),
    [
        (Profile(500, 20), "gnmf", ["500"]),
        (Profile(GRAPH_SAMPLES + 1, 20), "nmf", [str(GRAPH_SAMPLES + 1)]),
        (Profile(20, 20), "nmf", ["20"]),
        (Profile(500, 20, lowest=-2.5), "lcf", ["-2.5"]),
        (Profile(500, 20, lowest=-2.5, **SOME), "lcf", ["-2.5"]),
        (Profile(500, 20, kind="counts"), "nmf-kl", []),
        (Profile(500, 20, kind="counts", **SOME), "cdnmf-kl", ["20", "10"]),
        (Profile(500, 20, **SOME, alike=ALIKE), "combined", ["20", "10", f"{ALIKE:.0%}"]),
        (Profile(500, 20, n_labelled=10, n_classes=10), "combined", ["10", "10"]),
        (Profile(500, 20, **SOME, alike=0.1), "cdnmf", ["10%"]),
        (Profile(10 * CLASS_SIZE - 1, 20, **SOME, alike=0.9), "cdnmf", ["20", "10"]),
        (
            Profile(GRAPH_SAMPLES + 1, 20, **SOME, alike=0.9),
            "cdnmf",
            ["20", str(GRAPH_SAMPLES + 1)],
        ),
        (Profile(100, 20, n_labelled=1, n_classes=1), "combined", ["1", "1"]),
    ],
)
def test_choice_and_reason(seen, method, numbers):
    """Check the choice for various data, and that the reason states the numbers."""
    choice = choose(seen, 50)
    assert choice.method == method and method in METHODS
    quoted = re.findall(r"-?\d+(?:\.\d+)?%?", choice.reason)
    assert not [number for number in numbers if number not in quoted]
    # The reason is a single sentence.
    assert choice.reason.endswith(".") and choice.reason.count(". ") == 0


def test_with_labels_samples_are_named():
    for seen in (
        Profile(500, 20, **SOME),
        Profile(500, 20, "counts", **SOME),
        Profile(9, 20, lowest=-1, **SOME),
    ):
        for k in (None, 10):
            choice = choose(seen, k)
            assert choice.method == "classify" and "20 labels of 10 classes" in choice.reason
        assert choose(seen, 11).method != "classify"


def test_profile_of_data_and_labels(rng):
    X = rng.random((40, 6))
    X[:20, 0] += 10
    X[20:, 1] += 10
    y = np.full(40, None, dtype=object)
    y[:3], y[20:22] = "a", "b"
    seen = profile(X, y, kind="images")
    assert seen == Profile(40, 6, "images", 0.0, 5, 2, 1.0)
    assert profile(sp.csr_array(X), y, kind="images") == seen
    assert profile(-X).lowest == -X.max()
    y[1:3] = y[21] = None
    assert profile(X, y).alike is None  # one label per class says nothing about neighbours
    assert profile(X, np.full(40, None, dtype=object)).n_labelled == 0


def test_alike_sees_classes_that_mix(rng):
    X = rng.random((60, 5))
    y = np.array(["a", "b", "c"], dtype=object)[np.arange(60) % 3]
    assert profile(X, y).alike < 0.6


@pytest.mark.parametrize("name", METHODS)
def test_every_method_makes_its_estimator(name, rng):
    method = METHODS[name]
    more = {"image_shape": (2, 3)} if method.images else {}
    model = method.make(2, n_clusters=3, seed=5, max_iter=7, **more)
    assert type(model) is getattr(partwise, method.estimator)
    if method.names:
        assert (model.n_parts, model.random_state) == (2, 5)
    else:
        assert (model.n_components, model.n_clusters, model.random_state) == (2, 3, 5)
    model._validate_params()
