"""What a person reads of an answer: finite, adding up, and as right as it says."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from partwise import PartsClassifier
from partwise.estimators.answers import calibration


@pytest.fixture(scope="module")
def digits():
    X, y = (a[:300] for a in load_digits(n_class=5, return_X_y=True))
    known = np.full(y.size, -1)
    for c in range(5):
        known[np.flatnonzero(y == c)[:4]] = c
    return X, y, known


@pytest.fixture(scope="module")
def fitted(digits):
    X, _, known = digits
    return PartsClassifier(max_iter=30).fit(X, known)


# -- nothing wrong in silence ---------------------------------------------------------------------


def test_probabilities_that_are_not_numbers_are_an_error_and_no_name(digits, fitted, monkeypatch):
    X, _, known = digits
    model = PartsClassifier(max_iter=30).fit(X, known)
    names = model.transduction_.copy()
    with monkeypatch.context() as patch:
        patch.setattr(calibration.Calibration, "apply", lambda self, m: np.full_like(m, np.nan))
        with pytest.raises(ValueError, match=r"probabilities of .* are not finite"):
            PartsClassifier(max_iter=30).fit(X, known)
        with pytest.raises(ValueError, match="not finite"):
            model.relabel(np.where(known == 0, -1, known))
    np.testing.assert_array_equal(model.transduction_, names)  # what was there still is
    assert model.predict_proba(X[:3]).shape == (3, 5) and len(model.classes_) == 5


def test_new_samples_are_checked_too(digits, fitted, monkeypatch):
    X = digits[0]
    real = calibration.Calibration.apply
    monkeypatch.setattr(calibration.Calibration, "apply", lambda self, m: 1.01 * real(self, m))
    with pytest.raises(ValueError, match=r"add up to 1\.01"):
        fitted.predict_proba(X[:3])


# -- one name, and -1 as a name -------------------------------------------------------------------


def test_one_name_is_said_and_nothing_is_claimed(digits):
    X, y, _ = digits
    given = np.full(y.size, None, dtype=object)
    given[:8] = "mail"
    with pytest.warns(UserWarning, match="All 8 labels are 'mail'"):
        model = PartsClassifier(max_iter=30).fit(X, given)
    assert (model.transduction_ == "mail").all()
    share, low, high = model.expected_accuracy_
    assert np.isnan(share) and (low, high) == (0, 1)
    assert (model.label_confidence_[:8] == 1).all()
    assert np.isnan(model.label_confidence_[8:]).all()
    assert np.isnan(model.predict_confidence(X[:2])).all()


@pytest.mark.parametrize("kind", [int, float, object])
def test_minus_one_is_no_class_beside_one(digits, kind):
    X, y, _ = digits
    signs = np.where(y > 2, 1, -1).astype(kind)
    with pytest.raises(ValueError, match=r"-1 in y means unknown.*np\.where\(y == -1, 0, y\)"):
        PartsClassifier(max_iter=30).fit(X, signs)
    PartsClassifier(max_iter=30).fit(X, np.where(y > 2, 1, 0))


def test_labels_of_weight_zero_are_no_labels(digits):
    X, _, known = digits
    with pytest.raises(ValueError, match="sample_weight is 0 for all 20 labelled samples"):
        PartsClassifier(max_iter=30).fit(X, known, sample_weight=(known < 0).astype(float))
