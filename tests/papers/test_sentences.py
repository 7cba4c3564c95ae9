"""Tests of the sentences printed in the papers: each has a verdict or a computation."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

import pytest
from computed import COMPUTED, DESCENTS

from partwise.apps.papers import load_protocol, names
from partwise.apps.papers.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Verdict
from partwise.apps.papers.sentences import NOT_OURS, listed, sentences


def test_every_sentence_is_answered_by_claims_a_computation_or_a_reason():
    claims = {}
    for name in names():
        for claim in load_protocol(name).claims:
            if "sentence" in claim:
                claims.setdefault((name.split("/")[0], claim["sentence"]), []).append(name)
    asked = set()
    for paper, entries in listed().items():
        for entry in entries:
            assert entry["text"] and entry["where"]
            assert sum(key in entry for key in ("sentence", "computed", "why")) == 1
            if "sentence" in entry:
                assert claims[paper, entry["sentence"]]
                asked.add((paper, entry["sentence"]))
            if "computed" in entry:
                kind, _, which = entry["computed"].partition(" ")
                assert kind in COMPUTED and (kind != "descent" or which in DESCENTS)
    assert asked == set(claims)  # no claim refers to a sentence that is not listed
    assert sum(map(len, listed().values())) >= 40


def _verdict(state, sentence="always", counted=True):
    return Verdict("a part", "none", None, state, f"a number that {state}", sentence=sentence,
                   counted=counted)  # fmt: skip


def _always(*states):
    told = [("gnmf/table3", s if isinstance(s, Verdict) else _verdict(s)) for s in states]
    return next(s for s in sentences(told) if "always results" in s.text)


@pytest.mark.parametrize(
    ("states", "whole"),
    [
        ([HOLDS, HOLDS], HOLDS),
        ([HOLDS, UNDECIDED], UNDECIDED),
        ([UNDECIDED, FAILS, HOLDS], FAILS),
        ([HOLDS, NOT_RUN], HOLDS),
        ([NOT_RUN], NOT_RUN),
        ([HOLDS, _verdict(FAILS, counted=False)], HOLDS),
        ([HOLDS, _verdict(FAILS, sentence="another")], HOLDS),
    ],
)
def test_a_sentence_is_as_good_as_its_weakest_part(states, whole):
    found = _always(*states)
    assert found.state == whole
    if whole != NOT_RUN:
        assert f"a number that {whole}" in found.number and found.tables == ("gnmf/table3",)


@pytest.mark.parametrize(
    ("states", "whole"),
    [([UNDECIDED, HOLDS, FAILS], HOLDS), ([FAILS, UNDECIDED], UNDECIDED), ([FAILS, FAILS], FAILS)],
)
def test_in_some_cases_is_one_part(states, whole):
    told = [("cnmf/table1", _verdict(state, sentence="semignmf")) for state in states]
    (found,) = (s for s in sentences(told) if "in some cases" in s.text)
    assert found.state == whole


def test_only_the_papers_that_were_run_are_judged():
    assert {s.paper for s in sentences([("gnmf/table3", _verdict(HOLDS))])} == {"gnmf"}


def _recorded():
    entries = [(paper, e) for paper, every in listed().items() for e in every if "computed" in e]
    return [pytest.param(e, id=f"{paper}-{e['computed']}") for paper, e in entries]


@pytest.mark.long
@pytest.mark.parametrize("entry", _recorded())
def test_a_recorded_result_is_that_of_its_computation(entry):
    kind, _, which = entry["computed"].partition(" ")
    holds, number = COMPUTED[kind](*filter(None, [which]))
    assert entry["state"] == (HOLDS if holds else FAILS)
    if "coil20" in entry["number"] and "coil20" not in number:
        pytest.skip("the data set COIL20 is not available")
    seen, told = (
        [float(value) for value in re.findall(r"\d[\d.]*(?:e-\d+)?", text.replace(",", ""))]
        for text in (number, entry["number"])
    )
    # Other processors round differently, so numbers of the size of rounding only have to be tiny.
    assert seen == pytest.approx(told, rel=0.1, abs=1e-6)


def test_what_is_computed_and_what_is_not_ours():
    told = [(f"{paper}/table1", _verdict(NOT_RUN, sentence="")) for paper in listed()]
    every = sentences(told)
    found = {(s.paper, s.where): s for s in every if "if and only if" not in s.text}
    assert found["nmfdc", "Proposition 1"].state == HOLDS
    assert found["gnmf", "Theorem 1"].state == found["lcf", "Theorem 1"].state == HOLDS
    assert found["cnmf", "introduction"].state == HOLDS
    assert found["gnmf", "2"].state == found["gnmf", "3.2"].state == found["gnmf", "3.3"].state
    assert found["gnmf", "3.5"].state == FAILS  # the claim about conjugate gradients is wrong
    invariant = [s for s in every if "if and only if" in s.text]
    assert len(invariant) == 4 and {s.state for s in invariant} == {FAILS}
    ours = [s for s in found.values() if s.state == NOT_OURS]
    assert ours and all(s.number for s in ours)


# Tests of numbers in the documentation ------------------------------------------------------

ROOT = Path(__file__).parents[2]
NUMBERS = ROOT / "docs" / "papers" / "numbers.json"


@pytest.fixture
def numbers():
    if not NUMBERS.exists():
        pytest.skip("the documentation is not in this copy")
    return json.loads(NUMBERS.read_text(encoding="utf-8"))


def test_the_documentation_counts_what_its_numbers_are(numbers):
    page = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
    counts = Counter(s["state"] for s in numbers["sentences"])
    total, held = re.search(r"Of (\d+) printed sentences: (\d+) hold", page).groups()
    assert (int(total), int(held)) == (sum(counts.values()), counts[HOLDS])
    for sentence in numbers["sentences"]:
        assert sentence["text"] in page
    back = [a["reproduced"] for t in numbers["tables"] for a in t["averages"]]
    assert f"| {sum(back)} of {len(back)} |" in page
    quoted = (ROOT / "README.md").read_text(encoding="utf-8")
    quoted = quoted.split("## Methods from the literature")[1]
    told = [int(value) for value in re.findall(r"\b\d+\b", quoted.split("](docs/papers.md")[0])]
    printed = len(back) + sum(t.get("averages_without_runs", 0) for t in numbers["tables"])
    wanted = [int(total), counts[HOLDS], counts[FAILS], counts[UNDECIDED], sum(back), printed]
    assert [value for value in told if value in wanted][-6:] == wanted
