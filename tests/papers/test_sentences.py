"""The printed sentences: each has what answers it, and what is computed comes out."""

from __future__ import annotations

import pytest

from partwise.papers import load_protocol, names
from partwise.papers.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Verdict
from partwise.papers.sentences import COMPUTED, DESCENTS, NOT_OURS, listed, sentences


def test_every_sentence_is_answered_by_claims_a_computation_or_a_reason():
    claims = {}
    for name in names():
        for claim in load_protocol(name).claims:
            if "says" in claim:
                claims.setdefault((name.split("/")[0], claim["says"]), []).append(name)
    asked = set()
    for paper, entries in listed().items():
        for entry in entries:
            assert entry["text"] and entry["where"]
            assert sum(key in entry for key in ("says", "computed", "why")) == 1
            if "says" in entry:
                assert claims[paper, entry["says"]]
                asked.add((paper, entry["says"]))
            if "computed" in entry:
                kind, _, which = entry["computed"].partition(" ")
                assert kind in COMPUTED and (not which or which in DESCENTS)
    assert asked == set(claims)  # and no claim speaks for a sentence that is not there
    assert sum(map(len, listed().values())) >= 40


def _verdict(state, says="always", counted=True):
    return Verdict("a part", "none", None, state, f"a number that {state}", says=says,
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
        ([HOLDS, _verdict(FAILS, says="another")], HOLDS),
    ],
)
def test_a_sentence_is_as_good_as_its_weakest_part(states, whole):
    found = _always(*states)
    assert found.state == whole
    if whole != NOT_RUN:
        assert f"a number that {whole}" in found.number and found.tables == ("gnmf/table3",)


def test_only_the_papers_that_were_run_are_judged():
    assert {s.paper for s in sentences([("gnmf/table3", _verdict(HOLDS))])} == {"gnmf"}


def test_what_is_computed_and_what_is_not_ours():
    told = [(f"{paper}/table1", _verdict(NOT_RUN, says="")) for paper in listed()]
    found = {(s.paper, s.where): s for s in sentences(told)}
    assert found["nmfdc", "Proposition 1"].state == HOLDS
    assert found["gnmf", "Theorem 1"].state == found["lcf", "Theorem 1"].state == HOLDS
    assert found["cnmf", "introduction"].state == HOLDS
    ours = [s for s in found.values() if s.state == NOT_OURS]
    assert ours and all(s.number for s in ours)
