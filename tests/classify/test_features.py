"""What the heads see of samples."""

import numpy as np
import pytest

import partwise
from partwise import PartsClassifier


@pytest.mark.parametrize("size", [1.0, 7e-10, 7e-12])
def test_samples_that_are_all_alike_have_no_spread(size, tmp_path):
    """What is left of a constant is rounding; divided by it, a new sample was infinitely far."""
    X, y = np.full((28, 1), size), np.full(28, -1)
    y[:4] = [0, 0, 1, 1]
    model = PartsClassifier(max_iter=5).fit(X, y)
    for far in (size, 1.0, 1e6, 1e30):
        np.testing.assert_allclose(model.predict_proba(np.full((1, 1), far)).sum(), 1)
    loaded = partwise.load(model.save(tmp_path / "m.partwise"))
    np.testing.assert_allclose(loaded.label_distributions_, model.label_distributions_)
