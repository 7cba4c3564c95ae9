"""Tests of class probabilities, expected accuracy, outlying samples and doubtful labels."""

import json
import pickle
import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

import reference
from partwise import PartsClassifier
from partwise.classify import calibration, ensemble, outlying
from partwise.knowledge import doubts


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


# -- invalid probabilities raise an error ---------------------------------------------------------


def test_probabilities_that_are_not_finite_raise_an_error(digits, fitted, monkeypatch):
    X, _, known = digits
    model = PartsClassifier(max_iter=30).fit(X, known)
    names = model.transduction_.copy()
    with monkeypatch.context() as patch:
        patch.setattr(calibration.Calibration, "apply", lambda self, m: np.full_like(m, np.nan))
        with pytest.raises(ValueError, match="finite"):
            PartsClassifier(max_iter=30).fit(X, known)
        with pytest.raises(ValueError, match="finite"):
            model.relabel(np.where(known == 0, -1, known))
    # After the error, the results of the previous fit remain.
    np.testing.assert_array_equal(model.transduction_, names)
    assert model.predict_proba(X[:3]).shape == (3, 5) and len(model.classes_) == 5


def test_new_samples_are_checked_too(digits, fitted, monkeypatch):
    X = digits[0]
    real = calibration.Calibration.apply
    monkeypatch.setattr(calibration.Calibration, "apply", lambda self, m: 1.01 * real(self, m))
    with pytest.raises(ValueError, match=r"1\.01"):
        fitted.predict_proba(X[:3])


# -- data with one class, and -1 as a class -------------------------------------------------------


def test_one_name_is_said_and_nothing_is_claimed(digits):
    X, y, _ = digits
    given = np.full(y.size, None, dtype=object)
    given[:8] = "mail"
    with pytest.warns(UserWarning, match="8.*'mail'"):
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
    with pytest.warns(UserWarning, match=r"-1.*np\.where\(y == -1, 0, y\)"):
        PartsClassifier(max_iter=30).fit(X, signs)
    PartsClassifier(max_iter=30).fit(X, np.where(y > 2, 1, 0))


def test_labels_of_weight_zero_are_no_labels(digits):
    X, _, known = digits
    with pytest.raises(ValueError, match=r"sample_weight.*20"):
        PartsClassifier(max_iter=30).fit(X, known, sample_weight=(known < 0).astype(float))


# -- expected accuracy ----------------------------------------------------------------------------


def labels_by_suggest(model, y, n, seed):
    """Return y with only n labels known: three random ones and those that `suggest` chooses."""
    known = np.full(y.size, -1)
    first = np.random.RandomState(seed).choice(y.size, 3, replace=False)
    known[first] = y[first]
    while (missing := n - (known >= 0).sum()) > 0:
        rows = model.relabel(known, weigh=False).suggest(min(5, missing))
        known[rows] = y[rows]
    return known


def drawn(y, n, seed, *, even):
    rng = np.random.RandomState(seed)
    known = np.full(y.size, -1)
    classes = np.unique(y)
    each = [rng.permutation(np.flatnonzero(y == c))[: n // classes.size] for c in classes]
    rows = np.concatenate(each) if even else rng.permutation(y.size)[:n]
    known[rows] = y[rows]
    return known


@pytest.mark.filterwarnings("ignore:.*so every sample gets that label")
@pytest.mark.parametrize("way", ["even", "random", "queue"])
def test_expected_accuracy_is_near_the_truth_however_labels_were_chosen(way):
    """Check the expected accuracy for labels chosen evenly, at random and by `suggest`.

    With labels chosen by `suggest`, the accuracy on held-out labels alone would be wrong by 14
    points.
    """
    errors, inside = [], []
    for load in (load_digits, load_wine, load_breast_cancer):
        X, y = (a[:500] for a in load(return_X_y=True))
        model = PartsClassifier(max_iter=30, warm_start=True).prepare(X)
        n = 5 * (y.max() + 1)
        for seed in range(3):
            known = labels_by_suggest(model, y, n, seed) if way == "queue" else None
            known = drawn(y, n, seed, even=way == "even") if known is None else known
            model.relabel(known)
            rest = known < 0
            truth = np.mean(model.transduction_[rest] == y[rest])
            share, low, high = model.expected_accuracy_
            errors.append(abs(share - truth))
            inside.append(low <= truth <= high)
    # The mean error over many data sets is 0.05; the mean of these nine has a standard error of
    # 0.017.
    assert np.mean(errors) < 0.085
    # If each interval holds with 95%, one run in 120 has fewer than seven of nine.
    assert sum(inside) >= 7


def test_expected_accuracy_is_the_formula(digits, fitted):
    known = digits[2]
    rest = known < 0
    p = fitted.label_distributions_[rest]
    found, features, n_classes = fitted._ensemble, fitted._features, fitted.classes_.size
    asked = [
        m.kind in ensemble.AGREEING and features.prepared[m.preparation].has_parts
        for m in found.members
    ]
    members = [m for m, mine in zip(found.members, asked, strict=True) if mine]
    weights, views = found.weights[asked] / found.weights[asked].sum(), features.views()
    mixed = ensemble.mix(members, weights, views, n_classes)[rest].argmax(axis=1)
    each = [ensemble.mix([m], np.ones(1), views, n_classes)[rest].argmax(axis=1) for m in members]
    agreed = sum(w * np.mean(best == mixed) for best, w in zip(each, weights, strict=True))
    # Rounding in float32 may change predictions with equal probabilities: at most one sample in
    # 280.
    assert found.agreement == pytest.approx(agreed, abs=1 / 280)
    naive = reference.expected_accuracy(
        p.tolist(),
        found.agreement,
        20,
        share=calibration.SHARE,
        width=calibration.WIDTH,
        edge=calibration.EDGE,
    )
    said = fitted.expected_accuracy_
    np.testing.assert_allclose(tuple(said), naive, rtol=1e-12)
    assert said.balanced == pytest.approx(reference.expected_balanced_accuracy(p.tolist()))


def test_labels_without_a_meaning_are_no_better_than_the_commonest_name(digits):
    X, y, _ = digits
    rng = np.random.RandomState(0)
    known = drawn(rng.permutation(y), 60, 0, even=False)
    said = PartsClassifier(max_iter=30).fit(X, known).expected_accuracy_
    assert said.is_better_than_commonest is not True
    assert said.caution and said.low < 0.3


def test_the_sentence():
    said = calibration.Expected(0.31, 0.2, 0.45, 0.3, 0.41, "circle")
    assert re.findall(r"\d+%", str(said)) == ["31%", "95%", "20%", "45%", "41%"]
    assert "'circle'" in said.caution
    assert calibration.Expected(0.5, 0.4, 0.6, 0.3, 0.41, "circle").caution
    assert not calibration.Expected(0.5, 0.42, 0.6, 0.3, 0.41, "circle").caution
    assert str(calibration.Expected(float("nan"), 0.0, 1.0, why="Label more.")).endswith("more.")
    assert pickle.loads(pickle.dumps(said)).name == "circle"


def test_all_labelled_and_no_two_of_a_class(digits):
    X, y, _ = digits
    whole = PartsClassifier(max_iter=30).fit(X, y).expected_accuracy_
    assert 0.9 < whole.accuracy <= whole.high <= 1
    one = np.where(np.isin(np.arange(y.size), [np.flatnonzero(y == c)[0] for c in range(5)]), y, -1)
    assert np.isnan(PartsClassifier(max_iter=30).fit(X, one).expected_accuracy_.accuracy)
    # Copies of one sample do not count as two labels of a class, and the message states this.
    copies, told = np.repeat(X[[0, 1]], 20, axis=0), np.tile([0, -1, -1, -1], 10)
    said = PartsClassifier(max_iter=5).fit(copies, told + (np.arange(40) > 19) * (told == 0))
    assert "copies of a sample are one" in str(said.expected_accuracy_)


# -- the expected accuracy in the command and the report -------------------------------------------


def summary_of(X, given, ids=None):
    """Return a fitted classifier and the summary that ``partwise classify`` writes for it."""
    from partwise.apps.cli.cluster import _summary
    from partwise.apps.cli.work import Fitted, Task
    from partwise.io.samples import Samples

    model = PartsClassifier(max_iter=30).fit(X, given)
    samples = Samples(X, [str(i) for i in range(len(X))], "table")
    task = Task(samples, given, 0.0)
    return model, _summary(task, Fitted(model, "classify", "", 0.0, 0.0), "")


def test_class_probabilities_are_those_of_samples_without_a_label(digits):
    """Check that probabilities per class in the summary are means over unlabelled samples.

    The labels are random, so that counting the labelled samples as certain would give 0.89 instead
    of 0.25.
    """
    X, y, _ = digits
    known = drawn(np.random.RandomState(0).permutation(y), 250, 0, even=False)
    given = np.array([None if c < 0 else f"digit {c}" for c in known], dtype=object)
    model, summary = summary_of(X, given)
    sure = model.label_confidence_
    for row in summary["clusters"]:
        here = (model.transduction_ == row["name"]) & (known < 0)
        assert row["size"] == (model.transduction_ == row["name"]).sum()
        assert row["probability"] == (
            pytest.approx(sure[here].mean(), abs=1e-4) if here.any() else None
        )
        assert "confidence" not in row
    assert summary["naming"]["said"] == str(model.expected_accuracy_)
    assert summary["naming"]["balanced"] == pytest.approx(
        model.expected_accuracy_.balanced, abs=1e-4
    )


@pytest.mark.filterwarnings("ignore:.*so every sample gets that label")
def test_one_name_in_the_summary_is_null_and_not_nan(digits):
    X = digits[0]
    given = np.full(len(X), None, dtype=object)
    given[:8] = "mail"
    _, summary = summary_of(X, given)
    assert summary["clusters"][0]["probability"] is None
    assert "NaN" not in json.dumps(summary) and "unknown" in summary["naming"]["said"]


def test_the_report_shows_held_out_labels_and_typical_samples_without_one(digits):
    pytest.importorskip("plotly", reason="the report needs plotly")
    from partwise.apps.view.report import report_page
    from partwise.io.samples import Samples

    X, _, known = digits
    given = np.array([None if c < 0 else f"digit {c}" for c in known], dtype=object)
    model = PartsClassifier(max_iter=30).fit(X, given)
    found = {"cluster": model.labels_, "confidence": model.label_confidence_}
    samples = Samples(X, [f"s{i}." for i in range(len(X))], "table")
    page = report_page(model=model, X=X, dataset=samples, labels=given, assignments=found)
    assert "not a probability" not in page and "confusion-seen" not in page
    rows, p, truth = model.held_out_
    figure = json.loads(page.split('id="figures">')[1].split("</script>")[0])["confusion-held-out"]
    table = np.zeros((5, 5), dtype=int)
    np.add.at(table, (truth, p.argmax(axis=1)), 1)
    assert np.array_equal(
        np.array([[int(v or 0) for v in row] for row in figure["data"][0]["text"]]), table
    )
    typical = page.split("Most typical")[1:]
    assert len(typical) == 5
    for card in typical:
        listed = re.findall(r"s(\d+)\.", card.split("</div>")[0])
        assert listed and not set(map(int, listed)) & set(rows.tolist())


# -- samples that belong to none of the classes ---------------------------------------------------


OUTLYING = {
    "share": outlying.SHARE,
    "floors": (outlying.CLOSE, outlying.LITTLE),
    "usual": outlying.USUAL,
    "of_mean": outlying.OF_MEAN,
    "counts": outlying.COUNTS,
}


def test_outlyingness_is_the_formula(digits):
    X, _, known = digits
    X, known = X[:120], known[:120]
    model = PartsClassifier(max_iter=30).fit(X, known)
    labelled = np.flatnonzero(known >= 0)
    naive = reference.outlyingness(
        model._features.first.views["parts"].astype(float),
        model.graph_.toarray(),
        labelled,
        known[labelled],
        **OUTLYING,
    )
    rest = known < 0
    # Label propagation runs in float32 to a residual of 1e-4, with values down to 1e-6.
    np.testing.assert_allclose(model.outlyingness()[rest], naive[rest], atol=0.02)


@pytest.mark.parametrize("y", [[0, 0, 0, 1], [0, 0, 1, 1, 2], [1, 1, 1]])
def test_outlyingness_of_few_labels_is_the_formula(y):
    """Compare the outlyingness for few labels with the formula.

    Classes with a single label do not count.
    """
    rng, n = np.random.default_rng(0), 14
    codes, graph = rng.random((n, 4)), rng.random((n, n)) + 0.1
    graph, y = graph + graph.T, np.array(y)
    labelled = rng.choice(n, y.size, replace=False)
    found = outlying.measure(codes, sp.csr_array(graph), labelled, y).score(codes)
    naive = reference.outlyingness(codes, graph, labelled, y, **OUTLYING)
    # Label propagation ends at a residual of 1e-4, and distances are divided by deviations of about
    # 0.1.
    rest = ~np.isin(np.arange(n), labelled)
    np.testing.assert_allclose(found[rest], naive[rest], atol=5e-3)


def test_samples_of_classes_without_a_label_are_found(digits):
    """Check that `outlyingness` finds most samples of two classes without labels.

    Three of the five classes have labels.
    """
    X, y, _ = digits
    known = drawn(y, 50, 1, even=True)
    known[known > 2] = -1
    model = PartsClassifier(max_iter=30).fit(X, known)
    rest, other = known < 0, y > 2
    far = model.outlyingness()
    assert far.shape == (300,) and ((far >= 0) & (far <= 1)).all()
    assert (far[rest & other] > 0.95).mean() > 0.7
    assert (far[rest & ~other] > 0.95).mean() < 0.12  # the model expects 5% of 150 samples
    # Each labelled class is held out in turn to measure this share.
    assert model.others_found_ > 0.5
    # Training samples passed as new samples get the same outlyingness.
    np.testing.assert_allclose(model.outlyingness(X), far, atol=1e-6)
    half = np.arange(300) % 2 == 0
    less = PartsClassifier(max_iter=30).fit(X[half], known[half])
    new = less.outlyingness(X[~half])
    assert (new[other[~half]] > 0.95).mean() > 0.5
    names = less.predict(X[~half], other=0.95)
    assert ((names == -1) == (new > 0.95)).all()
    np.testing.assert_array_equal(names[names >= 0], less.predict(X[~half])[names >= 0])


@pytest.mark.parametrize("m", [2, 3])
def test_few_close_labels_make_few_samples_outlying(m):
    """Check that few labels rarely make samples of the same classes outlying.

    With two or three labels per class, these may be close to each other by chance.
    """
    false = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        y = rng.integers(3, size=200)
        X = rng.poisson(3 * rng.gamma(0.5, 1, (3, 60))[y]).astype(float)
        known = drawn(y, 3 * m, seed, even=True)
        model = PartsClassifier(max_iter=10).prepare(X).relabel(known, weigh=False)
        false.append(np.mean(model.outlyingness()[known < 0] > 0.95))
    assert np.mean(false) < 0.05 and max(false) < 0.12  # earlier values were 0.13 and 0.19


def test_none_of_these_is_written_as_an_unknown_label_is(digits):
    X, _, known = digits
    words = np.array([None if c < 0 else "abcde"[c] for c in known], dtype=object)
    model = PartsClassifier(max_iter=30).fit(X, words)
    names = model.predict(np.vstack([X[-3:], 16 - X[:3]]), other=0.5)
    assert names.dtype == object and set(names.tolist()) <= {None, *"abcde"}
    for wrong in (0, 1, 1.5, "auto"):
        with pytest.raises(ValueError, match="'other'"):
            model.predict(X[:2], other=wrong)


def test_none_of_these_needs_two_labels_of_a_class(digits):
    X, y, _ = digits
    alone = np.full(y.size, -1)
    alone[[np.flatnonzero(y == c)[0] for c in range(3)]] = [0, 1, 2]
    model = PartsClassifier(max_iter=30).fit(X, alone)
    with pytest.raises(ValueError, match="three"):
        model.outlyingness()


# -- classes of unequal size ----------------------------------------------------------------------


def skewed():
    """Return samples of two overlapping classes of 90% and 10%, with four labels each."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], [540, 60])
    X = rng.standard_normal((600, 4)) + 1.2 * y[:, None]
    known = np.full(600, -1)
    known[[0, 1, 2, 3, 540, 541, 542, 543]] = [0, 0, 0, 0, 1, 1, 1, 1]
    return X, y, known


def test_priors_trade_accuracy_for_balanced_accuracy():
    X, y, known = skewed()
    found = {}
    for name, priors in (("uniform", "uniform"), ("estimated", "estimated"), ("known", [0.9, 0.1])):
        model = PartsClassifier(max_iter=30, priors=priors).fit(X, known)
        names, rest = model.transduction_, known < 0
        right = (names == y)[rest]
        found[name] = right.mean(), np.mean([right[y[rest] == c].mean() for c in (0, 1)])
    assert min(found["known"][0], found["estimated"][0]) > found["uniform"][0]
    assert found["uniform"][1] > found["known"][1]


def test_given_priors_multiply_probabilities_of_uniform_priors():
    """Check that given class shares multiply the probabilities for equal shares.

    For shares π, p(c

    x) is the probability for equal shares times π_c, normalised.
    """
    p = np.random.default_rng(0).dirichlet(np.ones(3), 50)
    even = calibration.calibrate(p, p[:0], np.empty(0, int), np.full(3, 2), None, np.full(3, 1 / 3))
    given = calibration.calibrate(
        p, p[:0], np.empty(0, int), np.full(3, 2), None, np.array([0.2, 0.3, 0.5])
    )
    naive = even.apply(p) * [0.2, 0.3, 0.5]
    naive /= naive.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(given.apply(p), naive, rtol=1e-12)


@pytest.mark.parametrize(
    "priors, message",
    [
        ([0.5, 0.5], "5.*2"),
        ([0.5, 0.5, 0, -0.1, 0.1], "above 0"),
        ("even", "'priors' parameter"),
    ],
)
def test_priors_are_checked(digits, priors, message):
    X, _, known = digits
    with pytest.raises(ValueError, match=message):
        PartsClassifier(max_iter=30, priors=priors).fit(X, known)


# -- labels that may be wrong ---------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*so every sample gets that label")
def test_labels_requested_by_suggest_are_rarely_doubtful():
    """Check that few labels requested by `suggest` are listed as doubtful.

    `suggest` chooses uncertain samples, whose correct labels are often contradicted by the other
    labels.
    """
    X, y = (a[:600] for a in load_digits(return_X_y=True))
    model = PartsClassifier(max_iter=30, warm_start=True).prepare(X)
    listed = given = 0
    for seed in range(3):
        model.relabel(labels_by_suggest(model, y, 80, seed))
        listed, given = listed + len(model.doubtful_labels_), given + 80
    assert listed <= 0.015 * given  # counting contradicted labels alone would list 8 of 240


def test_probability_that_a_label_is_wrong_is_as_written_out():
    rng = np.random.default_rng(0)
    p, given = rng.dirichlet(np.full(4, 0.4), size=30), rng.integers(4, size=30)
    wrong = reference.wrong_labels(
        p, given, doubts.SHARES, doubts.ERRORS, doubts.SHARPER, doubts.MIN_PROBABILITY
    )
    found = doubts.doubts(np.arange(30), p, given, np.arange(4))
    assert sorted(doubt.sample for doubt in found) == np.flatnonzero(wrong > 0.5).tolist()
    said = [doubt.probability for doubt in found]
    # Summing 30 logarithms and weighting the shares causes about a hundred rounding errors.
    np.testing.assert_allclose(
        said, np.sort(wrong[wrong > 0.5])[::-1], rtol=1e3 * np.finfo(float).eps
    )


def test_one_contradicted_label_of_many_is_not_surely_wrong():
    """Check that one contradicted label among 44 is not called wrong with near certainty.

    Regression test: a correct label of the BBC news data once got a probability of 0.94 to be
    wrong.
    """
    p = np.full((44, 5), 0.02)
    given = np.arange(44) % 5
    p[np.arange(44), given] = 0.92
    p[0] = [0.0097, 0.0061, 0.007, 0.9714, 0.0058]
    p[1] = [0.8421, 0.0303, 0.0631, 0.0304, 0.0341]
    p[3] = [0.9002, 0.0105, 0.0279, 0.0412, 0.0201]
    found = doubts.doubts(np.arange(44), p, given, np.arange(5))
    assert all(doubt.probability < 0.7 for doubt in found)


def test_doubts_finds_wrong_labels_of_clear_samples_only():
    """Check `doubts` for uncertain samples with correct labels and clear samples with wrong labels.

    Half of the 20 uncertain samples contradict their label by chance, so none is reported. Six of
    the 20 clear samples get a wrong label, and all six are reported.
    """
    rng = np.random.default_rng(0)
    hard, easy = np.tile([[0.4, 0.6]], (20, 1)), np.tile([[0.98, 0.02]], (20, 1))
    given = np.r_[rng.permutation(np.repeat([0, 1], 10)), np.zeros(20, dtype=int)]
    p, rows, classes = np.vstack([hard, easy]), np.arange(40), np.array(["a", "b"])
    assert doubts.doubts(rows, p, given, classes) == []
    given[20:26] = 1
    found = doubts.doubts(rows, p, given, classes)
    assert sorted(doubt.sample for doubt in found) == [20, 21, 22, 23, 24, 25]


def test_probabilities_of_wrong_labels_are_calibrated():
    """Check that the probabilities of wrong labels match how often labels are wrong.

    No correct label may be called wrong with a probability of 0.9 or more.
    """
    X, y = load_breast_cancer(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:300]
    X, y, c = X[rows], y[rows], 2
    model = PartsClassifier(max_iter=30, warm_start=True).prepare(X)
    said, true = [], []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        given = np.concatenate([rng.permutation(np.flatnonzero(y == j))[:10] for j in range(c)])
        known = np.full(len(y), -1)
        known[given] = y[given]
        assert all(doubt.probability < 0.9 for doubt in model.relabel(known).doubtful_labels_)
        wrong = rng.permutation(given)[: len(given) // 10]
        known[wrong] = (y[wrong] + rng.integers(1, c, len(wrong))) % c
        found = model.relabel(known).doubtful_labels_
        said += [doubt.probability for doubt in found]
        true += [doubt.sample in wrong for doubt in found]
    p = np.array(said)
    # Three standard deviations below the expected number.
    assert sum(true) >= p.sum() - 3 * np.sqrt(p @ (1 - p))


def test_the_summary_says_when_many_samples_are_none_of_these(digits):
    X, y, _ = digits
    known = drawn(y, 50, 1, even=True)
    given = np.array([None if c < 0 or c > 2 else f"digit {c}" for c in known], dtype=object)
    model, summary = summary_of(X, given)
    far = summary["naming"]["none_of_these"]
    beyond = (model.outlyingness() > 0.95) & np.array([v is None for v in given])
    assert far["samples"] == beyond.sum() and f"{beyond.sum()} of" in far["said"]
    assert len(far["farthest"]) == 10 and all(beyond[int(name)] for name in far["farthest"])
    assert far["found"] == pytest.approx(model.others_found_, abs=1e-4)
    _, whole = summary_of(X, np.array([f"digit {c}" for c in y], dtype=object))
    assert whole["naming"]["none_of_these"]["said"] == ""
