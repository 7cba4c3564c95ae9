"""The papers' sentences, judged: in the printed table, and in what was measured.

A claim holds or fails where the measured difference is beyond `CLEAR` standard errors from the
line that divides the two; otherwise it is undecided. Differences are paired: two methods of a run
see the same samples, labels and start. A sentence that is many comparisons (at every K, over every
rival) holds where each of them does, and fails where one does by more than chance explains in so
many: `critical` of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from partwise.apps.papers.protocol import Protocol
from partwise.apps.papers.summary import Point, Stat, Summary, paired, paired_stat, paired_test
from partwise.apps.papers.trials import NO_LABELS

Claim = dict[str, Any]
History = tuple[Any, Any, float]
CLEAR = 2.0  # standard errors beyond which a difference is one
HOLDS, FAILS, UNDECIDED, NOT_RUN = "holds", "fails", "undecided", "not run"
OPPOSITE = {HOLDS: FAILS, FAILS: HOLDS}
WORTH = 100  # runs a row beyond which two methods are level rather than not yet told apart
POWER = CLEAR + 0.84  # standard errors of a difference that is seen four times in five


class Outlook(NamedTuple):
    """At how many runs a row an open claim is decided, and how, if means and deviations stay.

    ``seen`` is the difference that the runs so far would show four times in five.
    """

    runs: float
    state: str = UNDECIDED
    have: float = 0.0
    seen: float = 0.0

    def __str__(self) -> str:
        if math.isinf(self.runs):
            return "more runs would not decide it"
        if self.runs > WORTH:
            return f"level: {self.have:.0f} runs a row would have shown {self.seen:.2g}"
        return f"at about {math.ceil(self.runs)} runs a row ({self.have:.0f} here) it {self.state}"


class Finding(NamedTuple):
    """What a rule finds: how far on the claimed side of its line each comparison lies.

    `together` judges them; a rule that judges otherwise says ``state`` and ``outlook`` itself.
    """

    distances: list[Stat]
    detail: str
    test: str = ""
    p: float | None = None
    state: str = ""
    outlook: Outlook | None = None


@dataclass(frozen=True)
class Verdict:
    """A claim with what became of it; ``printed`` is None where print has no such numbers."""

    text: str
    budget: str
    printed: bool | None
    measured: str
    detail: str
    test: str = ""
    p: float | None = None
    counted: bool = True  # not where the labels are other than print's
    says: str = ""  # the printed sentence that it is part of
    outlook: Outlook | None = None  # where it is undecided


def judge(summary: Summary, others: dict[str, Summary] | None = None) -> list[Verdict]:
    """Judge every claim of a protocol, once for each label budget.

    A claim that names other readings in ``also`` depends on a setting that print leaves open. It is
    judged in each of them (``others``, by name), and undecided unless they agree. Claims about data
    other than the paper's, or under label budgets other than print's, are not counted.
    """
    verdicts = []
    theirs = {NO_LABELS} | {b.name for b in summary.protocol.budgets if b.printed}
    if not summary.protocol.comparable:
        theirs = set()
    for claim in summary.protocol.claims:
        kind, printed = claim["type"], _printed(summary.protocol, claim)
        for budget in summary.budgets() if kind != "budget_trend" else [NO_LABELS]:
            found = RULES[kind](summary, claim, budget)
            state, detail, outlook = _judged(found, claim) if found else (NOT_RUN, "", None)
            for name in claim.get("also", []) if found else []:
                second, words = _elsewhere((others or {}).get(name), claim, budget)
                detail += f'; with "{name}" it {second}: {words}'
                if second not in (state, NOT_RUN):
                    state, outlook = UNDECIDED, Outlook(math.inf)
            tested = (found.test, found.p) if found else ("", None)
            beside = {"counted": budget in theirs, "says": claim.get("says", "")}
            verdicts.append(
                Verdict(claim["text"], budget, printed, state, detail, *tested,
                        outlook=outlook, **beside)
            )  # fmt: skip
    return verdicts


def _elsewhere(summary: Summary | None, claim: Claim, budget: str) -> tuple[str, str]:
    """A claim in another reading: its state and the number that decides."""
    found = RULES[claim["type"]](summary, claim, budget) if summary else None
    return _judged(found, claim)[:2] if found else (NOT_RUN, "0 runs")


def _judged(found: Finding, claim: Claim) -> tuple[str, str, Outlook | None]:
    state = found.state or together(found.distances)[0]
    after = None
    if state == UNDECIDED:
        after = found.outlook or outlook(found.distances)
    if claim.get("sometimes"):  # the sentence says that it is not always so
        state = OPPOSITE.get(state, state)
        after = after and after._replace(state=OPPOSITE.get(after.state, after.state))
    return state, found.detail + (f"; {after}" if after else ""), after


def outlook(distances: list[Stat]) -> Outlook | None:
    """When `together` decides; None where no deviation is known.

    The first that is against the sentence makes it fail; else it waits for the last.
    """
    known = [d for d in distances if d.se > 0]
    behind = [d for d in known if d.mean < 0]
    if any(math.isnan(d.se) for d in distances) and not known:
        return None
    if not behind and any(d.mean == 0 for d in distances):
        return Outlook(math.inf)

    def limit(freedom: float) -> float:
        return critical(len(known), round(min(freedom, 1e6))) if behind else CLEAR

    def runs(d: Stat) -> float:
        scale = d.n / d.rows * (d.se / d.mean) ** 2
        found = scale * limit(math.inf) ** 2
        while found < scale * limit(d.rows * (found - 1)) ** 2:  # Student's limit falls with them
            found += 1
        return found

    last = min(behind, key=runs) if behind else max(known, key=runs)
    return Outlook(runs(last), FAILS if behind else HOLDS, last.n / last.rows, POWER * last.se)


def decide(distance: float, se: float, *, against: float = CLEAR) -> str:
    """A verdict from how far a number is on the claimed side of its line.

    It fails beyond ``against`` standard errors, which is more where it is one of many.
    """
    if math.isnan(se):
        return UNDECIDED
    if abs(distance) <= (CLEAR if distance > 0 else against) * se:
        return UNDECIDED
    return HOLDS if distance > 0 else FAILS


@cache
def critical(comparisons: int, freedom: int) -> float:
    """Standard errors that the largest of so many differences exceeds as seldom as one does 2.

    Bonferroni's bound, by Student's distribution, since the errors are those of a few runs.
    """
    from scipy import stats

    if comparisons < 2:
        return CLEAR
    return float(stats.t.isf(stats.norm.sf(CLEAR) / comparisons, max(freedom, 1)))


def together(distances: list[Stat]) -> tuple[str, list[str]]:
    """The verdict on a sentence of several comparisons, and each one's own."""
    known = [d for d in distances if not math.isnan(d.se)]
    states = [decide(d.mean, d.se, against=critical(len(known), d.n - d.rows)) for d in distances]
    if FAILS in states:
        return FAILS, states
    return (UNDECIDED if UNDECIDED in states else HOLDS), states


def _printed(protocol: Protocol, claim: Claim) -> bool | None:
    """Whether a comparison holds in print; None where print has no such numbers."""
    if claim["type"] not in ("beats", "gap") or not protocol.printed:
        return None
    metric, sign = claim["metric"], -1.0 if claim.get("lower") else 1.0
    rows = sorted({c.k for c in protocol.printed if c.metric == metric})
    if claim["type"] == "gap" or not claim.get("every_k"):
        rows = ["avg"]
    else:
        rows = [k for k in rows if k != "avg"]
    holds = []
    for k in rows:
        own = protocol.printed_value(metric, k, claim["method"])
        others = [protocol.printed_value(metric, k, name) for name in claim["over"]]
        if own is None or any(other is None for other in others):
            return None
        gaps = [sign * (own.mean - other.mean) for other in others if other is not None]
        if claim["type"] == "gap":
            holds.append(abs(min(gaps) - claim["points"]) < 0.06)
        else:
            holds.append(min(gaps) > 0)
    return all(holds) != bool(claim.get("sometimes")) if holds else None


def _beats(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    metric, scope = claim["metric"], summary.protocol.view.get("score", "all")
    own = summary.column(claim["method"], metric, budget, scope)
    others = {n: summary.column(n, metric, budget, scope) for n in claim["over"]}
    others = {name: column for name, column in others.items() if column}
    if not own or not others:
        return None
    rows: list[tuple[str, int] | None] = list(summary.rows()) if claim.get("every_k") else [None]
    leads = _leads(own, others, rows, -1.0 if claim.get("lower") else 1.0)
    if not leads:
        return None
    distances = [lead for _, _, lead in leads]
    states = together(distances)[1]
    rival, row, worst = min(leads, key=lambda entry: _errors_from_zero(entry[2]))
    detail = f"smallest lead {_with_error(worst)}, over {rival}{_at(row)}"
    if len(leads) > 1:
        detail += f"; {len(leads)} comparisons, {states.count(HOLDS)} of them clearly ahead"
    behind = [f"{n}{_at(r)}" for (n, r, _), s in zip(leads, states, strict=True) if s == FAILS]
    if behind:
        more = f" and {len(behind) - 4} more" if len(behind) > 4 else ""
        detail += f"; clearly behind {', '.join(behind[:4])}{more}"
    left_out = [name for name in claim["over"] if name not in others]
    if left_out:
        detail += f"; without {', '.join(left_out)}"
    sign = -1.0 if claim.get("lower") else 1.0
    test, p = paired_test(sign * paired(own, others[rival]))
    return Finding(distances, detail, test, p)


def _most(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """Ahead of every rival at more than half of the K, clearly or at least not clearly behind."""
    own = summary.column(claim["method"], claim["metric"], budget)
    others = {n: summary.column(n, claim["metric"], budget) for n in claim["over"]}
    rows: dict[Any, list[Stat]] = {row: [] for row in summary.rows()}
    for _, row, lead in _leads(own, others, list(rows), 1.0):
        rows[row].append(lead)
    groups = [leads for leads in rows.values() if leads]
    if not groups:
        return None
    states = [together(leads)[0] for leads in groups]
    best = sum(min(s.mean for s in leads) > 0 for leads in groups)
    half, clear, behind = len(states) / 2, states.count(HOLDS), states.count(FAILS)
    state = HOLDS if clear > half else FAILS if len(states) - behind <= half else UNDECIDED
    detail = f"the highest mean at {best} of {len(states)} K, clearly ahead of all at {clear}, "
    detail += f"clearly behind one at {behind}"
    each = [outlook(leads) or Outlook(math.inf) for leads in groups]
    to_fail = 2 * sum(o.state == FAILS for o in each) >= len(each)  # at half of them
    ordered = sorted(o for o in each if o.state == (FAILS if to_fail else HOLDS))
    needed = math.ceil(half) if to_fail else int(half) + 1
    after = ordered[needed - 1] if len(ordered) >= needed else Outlook(math.inf)
    return Finding([], detail, state=state, outlook=after)


def _leads(
    own: dict[Any, float],
    others: dict[str, dict[Any, float]],
    rows: list[tuple[str, int] | None],
    sign: float,
) -> list[tuple[str, tuple[str, int] | None, Stat]]:
    """The lead over each rival on each row (None: the average over all)."""
    found = []
    for row in rows:
        mine = {p: sign * v for p, v in own.items() if row in (None, p[:2])}
        for name, column in others.items():
            theirs = {p: sign * v for p, v in column.items()}
            lead = paired_stat(mine, theirs)
            if lead is not None:
                found.append((name, row, lead))
    return found


def _errors_from_zero(lead: Stat) -> float:
    """A lead in its own errors: what is clearest comes last."""
    return lead.mean / lead.se if lead.se > 0 else math.copysign(math.inf, lead.mean)


def _at(row: tuple[str, int] | None) -> str:
    return "" if row is None else f" at {row[0]} K={row[1]}"


def _with_error(stat: Stat) -> str:
    return f"{stat.mean:+.3g}" + ("" if math.isnan(stat.se) else f" ± {stat.se:.2g}")


def _gap(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    metric, rival = claim["metric"], claim["over"][0]
    own, other = (summary.column(name, metric, budget) for name in (claim["method"], rival))
    lead = paired_stat(own, other)
    if lead is None:
        return None
    test, p = paired_test(paired(own, other))
    # Half the printed gain is the line: a smaller one is another result.
    distance = replace(lead, mean=lead.mean - 0.5 * claim["points"])
    detail = (
        f"measured {_with_error(lead)} points (holds from half of the printed {claim['points']})"
    )
    return Finding([distance], detail, test, p)


def _sweep(summary: Summary, claim: Claim, budget: str) -> list[tuple[float, str]]:
    """The (value, variant name) pairs of a claim's sweep that have results, in order."""
    low, high = claim.get("range", (-np.inf, np.inf))
    pairs = []
    for variant in summary.protocol.method(claim["method"]).variants():
        value = float(variant.setting[claim["param"]])
        if low <= value <= high and summary.column(variant.name, claim["metric"], budget):
            pairs.append((value, variant.name))
    return sorted(pairs)


def _stable(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    pairs = _sweep(summary, claim, budget)
    if len(pairs) < 2:
        return None
    spreads: dict[str, Stat] = {}
    for data in {d for d, _ in summary.rows()}:
        columns = [
            {p: v for p, v in summary.column(n, claim["metric"], budget).items() if p[0] == data}
            for _, n in pairs
        ]
        columns = sorted((c for c in columns if c), key=lambda c: float(np.mean(list(c.values()))))
        spread = paired_stat(columns[-1], columns[0]) if columns else None
        if spread is not None:
            spreads[data] = spread
    room = [replace(s, mean=claim["within"] - s.mean) for s in spreads.values()]
    words = ", ".join(f"{data} {_with_error(s)}" for data, s in sorted(spreads.items()))
    return Finding(room, f"spread {words} points")


def _trend(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    pairs = _sweep(summary, claim, budget)
    if len(pairs) < 2:
        return None
    first, last = (
        summary.column(name, claim["metric"], budget) for name in (pairs[0][1], pairs[-1][1])
    )
    return _direction(claim, last, first, f"from {pairs[0][0]:g} to {pairs[-1][0]:g}")


def _direction(
    claim: Claim, last: dict[Any, float], first: dict[Any, float], words: str
) -> Finding | None:
    change = paired_stat(last, first)
    if change is None:
        return None
    wanted = 1.0 if claim.get("direction", "up") == "up" else -1.0
    test, p = paired_test(paired(last, first))
    distance = replace(change, mean=wanted * change.mean)
    return Finding([distance], f"change {_with_error(change)} {words}", test, p)


def _budget_trend(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    names = summary.budgets()
    first, last = (
        summary.column(claim["method"], claim["metric"], b) for b in (names[0], names[-1])
    )
    return _direction(claim, last, first, f"from {names[0]} to {names[-1]}")


def histories(summary: Summary, method: str, budget: str) -> Iterator[tuple[Point, History]]:
    """(point, (iterations, objective, seconds of an iteration)) of a method's runs."""
    for result in summary.results:
        cell, kept = result["cell"], result.get("history")
        if cell["method"] == method and kept and cell["budget_name"] in (budget, NO_LABELS):
            values = np.asarray(kept["values"], dtype=float)
            at = 1 + kept["step"] * np.arange(len(values))  # values[i] is after iteration at[i]
            # processor time: another program beside it does not matter
            each = result.get("cpu_seconds", result["seconds"]) / (result["n_iter"] or at[-1])
            yield (cell["data"], cell["k"], cell["run"]), (at, values, float(each))


def _done(history: History, by: int) -> float:
    """The share of the fall after the first iteration that is done after ``by``, in per cent."""
    at, values, _ = history
    fall = values[0] - values[-1]
    return 100.0 * (values[0] - float(np.interp(by, at, values))) / fall if fall > 0 else 100.0


def _by_data(points: dict[Point, float]) -> dict[str, Stat]:
    """A mean with its error for each data set."""
    sets: dict[str, dict[Point, float]] = {}
    for point, value in points.items():
        sets.setdefault(point[0], {})[point] = value
    zero = dict.fromkeys(points, 0.0)
    found = {data: paired_stat(own, zero) for data, own in sets.items()}
    return {data: stat for data, stat in found.items() if stat is not None}


def _converged(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """By an iteration all but a share of the fall is done; or as much of it as of a rival's."""
    by, over = claim["by"], claim.get("over", [])
    done = {p: _done(h, by) for p, h in histories(summary, claim["method"], budget)}
    if not done:
        return None
    line = 100.0 * (1.0 - claim.get("within", 0.0))
    detail = f"of the fall after iteration 1, {by} iterations do "
    detail += ", ".join(f"{d} {_share(s)}" for d, s in _by_data(done).items())
    for rival in over:  # as fast as it: no clear difference against, on any set
        other = {p: _done(h, by) for p, h in histories(summary, rival, budget)}
        detail += f"; {rival} " + ", ".join(f"{d} {_share(s)}" for d, s in _by_data(other).items())
        done = {p: done[p] - other[p] for p in set(done) & set(other)}
        line = -100.0 * claim["margin"]
    if not done:
        return None
    far = [replace(s, mean=s.mean - line) for s in _by_data(done).values()]
    return Finding([replace(s, se=0.0) if math.isnan(s.se) else s for s in far], detail)


def _share(stat: Stat) -> str:
    return f"{stat.mean:.1f}" + ("" if math.isnan(stat.se) else f" ± {stat.se:.1f}") + " %"


def _sooner(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """Less time than every rival to come as near to its own lowest objective."""

    def seconds(method: str) -> dict[Point, float]:
        found = {}
        for point, (at, values, each) in histories(summary, method, budget):
            near = np.flatnonzero(values <= (1.0 + claim["within"]) * values.min())
            found[point] = float(each * at[near[0]])
        return found

    times = {name: seconds(name) for name in (claim["method"], *claim["over"])}
    own = times.pop(claim["method"])
    # in logarithms: a rival is so many times slower
    leads = {
        (name, data): stat
        for name, found in times.items()
        for data in {p[0] for p in own}
        if (stat := paired_stat(*({p: math.log(v) for p, v in column.items() if p[0] == data}
                                  for column in (found, own)))) is not None
    }  # fmt: skip
    if not leads:
        return None
    states = together(list(leads.values()))[1]
    ran = {name: found for name, found in {claim["method"]: own, **times}.items() if found}
    shared = set.intersection(*map(set, ran.values()))  # the runs that all of them have
    means = {n: f"{1e3 * float(np.mean([f[p] for p in shared])):.0f}" for n, f in ran.items()}
    sets = ", ".join(sorted({point[0] for point in shared}))
    detail = f"ms on average ({len(shared)} runs, {sets}): " + ", ".join(
        f"{name} {value}" for name, value in means.items()
    )
    behind = [f"{n} on {d}" for (n, d), s in zip(leads, states, strict=True) if s == FAILS]
    detail += f"; clearly slower than {', '.join(behind)}" if behind else ""
    return Finding(list(leads.values()), detail)


def _comparable(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """The averages of some methods lie within so many points of one another."""
    columns = {n: summary.column(n, claim["metric"], budget) for n in claim["over"]}
    ordered = sorted(
        (c for c in columns.values() if c), key=lambda c: float(np.mean(list(c.values())))
    )
    spread = paired_stat(ordered[-1], ordered[0]) if len(ordered) > 1 else None
    if spread is None:
        return None
    room = replace(spread, mean=claim["within"] - spread.mean)
    return Finding([room], f"spread {_with_error(spread)} points")


def _counts(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """One method over another at each value of a sweep that print does not state."""
    pairs = _sweep(summary, claim, budget)
    leads = []
    for value, name in pairs:
        rival = name.replace(f"{claim['method']}[", f"{claim['over'][0]}[")
        columns = (summary.column(n, claim["metric"], budget) for n in (name, rival))
        lead = paired_stat(*columns)
        if lead is not None:
            leads.append((value, lead))
    if not leads:
        return None
    states = {decide(lead.mean, lead.se) for _, lead in leads}
    state = states.pop() if len(states) == 1 else UNDECIDED
    words = ", ".join(f"{value:g}: {_with_error(lead)}" for value, lead in leads)
    both = min(lead.mean for _, lead in leads) < 0 < max(lead.mean for _, lead in leads)
    after = Outlook(math.inf) if both else None  # the answer changes with what print leaves open
    distances = [lead for _, lead in leads]
    return Finding(distances, f"lead by {claim['param']} {words}", state=state, outlook=after)


RULES: dict[str, Callable[[Summary, Claim, str], Finding | None]] = {
    "beats": _beats,
    "gap": _gap,
    "most": _most,
    "stable": _stable,
    "trend": _trend,
    "budget_trend": _budget_trend,
    "converged": _converged,
    "sooner": _sooner,
    "comparable": _comparable,
    "counts": _counts,
}
