"""Tests of labels of every type with every method that takes labels."""

from __future__ import annotations

import pickle
import warnings
from contextlib import nullcontext
from functools import cache

import numpy as np
import pandas as pd
import pytest

import reference
from methods import FROBENIUS, KL, LOSSES
from partwise import (
    CDNMF,
    CF,
    CNMF,
    GNMF,
    LCF,
    NMF,
    NMFDC,
    NSNMF,
    ConstrainedNMF,
    SemiGNMF,
    SparseNMF,
)
from partwise.evaluation.metrics import clustering_accuracy

N, P, CLASSES = 36, 15, 3
NAMES = np.array(["ant", "bee", "cat"])


def three_groups(seed=0):
    """Return samples of three groups with five features each, and their group, in random order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(N) % CLASSES)
    X = 0.1 * rng.random((N, P))
    for c in range(CLASSES):
        X[np.ix_(y == c, np.arange(5 * c, 5 * c + 5))] += 1 + rng.random((N // CLASSES, 5))
    return X, y


X, Y = three_groups()
#: Labels of the samples: four per class are known, and -1 means unknown.
KNOWN = np.full(N, -1)
for _c in range(CLASSES):
    KNOWN[np.flatnonzero(Y == _c)[:4]] = _c
ONE_EACH = np.full(N, -1)
for _c in range(CLASSES):
    ONE_EACH[np.flatnonzero(Y == _c)[1]] = _c

SETTINGS = {"max_iter": 30, "tol": 0.0, "random_state": 0}
#: Estimators whose factorization depends on the labels.
LEARNERS = {
    "CNMF": lambda **s: CNMF(**s),
    "CNMF-KL": lambda **s: CNMF(beta_loss=KL, **s),
    "CDNMF": lambda **s: CDNMF(**s),
    "CDNMF-KL": lambda **s: CDNMF(beta_loss=KL, **s),
    "SemiGNMF": lambda **s: SemiGNMF(graph_reg=1.0, **s),
    "SemiGNMF-KL": lambda **s: SemiGNMF(graph_reg=1.0, beta_loss=KL, **s),
    "NMFDC": lambda **s: NMFDC(smoothing=0.2, **s),
    "all": lambda **s: ConstrainedNMF(
        hard_labels=True, class_reg=1.0, graph_reg=0.5, label_weight=1.0, smoothing=0.1, **s
    ),
    "all-KL": lambda **s: ConstrainedNMF(
        hard_labels=True, class_reg=1.0, graph_reg=0.5, label_weight=1.0, beta_loss=KL, **s
    ),
}
#: Estimators that use labels only to label their clusters, not in the factorization.
NAMERS = {
    "GNMF": lambda **s: GNMF(graph_reg=1.0, **s),
    "NSNMF": lambda **s: NSNMF(smoothing=0.2, **s),
    "SparseNMF": lambda **s: SparseNMF(sparseness_H=0.5, **s),
    "CF": lambda **s: CF(**s),
    "LCF": lambda **s: LCF(**s),
}
EVERY = LEARNERS | NAMERS


def words(codes, unknown=None):
    return np.array([unknown if c < 0 else NAMES[c] for c in codes], dtype=object)


#: The same labels in many types, each with the classes expected in `classes_`.
KINDS = {
    "integers": (KNOWN, [0, 1, 2]),
    "other integers": (np.where(KNOWN < 0, -1, 10 * KNOWN + 5), [5, 15, 25]),
    "floats with NaN": (np.where(KNOWN < 0, np.nan, KNOWN), [0.0, 1.0, 2.0]),
    "strings with None": (words(KNOWN), list(NAMES)),
    "strings with NaN": (words(KNOWN, np.nan), list(NAMES)),
    "list": (words(KNOWN).tolist(), list(NAMES)),
    "series": (pd.Series(words(KNOWN), index=np.arange(N)[::-1]), list(NAMES)),
    "categorical": (pd.Series(pd.Categorical(words(KNOWN))), list(NAMES)),
    "nullable": (pd.Series(pd.array(KNOWN, dtype="Int64")).mask(KNOWN < 0), [0, 1, 2]),
    "pandas strings": (pd.Series(words(KNOWN), dtype="str"), list(NAMES)),
    "column": (KNOWN[:, None], [0, 1, 2]),
}


def fit(make, y, **settings):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*no known label")
        warnings.filterwarnings("ignore", message=".*no class has two labelled samples")
        warnings.filterwarnings("ignore", message="Maximum number of iterations")
        return make(**{**SETTINGS, **settings}).fit(X, y)


@cache
def with_integers(name):
    return fit(EVERY[name], KNOWN, max_iter=10)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_labels(name, kind):
    """Check that the type of the labels changes `labels_` but not the factors or the clusters."""
    y, classes = KINDS[kind]
    plain, got = with_integers(name), fit(EVERY[name], y, max_iter=10)
    np.testing.assert_array_equal(got.embedding_, plain.embedding_)
    assert got.classes_.tolist() == classes
    renamed = [classes[c] if c < CLASSES else c for c in plain.labels_]
    assert got.labels_.tolist() == renamed
    assert got.n_components_ == CLASSES  # "auto" gives the number of classes in y


@pytest.mark.parametrize("name", LEARNERS)
def test_clusters_have_the_names_of_the_classes(name):
    got = fit(LEARNERS[name], words(KNOWN), max_iter=100)
    assert got.fit_predict(X, words(KNOWN)).tolist() == got.labels_.tolist()
    # Every method finds groups that are as clear as these.
    assert (got.labels_ == NAMES[Y]).mean() >= 0.9
    new, truth = three_groups(seed=5)
    assert (got.predict(new) == NAMES[truth]).mean() >= 0.9
    confidence = got.predict_confidence(new)
    assert confidence.shape == (N,)
    assert (confidence >= 0).all() and (confidence <= 1).all() and confidence.max() > 0.3


@pytest.mark.parametrize("name", NAMERS)
def test_labels_only_name_the_clusters_of_unsupervised_methods(name):
    without, with_labels = fit(NAMERS[name], None, n_components=3), fit(NAMERS[name], KNOWN)
    np.testing.assert_array_equal(without.embedding_, with_labels.embedding_)
    assert clustering_accuracy(without.labels_, with_labels.labels_) == 1
    assert not hasattr(without, "classes_")
    assert set(without.labels_) <= {0, 1, 2}


@pytest.mark.parametrize("name", EVERY)
def test_the_order_of_samples_does_not_matter_to_clusters(name):
    order = np.random.default_rng(3).permutation(N)
    make = EVERY[name]
    straight = make(**SETTINGS).fit(X, words(KNOWN))
    shuffled = make(**SETTINGS).fit(X[order], words(KNOWN)[order])
    assert clustering_accuracy(straight.labels_[order], shuffled.labels_) >= 0.9


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("nothing", ["None", "-1", "NaN", "all None"])
def test_no_label_at_all_warns_and_is_the_plain_model(name, nothing):
    y = {
        "None": None,
        "-1": np.full(N, -1),
        "NaN": np.full(N, np.nan),
        "all None": np.array([None] * N, dtype=object),
    }[nothing]
    with pytest.warns(UserWarning, match="label"):
        got = LEARNERS[name](n_components=3, **SETTINGS).fit(X, y)
    plain = {
        "SemiGNMF": lambda: GNMF(3, graph_reg=1.0, **SETTINGS),
        "SemiGNMF-KL": lambda: GNMF(3, graph_reg=1.0, beta_loss=KL, **SETTINGS),
        "NMFDC": lambda: NSNMF(3, smoothing=0.2, **SETTINGS),
        "all": lambda: ConstrainedNMF(3, graph_reg=0.5, smoothing=0.1, **SETTINGS),
        "all-KL": lambda: ConstrainedNMF(3, graph_reg=0.5, beta_loss=KL, **SETTINGS),
    }.get(name, lambda: NMF(3, beta_loss=KL if "KL" in name else FROBENIUS, **SETTINGS))()
    np.testing.assert_array_equal(got.embedding_, plain.fit(X).embedding_)
    assert set(got.labels_) <= {0, 1, 2}
    if nothing == "None":
        return
    assert got.classes_.size == 0


@pytest.mark.parametrize("name", LEARNERS)
def test_one_labelled_sample_in_all(name):
    y = np.array([None] * N, dtype=object)
    y[7] = "mine"
    got = fit(LEARNERS[name], y, n_components=3, n_clusters=3)
    assert np.isfinite(got.embedding_).all()
    assert got.labels_[7] == "mine"
    assert set(got.labels_) <= {"mine", "cluster 1", "cluster 2"}
    # n_components="auto" chooses one component for one class.
    assert fit(LEARNERS[name], y).n_components_ == 1


@pytest.mark.parametrize("name", LEARNERS)
def test_everything_labelled(name):
    got = fit(LEARNERS[name], NAMES[Y], max_iter=100)
    assert np.isfinite(got.embedding_).all()
    assert (got.labels_ == NAMES[Y]).all()


@pytest.mark.parametrize("loss", LOSSES)
def test_one_label_a_class(loss):
    """Check that with one label per class CNMF warns and equals NMF, and CDNMF does not.

    Hard labels only tie samples of one class together. The class cost needs one label per class.
    """
    with pytest.warns(UserWarning, match="two"):
        hard = CNMF(beta_loss=loss, **SETTINGS).fit(X, ONE_EACH)
    plain = NMF(3, beta_loss=loss, **SETTINGS).fit(X)
    np.testing.assert_array_equal(hard.embedding_, plain.embedding_)
    # The fit raises no warning.
    cost = CDNMF(beta_loss=loss, class_reg=5.0, **SETTINGS).fit(X, ONE_EACH)
    assert np.abs(cost.embedding_ - plain.embedding_).max() > 0.05
    for c in range(CLASSES):  # the component of a class has the largest mean weight in its samples
        own = cost.embedding_[Y == c].mean(axis=0)
        assert own.argmax() == c


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("init", [None, "nndsvd", "nndsvdar", "kmeans"])
def test_the_start_gives_each_class_its_own_component(loss, init):
    """Check that every `init` assigns each class its own component.

    A strong class cost would keep components in a wrong order, where the objective is ten times as
    large.
    """
    got = CDNMF(beta_loss=loss, class_reg=10.0, init=init, random_state=0).fit(X, KNOWN)
    own = np.array([X[KNOWN == c].mean(axis=0) for c in range(CLASSES)])
    codes = 0.1 + np.eye(CLASSES)[np.maximum(KNOWN, 0)] * (KNOWN >= 0)[:, None]
    best = CDNMF(beta_loss=loss, class_reg=10.0, init="custom").fit(X, KNOWN, W=codes, H=own)
    assert got.objective_ <= best.objective_ * 1.001


@pytest.mark.parametrize("name", ["CNMF", "CNMF-KL", "NMFDC", "all", "all-KL"])
@pytest.mark.parametrize("solver", ["auto", "mu"])
def test_hard_labels_share_a_row_exactly(name, solver):
    V = fit(LEARNERS[name], words(KNOWN), solver=solver).embedding_
    for c in range(CLASSES):
        rows = V[KNOWN == c]
        np.testing.assert_array_equal(rows, np.broadcast_to(rows[0], rows.shape))
    free = V[KNOWN < 0]
    assert len(np.unique(free, axis=0)) == len(free)


@pytest.mark.parametrize("name", ["CNMF", "CNMF-KL", "NMFDC"])
def test_a_start_that_breaks_hard_labels_is_averaged(name, rng):
    V, H = 0.1 + rng.random((N, 3)), 0.1 + rng.random((3, P))
    A = reference.label_matrix(KNOWN)
    averaged = A @ reference.shared_rows(A, V)
    assert np.abs(averaged - V).max() > 0.1
    fits = [
        LEARNERS[name](init="custom", **SETTINGS).fit(X, KNOWN, W=start, H=H)
        for start in (V, averaged)
    ]
    # The mean of equal rows is that row, so both fits have the same start up to rounding.
    np.testing.assert_allclose(fits[0].embedding_, fits[1].embedding_, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "k, per_class, owners",
    [
        (3, 1, ["ant", "bee", "cat"]),
        (5, 1, ["ant", "bee", "cat", None, None]),
        (2, 1, ["ant", "bee"]),
        (6, 2, ["ant", "ant", "bee", "bee", "cat", "cat"]),
        (7, 2, ["ant", "ant", "bee", "bee", "cat", "cat", None]),
        (5, 2, ["ant", "ant", "bee", "bee", "cat"]),
    ],
)
def test_components_and_classes(loss, k, per_class, owners):
    """Check that extra components and classes without components have no class cost."""
    settings = {"beta_loss": loss, "class_reg": 1e4, "components_per_class": per_class}
    for estimator in (CDNMF, ConstrainedNMF):
        warns = pytest.warns(UserWarning, match="2.*3")
        with warns if k < CLASSES else nullcontext():
            got = estimator(k, **settings, **SETTINGS).fit(X, words(KNOWN))
        assert got.component_classes_.tolist() == owners
        for i in np.flatnonzero(KNOWN >= 0):
            label = NAMES[KNOWN[i]]
            foreign = [c is not None and c != label for c in owners]
            if label in owners:  # the cost is so high that weights of other classes vanish
                assert got.embedding_[i, foreign].sum() <= 1e-3 * got.embedding_[i].sum() + 1e-9
            else:
                assert got.embedding_[i].sum() > 0.1


def test_auto_counts_components_per_class():
    assert CDNMF(components_per_class=2, **SETTINGS).fit(X, KNOWN).n_components_ == 6
    assert CDNMF(components_per_class=2, **SETTINGS).fit(X, KNOWN).n_clusters_ == 3
    assert not hasattr(GNMF(3, **SETTINGS).fit(X), "component_classes_")


@pytest.mark.parametrize("n_clusters", [1, 2, 5])
def test_more_and_fewer_clusters_than_classes(n_clusters):
    """Check that clusters beyond the number of classes get labels that are not classes."""
    got = fit(LEARNERS["CDNMF"], words(KNOWN), n_clusters=n_clusters)
    warns = pytest.warns(UserWarning, match=rf"{CLASSES - n_clusters} of {CLASSES}")
    with warns if n_clusters < CLASSES else nullcontext():
        clusters = got.cluster_labels_
    assert got.n_clusters_ == n_clusters == len(set(clusters))
    extra = {f"cluster {i}" for i in range(1, n_clusters - CLASSES + 1)}
    assert extra <= set(clusters) <= set(NAMES) | extra
    assert set(got.labels_) == set(NAMES)  # labels_ are classes, for any number of clusters
    numbers = fit(LEARNERS["CDNMF"], KNOWN, n_clusters=5).cluster_labels_
    assert set(numbers) == {0, 1, 2, 3, 4}


@pytest.mark.parametrize("name", LEARNERS)
def test_labels_reach_unlabelled_samples(name):
    """Check on noisy groups that labels do not lower the mean accuracy on unlabelled samples."""
    scores = {"with": [], "without": []}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        data, truth = three_groups(seed)
        noisy = data + 1.5 * rng.random(data.shape)
        known = truth.copy()
        hidden = rng.permutation(N)[: 2 * N // 3]
        known[hidden] = -1
        for key, y in (("with", known), ("without", None)):
            make = LEARNERS[name] if key == "with" else NAMERS["NSNMF"]
            labels = make(**{**SETTINGS, "n_components": 3, "max_iter": 60}).fit_predict(noisy, y)
            scores[key].append(clustering_accuracy(truth[hidden], labels[hidden]))
    assert np.mean(scores["with"]) >= np.mean(scores["without"]) - 0.05


# -- predicted labels -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY)
def test_labelled_samples_keep_their_label(name):
    """Check that a labelled sample keeps its label, even if all other samples contradict it."""
    y = words(KNOWN)
    wrong = np.flatnonzero(KNOWN == 0)[0]
    y[wrong] = "cat"
    got = fit(EVERY[name], y, max_iter=100)
    known = KNOWN >= 0
    assert (got.labels_[known] == y[known]).all()
    assert set(got.labels_) <= set(NAMES)
    right = np.flatnonzero(KNOWN == 0)[1:]
    assert got.label_confidence_[wrong] < got.label_confidence_[right].mean() <= 1


@pytest.mark.parametrize("name", LEARNERS)
def test_predictions_use_part_weights_without_labels(name):
    """Check that `predict` is logistic regression on the part weights that `transform` returns."""
    from sklearn.linear_model import LogisticRegression

    got = fit(LEARNERS[name], KNOWN, max_iter=300, tol=1e-8)
    V = got.transform(X)
    halves = V / np.linalg.norm(V, axis=1, keepdims=True), V
    Z = np.hstack([(F - F.mean(axis=0)) / np.sqrt(F.var(axis=0).mean()) for F in halves])
    known = KNOWN >= 0
    naive = LogisticRegression(C=10.0, max_iter=1000).fit(Z[known], KNOWN[known])
    free = ~known
    assert (naive.predict(Z)[free] == got.labels_[free]).mean() >= 0.95
    assert (got.predict(X)[free] == got.labels_[free]).mean() >= 0.95


@pytest.mark.parametrize("name", EVERY)
def test_results_do_not_depend_on_the_order_of_reading_them(name, tmp_path):
    import partwise

    asked, silent = (fit(EVERY[name], words(KNOWN), max_iter=10) for _ in range(2))
    before = set(vars(asked))
    first = asked.cluster_labels_, asked.labels_, asked.predict(X)
    assert set(vars(asked)) == before
    early = silent.save(tmp_path / "early.partwise").read_bytes()
    assert asked.save(tmp_path / "late.partwise").read_bytes() == early
    copy = pickle.loads(pickle.dumps(fit(EVERY[name], words(KNOWN), max_iter=10)))
    for model in (silent, copy, partwise.load(tmp_path / "early.partwise")):
        # These are read in the reverse order.
        again = model.predict(X), model.labels_, model.cluster_labels_
        for one, two in zip(first, again[::-1]):
            np.testing.assert_array_equal(one, two)


def test_fit_does_not_cluster(monkeypatch):
    import partwise.evaluation.groups as groups

    def refuse(*args, **kwargs):
        raise AssertionError("k-means ran")

    monkeypatch.setattr(groups, "cluster_representation", refuse)
    for make in EVERY.values():
        model = make(**SETTINGS).fit(X, words(KNOWN))
        assert model.predict(X).shape == model.labels_.shape == (N,)  # predict returns classes
    with pytest.raises(AssertionError, match="k-means ran"):
        _ = model.cluster_labels_


def test_parts_are_named_after_the_class_that_uses_them_most():
    got = fit(LEARNERS["CNMF"], words(KNOWN), n_components=4, max_iter=100)
    V = got.embedding_ / np.linalg.norm(got.embedding_, axis=1, keepdims=True)
    for part, name in enumerate(got.component_classes_):
        means = {c: V[got.labels_ == c, part].mean() for c in NAMES}
        assert name == max(means, key=means.get)


WEIGHTED = {
    "CNMF": lambda: CNMF(3, random_state=0, tol=1e-9, max_iter=3000),
    "CNMF-KL": lambda: CNMF(3, beta_loss=KL, random_state=0, tol=1e-9, max_iter=3000),
    "NMFDC": lambda: NMFDC(3, smoothing=0.2, random_state=0, tol=1e-9, max_iter=3000),
    "NSNMF": lambda: NSNMF(3, smoothing=0.2, random_state=0, tol=1e-9, max_iter=3000),
    "SparseNMF": lambda: SparseNMF(3, random_state=0, tol=1e-9, max_iter=3000),
}


@pytest.mark.parametrize("name", WEIGHTED)
@pytest.mark.filterwarnings("ignore:Maximum number of iterations")
def test_a_weight_of_two_is_a_sample_twice(name):
    weight = np.where(np.arange(N) % 3 == 0, 2.0, 1.0)
    rows = np.repeat(np.arange(N), weight.astype(int))
    weighted = WEIGHTED[name]().fit(X, KNOWN, sample_weight=weight)
    twice = WEIGHTED[name]().fit(X[rows], KNOWN[rows])
    # Both fits reach the same minimum, around which the objective changes little.
    assert weighted.objective_ == pytest.approx(twice.objective_, rel=1e-5)
    plain = WEIGHTED[name]().fit(X, KNOWN)
    assert weighted.objective_ > 1.1 * plain.objective_
    assert (weighted.predict(X) == twice.predict(X)).all()


def test_weights_are_of_the_loss_and_not_of_the_class_cost():
    weight = np.where(np.arange(N) % 3 == 0, 2.0, 1.0)
    got = CDNMF(**SETTINGS).fit(X, KNOWN, sample_weight=weight)
    loss = 0.5 * (weight[:, None] * (X - got.embedding_ @ got.components_) ** 2).sum()
    cost = 0.5 * (reference.class_cost(KNOWN, 3) * got.embedding_).sum()
    assert got.objective_ == pytest.approx(loss + cost, rel=1e-9)
    assert CDNMF(**SETTINGS).fit_transform(X, KNOWN, sample_weight=weight).shape == (N, 3)


BAD = {
    "too short": (KNOWN[:-1], ValueError, "36"),
    "no probabilities": (2 * np.eye(3)[Y], ValueError, "probabilities.* 2 .*row 0"),
    "infinite": (np.where(KNOWN < 0, np.inf, KNOWN), ValueError, "infinity"),
    "mixed": ([1, "1"] * (N // 2), TypeError, "sorted together"),
}


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("bad", BAD)
def test_labels_that_make_no_sense_are_refused(name, bad):
    y, error, message = BAD[bad]
    with pytest.raises(error, match=message):
        EVERY[name](**SETTINGS).fit(X, y)
