"""Random fits: a few hundred in `make test`, ten thousand and more in `make test-long`.

If PARTWISE_FUZZ_DAY is a date such as 2026-11-16, some cases are new for that day; `.ci/run` sets
it to today. A failure prints the line that repeats it.
"""

import datetime
import os

import pytest

import fuzz
import fuzz_classifier

#: Fits of `make test`; the long run goes on where they end.
QUICK, ALL, BLOCK = 240, 10_000, 40


#: Those of `PartsClassifier` and of all else that fits, in `make test` and in the long run.
NAMED, NAMED_LONG, REST, REST_LONG = 20, 2000, 40, 1000
#: New ones each day, of every kind.
FRESH = 12


#: The day whose numbers they are.
DAY = os.environ.get("PARTWISE_FUZZ_DAY")


def check(first, count=BLOCK):
    lines = fuzz.failures(first, count)
    assert not lines, "\n" + "\n".join(lines)


@pytest.mark.parametrize("first", range(0, QUICK, BLOCK))
def test_random_fits(first):
    check(first)


@pytest.mark.parametrize("first", range(0, NAMED, 5))  # each is five fits and more
def test_random_fits_of_the_classifier(first):
    check(fuzz.CLASSIFIER + first, 5)


@pytest.mark.parametrize("first", range(0, REST, 20))
def test_random_fits_of_all_else(first):
    check(fuzz.OTHERS + first, 20)


@pytest.mark.skipif(not DAY, reason="PARTWISE_FUZZ_DAY names no day; .ci/run does")
@pytest.mark.parametrize("base", [0, fuzz.NEWER, fuzz.CLASSIFIER, fuzz.OTHERS])
def test_fits_that_nobody_has_seen(base):
    """The numbers lie beyond those of the long run and below those of the next kind."""
    first = base + 100_000 + (datetime.date.fromisoformat(DAY).toordinal() * FRESH) % 800_000
    print(f"python tests/fuzz.py {first} {FRESH}")
    check(first, FRESH)


#: What the first runs found: values of float32 below zero, SparseNMF off its constraints, overflow
#: that was a warning, float32 matrices that came back as float64, ncw on zeros.
FOUND = (41, 70, 88, 97, 99, 164, 186, 308, 394, 445, 765, 1660, 1779, 2898, 3305, 3473)
#: Later ones: concepts that cancel (CF, four), weights and strong graphs under KL (three), the
#: history of printed updates in float32, what a penalty asks for entries that were dropped, and
#: classes that agree to the last digits in a graph, parts whose squares are out of range.
FOUND += (1625, 32596, 33020, 34636, 39408, 33141, 38226, 39961, 36505, 51298, 55281)
FOUND += (56531, 58397)
#: Logarithms of neighbours in float32, and neighbours that differ by a last bit.
FOUND += (560434, 561052)
#: A code that no weight moves, beside parts that grow; squares in float32.
FOUND += (860113, 921937, 8784)
#: Factors laid out by columns, where parts are nearly collinear.
FOUND += (650088, 652693)
#: The rounding of a perfect fit of concepts, below zero.
FOUND += (680289,)


#: And in what came later: classes with next to no probability, SemiNMF's overflow beside a graph,
#: lengths of residuals that cancel in float32.
FOUND_LATER = (1_000_123, 1_000_145, 1_000_230, 1_000_321, 1_001_605)
#: Squares of residuals in float32, signs that mu dropped; NTF's start, classes that had not come,
#: parts that are alike, codes alone and in company.
FOUND_LATER += (1_700_240, 1_700_297, 3_560_010, 3_560_021, 3_560_203, 3_700_128, 3_720_309)
FOUND_LATER += (3_700_407, 3_720_478)
#: Codes of neighbours that are rounded to float32 after the fit, a class that is nowhere likely,
#: products in float32; parts beside collinear codes in float32.
FOUND_LATER += (1_830_847, 1_925_829, 1_931_258, 1_935_228)
#: A gradient that is one number.
FOUND_LATER += (1_950_388, 3_930_664)
#: A curvature below the smallest normal number.
FOUND_LATER += (2_650_627,)


def test_random_fits_of_what_came_later():
    lines = fuzz.failures(fuzz.NEWER, BLOCK // 2)
    lines += [line for number in FOUND_LATER if (line := fuzz.failure(number))]
    assert not lines, "\n" + "\n".join(lines)


def test_what_was_found_stays_cured():
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
    """Every number has a kind, and old numbers keep their cases."""
    for kind in fuzz.EVERY:
        for index in (0, 7, 999_999):
            assert fuzz.nth(kind, index) == kind + index
        found = [fuzz.nth(kind, i) for i in range(999_990, 1_000_010)]
        assert {fuzz.kind_of(number) for number in found} == {kind}
        assert len(set(found)) == 20
    later = fuzz.nth(fuzz.CLASSIFIER, 12_345_678)
    assert fuzz.beyond(later) is fuzz_classifier and fuzz.draw(later).number == later
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
def test_the_checks_see_wrong_fits(monkeypatch, flaw):
    """The checks detect results that were changed after the fit."""
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


def test_the_checks_of_the_classifier_see_wrong_answers(monkeypatch):
    """The checks detect predictions that were changed in one way each."""
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
