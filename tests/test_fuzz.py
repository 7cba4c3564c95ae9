"""Random fits: a few hundred in `make test`, ten thousand and more in `make test-long`.

If PARTWISE_FUZZ_DAY is a date such as 2026-11-16, some cases are new for that day; `.ci/run` sets
it to today. A failure prints the line that repeats it.
"""

import datetime
import os

import pytest

import fuzz
import fuzz_classifier

#: Numbers of fits: in `make test`, in the long run, which continues from there, and per test.
QUICK, ALL, BLOCK = 240, 10_000, 40


#: Numbers of fits of `PartsClassifier` and of other functions, in `make test` and in the long run.
NAMED, NAMED_LONG, REST, REST_LONG = 20, 2000, 40, 1000
#: Number of new fits of every kind for each day.
FRESH = 12


#: The day whose new fits are run, as a date, or None.
DAY = os.environ.get("PARTWISE_FUZZ_DAY")


def check(first, count=BLOCK):
    lines = fuzz.failures(first, count)
    assert not lines, "\n" + "\n".join(lines)


@pytest.mark.parametrize("first", range(0, QUICK, BLOCK))
def test_random_fits(first):
    check(first)


@pytest.mark.parametrize("first", range(0, NAMED, 5))  # each case takes five fits or more
def test_random_fits_of_the_classifier(first):
    check(fuzz.CLASSIFIER + first, 5)


@pytest.mark.parametrize("first", range(0, REST, 20))
def test_random_fits_of_all_else(first):
    check(fuzz.OTHERS + first, 20)


@pytest.mark.skipif(not DAY, reason="PARTWISE_FUZZ_DAY is not set to a date, as in .ci/run")
@pytest.mark.parametrize("base", [0, fuzz.NEWER, fuzz.CLASSIFIER, fuzz.OTHERS])
def test_new_fits_of_the_day(base):
    """Check fits that are new each day.

    Their numbers lie beyond those of the long run and below those of the next kind.
    """
    first = base + 100_000 + (datetime.date.fromisoformat(DAY).toordinal() * FRESH) % 800_000
    print(f"python tests/fuzz.py {first} {FRESH}")
    check(first, FRESH)


#: Numbers of random fits that once failed, so they are run again. The first runs found negative
#: float32 objectives, SparseNMF results off its constraints, an overflow reported as a warning,
#: float32 matrices returned as float64, and errors of sample_weighting="ncw" for zero samples.
FOUND = (41, 70, 88, 97, 99, 164, 186, 308, 394, 445, 765, 1660, 1779, 2898, 3305, 3473)
#: These fits failed because of concepts that cancel in CF (four), weights and strong graphs with KL
#: (three), the history of multiplicative updates in float32, the penalty of entries that were set
#: to zero, classes that agree to the last digits in a graph, and parts whose squares are out of
#: range.
FOUND += (1625, 32596, 33020, 34636, 39408, 33141, 38226, 39961, 36505, 51298, 55281)
FOUND += (56531, 58397)
#: These fits failed because of logarithms of nearly equal neighbours in float32.
FOUND += (560434, 561052)
#: These fits failed because of a part weight that no sample weight affects while parts grow, and
#: because of squares in float32.
FOUND += (860113, 921937, 8784)
#: These fits failed because kernels read factors that were stored by columns.
FOUND += (650088, 652693)
#: This fit failed because rounding made the objective of a perfect fit of concepts negative.
FOUND += (680289,)


#: Numbers of fits of later estimators that once failed, because of classes with almost no
#: probability, an overflow of SemiNMF with a graph, and norms of residuals that cancel in float32.
FOUND_LATER = (1_000_123, 1_000_145, 1_000_230, 1_000_321, 1_001_605)
#: These fits failed because of squares of residuals in float32, negative entries that "mu" set to
#: zero, the start of NTF, classes that have not occurred yet, similar parts, and part weights of a
#: sample that depended on the other samples.
FOUND_LATER += (1_700_240, 1_700_297, 3_560_010, 3_560_021, 3_560_203, 3_700_128, 3_720_309)
FOUND_LATER += (3_700_407, 3_720_478)
#: These fits failed because of part weights of neighbours that are rounded to float32 after the
#: fit, a class that is likely nowhere, products in float32, and parts for collinear part weights in
#: float32.
FOUND_LATER += (1_830_847, 1_925_829, 1_931_258, 1_935_228)
#: These fits failed because a gradient was a single number instead of an array.
FOUND_LATER += (1_950_388, 3_930_664)
#: This fit failed because a curvature was below the smallest normal number.
FOUND_LATER += (2_650_627,)


def test_random_fits_of_what_came_later():
    lines = fuzz.failures(fuzz.NEWER, BLOCK // 2)
    lines += [line for number in FOUND_LATER if (line := fuzz.failure(number))]
    assert not lines, "\n" + "\n".join(lines)


def test_failing_cases_of_the_past_stay_fixed():
    lines = [line for number in FOUND if (line := fuzz.failure(number))]
    assert not lines, "\n" + "\n".join(lines)


@pytest.mark.long
@pytest.mark.parametrize(
    "first",
    [
        *range(QUICK, ALL, BLOCK),
        *range(fuzz.NEWER, fuzz.NEWER + 2000, BLOCK),
        *range(fuzz.CLASSIFIER + NAMED, fuzz.CLASSIFIER + NAMED_LONG, BLOCK),
        *range(fuzz.OTHERS + REST, fuzz.OTHERS + REST_LONG, BLOCK),
    ],
)
def test_very_many_random_fits(first):
    check(first)


def test_every_number_has_a_kind():
    """Check that every number has a kind of case, and that old numbers keep their cases."""
    for kind in fuzz.EVERY:
        for index in (0, 7, 999_999):
            assert fuzz.number_of(kind, index) == kind + index
        found = [fuzz.number_of(kind, i) for i in range(999_990, 1_000_010)]
        assert {fuzz.kind_of(number) for number in found} == {kind}
        assert len(set(found)) == 20
    later = fuzz.number_of(fuzz.CLASSIFIER, 12_345_678)
    assert fuzz.module_of(later) is fuzz_classifier and fuzz.draw(later).number == later
    blocks = fuzz.blocks(999_950, 200, every=True)
    assert sorted(map(len, blocks)) == [20] * 10
    assert {fuzz.kind_of(block[0]) for block in blocks[:6]} == set(fuzz.EVERY)
    assert fuzz.blocks(5, 30, every=False) == [list(range(5, 25)), list(range(25, 35))]


def test_a_failure_prints_the_line_that_replays_it(monkeypatch):
    number = next(i for i in range(100) if fuzz.draw(i).broken is None)
    assert fuzz.failure(number) is None
    monkeypatch.setattr(fuzz, "check_factors", lambda case, model: 1 / 0)
    assert fuzz.failure(number).startswith(f"python tests/fuzz.py {number}  # ")


@pytest.mark.parametrize("flaw", ["check_factors", "check_history", "check_objective"])
def test_the_checks_detect_wrong_fits(monkeypatch, flaw):
    """Check that the checks of `fuzz` detect results that were changed after the fit."""
    spoil = {
        "check_factors": lambda model: setattr(model, "embedding_", model.embedding_ - 1),
        "check_history": lambda model: model.objective_history_.__imul__(0.5),
        "check_objective": lambda model: setattr(model, "objective_", model.objective_ * 0.9),
    }[flaw]
    real, seen = getattr(fuzz, flaw), []

    def spoiled(case, model):
        if model.objective_ > 1e-3:
            seen.append(case.number)
            spoil(model)
        real(case, model)

    monkeypatch.setattr(fuzz, flaw, spoiled)
    numbers = [i for i in range(30) if fuzz.draw(i).broken is None and fuzz.draw(i).scale == 1]
    found = [i for i in numbers if fuzz.failure(i)]
    assert seen and set(seen) <= set(found)


def test_the_checks_of_the_classifier_detect_wrong_predictions(monkeypatch):
    """Check that the checks of `fuzz_classifier` detect predictions that were changed."""
    number = next(
        i
        for i in range(fuzz.CLASSIFIER, fuzz.CLASSIFIER + 50)
        if len(set(fuzz.draw(i).y)) > 2 and fuzz_classifier.run(i) == "ok"
    )
    case = fuzz.draw(number)

    def half(model):
        model.label_distributions_ = 0.5 * model.label_distributions_

    def nan(model):
        model.label_distributions_[0] = float("nan")

    def rename(model):
        model.transduction_ = model.transduction_[::-1] + 1

    def turn(model):
        model.label_distributions_ = model.label_distributions_[:, ::-1]

    for spoil, check in (
        (half, fuzz_classifier.check_answer),
        (nan, fuzz_classifier.check_answer),
        (rename, fuzz_classifier.check_answer),
        (turn, fuzz_classifier.check_warm_start),
    ):
        model = fuzz_classifier.fit(case)
        spoil(model)
        with pytest.raises(AssertionError):
            check(case, model)
