"""Tests of the weights of the classifiers in the pool."""

import numpy as np
import pytest

from partwise.classify.calibration import Calibration
from partwise.classify.ensemble import Ensemble, EnsembleFit, Member


def test_a_member_without_an_earlier_weight_has_none():
    none = np.empty(0)
    members = [Member("logistic", "", "data", 2.0), Member("trees", "", "both")]
    calibration = Calibration(1.0, 0.1, np.ones(2))
    earlier = Ensemble(members, np.array([0.3, 0.7]), calibration, none, none, none)
    before = earlier.weighting()["members"]
    assert before == {("logistic", "", "data"): (2.0, 0.3), ("trees", "", "both"): (1.0, 0.7)}
    fit = object.__new__(EnsembleFit)
    fit.previous, fit.before, fit.n_classes = object(), before, 2
    members, nothing = [Member("logistic", "", view) for view in ("data", "parts")], np.empty(0)
    np.testing.assert_array_equal(fit.weights(members, nothing, nothing)[0], [1, 0])
    # If no classifier has an earlier weight, all weights are equal.
    np.testing.assert_array_equal(fit.weights(members[1:], nothing, nothing)[0], [1])


def test_weights_of_classifiers_maximise_the_likelihood(rng):
    """Check that the weights of the classifiers maximise the penalised likelihood.

    At the maximum of Σ log Σ_h w_h p_h + trust Σ log(w_h)/h all derivatives are equal.
    """
    from partwise.classify.ensemble import likeliest_weights

    right = rng.uniform(0.05, 1, (30, 4))
    for trust in (5.0, 40.0):
        w = likeliest_weights(right, trust, np.ones(4))
        slope = (right / (right @ w)[:, None]).sum(axis=0) + trust / 4 / w
        # 200 iterations of EM are accurate to this tolerance.
        np.testing.assert_allclose(slope, slope.mean(), rtol=1e-3)
        assert w.sum() == pytest.approx(1)
    np.testing.assert_allclose(likeliest_weights(right, 1e9, np.ones(4)), 0.25, rtol=1e-6)
    np.testing.assert_array_equal(likeliest_weights(right[:0], 5.0, np.zeros(4)), 0.25)
    # Weights from other labels replace the equal weights as prior.
    pooled = np.array([0.1, 0.2, 0.3, 0.4])
    np.testing.assert_allclose(likeliest_weights(right, 1e9, pooled), pooled, rtol=1e-6)
    np.testing.assert_array_equal(likeliest_weights(right[:0], 5.0, pooled), pooled)
