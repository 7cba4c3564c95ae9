"""The papers' sentences, one by one: what became of each, and the number that decides.

``sentences.toml`` lists them as they are printed. Claims of tables and figures answer most; some
are computed here; some are not ours to judge, and say why.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from partwise.apps.papers.claims import FAILS, HOLDS, NOT_RUN, UNDECIDED, Verdict
from partwise.apps.papers.computed import COMPUTED

NOT_OURS = "not ours to judge"
STATES = (HOLDS, FAILS, UNDECIDED, NOT_RUN, NOT_OURS)


@dataclass(frozen=True)
class Sentence:
    """A printed sentence with what became of it."""

    paper: str
    where: str
    text: str
    state: str
    number: str  # what decides
    tables: tuple[str, ...] = ()  # where the numbers are
    printed: bool | None = None  # whether the printed numbers themselves bear it out


def sentences(verdicts: Iterable[tuple[str, Verdict]]) -> list[Sentence]:
    """Every printed sentence, judged by verdicts with the table or figure that each is of.

    A sentence holds where all of its parts do and fails where one does; one that says "in some
    cases" the other way round.
    """
    found: dict[tuple[str, str], list[tuple[str, Verdict]]] = {}
    for table, verdict in verdicts:
        if verdict.says and verdict.counted:
            found.setdefault((table.split("/")[0], verdict.says), []).append((table, verdict))
    papers = {table.split("/")[0] for table, _ in verdicts}
    return [
        _judged(paper, entry, found.get((paper, entry.get("says", "")), []))
        for paper, entries in listed().items()
        for entry in entries
        if paper in papers
    ]


@cache
def listed() -> dict[str, list[dict[str, str]]]:
    """The sentences as they are printed, by paper."""
    source = resources.files("partwise.apps.papers") / "sentences.toml"
    return tomllib.loads(source.read_text(encoding="utf-8"))


def _judged(paper: str, entry: dict[str, str], parts: list[tuple[str, Verdict]]) -> Sentence:
    about = (paper, entry["where"], entry["text"])
    if "why" in entry:
        return Sentence(*about, NOT_OURS, entry["why"])
    if "computed" in entry:
        return Sentence(*about, *_compute(entry["computed"]))
    ran = [(table, v) for table, v in parts if v.measured != NOT_RUN]
    if not ran:
        return Sentence(*about, NOT_RUN, "", tuple(dict.fromkeys(t for t, _ in parts)))
    states = [v.measured for _, v in ran]
    ends, other = (HOLDS, FAILS) if "some" in entry else (FAILS, HOLDS)
    state = next((s for s in (ends, UNDECIDED) if s in states), other)
    table, decides = _deciding([(t, v) for t, v in ran if v.measured == state], ends)
    counted = ", ".join(f"{states.count(s)} {s}" for s in (HOLDS, FAILS, UNDECIDED) if s in states)
    several = f"Of {len(ran)} parts {counted}. " if len(ran) > 1 else ""
    number = f"{several}{table}: {decides.detail}"
    inprint = [v.printed for _, v in ran if v.printed is not None]
    join = any if "some" in entry else all
    printed = join(inprint) if inprint else None
    return Sentence(*about, state, number, tuple(dict.fromkeys(t for t, _ in ran)), printed)


def _deciding(parts: list[tuple[str, Verdict]], ends: str) -> tuple[str, Verdict]:
    """Of the parts that make a sentence what it is the first; of open ones that which decides it.

    That is the first to be what ``ends`` it, or else the last.
    """
    open_ones = [(o.runs, i, o.state) for i, (_, v) in enumerate(parts) if (o := v.outlook)]
    ending = [entry for entry in open_ones if entry[2] == ends]
    return parts[min(ending)[1] if ending else max(open_ones)[1] if open_ones else 0]


@cache
def _compute(name: str) -> tuple[str, str]:
    kind, _, rest = name.partition(" ")
    return COMPUTED[kind](rest) if rest else COMPUTED[kind]()
