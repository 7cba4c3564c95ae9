"""Tests of the scaling of X before a fit: sparse equals dense, constant columns, float32."""

import numpy as np
import scipy.sparse as sp

from partwise.classify import preparation


def test_signed_samples_have_two_sides_however_they_come(rng):
    X = rng.standard_normal((9, 7)) * (rng.random((9, 7)) < 0.5)
    signed = preparation.Preparation("unit rows", True)
    expected = np.hstack([np.maximum(X, 0), np.maximum(-X, 0)])
    np.testing.assert_array_equal(signed.parts_input(X), expected)
    np.testing.assert_array_equal(signed.parts_input(sp.csr_array(X)).toarray(), expected)
    plain = preparation.Preparation("unit rows", False)
    assert plain.parts_input(X) is X


def test_a_sparse_array_that_saves_nothing_is_dense(rng):
    wide = rng.random((10, 2 * preparation.TABLE))
    assert isinstance(preparation.unpacked(sp.csr_array(wide)), np.ndarray)
    half = sp.csr_array(wide * (rng.random(wide.shape) < 0.3))
    assert sp.issparse(preparation.unpacked(half))
    assert isinstance(preparation.unpacked(half[:, :10]), np.ndarray)


def test_a_column_is_flat_by_its_own_size():
    """Check which columns count as constant: their spread is only rounding of their mean."""
    signs = np.tile([-1.0, 1.0], 10)
    X = np.column_stack([1e6 + 1e-5 * signs, 1e-6 + 1e-8 * signs, np.full(20, 3.0)])
    scale = preparation._columns(X, False).scale
    assert scale[0] == scale[2] == 1
    np.testing.assert_allclose(scale[1], 1e-8, rtol=1e-6)


def test_columns_of_float32_are_centred_as_in_float64(rng):
    """Check that columns of float32 are summed in float64, since squares of 1e20 would overflow."""
    X = (0.1 + 1e-3 * rng.random((300_000, 3))).astype(np.float32)
    X[:, 0] = 0.1
    for scale in (1.0, 1e20):
        Y = X * np.float32(scale)
        single, double = (preparation._columns(Z, False) for Z in (Y, Y.astype(float)))
        assert single.center.dtype == single.scale.dtype == np.float32
        # The tolerance is the rounding of the cast to float32.
        np.testing.assert_allclose(single.center, double.center, rtol=2e-7)
        np.testing.assert_allclose(single.scale, double.scale, rtol=2e-7)
        assert single.scale[0] == 1
