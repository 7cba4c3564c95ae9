"""Tests of PartsClassifier: predicted labels, probabilities, new samples, several views.

Internal functions are compared with naive formulas or with scikit-learn.
"""

import contextlib
import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import scipy.special
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.semi_supervised import LabelSpreading
from threadpoolctl import threadpool_limits

import partwise
from partwise import PartsClassifier
from partwise.classify import (
    classifiers,
    ensemble,
    features,
    preparation,
)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(n_class=6, return_X_y=True)
    X, y = X[:500], y[:500]
    known = np.full(y.size, -1)
    for c in range(6):
        known[np.flatnonzero(y == c)[:3]] = c
    return X, y, known


@pytest.fixture(scope="module")
def fitted(digits):
    X, _, known = digits
    return PartsClassifier(max_iter=40).fit(X, known)


def test_better_than_a_linear_model_and_than_spreading(digits, fitted):
    X, y, known = digits
    rest = known < 0
    ours = np.mean(fitted.transduction_[rest] == y[rest])
    P = preparation.unit_rows(X)
    linear = LogisticRegression(C=10, max_iter=500).fit(P[~rest], y[~rest])
    spread = LabelSpreading(kernel="knn", n_neighbors=7).fit(P, known)
    assert ours > np.mean(linear.predict(P[rest]) == y[rest])
    assert ours >= np.mean(spread.transduction_[rest] == y[rest])
    assert ours > 0.93


def test_labelled_samples_keep_their_label_and_rows_sum_to_one(digits, fitted):
    X, _, known = digits
    seen = known >= 0
    assert (fitted.transduction_[seen] == known[seen]).all()
    np.testing.assert_allclose(fitted.label_distributions_.sum(axis=1), 1, atol=1e-9)
    assert fitted.label_distributions_.min() > 0  # every class has a positive probability
    assert fitted.transduction_.shape == (X.shape[0],)


def test_training_samples_are_recognised_and_new_ones_predicted(digits, fitted):
    X, y, known = digits
    # Float32 products of 7 and of 500 rows differ in the last bits.
    again = fitted.predict_proba(X[:7])
    np.testing.assert_allclose(again, fitted.label_distributions_[:7], atol=1e-6)
    np.testing.assert_array_equal(fitted.transform(X), fitted.embedding_)
    half = np.arange(y.size) % 2 == 0
    half |= known >= 0
    model = PartsClassifier(max_iter=40).fit(X[half], known[half])
    inside = known[half] < 0
    transduction = np.mean(model.transduction_[inside] == y[half][inside])
    assert np.mean(model.predict(X[~half]) == y[~half]) > transduction - 0.03


def test_a_class_that_one_sample_speaks_for_is_found(digits):
    X, y, known = digits
    known = known.copy()
    known[np.flatnonzero(known == 3)[1:]] = -1
    model = PartsClassifier(max_iter=40).fit(X, known)
    assert 3 in model.classes_
    assert np.mean(model.transduction_[y == 3] == 3) > 0.8


def test_names_of_any_kind(digits, fitted):
    X, _, known = digits
    words = np.array(["nought", "one", "two", "three", "four", "five"], dtype=object)
    y = [None if c < 0 else words[c] for c in known]
    model = PartsClassifier(max_iter=40).fit(X, y)
    assert sorted(words) == model.classes_.tolist()
    same = words[fitted.transduction_.astype(int)] == model.transduction_
    assert np.mean(same) > 0.98  # the order of the class names changes the folds


def test_sparse_is_dense(digits, fitted):
    X, _, known = digits
    model = PartsClassifier(max_iter=40).fit(sp.csr_matrix(X + 0.5), known)
    dense = PartsClassifier(max_iter=40).fit(X + 0.5, known)
    assert np.mean(model.transduction_ == dense.transduction_) > 0.97


def test_data_is_not_copied(digits, tmp_path, monkeypatch):
    """Check that memory maps, Torch tensors and Dask arrays give the same labels without a copy."""
    X, y, known = digits
    file = np.memmap(tmp_path / "x.dat", np.float64, "w+", shape=X.shape)
    file[:] = X
    monkeypatch.setattr(preparation, "IN_MEMORY", 0)
    kinds = {"disk": file}
    with contextlib.suppress(ImportError):
        import torch

        kinds["tensor"] = torch.from_numpy(X)
    with contextlib.suppress(ImportError):
        import dask.array

        kinds["dask"] = dask.array.from_array(X, chunks=(200, -1))
    for data in kinds.values():
        model = PartsClassifier(max_iter=40, warm_start=True).fit(data, known)
        assert model.preparation_ == "as it is"
        assert np.mean(model.transduction_ == y) > 0.93
        assert np.mean(model.predict(data) == model.transduction_) > 0.97
        codes = model.embedding_
        assert model.fit(data, known).embedding_ is codes


def test_signed_samples(digits):
    X, y, known = digits
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((64, 64)))[0]
    model = PartsClassifier(max_iter=40).fit((X - X.mean(axis=0)) @ turn, known)
    assert model.components_.min() < 0
    assert np.mean(model.transduction_ == y) > 0.9


def test_a_table_in_different_units():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 100)
    X = rng.standard_normal((200, 3)) * [1, 1000, 0.001] + y[:, None] * [3, 3000, 0.003]
    known = np.full(200, -1)
    known[[0, 1, 2, 100, 101, 102]] = [0, 0, 0, 1, 1, 1]
    model = PartsClassifier(max_iter=40).fit(X, known)
    assert model.preparation_ == "columns"
    assert np.mean(model.transduction_ == y) > 0.95


def test_what_the_numbers_are():
    rng = np.random.default_rng(0)
    counts = sp.csr_array(rng.poisson(0.05, (40, 60)).astype(float))
    assert preparation.choose_preparation(counts).kind == "tf-idf"
    assert preparation.choose_preparation(rng.random((40, 60))).kind == "unit rows"
    assert preparation.choose_preparation(rng.random((40, 4))).kind == "columns"
    assert preparation.choose_preparation(load_digits().data).kind == "unit rows"
    skewed = preparation.choose_preparation(np.exp(3 * rng.standard_normal((400, 4))))
    assert skewed.log and skewed.kind == "columns"
    genes = preparation.choose_preparation(np.exp(3 * rng.standard_normal((40, 200))))
    assert genes.log and genes.kind == "unit rows"
    P = preparation.choose_preparation(counts).plain(counts)
    np.testing.assert_allclose(P.toarray(), partwise.datasets.tfidf(counts).toarray(), atol=1e-12)


def test_pickle_save_and_clone(tmp_path, digits, fitted):
    X, _, _ = digits
    new = X[:5] + 0.25
    for again in (
        pickle.loads(pickle.dumps(fitted)),
        partwise.load(fitted.save(tmp_path / "m.partwise")),
    ):
        np.testing.assert_array_equal(again.predict_proba(new), fitted.predict_proba(new))
        assert str(again.candidates_) == str(fitted.candidates_)
        assert again.expected_accuracy_ == fitted.expected_accuracy_
    assert not hasattr(clone(fitted), "classes_")


def test_warm_start_keeps_codes_and_forgets_them_with_another_X(digits):
    X, _, known = digits
    model = PartsClassifier(max_iter=40, warm_start=True).fit(X, known)
    codes = model.embedding_
    more = known.copy()
    more[np.flatnonzero(known < 0)[0]] = 7  # a class that had no label in the first fit
    model.fit(X, more)
    assert model.embedding_ is codes
    assert 7 in model.classes_
    cold = PartsClassifier(max_iter=40).fit(X, more)
    # The logistic regression of a warm start begins elsewhere, and stops at the same tolerance.
    np.testing.assert_allclose(model.label_distributions_, cold.label_distributions_, atol=0.05)
    model.fit(X[:-1], more[:-1])
    assert model.embedding_.shape[0] == X.shape[0] - 1


def test_weights_of_labels(digits):
    X, y, known = digits
    wrong = known.copy()
    bad = np.flatnonzero(y == 0)[3:6]
    wrong[bad] = 1
    weight = np.ones(y.size)
    weight[bad] = 0
    model = PartsClassifier(max_iter=40).fit(X, wrong, sample_weight=weight)
    assert np.mean(model.transduction_ == y) > 0.93
    assert not (model.transduction_[bad] == 1).any()


def test_candidates_say_what_was_tried(fitted):
    table = fitted.candidates_
    assert sum(row.weight for row in table) == pytest.approx(1)
    assert table[0].weight == max(row.weight for row in table)
    assert len(str(table).splitlines()) == len(table) + 1
    share, low, high = fitted.expected_accuracy_
    assert 0 <= low <= share <= high <= 1


def test_labels_to_give_next_teach_more_than_random_ones(digits):
    X, y, _ = digits
    gained = []
    for seed in range(3):
        rng = np.random.RandomState(seed)
        known = np.full(y.size, -1)
        for c in range(6):
            known[rng.choice(np.flatnonzero(y == c))] = c
        model = PartsClassifier(max_iter=40, warm_start=True).fit(X, known)
        asked = model.suggest(6)
        assert (known[asked] < 0).all() and np.unique(asked).size == 6
        for rows in (asked, rng.choice(np.flatnonzero(known < 0), 6, replace=False)):
            more = known.copy()
            more[rows] = y[rows]
            rest = more < 0
            gained.append(np.mean(model.fit(X, more).transduction_[rest] == y[rest]))
    assert np.mean(gained[::2]) > np.mean(gained[1::2])


def test_doubtful_ones_are_wrong_more_often(digits):
    X, y, _ = digits
    model, wrong = PartsClassifier(max_iter=20, warm_start=True), []
    for seed in range(4):
        rng, known = np.random.RandomState(seed), np.full(y.size, -1)
        for c in range(6):
            known[rng.permutation(np.flatnonzero(y == c))[:3]] = c
        order = model.fit(X, known).doubtful()
        wrong.append(model.transduction_[order] != y[order])
    wrong = np.array(wrong)
    assert wrong[:, :50].mean() > 3 * max(wrong[:, 50:].mean(), 0.01)


def test_explanations_name_parts_and_columns():
    rng = np.random.default_rng(0)
    y = np.repeat(["left", "right"], 60)
    X = rng.random((120, 60)) * 0.2
    X[:60, :5] += rng.random((60, 1)) + 1
    X[60:, 5:10] += rng.random((60, 1)) + 1
    known = np.where(np.arange(120) % 20 == 0, y, None)
    names = [f"w{j}" for j in range(60)]
    model = PartsClassifier(4, max_iter=60).fit(X, known)
    why = model.explain("left", feature_names=names)
    assert set(why.supporting[0].features[:3]) <= {"w0", "w1", "w2", "w3", "w4"}
    assert set(why.opposing[0].features[:3]) <= {"w5", "w6", "w7", "w8", "w9"}
    assert why.fidelity > 0.95
    one = model.explain(sample=70, feature_names=names)
    assert one.name == "right" and "w5" in str(one)
    new = model.explain("left", sample=X[70] + 0.01)
    assert new.name == "left" and new.probabilities["right"] > 0.5
    with pytest.raises(ValueError, match="'up'"):
        model.explain("up")
    with pytest.raises(ValueError, match="60"):
        model.explain("left", feature_names=["a"])


def test_errors_say_what_to_do(digits):
    X = digits[0]
    with pytest.raises(ValueError, match="label"):
        PartsClassifier().fit(X, np.full(X.shape[0], -1))
    with pytest.raises(ValueError, match="requires y"):
        PartsClassifier().fit(X, None)


# -- internal functions against naive formulas -------------------------------------------------


def test_folds_are_even_and_every_second_label_is_held_out_once():
    """Check that folds are of equal size, and that they hold out each label once.

    Labels that are the only one of their class are never held out.
    """
    y = np.array([0, 0, 1, 1, 2, 2, 3, 3, 4])
    made = ensemble.make_folds(y, np.ones(9), 4, np.random.RandomState(0))
    assert len(made.means) == len(made.spread) == 5
    assert np.bincount(made.fold[:8], minlength=4).tolist() == [2, 2, 2, 2]
    assert made.fold[8] == -1
    odd = ensemble.make_folds(np.array([0, 0, 1, 1, 1]), np.ones(5), 5, np.random.RandomState(1))
    assert sorted(odd.fold) == [0, 1, 2, 3, 4]


def test_folds_take_the_same_number_from_every_class():
    y = np.array([0, 0, 1, 1, 2, 2, 2, 3])
    made = ensemble.make_folds(y, np.ones(8), 3, np.random.RandomState(0))
    assert made.fold[-1] == -1  # the only label of a class is never held out
    for f in range(3):
        held = made.fold == f
        assert (made.means[f][held] == 0).all() and (made.spread[f][held] == 0).all()
        left = np.bincount(y, made.means[f])
        assert left.tolist() == [1, 1, 2, 1]
    assert (made.means[-1] == 1).all()


def test_logistic_is_scikit_learns():
    rng = np.random.default_rng(0)
    Z, y = rng.standard_normal((40, 3)), np.repeat([0, 1, 2, 3], 10)
    Z += y[:, None]
    ours = classifiers.logistic(Z, y, np.ones((1, 40)), 4)
    theirs = LogisticRegression(C=classifiers.STRENGTH, max_iter=1000, tol=1e-8).fit(Z, y)
    p = scipy.special.softmax(ours.scores(Z)[0], axis=1)
    # The fit runs 40 iterations of L-BFGS, and here the intercept has a ridge of a thousandth.
    np.testing.assert_allclose(p, theirs.predict_proba(Z), atol=0.02)


def test_logistic_from_far_away_overflows_nowhere():
    rng = np.random.default_rng(0)
    Z, y = rng.standard_normal((40, 3)), np.repeat([0, 1, 2, 3], 10)
    far = classifiers.logistic(Z, y, np.ones((1, 40)), 4, 1e4 * rng.standard_normal((1, 4, 4)))
    assert np.isfinite(far.A).all() and np.isfinite(far.b).all()


def test_weights_are_in_every_fold():
    y, weights = np.array([0, 0, 0, 1, 1, 1]), np.array([0.5, 1, 2, 3, 4, 5])
    made = ensemble.make_folds(y, weights, 2, np.random.RandomState(0))
    for rows in (made.means, made.spread):
        np.testing.assert_array_equal(rows[-1], weights)
        for f in range(2):
            np.testing.assert_array_equal(rows[f], np.where(made.fold == f, 0, weights))


def test_discriminant_by_hand():
    rng = np.random.default_rng(1)
    Z, y = rng.standard_normal((12, 2)), np.repeat([0, 1, 2], 4)
    ours = classifiers.discriminant(Z, y, np.ones((1, 12)), np.ones((1, 12)), 3).scores(Z)[0]
    M = np.stack([Z[y == c].mean(axis=0) for c in range(3)])
    S = sum(np.outer(z - M[c], z - M[c]) for z, c in zip(Z, y)) / 9
    S = 0.8 * S + 0.2 * np.trace(S) / 2 * np.eye(2)
    naive = [[-0.5 * (z - m) @ np.linalg.inv(S) @ (z - m) for m in M] for z in Z]
    softmax = scipy.special.softmax
    np.testing.assert_allclose(softmax(ours, axis=1), softmax(np.array(naive), axis=1), atol=1e-9)


def test_propagation_solves_the_system():
    rng = np.random.default_rng(2)
    W = np.triu(rng.random((30, 30)) < 0.2, 1).astype(float)
    W += W.T
    root = np.diag(1 / np.sqrt(np.maximum(W.sum(axis=1), 1e-12)))
    S = root @ W @ root
    shares = (0.5, 0.99, 0.9)
    E = np.eye(30)[[3, 8, 5]]
    E[2, 6:9] = 1 / 3  # this walk starts from several samples
    found = classifiers.propagate(
        classifiers.Walk.of(sp.csr_array(S)), sp.csr_array(E), shares, tol=1e-6
    )
    for F, share in zip(found.swapaxes(0, 1), shares, strict=True):
        exact = (1 - share) * E @ np.linalg.inv(np.eye(30) - share * S)
        np.testing.assert_allclose(F, exact, atol=1e-4)  # the walk is computed in float32


def test_new_codes_are_the_minimum():
    rng = np.random.default_rng(3)
    H, V, P = rng.random((4, 9)), rng.random((6, 4)), rng.random((5, 9))
    near = features.neighbors_of(rng.random((5, 2)), rng.random((6, 2)), 3)
    Z = features.solve_part_weights(P @ H.T, H, V, near, 0.7)
    J = near.indices.reshape(5, 3)
    grad = (Z @ H - P) @ H.T + 0.7 * sum(Z - V[J[:, j]] for j in range(3))
    # The KKT conditions: grad >= 0, and grad = 0 where Z > 0.
    assert np.abs(np.minimum(Z, grad)).max() < 1e-9


@pytest.mark.parametrize("sparse", [False, True])
def test_very_many_samples_search_neighbours_among_some(monkeypatch, sparse):
    """Check PartsClassifier with more samples than the limit for an exact search of neighbours.

    The samples beyond the limit get neighbours and part weights as new samples do.
    """
    monkeypatch.setattr(features, "EXACT", 300)
    monkeypatch.setattr(features, "SEARCHED", 150)
    monkeypatch.setattr(features, "MANY", 250)
    monkeypatch.setattr(ensemble, "WORKING", 100)
    rng = np.random.default_rng(0)
    y = np.arange(400) % 4
    X = rng.poisson(np.where(y[:, None] == np.arange(80) % 4, 1.0, 0.1)).astype(float)
    X = sp.csr_array(X) if sparse else X[:, :20] + 0.1 * rng.standard_normal((400, 20))
    known = np.where(np.arange(400) < 40, y, -1)
    model = PartsClassifier(warm_start=True).fit(X, known)
    mine = model._features.first
    first, rest = mine.searched, np.setdiff1d(np.arange(400), mine.searched)
    assert first.size == 150 and np.isin(np.flatnonzero(known >= 0), rest).any()
    assert np.mean(model.transduction_ == y) > 0.9
    graph = model.graph_.toarray()
    assert (graph == graph.T).all() and not graph[np.ix_(rest, rest)].any()
    distance = ((mine.data[rest][:, None] - mine.data[first]) ** 2).sum(axis=2)
    nearest = np.sort(distance, axis=1)[:, :5]
    tied = np.where(graph[np.ix_(rest, first)] > 0, distance, -1)
    # Float32 products may exchange neighbours at nearly the same distance.
    np.testing.assert_allclose(np.sort(tied, axis=1)[:, -5:], nearest, atol=1e-3)
    means = mine.walk()[1]
    np.testing.assert_allclose(means.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(means[first].toarray(), np.eye(150))
    # A training sample passed as a new one gets its part weights from the same neighbours.
    new = X[rest] if sparse else X[rest].astype(mine.P.dtype)
    _, near, V = mine.new(new, np.full(rest.size, -1))
    np.testing.assert_allclose(V, mine.V[rest], atol=1e-4 * mine.V.max())
    assert (near @ np.ones(400)) == pytest.approx(1)
    known[rest[0]] = y[rest[0]]
    warm, cold = model.fit(X, known), PartsClassifier().fit(X, known)
    np.testing.assert_allclose(warm.label_distributions_, cold.label_distributions_, atol=1e-6)
    assert np.mean(model.predict(X[::2]) == y[::2]) > 0.9


def test_relabel_is_fit_without_the_codes(digits):
    X, _, known = digits
    whole = PartsClassifier().fit(X, known)
    model = PartsClassifier().prepare(X)
    assert not hasattr(model, "classes_")
    again = model.relabel(known)
    np.testing.assert_allclose(
        again.label_distributions_, whole.label_distributions_, rtol=1e-5, atol=1e-7
    )
    rows, p, truth = again.held_out_
    assert set(rows) <= set(np.flatnonzero(known != -1)) and p.shape == (len(rows), 6)
    assert (again.classes_[truth] == known[rows]).all()


def test_relabel_keeps_the_weights_of_classifiers(digits):
    X, y, known = digits
    model = PartsClassifier().fit(X, known)
    before, weights = model.label_distributions_, model._ensemble.weights
    # With the same labels, the predictions are nearly the same: classifiers that are fitted to
    # earlier predictions begin with weights that count these predictions too.
    model.relabel(known, weigh=False)
    assert np.abs(model.label_distributions_ - before).mean() < 0.01
    assert (model.label_distributions_.argmax(axis=1) == before.argmax(axis=1)).mean() > 0.98
    more = known.copy()
    unknown = np.flatnonzero(known == -1)[:5]
    more[unknown] = y[unknown]
    model.relabel(more, weigh=False)
    np.testing.assert_allclose(model._ensemble.weights, weights)
    # The message no longer advises a second label per class, because every class has more.
    assert str(model.expected_accuracy_).endswith(
        "weigh=False) held no label out; relabel(y) does."
    )
    assert (model.transduction_[unknown] == y[unknown]).all()
    full = PartsClassifier().fit(X, more)
    assert (model.transduction_ == full.transduction_).mean() > 0.97


# -- wrong labels ----------------------------------------------------------------------------------


def test_wrong_labels_are_found_and_the_right_class_is_suggested():
    """Check `doubtful_labels_` on digits of which 30% of the labels are wrong.

    At least 80% of the wrong labels are found, and at least 80% of the reported labels are wrong.
    The documentation states these shares for COIL20.
    """
    X, truth = (a[:400] for a in load_digits(n_class=5, return_X_y=True))
    rng = np.random.default_rng(3)
    given = np.concatenate([rng.permutation(np.flatnonzero(truth == c))[:15] for c in range(5)])
    wrong = rng.permutation(given)[: len(given) * 3 // 10]
    y = np.full(len(X), -1)
    y[given] = truth[given]
    y[wrong] = (truth[wrong] + rng.integers(1, 5, size=len(wrong))) % 5
    model = PartsClassifier(max_iter=30).fit(X, y)
    doubts = model.doubtful_labels_
    found = [doubt.sample for doubt in doubts]
    hits = np.isin(found, wrong)
    assert hits.mean() >= 0.8 and hits.sum() >= 0.8 * len(wrong)
    assert all(doubt.given == y[doubt.sample] and doubt.probability > 0.5 for doubt in doubts)
    right = [doubt.suggested == truth[doubt.sample] for doubt in doubts if doubt.sample in wrong]
    assert np.mean(right) >= 0.9
    assert [d.probability for d in doubts] == sorted((d.probability for d in doubts), reverse=True)
    clean = np.where(np.isin(np.arange(len(X)), given), truth, -1)
    assert len(model.relabel(clean).doubtful_labels_) <= 0.03 * len(given)


# -- unusual graphs, classes and samples -----------------------------------------------------------


def one_label_a_class(y):
    known = np.full(y.size, -1)
    classes, first = np.unique(y, return_index=True)
    known[first] = classes
    return known


def test_propagation_in_small_components():
    """Check label propagation in graph components of one, two and 40 samples.

    The expected values come from a matrix inverse.
    """
    # On a ring, propagation needs the most iterations.
    ring = np.roll(np.eye(40), 1, axis=0) + np.roll(np.eye(40), -1, axis=0)
    W = sp.block_diag([sp.csr_array(np.zeros((1, 1))), np.ones((2, 2)) - np.eye(2), ring])
    degree = np.maximum(np.asarray(W.sum(axis=1)).ravel(), 1e-12)
    S = sp.csr_array(sp.diags_array(degree**-0.5) @ W @ sp.diags_array(degree**-0.5))
    shares = (0.99, 0.9, 0.5)
    walk = classifiers.Walk.of(S)
    found = classifiers.propagate(walk, sp.eye_array(43, format="csr"), shares)
    for F, share in zip(found.swapaxes(0, 1), shares, strict=True):
        exact = (1 - share) * np.linalg.inv(np.eye(43) - share * S.toarray())
        np.testing.assert_allclose(F, exact, atol=1e-4)  # the tolerance of the solver
    # A column gives the same result alone and together with others.
    alone = classifiers.propagate(walk, sp.eye_array(43, format="csr")[[4]], shares)
    np.testing.assert_array_equal(alone[0], found[4])


def test_many_small_classes(few_trees):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(200), 3)
    X = (10 * rng.random((200, 60)))[y] + 0.01 * rng.random((600, 60))
    known = np.where(np.arange(600) % 3 < 2, y, -1)
    model = PartsClassifier(max_iter=20).fit(X, known)
    assert np.isfinite(model.label_distributions_).all()
    assert np.mean(model.transduction_ == y) == 1


def test_labelled_samples_without_neighbours():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 40)
    X = rng.random((80, 60)) + 2 * np.eye(2)[y].repeat(30, axis=1)
    X[[0, 40]] = 0  # these samples have no positive entry
    known = np.where(np.arange(80) % 40 < 3, y, -1)
    model = PartsClassifier(max_iter=20)
    model.fit(X, known)
    np.testing.assert_allclose(model.label_distributions_.sum(axis=1), 1, atol=1e-9)
    assert np.mean(model.transduction_ == y) > 0.95
    assert np.isfinite(model._ensemble.weights).all()


def test_a_classifier_that_fails_is_left_out_with_a_warning(digits, monkeypatch):
    X, y, known = digits
    made = classifiers.discriminant

    def broken(*args):
        fit = made(*args)
        fit.A[0, 0, 0] = np.nan
        return fit

    monkeypatch.setattr(classifiers, "discriminant", broken)
    model = PartsClassifier(max_iter=40, warm_start=True).fit(X, known)
    assert np.mean(model.transduction_ == y) > 0.93
    failed = [row for row in model.candidates_ if "left out" in row.why]
    assert failed and all(row.weight == 0 and "discriminant" in row.name for row in failed)
    monkeypatch.undo()
    again = model.relabel(known, weigh=False)  # the weights are those of the remaining classifiers
    assert np.mean(again.transduction_ == y) > 0.93
    fine = again.relabel(known)
    assert not [row for row in fine.candidates_ if "left out" in row.why]


def test_an_answer_without_a_head_is_an_error(digits, monkeypatch):
    X, _, known = digits
    monkeypatch.setattr(ensemble, "log_softmax", lambda S, axis: np.full_like(S, np.nan))
    with pytest.raises(ValueError, match="finite"):
        PartsClassifier(max_iter=20).fit(X, known)


def test_copies_of_a_sample_have_no_spread():
    """Check PartsClassifier if all labels of a class are copies of one sample.

    Such labels give no information about the spread of a class; rounding differences must not be
    taken for spread.
    """
    X, y = load_digits(return_X_y=True)
    X, y = X[:600], y[:600]
    known = one_label_a_class(y)
    rest = known < 0
    right = np.mean(PartsClassifier(max_iter=40).fit(X, known).transduction_[rest] == y[rest])
    weight = np.random.default_rng(0).uniform(0.1, 1, y.size)
    weighed = PartsClassifier(max_iter=40).fit(X, known, sample_weight=weight)
    assert np.mean(weighed.transduction_[rest] == y[rest]) > right - 0.01
    twice = np.flatnonzero(~rest).repeat(3)
    X2, known2 = np.vstack([X, X[twice]]), np.append(known, known[twice])
    weight = np.random.default_rng(1).uniform(0.1, 1, known2.size)
    model = PartsClassifier(max_iter=40).fit(X2, known2, sample_weight=weight)
    # Copies add edges to the graph, so a few predicted labels may differ.
    assert np.mean(model.transduction_[: y.size][rest] == y[rest]) > right - 0.04


def test_gaussian_classes_by_labels_that_repeat():
    rng = np.random.default_rng(0)
    Z = np.repeat(rng.standard_normal((3, 5)), 4, axis=0).astype(np.float32)
    y, weights = np.repeat([0, 1, 2], 4), rng.uniform(0.1, 1, (1, 12))
    # The samples of a class are copies, or differ only by rounding, so nothing is known of the
    # spread.
    for near in (Z, np.nextafter(Z, np.where(rng.random(Z.shape) < 0.5, 2, -2), dtype=Z.dtype)):
        fit = classifiers.discriminant(near, y, weights, weights, 3)
        np.testing.assert_allclose(fit.A[0], Z[::4].T, rtol=1e-6)
        fits = classifiers.mixture(near, np.arange(12), y, np.ones((1, 12)), np.eye(3)[y][None], 2)
        for fit in fits:
            np.testing.assert_allclose(fit.A[0], Z[::4].T, rtol=1e-5)


def test_the_container_changes_nothing(digits):
    X, _, known = digits
    table = np.exp(np.random.default_rng(0).standard_normal((X.shape[0], 8)) + X[:, 20:28] / 8)
    for data in (X, table, np.maximum(X - 8, 0)):
        model = PartsClassifier(max_iter=20).fit(data, known)
        p = model.predict_proba(data)
        np.testing.assert_allclose(p, model.label_distributions_, atol=1e-6)
        new = data[:9] * 1.01
        for kind in (sp.csr_matrix, sp.csr_array, sp.csc_matrix):
            # Training samples are recognised in another container, and new ones are prepared in the
            # same way. The results agree up to the rounding of products.
            np.testing.assert_allclose(model.predict_proba(kind(data)), p, rtol=1e-9)
            there = model.predict_proba(kind(new))
            np.testing.assert_allclose(there, model.predict_proba(new), rtol=1e-9)
        np.testing.assert_allclose(model.predict_proba(data.astype(int)) if data is X else p, p)
    model = PartsClassifier(max_iter=20).fit(sp.csr_matrix(X), known)
    p = model.predict_proba(sp.csr_matrix(X))
    np.testing.assert_allclose(model.predict_proba(X), p, rtol=1e-9)
    np.testing.assert_allclose(model.predict_proba(X.astype(np.float32)), p, rtol=1e-9)


def test_threads_change_no_digit():
    rng = np.random.default_rng(0)
    y = rng.integers(3, size=1200)
    X = np.abs(rng.standard_normal((1200, 260)) + rng.standard_normal((3, 260))[y])
    known = np.where(np.arange(y.size) < 15, y, -1)
    found = []
    for count in (1, 2, 4):
        with threadpool_limits(count):
            found.append(PartsClassifier(max_iter=4).fit(X, known).label_distributions_)
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


def test_digests_are_of_the_numbers():
    X = np.array([[0.0, 1.5, 0.0], [2.0, 0.0, -0.0], [0.0, 0.0, 0.0]])
    digests = features.sample_digests([X])
    assert np.unique(digests).size == 3
    explicit = sp.csr_array(
        (np.array([0.0, 1.5, 1.0, 1.0]), np.array([2, 1, 0, 0]), [0, 2, 4, 4]), shape=(3, 3)
    )
    for other in (X.astype(np.float32), sp.csr_array(X), explicit, np.asfortranarray(X)):
        np.testing.assert_array_equal(features.sample_digests([other]), digests)
    assert np.unique(np.concatenate([features.sample_digests([X, X]), digests])).size == 5
    many = np.unique(np.random.default_rng(0).integers(2, size=(5000, 40)), axis=0).astype(float)
    for rows in (many, 1e-12 * many, np.arange(5000.0)[:, None]):
        assert np.unique(features.sample_digests([rows])).size == len(rows)


def test_the_order_of_samples_changes_little(digits):
    X, y, known = digits
    model = PartsClassifier(max_iter=20).fit(X, known)
    order = np.random.default_rng(0).permutation(known.size)
    there = PartsClassifier(max_iter=20).fit(X[order], known[order])
    # The order of the samples changes the folds.
    assert np.mean(there.transduction_ == model.transduction_[order]) > 0.98
    np.testing.assert_array_equal(
        there.transduction_[known[order] >= 0], y[order][known[order] >= 0]
    )


def test_a_warm_fit_is_a_cold_one(digits):
    X, y, known = digits
    model = PartsClassifier(max_iter=20, warm_start=True).fit(X, known)
    more = known.copy()
    more[np.flatnonzero(known < 0)[:4]] = y[np.flatnonzero(known < 0)[:4]]
    cold = PartsClassifier(max_iter=20).fit(X, more)
    model.fit(X, more)
    np.testing.assert_allclose(model.label_distributions_, cold.label_distributions_, atol=1e-6)


def test_a_row_alone_is_answered_as_among_others(digits, fitted):
    X, _, _ = digits
    new = X[:40] + 0.25
    p = fitted.predict_proba(new)
    for i in (0, 17, 39):
        np.testing.assert_allclose(fitted.predict_proba(new[i : i + 1])[0], p[i], rtol=1e-9)


def test_least_squares_on_all_columns_by_hand():
    rng = np.random.default_rng(0)
    P, y, at = rng.random((20, 30)), np.array([0, 1, 2, 0, 1, 2, 0]), np.arange(7)
    weights = np.vstack([np.ones(7), np.where(at == 3, 0, 1)])
    for data in (P, sp.csr_array(P)):
        raw, last = classifiers.ridge(data, at, y, weights, 3)
        Z = P - P.mean(axis=0)
        size = np.mean(np.sum(Z[:7] ** 2, axis=1))
        for w, scores in zip(weights, raw, strict=True):
            known = w > 0
            even = w[known] / np.bincount(y[known])[y[known]]
            D = np.diag(classifiers.RIDGE * size * even.mean() / even)
            inner = np.linalg.inv(Z[:7][known] @ Z[:7][known].T + D)
            A = Z[:7][known].T @ inner @ (np.eye(3)[y[known]] - 1 / 3)
            np.testing.assert_allclose(scores, Z @ A, atol=1e-9)
        np.testing.assert_allclose(P @ last.A[0] + last.b[0], raw[-1], atol=1e-9)


def test_ranks_are_of_the_training_samples():
    X = np.array([[0.0, 5.0], [0.0, 7.0], [1.0, 1.0], [3.0, 2.0]])
    ranks = preparation.other_preparations(X, preparation.choose_preparation(X))["ranks"]
    below = np.array([[1.0, 2.5], [1.0, 3.5], [2.5, 0.5], [3.5, 1.5]]) / 4  # ties count by half
    naive = scipy.special.ndtri(below)
    np.testing.assert_allclose(ranks.plain(X), naive - naive.mean(axis=0), atol=1e-12)
    far = ranks.plain(np.array([[-9.0, 99.0]]))
    assert np.isfinite(far).all()


def test_other_scalings_are_tried_for_uninformative_columns():
    """Check that other scalings are tried if large, uninformative columns hide the classes."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 60)
    X = rng.random((180, 60)) + 1
    X[:, 30:] *= 0.01
    X[:, 30:] += 0.01 * np.eye(3)[y].repeat(10, axis=1)
    known = np.where(np.arange(180) % 60 < 5, y, -1)
    model = PartsClassifier(max_iter=20).fit(X, known)
    assert model.preparation_ == "unit rows"
    assert list(model._features.prepared) == ["", "columns", "ranks"]
    assert np.mean(model.transduction_ == y) > 0.95
    assert "(columns)" in str(model.candidates_) and "(ranks)" in str(model.candidates_)
    held = X + 1e-9
    assert np.mean(model.predict(held) == y) > 0.95


@pytest.mark.parametrize("seed", range(20))
def test_random_samples_give_numbers(seed, few_trees):
    """Check that random samples with zero rows, constant columns and copies give finite numbers."""
    rng = np.random.default_rng(seed)
    n, p, c = int(rng.integers(3, 40)), int(rng.integers(1, 70)), int(rng.integers(2, 6))
    y = np.append([0, 1], rng.integers(0, c, n - 2))
    X = [
        rng.standard_normal((n, p)) + y[:, None],
        rng.poisson(0.3 + y[:, None], (n, p)).astype(float),
        np.exp(3 * rng.standard_normal((n, p))),
        np.ones((n, p)),
    ][seed % 4]
    if seed % 3 == 0:
        X[rng.integers(0, n, 2)] = 0
        X[:, rng.integers(0, p)] = 7
    if seed % 5 == 0:
        X, y = np.vstack([X, X[: n // 2]]), np.append(y, y[: n // 2])
    X = (X * 10.0 ** rng.integers(-12, 13)).astype(np.float32 if seed % 7 == 0 else np.float64)
    data = sp.csr_matrix(X) if seed % 6 == 1 else X
    known = np.full(y.size, -1)
    given = np.append([0, 1], rng.permutation(y.size)[: int(rng.integers(0, y.size + 1))])
    known[given] = y[given]
    weight = rng.uniform(0.1, 1, y.size)
    model = PartsClassifier(max_iter=5).fit(data, known, sample_weight=weight)
    probabilities = model.label_distributions_
    for q in (probabilities, model.predict_proba(data)):
        assert np.isfinite(q).all()
        np.testing.assert_allclose(q.sum(axis=1), 1, atol=1e-9)
    assert (model.transduction_[given] == y[given]).all()
    assert np.isfinite([row.weight for row in model.candidates_]).all()


def test_counts_by_the_spread_of_their_columns():
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.1, (50, 60)).astype(float)
    counts[:, 3] = 3  # this column has no spread except rounding
    made = preparation.other_preparations(
        sp.csr_array(counts), preparation.choose_preparation(sp.csr_array(counts))
    )
    assert list(made) == ["log counts", "scaled"]
    spread = counts.std(axis=0)
    naive = counts / np.where(spread > 1e-9, spread, np.inf) / np.sqrt(60)
    np.testing.assert_allclose(made["scaled"].plain(counts).toarray(), naive, atol=1e-9)


def two_views(n: int = 120) -> tuple[np.ndarray, sp.csr_array, np.ndarray]:
    """Return two views of four classes, and the classes.

    The coordinates separate two pairs of classes, and the counts separate the classes within each
    pair.
    """
    rng = np.random.RandomState(0)
    y = np.arange(n) % 4
    X = rng.standard_normal((n, 5)) + 4 * (y % 2)[:, None]
    rates = np.where((y // 2)[:, None] == np.arange(80) % 2, 1.0, 0.05)
    return X, sp.csr_array(rng.poisson(rates).astype(float)), y


def test_an_array_that_says_nothing_costs_little():
    X, Z, y = two_views()
    X = np.hstack([X, Z.toarray()])
    noise = np.random.RandomState(1).standard_normal((y.size, 20))
    known = np.where(np.arange(y.size) < 16, y, -1)
    alone = np.mean(PartsClassifier(max_iter=20).fit(X, known).transduction_ == y)
    both = np.mean(PartsClassifier(max_iter=20).fit(X, known, also=[noise]).transduction_ == y)
    assert both > alone - 0.02


@pytest.mark.parametrize("named", [False, True])
def test_two_views_are_better_than_each_alone(named):
    X, Z, y = two_views()
    known = np.where(np.arange(y.size) < 16, y, -1)
    also = {"words": Z} if named else [Z]
    model = PartsClassifier(max_iter=20).fit(X, known, also=also)
    right = np.mean(model.transduction_ == y)
    for alone in (X, Z):
        assert right > np.mean(PartsClassifier(max_iter=20).fit(alone, known).transduction_ == y)
    assert right > 0.85  # the accuracy is 0.87 to 0.99, depending on the folds of the 16 labels
    name = "also['words']" if named else "also[0]"
    assert any(f"({name})" in row.name for row in model.candidates_)
    # Training samples keep their predictions in another order and another container.
    rows = np.arange(y.size)[::-3]
    again = {"words": Z[rows].toarray()} if named else [Z[rows].toarray()]
    # Scores of a fit are sums of up to 100 products in float32.
    close = 100 * np.finfo(np.float32).eps
    np.testing.assert_allclose(
        model.predict_proba(X[rows], also=again), model.label_distributions_[rows], atol=close
    )
    np.testing.assert_array_equal(model.transform(X[rows], also=again), model.embedding_[rows])
    assert model.outlyingness(X[rows], also=again).shape == rows.shape


def test_new_samples_of_two_views_and_a_saved_model(tmp_path):
    X, Z, y = two_views(240)
    known = np.where(np.arange(120) < 16, y[:120], -1)
    model = PartsClassifier(max_iter=20).fit(X[:120], known, also=[Z[:120]])
    new = model.predict(X[120:], also=[Z[120:]])
    assert np.mean(new == y[120:]) > 0.9
    model.save(tmp_path / "two.npz")
    again = partwise.load(tmp_path / "two.npz")
    np.testing.assert_array_equal(
        again.predict_proba(X[120:], also=[Z[120:]]), model.predict_proba(X[120:], also=[Z[120:]])
    )


def test_two_views_warm_start_sees_what_changed():
    X, Z, y = two_views()
    known = np.where(np.arange(y.size) < 16, y, -1)
    model = PartsClassifier(max_iter=5, warm_start=True).fit(X, known, also=[Z])
    features = model._state["features"]
    assert model.fit(X, known, also=[Z])._state["features"] is features
    assert model.fit(X, known, also=[2 * Z])._state["features"] is not features
    assert model.fit(X, known)._state["also"] == {}


def test_what_is_wrong_with_a_second_view_is_said():
    X, Z, y = two_views()
    known = np.where(np.arange(y.size) < 16, y, -1)
    model = PartsClassifier(max_iter=2)
    with pytest.raises(TypeError, match=r"also.*also=\[Z\]"):
        model.fit(X, known, also=Z)
    with pytest.raises(ValueError, match=r"also\[0\].*119.*120"):
        model.fit(X, known, also=[Z[:-1]])
    with pytest.raises(ValueError, match=r"also\['e'\].*NaN"):
        model.fit(X, known, also={"e": np.full((y.size, 2), np.nan)})
    model.fit(X, known, also=[Z])
    with pytest.raises(ValueError, match=r"X, also\[0\].*X"):
        model.predict(X)
    with pytest.raises(ValueError, match=r"also\[0\].*79.*80"):
        model.predict(X, also=[Z[:, :-1]])


def test_score_counts_samples_whose_label_is_known(digits, fitted):
    """Check that `score` ignores samples with the label -1.

    Counting -1 as a class would give 40% for correct predictions.
    """
    X, y, _ = digits
    some = np.where(np.arange(y.size) < 200, y, -1)
    right = fitted.predict(X[:200]) == y[:200]
    assert fitted.score(X, some) == right.mean() > 0.8
    weights = np.arange(y.size) + 1.0
    assert fitted.score(X, some, weights) == pytest.approx(np.average(right, weights=weights[:200]))
    with pytest.raises(ValueError, match=r"\by\b"):
        fitted.score(X, np.full(y.size, -1))
    folds = cross_val_score(
        PartsClassifier(max_iter=5), X[:200], np.where(y < 2, y, -1)[:200], cv=2
    )
    assert folds.min() > 0.8


def test_an_index_in_another_order_is_said(digits):
    X, _, known = digits
    frame, labels = pd.DataFrame(X[:60]), pd.Series(known[:60])
    with pytest.warns(UserWarning, match="index"):
        PartsClassifier(max_iter=2).fit(frame, labels[::-1])
    with pytest.warns(UserWarning, match="index"):
        partwise.CNMF(max_iter=2, tol=0).fit(frame, labels[::-1])
    # Arrays of labels are matched by position.
    PartsClassifier(max_iter=2).fit(frame.set_index(np.arange(60) + 7), labels)


def test_integers_of_pandas_with_gaps_stay_integers(digits):
    X, _, known = digits
    labels = pd.Series(np.where(known < 0, None, known), dtype="Int64")
    assert PartsClassifier(max_iter=2).fit(X, labels).classes_.tolist() == list(range(6))
    assert PartsClassifier(max_iter=2).fit(X, labels).classes_.dtype.kind == "i"
