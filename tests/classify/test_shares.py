"""Tests of the estimated shares of classes: naive formulas, known shares, refused input."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs

import reference
from partwise import PartsClassifier
from partwise.classify import calibration


def predictions(rng, truth, c, spread=1.0):
    """Return calibrated probabilities of equally frequent classes for samples of known class."""
    centres = 2 * np.eye(c)
    Z = centres[truth] + spread * rng.standard_normal((truth.size, c))
    S = -((Z[:, None] - centres) ** 2).sum(axis=2) / (2 * spread**2)
    p = np.exp(S - S.max(axis=1, keepdims=True))
    return p / p.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("counts", [[7, 2, 1], [4, 4, 4, 4], [0, 20], [3]])
def test_measured_shares_are_the_naive_posterior(counts):
    found = calibration.measured_shares(np.array(counts))
    wanted = reference.measured_shares(counts, calibration.STRENGTHS)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)
    assert found[0].sum() == pytest.approx(1)


def test_counts_that_chance_explains_are_drawn_to_equal_shares():
    few, many = (calibration.measured_shares(np.array(n))[0] for n in ([6, 4, 5], [600, 400, 500]))
    assert np.abs(few - 1 / 3).max() < 0.03 < np.abs(many - 1 / 3).max()


def test_estimated_shares_and_their_errors_are_the_naive_ones(rng):
    truth = rng.choice(3, 200, p=[0.6, 0.3, 0.1])
    p, labels = predictions(rng, truth, 3), np.repeat(np.arange(3), 8)
    held = predictions(rng, labels, 3)
    found = calibration.estimated_shares(p)
    np.testing.assert_allclose(
        found, reference.estimated_shares(p, calibration.CONVERGED), rtol=1e-9
    )
    errors = calibration.standard_errors(found, held, labels)
    np.testing.assert_allclose(errors, reference.share_errors(found, held, labels), rtol=1e-9)


def test_the_errors_of_estimated_shares_are_of_the_right_size(rng):
    """Check the standard errors of estimated shares against a simulation.

    Held-out labels give a confusion matrix C. The expected errors are the deviations of C⁻ᵀq over
    100 draws of these labels.
    """
    truth = rng.choice(3, 20_000, p=[0.6, 0.3, 0.1])
    p, labels = predictions(rng, truth, 3), np.repeat(np.arange(3), 40)
    found, errors = [], []
    for _ in range(100):
        held = predictions(rng, labels, 3)
        C = np.array([held[labels == j].mean(axis=0) for j in range(3)])
        found.append(np.linalg.solve(C.T, p.mean(axis=0)))
        errors.append(calibration.standard_errors(calibration.estimated_shares(p), held, labels))
    ratio = np.mean(errors, axis=0) / np.std(found, axis=0)
    assert (ratio > 0.8).all() and (ratio < 1.4).all()


def test_predictions_by_chance_determine_nothing(rng):
    labels = np.repeat(np.arange(4), 5)
    held = rng.dirichlet(np.ones(4), labels.size)
    assert not calibration.is_determined(
        calibration.standard_errors(np.full(4, 0.25), held, labels)
    )
    same = np.full((20, 4), 0.25)
    assert (calibration.standard_errors(np.full(4, 0.25), same, labels) == 1).all()


def test_the_range_of_the_accuracy_is_a_linear_programme(rng):
    for _ in range(20):
        recalls, s = rng.random(4), rng.dirichlet(np.ones(4))
        low, high = np.maximum(s - rng.random(4) / 3, 0), np.minimum(s + rng.random(4) / 3, 1)
        found = calibration.accuracy_range(recalls, low, high)
        np.testing.assert_allclose(found, reference.accuracy_range(recalls, low, high), atol=1e-9)


@pytest.fixture(scope="module")
def unequal():
    """Return samples of two overlapping classes of 90% and 10%, with three labels each."""
    X, y = make_blobs([540, 60], centers=[[0.0] * 4, [1.3] * 4], random_state=0)
    known = np.full(600, -1)
    known[:3], known[-3:] = 0, 1
    order = np.random.default_rng(0).permutation(600)
    return X[order], y[order], known[order]


def test_random_labels_measure_the_shares_and_raise_the_accuracy(unequal):
    X, y, known = unequal
    drawn = np.flatnonzero(known < 0)[:20]
    more = known.copy()
    more[drawn] = y[drawn]
    rest = more < 0
    scores = {}
    for priors, extra in (("uniform", {}), ("measured", {"drawn": drawn})):
        model = PartsClassifier(priors=priors).fit(X, more, **extra)
        scores[priors] = np.mean(model.transduction_[rest] == y[rest])
    assert scores["measured"] > scores["uniform"] + 0.02
    sizes = model.class_shares_
    assert sizes.known and sizes.low[0] < 0.9 < sizes.high[0]
    np.testing.assert_allclose(model._ensemble.calibration.tilt.sum(), 2)
    # A boolean mask of the drawn samples means the same, and `weigh=False` keeps the measured
    # shares.
    mask = np.isin(np.arange(600), drawn)
    again = PartsClassifier(priors="measured").fit(X, more, drawn=mask)
    np.testing.assert_array_equal(again.label_distributions_, model.label_distributions_)
    fast = again.relabel(more, weigh=False, drawn=drawn)
    assert np.mean(fast.transduction_[rest] == y[rest]) > scores["uniform"]


def test_labels_that_do_not_determine_the_shares_give_a_range(unequal):
    X, _, known = unequal
    model = PartsClassifier().fit(X, known)
    found = model.expected_accuracy_
    assert not model.class_shares_.known
    assert found.by_shares[0] <= found.low <= found.high <= found.by_shares[1]
    given = PartsClassifier(priors=[0.9, 0.1]).fit(X, known)
    sizes, expected = given.class_shares_, given.expected_accuracy_
    assert sizes.known and expected.by_shares == (expected.low, expected.high)


@pytest.mark.parametrize(
    "priors, drawn, error",
    [
        ("estimated", [0], ValueError),
        ("measured", [599], ValueError),
        ("measured", [], TypeError),
        ("measured", ["a"], TypeError),
    ],
)
def test_drawn_samples_need_labels_and_measured_priors(unequal, priors, drawn, error):
    X, _, _ = unequal
    known = np.full(600, -1)
    known[:6] = [0, 1, 0, 1, 0, 1]
    with pytest.raises(error, match="drawn"):
        PartsClassifier(priors=priors).fit(X, known, drawn=drawn)


def test_equal_counts_of_three_classes_do_not_look_random():
    X, y = make_blobs(60, centers=3, random_state=0)
    known = np.full(60, -1)
    for c in range(3):
        known[np.flatnonzero(y == c)[:4]] = c
    with pytest.warns(UserWarning, match="4 labels"):
        PartsClassifier(priors="measured").fit(X, known)
