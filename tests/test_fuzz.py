"""Random fits: a few hundred in `make test`, ten thousand in `make test-long`."""

import pytest

import fuzz

#: Fits of `make test`; the long run goes on where they end.
QUICK, ALL, BLOCK = 240, 10_000, 40


def check(first):
    lines = fuzz.failures(first, BLOCK)
    assert not lines, "\n" + "\n".join(lines)


@pytest.mark.parametrize("first", range(0, QUICK, BLOCK))
def test_random_fits(first):
    check(first)


#: What the first runs found: values of float32 below zero, SparseNMF off its constraints, overflow
#: that was a warning, float32 matrices that came back as float64, ncw on zeros.
FOUND = (41, 70, 88, 97, 99, 164, 186, 308, 394, 445, 765, 1660, 1779, 2898, 3305, 3473)
#: Later ones: concepts that cancel (CF, four), weights and strong graphs under KL (three), the
#: history of printed updates in float32, what a penalty asks for entries that were dropped, and
#: classes that agree to the last digits in a graph, parts whose squares are out of range.
FOUND += (1625, 32596, 33020, 34636, 39408, 33141, 38226, 39961, 36505, 51298, 55281)
FOUND += (56531, 58397)


#: And in what came later: classes with next to no probability, SemiNMF's overflow beside a graph,
#: lengths of residuals that cancel in float32.
FOUND_LATER = (1_000_123, 1_000_145, 1_000_230, 1_000_321, 1_001_605)


def test_random_fits_of_what_came_later():
    lines = fuzz.failures(fuzz.NEWER, BLOCK // 2)
    lines += [line for number in FOUND_LATER if (line := fuzz.failure(number))]
    assert not lines, "\n" + "\n".join(lines)


def test_what_was_found_stays_cured():
    lines = [line for number in FOUND if (line := fuzz.failure(number))]
    assert not lines, "\n" + "\n".join(lines)


@pytest.mark.long
@pytest.mark.parametrize(
    "first", [*range(QUICK, ALL, BLOCK), *range(fuzz.NEWER, fuzz.NEWER + 2000, BLOCK)]
)
def test_very_many_random_fits(first):
    check(first)


def test_a_failure_prints_the_line_that_replays_it(monkeypatch):
    number = next(i for i in range(100) if fuzz.draw(i).broken is None)
    assert fuzz.failure(number) is None
    monkeypatch.setattr(fuzz, "check_factors", lambda case, model: 1 / 0)
    assert fuzz.failure(number).startswith(f"python tests/fuzz.py {number}  # ")


@pytest.mark.parametrize("flaw", ["check_factors", "check_history", "check_objective"])
def test_the_checks_see_wrong_fits(monkeypatch, flaw):
    """A fit whose result is spoiled afterwards is found out."""
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
    numbers = [i for i in range(60) if fuzz.draw(i).broken is None and fuzz.draw(i).scale == 1]
    found = [i for i in numbers if fuzz.failure(i)]
    assert seen and set(seen) <= set(found)
