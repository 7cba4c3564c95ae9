"""Tests of PartsClassifier in scikit-learn's meta-estimators, and of names for unknown labels."""

import warnings

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits
from sklearn.ensemble import BaggingClassifier, StackingClassifier, VotingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from partwise import CDNMF, PartsClassifier

X, TRUTH = load_digits(n_class=3, return_X_y=True)
X, TRUTH = X[:90], TRUTH[:90]
KNOWN = np.arange(90) < 30
Y = np.where(KNOWN, TRUTH, -1)


def model():
    return PartsClassifier(n_parts=5, max_iter=2)


def caught(fit):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", ConvergenceWarning)
        fit()
    return [str(warning.message) for warning in found]


WRAPPED = {
    "VotingClassifier": lambda: VotingClassifier([("p", model())]),
    "BaggingClassifier": lambda: BaggingClassifier(model(), n_estimators=1),
    "StackingClassifier": lambda: StackingClassifier([("p", model())], cv=2),
    "OneVsRestClassifier": lambda: OneVsRestClassifier(model()),
    "OneVsOneClassifier": lambda: OneVsOneClassifier(model()),
    "CalibratedClassifierCV": lambda: CalibratedClassifierCV(model(), cv=2),
    "a pipeline inside": lambda: BaggingClassifier(
        make_pipeline(MinMaxScaler(), model()), n_estimators=1
    ),
    "a factorizer inside": lambda: VotingClassifier(
        [("p", make_pipeline(CDNMF(3, max_iter=2), LogisticRegression()))]
    ),
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_meta_estimator_that_takes_minus_one_as_a_class_is_named(name):
    wrapped = WRAPPED[name]()
    said = [text for text in caught(lambda: wrapped.fit(X, Y)) if "-1" in text]
    assert said and all(type(wrapped).__name__ in text for text in said)


@pytest.mark.parametrize("name", WRAPPED)
def test_known_labels_alone_bring_no_warning(name):
    assert not caught(lambda: WRAPPED[name]().fit(X[KNOWN], TRUTH[KNOWN]))


def test_estimators_that_pass_minus_one_on_bring_no_warning():
    assert not caught(lambda: make_pipeline(MinMaxScaler(), model()).fit(X, Y))
    known = np.flatnonzero(KNOWN)
    folds = [(np.setdiff1d(np.arange(90), fold), fold) for fold in np.array_split(known, 2)]
    search = GridSearchCV(model(), {"n_neighbors": [3, 5]}, cv=folds)
    assert not caught(lambda: search.fit(X, Y)) and search.best_score_ > 0.8


@pytest.mark.parametrize("word", ["unlabeled", "Unknown", "?", "n/a"])
@pytest.mark.parametrize("make", [model, lambda: CDNMF(4, max_iter=2)])
def test_a_class_that_is_called_unknown_is_named(make, word):
    y = np.where(KNOWN, TRUTH.astype(str), word)
    fitted = make()
    said = [text for text in caught(lambda: fitted.fit(X, y)) if repr(word) in text]
    assert len(said) == 1 and "60" in said[0]
    assert word in fitted.classes_
    assert not caught(lambda: make().fit(X, np.where(KNOWN, TRUTH.astype(str), None)))
