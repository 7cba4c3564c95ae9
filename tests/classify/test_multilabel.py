"""Tests of MultilabelClassifier: predictions, input formats, expected F1, files, and errors."""

import itertools

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_digits, make_multilabel_classification
from sklearn.metrics import f1_score

import partwise
from partwise import MultilabelClassifier, PartsClassifier
from partwise.classify import multilabel
from partwise.classify.multilabel import best_threshold, check_indicator, expected_f1


@pytest.fixture(scope="module")
def digits():
    """Return digits, three binary labels of each, and these labels known for 60 samples only."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:400], y[:400]
    Y = np.stack([y % 2 == 0, y > 4, np.isin(y, [2, 3, 5, 7])], axis=1).astype(float)
    known = Y.copy()
    known[60:] = np.nan
    return X, Y, known


@pytest.fixture(scope="module")
def fitted(digits):
    X, _, known = digits
    return MultilabelClassifier().fit(X, known)


def test_properties_of_digits_are_found(digits, fitted):
    _, Y, _ = digits
    assert f1_score(Y[60:], fitted.transduction_[60:], average="micro") > 0.9
    np.testing.assert_array_equal(fitted.transduction_[:60], Y[:60])
    p = fitted.label_distributions_
    assert p.shape == Y.shape and 0 <= p.min() and p.max() <= 1


def test_new_samples_that_repeat_training_samples_get_their_probabilities(digits, fitted):
    X, Y, _ = digits
    np.testing.assert_allclose(
        fitted.predict_proba(X[:9]), fitted.label_distributions_[:9], atol=1e-6
    )
    assert fitted.score(X[60:90], Y[60:90]) > 0.85


def test_lists_of_labels_frames_and_sparse_matrices_mean_the_same(digits, fitted):
    X, Y, known = digits
    names = np.array(["even", "high", "prime"])
    lists = [None if i >= 60 else names[row > 0].tolist() for i, row in enumerate(Y)]
    found, indicator = check_indicator(lists, len(X))
    np.testing.assert_array_equal(found, names)
    np.testing.assert_array_equal(indicator, np.where(np.isnan(known), -1, known))
    frame = pd.DataFrame(known, columns=names)
    np.testing.assert_array_equal(check_indicator(frame, len(X))[1], indicator)
    np.testing.assert_array_equal(check_indicator(frame, len(X))[0], names)
    sparse = sp.csr_array(Y)
    np.testing.assert_array_equal(check_indicator(sparse, len(X))[1], Y)
    model = MultilabelClassifier().fit(X, lists)
    np.testing.assert_allclose(model.label_distributions_, fitted.label_distributions_)


def test_an_entry_that_is_unknown_alone_counts_for_its_label_only(digits):
    X, Y, known = digits
    some = known.copy()
    some[:30, 0] = -1
    model = MultilabelClassifier().fit(X, some)
    assert [row.positive + row.negative for row in model.expected_] == [30, 60, 60]
    np.testing.assert_array_equal(model.transduction_[30:60, 0], Y[30:60, 0])


def test_one_label_alone_is_the_binary_classifier(digits):
    X, _, known = digits
    both = MultilabelClassifier().fit(X, known[:, :1])
    binary = PartsClassifier(priors="measured").fit(X, known[:, 0])
    np.testing.assert_allclose(both.label_distributions_[:, 0], binary.label_distributions_[:, 1])
    one = both.for_label(0)
    assert one.expected_accuracy_ == pytest.approx(tuple(binary.expected_accuracy_))
    assert one.candidates_ == binary.candidates_
    np.testing.assert_allclose(one.predict_proba(X[:5]), binary.predict_proba(X[:5]))


def test_labels_with_few_positives_use_the_weights_of_the_others(digits):
    """Check that a label with few positives gets classifier weights similar to other labels'.

    Its weights are drawn to the weights pooled over all labels.
    """
    X, Y, _ = digits
    rare = np.zeros((len(X), 4))
    rare[:, :3], rare[:, 3] = Y, load_digits(return_X_y=True)[1][: len(X)] == 8
    known = np.where(np.arange(len(X))[:, None] < 30, rare, np.nan)
    together = MultilabelClassifier().fit(X, known)
    alone = MultilabelClassifier().fit(X, known[:, 3:])
    weights = [
        {row.name: row.weight for row in model.for_label(label).candidates_}
        for model, label in ((together, 0), (together, 3), (alone, 0))
    ]
    distance = [sum(abs(weights[0][k] - w[k]) for k in w) for w in weights[1:]]
    assert distance[0] < distance[1]


def test_a_label_that_every_known_sample_lacks_has_a_small_probability(digits):
    X, _, known = digits
    none = np.column_stack([known[:, 0], np.where(np.isnan(known[:, 0]), np.nan, 0)])
    model = MultilabelClassifier().fit(X, none)
    np.testing.assert_allclose(model.label_distributions_[:, 1], 0.5 / 61)
    assert np.isnan(model.expected_[1].f1) and not model.transduction_[:, 1].any()


def test_a_file_restores_predictions_and_expectations(digits, fitted, tmp_path):
    X = digits[0]
    again = partwise.load(fitted.save(tmp_path / "m.partwise"))
    np.testing.assert_array_equal(again.predict_proba(X[:20]), fitted.predict_proba(X[:20]))
    assert again.expected_ == fitted.expected_
    small = partwise.load(fitted.save(tmp_path / "s.partwise", for_predict=True))
    new = X[:20] + 0.01
    np.testing.assert_allclose(small.predict_proba(new), fitted.predict_proba(new), atol=0.02)
    with pytest.raises(ValueError, match="relabel"):
        small.relabel(digits[2])
    again._state["labels"] = again._state["labels"][:2]
    again.save(tmp_path / "n.partwise")
    with pytest.raises(partwise.persistence.model_files.PersistError):
        partwise.load(tmp_path / "n.partwise")


def test_suggestions_are_new_and_serve_all_labels(digits, fitted):
    asked = fitted.suggest(8)
    assert len(set(asked.tolist())) == 8 and asked.min() >= 60
    random = fitted.suggest(20, at_random=True)
    assert len(set(random.tolist())) == 20 and random.min() >= 60
    prepared = MultilabelClassifier().prepare(digits[0])
    assert len(prepared.suggest(5)) == 5


def test_the_threshold_maximises_the_expected_f1(rng):
    p = rng.beta(0.5, 2, 9)
    truths = np.array(list(itertools.product([0, 1], repeat=9)))
    chance = np.prod(np.where(truths == 1, p, 1 - p), axis=1)
    cut = best_threshold(p)

    def plug_in(guess):
        return 2 * p[guess].sum() / (guess.sum() + p.sum())

    best = max(plug_in(np.isin(np.arange(9), rows)) for k in range(1, 10)
               for rows in itertools.combinations(range(9), k))  # fmt: skip
    assert plug_in(p >= cut) == pytest.approx(best)
    exact = sum(q * f1_score(t, p >= cut, zero_division=0) for q, t in zip(chance, truths))
    assert exact == pytest.approx(best, abs=0.12)


def test_intervals_of_the_f1_narrow_and_contain_the_planted_value(rng):
    """Check the interval of the expected F1 on simulated labels with known probabilities.

    Each label is drawn with probability p and predicted if p >= 0.5. The F1 of 20 or 200 held-out
    labels estimates the F1 of 2,000 others.
    """
    inside, widths = 0, {20: [], 200: []}
    for n in widths:
        for _ in range(50):
            p = rng.beta(0.7, 0.7, 2000 + n)
            y = rng.random(p.size) < p
            guess = p >= 0.5
            middle, low, high = expected_f1(p[n:], guess[n:], guess[:n], y[:n])
            assert low < middle < high
            inside += low <= f1_score(y[n:], guess[n:]) <= high
            widths[n].append(high - low)
    assert inside >= 90
    assert np.mean(widths[200]) < np.mean(widths[20]) / 2


def test_rare_labels_gain_from_the_threshold():
    X, Y = make_multilabel_classification(400, 40, n_classes=6, n_labels=2, random_state=3)
    known = np.where(np.arange(400)[:, None] < 60, Y, np.nan)
    scores = {}
    for threshold in ("f1", 0.5):
        model = MultilabelClassifier(threshold=threshold, max_iter=10).fit(X, known)
        scores[threshold] = f1_score(Y[60:], model.transduction_[60:], average="macro")
    assert scores["f1"] > scores[0.5]


@pytest.mark.parametrize(
    "y, value",
    [
        (np.full((400, 2), 2.0), "2"),
        (np.zeros(400), "400"),
        (np.zeros((3, 2)), "3"),
        (np.full((400, 2), -1), "0"),
        ([None] * 400, "400"),
    ],
)
def test_other_forms_of_y_are_refused_with_their_value(digits, y, value):
    with pytest.raises(ValueError, match=r"y|entry") as caught:
        MultilabelClassifier().fit(digits[0], y)
    assert value in str(caught.value)


def test_what_belongs_to_one_label_is_asked_of_that_label(fitted):
    with pytest.raises(AttributeError, match="for_label"):
        _ = fitted.expected_accuracy_
    with pytest.raises(ValueError, match="7"):
        fitted.for_label(7)
    assert multilabel.ExpectedLabels(fitted.expected_).__str__().count("\n") == 3
