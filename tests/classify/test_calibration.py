"""Tests of the calibration of class probabilities and of the expected accuracy.

The expected values come from synthetic probabilities, naive formulas and real data.
"""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import softmax as softmax_of

import reference
from partwise import PartsClassifier
from partwise.classify import calibration, classifiers

#: Results of `python -m benchmarks.expected`.
DRAWS = Path(__file__).parents[2] / "benchmarks" / "results" / "expected.json"


def softmax(S):
    return softmax_of(S, axis=-1)


def posteriors(rng, n, c=4, spread=1.5):
    """Return true class probabilities of n samples, and a class drawn from them for each sample."""
    q = softmax(spread * rng.standard_normal((n, c)))
    return q, (q.cumsum(axis=1) < rng.random((n, 1))).sum(axis=1)


def too_sure(q, power):
    return softmax(power * np.log(q))


# -- temperature, which makes probabilities sharper or flatter ---------------------------------


@pytest.mark.parametrize("power", [3.0, 0.4])
def test_temperature_corrects_over_and_underconfidence(rng, power):
    q, y = posteriors(rng, 1000)
    new, truth = posteriors(rng, 4000)
    made = calibration.calibrate(too_sure(q, power), too_sure(q, power), y, np.bincount(y), None)
    before, after = too_sure(new, power), made.apply(too_sure(new, power))
    np.testing.assert_allclose(after.sum(axis=1), 1, rtol=1e-12)
    # The shares are estimated from 4,000 draws in bins of some hundreds, to two or three percentage
    # points.
    assert reference.expected_calibration_error(before, truth) > 0.1
    assert reference.expected_calibration_error(after, truth) < 0.04
    best, left = reference.log_loss(new, truth), reference.log_loss(after, truth)
    assert left - best < 0.1 * (reference.log_loss(before, truth) - best)


@pytest.mark.parametrize("power", [12.0, 0.1])
def test_the_temperature_of_a_head_is_the_one_that_was_planted(rng, power):
    q, y = posteriors(rng, 4000)
    assert calibration.temper(power * np.log(q), y) * power == pytest.approx(1, rel=0.2)
    assert calibration.temper(np.log(q[:0]), y[:0]) == 1


@pytest.mark.parametrize("right", [True, False])
def test_the_temperature_from_one_label_is_close_to_its_prior(right):
    """Check that the temperature minimises -log p(y) plus a prior that is worth one label.

    The expected minimum comes from a grid search.
    """
    p = np.array([[0.75, 0.25]])
    y = np.array([0 if right else 1])
    heat = calibration.calibrate(p, p, y, np.full(2, 10**9), None).heat
    tried = np.exp(np.linspace(-3, 3, 6001))
    cost = [-np.log(too_sure(p, h)[0, y[0]]) + np.log(h) ** 2 for h in tried]
    step = 4 / 32  # step between the tried logarithms of the temperature
    assert abs(np.log(heat) - np.log(tried[np.argmin(cost)])) <= step / 2 + 1e-3
    assert (heat > 1) == right


@pytest.mark.parametrize("wrong", [0, 1, 3])
def test_the_temperature_of_a_classifier_minimises_its_log_loss(rng, wrong):
    """Check that the temperature of a single classifier minimises the log loss of held-out labels.

    A wrong label costs at most 12; otherwise it alone would determine the temperature.
    """
    q = too_sure(posteriors(rng, 40)[0], 3.0)
    y = q.argmax(axis=1)
    y[:wrong] = q[:wrong].argmin(axis=1)
    q[:wrong] = too_sure(q[:wrong], 3.0)
    costs = [
        sum(min(-np.log(row[c]), 12) for row, c in zip(too_sure(q, h), y))
        for h in calibration.HEATS
    ]
    assert calibration.temper(np.log(q), y) == calibration.HEATS[np.argmin(costs)]


@pytest.mark.parametrize("n_labels", [3, 30, 300])
def test_the_number_of_labels_limits_probabilities(n_labels):
    """Check that no probability after n labels exceeds 1 - 1/(n + 2) by much.

    This bound is the rule of succession.
    """
    certain = np.repeat(np.eye(3), 5, axis=0)
    nobody = np.zeros(0, dtype=int)
    made = calibration.calibrate(certain, certain[:0], nobody, np.full(3, n_labels // 3), None)
    left = 1 - made.apply(certain).max(axis=1)
    np.testing.assert_allclose(left, (1 - 1 / 3) / (n_labels + 2), rtol=0.01)


# -- shares of the classes among the samples ---------------------------------------------------


def test_classes_that_are_found_more_often_are_more_probable(rng):
    """Check that `class_tilt` corrects predictions for equally frequent classes to the true shares.

    The classes lie 4 standard deviations apart, so the shares of predictions are reliable.
    """
    shares = np.array([0.85, 0.12, 0.03])
    y = rng.choice(3, 3000, p=shares)
    middle = 4 * np.eye(3) / np.sqrt(2)
    Z = middle[y] + rng.standard_normal((y.size, 3))
    even = softmax(-0.5 * ((Z[:, None] - middle) ** 2).sum(axis=2))
    tilt = calibration.class_tilt(even, np.full(3, 100))
    assert (np.diff(tilt) < 0).all()
    p = even * tilt
    p /= p.sum(axis=1, keepdims=True)
    truth = even * shares
    truth /= truth.sum(axis=1, keepdims=True)
    assert np.abs(p - truth).mean() < 0.25 * np.abs(even - truth).mean()
    assert reference.log_loss(p, y) < reference.log_loss(even, y)
    assert np.mean(p.argmax(axis=1) == y) > np.mean(even.argmax(axis=1) == y)
    # Uninformative predictions do not determine the shares, so the correction is close to 1.
    unsure = 1 / 3 + 0.05 * (even - 1 / 3)
    np.testing.assert_allclose(calibration.class_tilt(unsure, np.full(3, 100)), 1, atol=0.05)


def test_shares_of_classes_are_those_of_em_as_far_as_there_are_labels(rng):
    """Check that `class_tilt` runs three iterations of EM and shrinks the shares to equal ones.

    With m labels per class, the exponent is at most m/(m + 4).
    """
    p = rng.dirichlet([3.0, 1.0, 0.5], 200)
    shares = np.ones(3) / 3
    for _ in range(3):
        shares = np.mean([row * shares / (row * shares).sum() for row in p], axis=0)
    better = np.mean([(max(row) - 1 / 3) / (2 / 3) for row in p])
    for counts in ([1, 1, 1], [5, 5, 5], [12, 3, 4]):
        m = 3 / sum(1 / count for count in counts)
        tilt = calibration.class_tilt(p, np.array(counts))
        np.testing.assert_allclose(tilt, (3 * shares) ** (better * m / (m + 4)), rtol=1e-12)


# -- correction of the largest probability -----------------------------------------------------


@pytest.mark.parametrize("slope, shift", [(2.0, 0.0), (0.5, 0.0), (1.0, -1.5), (1.0, 1.0)])
def test_confidence_is_corrected_to_the_share_of_correct_predictions(rng, slope, shift):
    sure = rng.uniform(0.4, 0.99, size=3000)
    logit = np.log(sure / (1 - sure))
    truth = 1 / (1 + np.exp(-(slope * logit + shift)))
    right = rng.random(3000) < truth
    found, moved = calibration.bend(sure, right)
    assert (found - 1) * (slope - 1) >= 0 and (slope == 1 or abs(np.log(found)) > 0.3)
    after = 1 / (1 + np.exp(-(found * logit + moved)))
    assert np.abs(after - truth).mean() < 0.75 * np.abs(sure - truth).mean()
    # The mean confidence moves half of the way to the share of correct predictions.
    assert after.mean() == pytest.approx((sure.mean() + right.mean()) / 2, abs=1e-3)


def test_three_labels_hardly_bend_confidence():
    for right in ([True] * 3, [False] * 3, [True, False, True]):
        slope, _ = calibration.bend(np.array([0.6, 0.8, 0.95]), np.array(right))
        assert abs(np.log(slope)) < 1  # two standard deviations of the prior


def test_bending_keeps_the_order_of_classes_and_adds_up(rng):
    p = rng.dirichlet(np.ones(5), size=200)
    for slope, shift in ((0.3, -2.0), (3.0, 1.0)):
        made = calibration.Calibration(1.0, 0.0, np.ones(5), slope, shift).apply(p)
        np.testing.assert_allclose(made.sum(axis=1), 1, rtol=1e-12)
        assert (made.argsort(axis=1) == p.argsort(axis=1)).all()


# -- all four steps of the calibration ---------------------------------------------------------


def written_out(row, heat, doubt, tilt, slope=1, shift=0):
    """Return one sample's calibrated probabilities, computed naively in four steps."""
    p = [v**heat for v in row]
    p = [(1 - doubt) * v / sum(p) + doubt / len(p) for v in p]
    p = [v * t for v, t in zip(p, tilt)]
    p = [v / sum(p) for v in p]
    if (slope, shift) == (1, 0):
        return p
    top, best = max(p), int(np.argmax(p))
    new = 1 / (1 + np.exp(-(slope * np.log(top / (1 - top)) + shift)))
    p = [v * (1 - new) / (1 - top) for v in p]
    p[best] = max(new, 1.001 * max(v for c, v in enumerate(p) if c != best))
    return [v / sum(p) for v in p]


@pytest.mark.parametrize("priors", [None, [0.5, 0.3, 0.15, 0.05]])
def test_calibration_is_its_four_steps(rng, priors):
    """Compare `calibrate` with its four steps, computed naively, and then add one label."""
    (held, known), (mixed, _) = posteriors(rng, 30), posteriors(rng, 300)
    held, mixed = too_sure(held, 3.0), too_sure(mixed, 3.0)
    counts = np.array([9, 8, 7, 6])
    given = None if priors is None else np.array(priors)

    def tilt_by(heat, doubt):
        p = np.array([written_out(row, heat, doubt, np.ones(4)) for row in mixed])
        return 4 * given if priors else calibration.class_tilt(p, counts)

    made = calibration.calibrate(mixed, held, known, counts, None, given)
    losses = []
    for heat in calibration.MIXED_HEATS:
        p = [written_out(row, heat, 1 / 32, np.ones(4))[c] for row, c in zip(held, known)]
        losses.append(np.log(heat) ** 2 - np.log(p).sum())
    heat = calibration.MIXED_HEATS[np.argmin(losses)]
    tilt = tilt_by(heat, 1 / 32)
    p = np.array([written_out(row, heat, 1 / 32, tilt) for row in held])
    slope, shift = calibration.bend(p.max(axis=1), p.argmax(axis=1) == known)
    assert abs(np.log(heat)) > 0.1 and abs(np.log(slope)) > 0.05 and abs(shift) > 0.05
    assert np.abs(np.log(tilt)).max() > 0.05
    wanted = {"heat": heat, "doubt": 1 / 32, "tilt": tilt, "slope": slope, "shift": shift}
    for name, value in wanted.items():
        np.testing.assert_allclose(getattr(made, name), value, rtol=1e-9)
    naive = [written_out(row, heat, 1 / 32, tilt, slope, shift) for row in mixed]
    np.testing.assert_allclose(made.apply(mixed), naive, rtol=1e-9)
    # After one more label, results from held-out labels stay, and the other settings are updated.
    counts = np.array([9, 8, 7, 7])
    more = calibration.calibrate(mixed, held[:0], known[:0], counts, made, given)
    assert (more.heat, more.doubt, more.slope, more.shift) == (heat, 1 / 33, made.slope, made.shift)
    np.testing.assert_allclose(more.tilt, tilt_by(heat, 1 / 32), rtol=1e-9)


@pytest.mark.skipif(not DRAWS.exists(), reason="the results of the benchmarks are not available")
def test_intervals_contain_the_accuracy_on_public_data():
    """Check that 95% intervals of the accuracy on public data sets contain the true accuracy.

    The draws come from the stored results of a benchmark.
    """
    rows = [row for name, row in json.loads(DRAWS.read_text()).items() if "/noise/" not in name]
    truth = np.array([row["truth"] for row in rows])
    names = ("sure", "agreement", "labels", "classes")
    said = np.array([calibration.expected(*(row[name] for name in names)) for row in rows])
    share, low, high = said.T
    # Each side of a 95% interval excludes 2.5%. For 196 draws, 0.5% to 5.5% lie within three
    # standard deviations of that.
    assert 0.005 < np.mean(truth < low) < 0.055
    assert 0.005 < np.mean(truth > high) < 0.055
    for name in ("sure", "agreement", "held"):
        alone = np.array([row[name] for row in rows])
        assert np.abs(share - truth).mean() < 0.9 * np.abs(alone - truth).mean()
    assert abs(np.mean(share - truth)) < 0.03
    # With equally many labels, fewer classes give narrower intervals.
    ends = [calibration.expected(0.8, 0.8, 40, c)[1:] for c in (2, 20)]
    assert ends[0][0] > ends[1][0]


# -- single classifiers against naive formulas -------------------------------------------------


def test_a_mixture_holds_labelled_samples_and_is_the_naive_em(rng):
    y = np.array([0, 1, 2, 2, 1, 0])
    Z = rng.standard_normal((40, 3)) + 2 * np.eye(3)[rng.integers(3, size=40)] + 5
    labelled = np.arange(6)
    start = rng.dirichlet(np.ones(3), size=40)
    # The initial probabilities are wrong for all labelled samples.
    start[labelled] = np.eye(3)[(y + 1) % 3]
    for rounds in (1, 3):
        fits = classifiers.mixture(Z, labelled, y, np.ones((1, 6)), start[None], rounds)
        naive = reference.em_of_gaussian_classes(
            Z, labelled, y, start, rounds, classifiers.SHRINK_ALL
        )
        for fit, wanted in zip(fits, (naive[0], naive[-1]), strict=True):
            # The difference comes from a pseudo-count of 1e-6 for about 13 samples per class.
            ours = softmax(fit.scores(Z)[0])
            np.testing.assert_allclose(ours, softmax(wanted), atol=1e-5)


def test_a_fold_does_not_see_the_labels_that_it_holds_out(rng):
    Z, y = rng.standard_normal((12, 2)), np.array([0, 1, 0, 1])
    start = rng.dirichlet(np.ones(2), size=(2, 12))
    weights = np.array([[1.0, 1, 0, 0], [1.0, 1, 1, 1]])
    fit = classifiers.mixture(Z, np.arange(4), y, weights, start, 2)[1]
    alone = reference.em_of_gaussian_classes(Z, [0, 1], y[:2], start[0], 2, classifiers.SHRINK_ALL)[
        -1
    ]
    # As above, the difference comes from a pseudo-count of 1e-6.
    np.testing.assert_allclose(softmax(fit.scores(Z)[0]), softmax(alone), atol=1e-5)


def test_label_propagation_gives_every_class_equal_weight(rng):
    """Check that every class gets the same total weight in label propagation.

    A label in a dense region reaches more samples, which must not favour its class.
    """
    y = np.array([0, 0, 1, 2])
    G = rng.random((30, 4)) * [1, 2, 0.01, 5]
    shares = classifiers.class_shares(y, np.ones((1, 4)), 3)
    found = softmax(classifiers.even_masses(shares @ G.T)[0])
    np.testing.assert_allclose(found, reference.even_masses(G, y, 3), atol=1e-9)
    assert np.ptp(found.sum(axis=0)) < 0.5 * np.ptp((G / G.sum(axis=1, keepdims=True)).sum(axis=0))


# -- probabilities on real data ----------------------------------------------------------------


def labels_of(y, m, seed):
    rng = np.random.RandomState(seed)
    known = np.full(y.size, -1)
    for c in np.unique(y):
        known[rng.permutation(np.flatnonzero(y == c))[:m]] = c
    return known


@pytest.mark.parametrize("name", ["digits", "coil20", "bbc"])
def test_probabilities_of_real_data_are_calibrated(dataset, name):
    """Check on digits, objects and texts that confident predictions are correct as often as stated.

    The mean calibration error (ECE) over many data sets with five labels per class is 0.08; a wrong
    sign once gave 0.4.
    """
    loaded = dataset(name)
    rows = np.random.RandomState(0).permutation(loaded.X.shape[0])[:450]
    X, (names, y) = loaded.X[rows], np.unique(loaded.y[rows], return_inverse=True)
    errors, off, covered = [], [], []
    for seed in range(3):
        known = labels_of(y, 5, seed)
        rest = known < 0
        model = PartsClassifier(max_iter=40, warm_start=True).fit(X, known)
        assert model.classes_.size == names.size
        p = model.label_distributions_
        errors.append(reference.expected_calibration_error(p[rest], y[rest]))
        right = np.mean(p[rest].argmax(axis=1) == y[rest])
        assert right > 0.8
        share, low, high = model.expected_accuracy_
        off.append(abs(share - right))
        covered.append(low <= right <= high)
        # A 95% interval is about four standard deviations wide, and at least one sample.
        assert high - low > np.sqrt(right * (1 - right) / (known >= 0).sum())
    assert np.mean(errors) < 0.08
    assert np.mean(off) < 0.1 and sum(covered) >= 2


@pytest.mark.parametrize("seed", range(12))
def test_bend_is_the_least_of_its_cost(seed):
    """Check that `bend` minimises its cost.

    There are only twelve labels, so the prior around a slope of one matters.
    """
    rng = np.random.default_rng(seed)
    sure = rng.uniform(0.3, 0.98, 12)
    right = rng.random(12) < sure**2
    wanted = (sure.mean() + (right.sum() + 0.5) / 13) / 2
    costs = []
    for slope in calibration.SLOPES:
        x = slope * np.log(sure / (1 - sure))
        shift = brentq(lambda b, x=x: np.mean(1 / (1 + np.exp(-x - b))) - wanted, -20, 20)
        p = 1 / (1 + np.exp(-x - shift))
        costs.append(-np.log(np.where(right, p, 1 - p)).sum() + np.log(slope) ** 2 / (2 * 0.5**2))
    slope, shift = calibration.bend(sure, right)
    assert slope == calibration.SLOPES[np.argmin(costs)]
    x = slope * np.log(sure / (1 - sure))
    # The shift is found by thirty bisections of an interval of length forty.
    assert np.mean(1 / (1 + np.exp(-x - shift))) == pytest.approx(wanted, abs=40 * 2.0**-30)
