"""Verdicts on single sentences of the papers, with the numbers that decide them.

``sentences.toml`` quotes the sentences. Most of them describe a table or figure, so their verdicts
follow from the claims that `claims.judge` checks for that table or figure. For some sentences, the
file contains the result of a short computation (``tests/papers/computed.py``). For the others, it
contains the reason why Partwise cannot judge them.
"""

from __future__ import annotations

import tomllib
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from partwise.apps.papers.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Verdict

NOT_OURS = "not ours to judge"
STATES = (HOLDS, FAILS, UNDECIDED, NOT_RUN, NOT_OURS)


@dataclass(frozen=True)
class Sentence:
    """A sentence of a paper with its verdict."""

    paper: str
    where: str
    text: str
    state: str
    number: str  # the number that decides the verdict, as text
    tables: tuple[str, ...] = ()  # names of the tables with these numbers
    printed: bool | None = None  # whether the paper's own numbers support it


def sentences(verdicts: Sequence[tuple[str, Verdict]]) -> list[Sentence]:
    """Return the papers' sentences with verdicts that follow from the claims.

    A sentence holds if all of its parts hold, and fails if one of them fails. A sentence that
    states "in some cases" holds if one part holds.
    """
    found = defaultdict(list)
    for table, verdict in verdicts:
        if verdict.sentence and verdict.counted:
            found[table.split("/")[0], verdict.sentence].append((table, verdict))
    papers = {table.split("/")[0] for table, _ in verdicts}
    return [
        _judged(paper, entry, found.get((paper, entry.get("sentence", "")), []))
        for paper, entries in listed().items()
        for entry in entries
        if paper in papers
    ]


@cache
def listed() -> dict[str, list[dict[str, str]]]:
    """Return the quoted sentences of each paper."""
    source = resources.files("partwise.apps.papers") / "sentences.toml"
    return tomllib.loads(source.read_text(encoding="utf-8"))


def _judged(paper: str, entry: dict[str, str], parts: list[tuple[str, Verdict]]) -> Sentence:
    """Return a quoted sentence with the verdict on it."""
    about = (paper, entry["where"], entry["text"])
    if "why" in entry:
        return Sentence(*about, NOT_OURS, entry["why"])
    if "computed" in entry:
        return Sentence(*about, entry["state"], entry["number"])
    tables = tuple(dict.fromkeys(table for table, _ in parts))
    parts = [(table, v) for table, v in parts if v.measured != NOT_RUN]
    if not parts:
        return Sentence(*about, NOT_RUN, "0 runs", tables)
    # One part decides if it fails, or if it holds and the sentence states "in some cases".
    ends, other = (HOLDS, FAILS) if "some" in entry else (FAILS, HOLDS)
    states = [v.measured for _, v in parts]
    state = next((s for s in (ends, UNDECIDED) if s in states), other)
    table, decides = next((t, v) for t, v in parts if v.measured == state)
    counts = ", ".join(f"{n} {s}" for s, n in Counter(states).items())
    several = f"Of {len(parts)} parts {counts}. " if len(parts) > 1 else ""
    number = f"{several}{table}: {decides.detail}"
    return Sentence(*about, state, number, tables, _in_print(parts, ends))


def _in_print(parts: list[tuple[str, Verdict]], ends: str) -> bool | None:
    """Return whether the printed numbers support a sentence; None if there are none."""
    printed = [v.printed for _, v in parts if v.printed is not None]
    return (any if ends == HOLDS else all)(printed) if printed else None
