"""Trees: as many classes as samples, and files that hold none."""

import numpy as np
import pytest

from partwise.classify import trees


@pytest.fixture
def grown(rng):
    y = np.arange(12) % 3
    return trees.grow(rng.random((12, 4)), y, np.ones(12), 3, 0, 5)


def test_a_class_for_every_sample_is_no_regression(rng):
    """scikit-learn would warn, and warnings are errors here; each sample finds its own name."""
    Z = rng.random((30, 3)).astype(np.float32)
    grown = trees.grow(Z, np.arange(30), np.ones(30), 30, 0, 5)
    votes = trees.log_shares(grown.arrays, Z)
    assert votes.argmax(axis=1).tolist() == list(range(30))


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_child_lies_behind_its_parent_and_within_the_forest(grown, side):
    made = grown.arrays
    trees.check(made, 4)
    inner = int(np.flatnonzero(made["feature"] >= 0)[-1])
    for child in (inner, inner - 1, made["feature"].size):
        forged = {**made, side: made[side].copy()}
        forged[side][inner] = child
        with pytest.raises(ValueError):
            trees.check(forged, 4)
