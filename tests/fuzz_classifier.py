"""Random fits of `PartsClassifier`; `tests/fuzz.py` runs them by their numbers.

The checks: there is no warning; probabilities are finite and sum to one; labelled samples keep
their label; a fit with `warm_start` equals a new fit; the same seed and a saved model give the same
results.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import partwise
from partwise import PartsClassifier
from partwise.classify import ensemble

#: Parts of the warnings and errors that a fit may give.
EXPECTED_WARNINGS = ("class", "label", "n_neighbors")
REFUSED = ("at least one label", "y holds -1 and 1 alone", "too large for", "too small for")
#: Rounding error of a probability. Scores are products in single precision, of size ten or more,
#: times an inverse temperature of up to 20, and depend on the order of summation.
ROUNDING = 1000 * float(np.finfo(np.float32).eps)


@dataclass
class Case:
    number: int
    params: dict[str, Any]
    X: Any
    y: np.ndarray
    truth: np.ndarray
    words: list[str] = field(default_factory=list)
    weight: np.ndarray | None = None
    #: A second view of the samples, or None.
    second: np.ndarray | None = None

    def also(self, rows: Any = slice(None)) -> list[Any] | None:
        return None if self.second is None else [self.second[rows]]

    def __str__(self) -> str:
        n, p = self.X.shape
        settings = ", ".join(f"{key}={value!r}" for key, value in self.params.items())
        classes, labels = len(set(self.y[self.y >= 0])), int((self.y >= 0).sum())
        told = f"{labels} labels of {classes} classes"
        return f"PartsClassifier({settings}) on {n}x{p} {' '.join(self.words)} with {told}"


# -- drawing random cases -------------------------------------------------------------------------


def draw(number: int) -> Case:
    """Return the random case that a number determines."""
    rng = np.random.default_rng([20261, number])
    n, p = int(rng.integers(3, 51)), int(rng.choice([1, 2, 5, 12, 60, 120]))
    c = int(min(n, rng.choice([1, 2, 2, 3, 5, 10, n])))
    if rng.random() < 0.02:
        n, c, p = 400, 200, 20
    truth = np.concatenate([np.arange(c), rng.integers(c, size=n - c)])
    if rng.random() < 0.2:  # nearly all samples are of one class
        truth[c:] = np.where(rng.random(n - c) < 0.95, 0, truth[c:])
    case = Case(number, draw_params(rng), None, truth, truth)
    case.X = draw_samples(case, rng, n, p)
    case.y = draw_labels(case, rng, c)
    if rng.random() < 0.25:
        case.weight = rng.random(n) + 0.1
        if rng.random() < 0.4:
            case.weight[rng.random(n) < 0.3] = 0.0
            case.weight[np.flatnonzero(case.y >= 0)[:1]] = 1.0
        case.weight *= float(rng.choice([1, 1e-9, 1e9]))
        case.words.append("weights")
    if rng.random() < 0.15:
        case.second = rng.standard_normal((n, 3)) + case.truth[:, None]
        case.words.append("second view")
    return case


def draw_params(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "n_parts": ["auto", "auto", 1, 3, 20][int(rng.integers(5))],
        "graph_reg": float(rng.choice([0.0, 1.0, 1.0, 100.0])),
        "n_neighbors": int(rng.choice([1, 3, 5, 5, 60])),
        "n_folds": int(rng.choice([2, 5, 5, 10])),
        "max_iter": int(rng.choice([5, 30])),
        "random_state": int(rng.integers(100)),
    }


def draw_samples(case: Case, rng: np.random.Generator, n: int, p: int) -> Any:
    """Return samples of classes around centres, with irregularities that real data have."""
    kind = str(rng.choice(["spread", "parts", "counts", "signed", "0/1", "noise"]))
    centres = rng.gamma(0.5, size=(int(case.truth.max()) + 1, p))
    X = centres[case.truth] * (1 + 0.2 * rng.standard_normal((n, p))) ** 2
    if kind == "parts":
        X = X * rng.gamma(2.0, size=(n, 1))
    elif kind == "counts":
        X = rng.poisson(2 * X).astype(float)
    elif kind == "signed":
        X = X - centres.mean(axis=0) + 0.1 * rng.standard_normal((n, p))
    elif kind == "0/1":
        X = (X > np.median(X)).astype(float)
    elif kind == "noise":
        X = rng.random((n, p))
    case.words.append(kind)
    if rng.random() < 0.2:
        X[rng.integers(n, size=n // 2)] = X[rng.integers(n)]
        case.words.append("duplicates")
    if rng.random() < 0.2:  # a sample with few or no neighbours in the graph
        X[rng.integers(n)] *= 1e6
        case.words.append("isolated")
    if rng.random() < 0.2:
        X[rng.integers(n, size=1 + n // 10)] = 0.0
        case.words.append("zero rows")
    if rng.random() < 0.2:
        X[:, rng.integers(p)] = 7.0
        case.words.append("constant column")
    if p >= 60 and rng.random() < 0.3:  # columns that form a time series
        X = np.cumsum(X, axis=1)
        case.words.append("series")
    if rng.random() < 0.25:
        scale = float(10.0 ** rng.integers(-12, 13))
        X, _ = X * scale, case.words.append(f"x {scale:g}")
    if rng.random() < 0.25:
        X = X.astype(np.float32)
        case.words.append("float32")
    if rng.random() < 0.3:
        X = sp.csr_array(X)
        case.words.append("csr")
    return X


def draw_labels(case: Case, rng: np.random.Generator, c: int) -> np.ndarray:
    n, truth = len(case.truth), case.truth
    how = str(rng.choice(["one a class", "some", "all", "at random"]))
    case.words.append(how)
    if how == "all":
        return truth.copy()
    known = rng.random(n) < 0.3
    if how != "at random":
        known[:c] = True  # one label of each class
    if how == "one a class":
        known[c:] = False
    known[rng.integers(n)] = True
    return np.where(known, truth, -1)


# -- checking the results -------------------------------------------------------------------------


def fit(case: Case, **params: Any) -> PartsClassifier:
    model = PartsClassifier(**case.params, **params)
    return model.fit(case.X, case.y, case.weight, also=case.also())


@contextmanager
def trees_of(number: int) -> Iterator[None]:
    """Use a tenth of the trees, except in every fourth case."""
    before = ensemble.TREES, ensemble.FEWER
    if number % 4:
        ensemble.TREES, ensemble.FEWER = 10, 4
    try:
        yield
    finally:
        ensemble.TREES, ensemble.FEWER = before


def run(number: int) -> str:
    """Run a case; return "ok" or "refused", or raise the error of a check or of the fit."""
    case = draw(number)
    with tempfile.TemporaryDirectory() as name, trees_of(number), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ConvergenceWarning)
        for words in EXPECTED_WARNINGS:
            warnings.filterwarnings("ignore", f".*{words}", UserWarning)
        # NumPy's products of small float32 matrices set this flag at random (see `fuzz.run`).
        warnings.filterwarnings("ignore", "invalid value encountered in matmul", RuntimeWarning)
        try:
            model = fit(case)
        except ValueError as error:
            assert any(words in str(error) for words in REFUSED), f"was refused: {error}"
            return "refused"
        check_answer(case, model)
        check_new_samples(case, model)
        check_same(case, model, Path(name))
        check_warm_start(case, model)
    return "ok"


def check_answer(case: Case, model: PartsClassifier) -> None:
    n, known = case.X.shape[0], case.y >= 0
    if case.weight is not None:
        known = known & (case.weight > 0)
    p = model.label_distributions_
    check_probabilities(p, (n, model.classes_.size))
    assert set(model.classes_) == set(case.y[known]), "other classes than those of the labels"
    assert (model.transduction_[known] == case.y[known]).all(), "a label was changed"
    rest = ~known
    best = model.classes_[p.argmax(axis=1)]
    assert (model.transduction_[rest] == best[rest]).all(), "a name is not the most probable one"
    assert np.isfinite(model.embedding_).all() and model.embedding_.min() >= 0
    assert np.isfinite(model.components_).all() and np.isfinite(model.objective_)
    shares = np.array([row.weight for row in model.candidates_])
    assert (shares >= 0).all() and abs(shares.sum() - 1) < 1e-6, f"weights {shares}"
    right, low, high = model.expected_accuracy_
    assert 0 <= low <= high <= 1, (low, high)
    assert np.isnan(right) or 0 <= right <= 1, right
    assert all(np.isfinite(doubt.probability) for doubt in model.doubtful_labels_)


def check_probabilities(p: np.ndarray, shape: tuple[int, int]) -> None:
    assert p.shape == shape, p.shape
    assert np.isfinite(p).all(), "probabilities are not finite"
    assert p.min() >= 0 and abs(p.sum(axis=1) - 1).max() < 1e-6, "they do not add up to one"


def check_new_samples(case: Case, model: PartsClassifier) -> None:
    """Check predictions for training samples, other samples, zeros, and outliers."""
    X = case.X.toarray() if sp.issparse(case.X) else case.X
    size = np.abs(X).max() or 1
    far = np.zeros_like(X[:1])
    far[0, -1] = 100 * size
    new = np.vstack([X[:3], 0.5 * (X[:2] + X[1:3]), np.zeros_like(X[:1]), far])
    theirs = case.also([0, 1, 2, 0, 1, 0, 0])
    for form in (new, sp.csr_array(new)) if sp.issparse(case.X) else (new,):
        check_probabilities(model.predict_proba(form, also=theirs), (7, model.classes_.size))
        codes = model.transform(form, also=theirs)
        assert np.isfinite(codes).all() and codes.min() >= 0, "codes of new samples"
    assert model.predict(new, also=theirs).shape == (7,)
    if "isolated" in case.words or X.shape[1] == 1:
        return  # rounding in single precision may change the predicted class
    # Copies of a sample have different neighbours, and only one of the copies can be recognised.
    _, first, copies = np.unique(X, axis=0, return_index=True, return_counts=True)
    alone = first[copies == 1]
    again, there = model.predict_proba(case.X, also=case.also()), model.label_distributions_
    # If there are more parts than features, part weights are not unique, and depend on the
    # tolerance.
    loose = 10 if model.components_.shape[0] > X.shape[1] else 1
    # If two classes have equal probabilities, rounding decides which of them is raised as the best
    # one.
    found, views = model._ensemble, model._features.views()
    mixed = ensemble.mix(found.members, found.weights, views, model.classes_.size)
    first_two = np.sort(found.calibration.tilted(mixed), axis=1)[:, -2:]
    level = np.ptp(first_two, axis=1, keepdims=True) <= loose * ROUNDING
    again, there = (np.where(level, np.sort(p, axis=1), p) for p in (again, there))
    off = abs(again - there)[alone].max(initial=0.0)
    assert off <= loose * ROUNDING, f"training samples come back otherwise, by {off:.2g}"


def check_same(case: Case, model: PartsClassifier, folder: Path) -> None:
    more = case.also()
    again = clone(model).fit(case.X, case.y, case.weight, also=more)
    assert np.array_equal(again.label_distributions_, model.label_distributions_), "another fit"
    loaded = partwise.load(model.save(folder / "m.partwise"))
    one, other = (each.predict_proba(case.X, also=more) for each in (loaded, model))
    assert np.array_equal(one, other), "a saved one"
    assert loaded.classes_.tolist() == model.classes_.tolist()


def check_warm_start(case: Case, model: PartsClassifier) -> None:
    """Check that a warm start from half of the labels gives the result of a new fit."""
    half = np.where(np.arange(case.y.size) % 2 == 0, case.y, -1)
    usable = half >= 0 if case.weight is None else (half >= 0) & (case.weight > 0)
    if not usable.any():
        return
    warm = PartsClassifier(**case.params, warm_start=True)
    for y in (half, case.y):
        warm.fit(case.X, y, case.weight, also=case.also())
    off = abs(warm.label_distributions_ - model.label_distributions_).max()
    assert off <= ROUNDING, f"a warm start differs from a cold one by {off:.2g}"
