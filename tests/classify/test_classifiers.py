"""Tests of single classifiers of the classifier pool on synthetic classes."""

import numpy as np

from partwise.classify import classifiers


def test_rounding_does_not_decide_between_classes_of_small_spread():
    """Check the Gaussian classifier for classes with almost no spread.

    Regression test: log-densities of 1e9 in float32 once let rounding decide between classes.
    """
    rng = np.random.default_rng(0)
    M = rng.random((4, 3))
    M[1] = M[0] + 1e-7
    Z = (np.repeat(M, 2, axis=0) + 1e-6 * rng.random((8, 3))).astype(np.float32)
    y, even = np.repeat(range(4), 2), np.ones((1, 8))
    fit = classifiers.discriminant(Z, y, even, even, 4)
    A, b = fit.A[0], fit.b[0]
    scores = np.asarray(M, dtype=np.float32) @ A + b
    assert np.ptp(scores) < 2 * classifiers.STEEPEST
    assert (scores.argmax(axis=1)[2:] == [2, 3]).all()
    by_parts = sum(np.float32(M[:, [j]]) * A[j] for j in (2, 0, 1)) + b
    assert abs(by_parts - scores).max() < 1e-2 * np.log(2)


def test_scores_of_many_classes_on_a_line_keep_their_differences(rng, monkeypatch):
    """Check that log-densities of many classes keep their small differences in float32.

    The values are near a thousand, and neighbouring classes differ by about one.
    """
    y = np.arange(400) % 200
    Z = (y[:, None] / 100 + 0.003 * rng.standard_normal((400, 1)) - 1).astype(np.float32)
    even = np.ones((2, 400))
    fit = classifiers.discriminant(Z, y, even, even, 200)
    exact = np.einsum("nd,fdc->fnc", Z.astype(float), fit.A.astype(float)) + fit.b[:, None, :]
    exact -= exact.max(axis=2, keepdims=True)
    near = exact > -20
    assert np.abs(fit.A).max() > 100 and near.sum(axis=2).min() > 1
    for some in (7, 10_000):
        monkeypatch.setattr(classifiers, "SOME", some)
        got = fit.scores(Z)
        got = got - got.max(axis=2, keepdims=True)
        assert got.dtype == np.float32
        # The tolerance is the rounding of numbers up to 20 when they are cast to float32.
        assert np.abs(got - exact)[near].max() <= 20 * np.finfo(np.float32).eps
