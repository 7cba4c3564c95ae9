"""Heads on made classes."""

import numpy as np

from partwise.classify import heads


def test_classes_of_hardly_any_spread_do_not_hang_on_the_last_digit_of_a_sample():
    """Log-densities of 1e9 in single precision decided ties by how a product was summed."""
    rng = np.random.default_rng(0)
    M = rng.random((4, 3))
    M[1] = M[0] + 1e-7
    Z = (np.repeat(M, 2, axis=0) + 1e-6 * rng.random((8, 3))).astype(np.float32)
    y, even = np.repeat(range(4), 2), np.ones((1, 8))
    fit = heads.discriminant(Z, y, even, even, 4)
    A, b = fit.A[0], fit.b[0]
    scores = np.asarray(M, dtype=np.float32) @ A + b
    assert np.ptp(scores) < 2 * heads.STEEPEST
    assert (scores.argmax(axis=1)[2:] == [2, 3]).all()
    by_parts = sum(np.float32(M[:, [j]]) * A[j] for j in (2, 0, 1)) + b
    assert abs(by_parts - scores).max() < 1e-2 * np.log(2)
