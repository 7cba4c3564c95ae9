"""The papers' sentences, judged: in the printed table, and in what was measured.

A claim holds or fails where the measured difference is beyond `CLEAR` standard errors from the
line that divides the two; otherwise it is undecided. Differences are paired: two methods of a run
see the same samples, labels and start.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from partwise.papers.protocol import Protocol
from partwise.papers.summary import Stat, Summary, paired, paired_stat, paired_test
from partwise.papers.trials import NO_LABELS

Claim = dict[str, Any]
CLEAR = 2.0  # standard errors beyond which a difference is one
HOLDS, FAILS, UNDECIDED, NOT_RUN = "holds", "fails", "undecided", "not run"


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


def judge(summary: Summary) -> list[Verdict]:
    """Judge every claim of a protocol, once for each label budget.

    Parameters
    ----------
    summary : Summary
        The measured numbers, with their protocol.

    Returns
    -------
    list of Verdict
    """
    verdicts = []
    for claim in summary.protocol.claims:
        rule = RULES[claim["type"]]
        budgets = summary.budgets() if claim["type"] != "budget_trend" else [NO_LABELS]
        theirs = {NO_LABELS} | {b.name for b in summary.protocol.budgets if b.printed}
        for budget in budgets:
            verdict = rule(summary, claim, budget, _printed(summary.protocol, claim))
            verdicts.append(replace(verdict, counted=budget in theirs))
    return verdicts


def decide(distance: float, se: float) -> str:
    """A verdict from how far a number is on the claimed side of its line."""
    if math.isnan(se):
        return UNDECIDED
    if abs(distance) <= CLEAR * se:
        return UNDECIDED
    return HOLDS if distance > 0 else FAILS


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
    return all(holds) if holds else None


def _scope(summary: Summary) -> str:
    return summary.protocol.view.get("score", "all")


def _beats(summary: Summary, claim: Claim, budget: str, printed: bool | None) -> Verdict:
    metric, scope = claim["metric"], _scope(summary)
    own = summary.column(claim["method"], metric, budget, scope)
    others = {n: summary.column(n, metric, budget, scope) for n in claim["over"]}
    others = {name: column for name, column in others.items() if column}
    if not own or not others:
        return Verdict(claim["text"], budget, printed, NOT_RUN, "")
    rows: list[tuple[str, int] | None] = list(summary.rows()) if claim.get("every_k") else [None]
    leads = _leads(own, others, rows, -1.0 if claim.get("lower") else 1.0)
    if not leads:
        return Verdict(claim["text"], budget, printed, NOT_RUN, "")
    states = [decide(lead.mean, lead.se) for _, _, lead in leads]
    state = FAILS if FAILS in states else UNDECIDED if UNDECIDED in states else HOLDS
    rival, _, worst = min(leads, key=lambda entry: entry[2].mean)
    unit = " s" if metric == "seconds" else ""
    detail = f"smallest lead {_with_error(worst)}{unit}, over {rival}"
    behind = [f"{n}{_at(row)}" for (n, row, lead) in leads if decide(lead.mean, lead.se) == FAILS]
    if behind:
        more = f" and {len(behind) - 4} more" if len(behind) > 4 else ""
        detail += f"; clearly behind {', '.join(behind[:4])}{more}"
    left_out = [name for name in claim["over"] if name not in others]
    if left_out:
        detail += f"; without {', '.join(left_out)}"
    sign = -1.0 if claim.get("lower") else 1.0
    test, p = paired_test(sign * paired(own, others[rival]))
    return Verdict(claim["text"], budget, printed, state, detail, test, p)


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


def _at(row: tuple[str, int] | None) -> str:
    return "" if row is None else f" at {row[0]} K={row[1]}"


def _with_error(stat: Stat) -> str:
    return f"{stat.mean:+.3g}" + ("" if math.isnan(stat.se) else f" ± {stat.se:.2g}")


def _gap(summary: Summary, claim: Claim, budget: str, printed: bool | None) -> Verdict:
    metric, rival = claim["metric"], claim["over"][0]
    own, other = (summary.column(name, metric, budget) for name in (claim["method"], rival))
    lead = paired_stat(own, other)
    if lead is None:
        return Verdict(claim["text"], budget, printed, NOT_RUN, "")
    test, p = paired_test(paired(own, other))
    # Half the printed gain is the line: a smaller one is another result.
    state = decide(lead.mean - 0.5 * claim["points"], lead.se)
    detail = (
        f"measured {_with_error(lead)} points (holds from half of the printed {claim['points']})"
    )
    return Verdict(claim["text"], budget, printed, state, detail, test, p)


def _sweep(summary: Summary, claim: Claim, budget: str) -> list[tuple[float, str]]:
    """The (value, variant name) pairs of a claim's sweep that have results, in order."""
    low, high = claim.get("range", (-np.inf, np.inf))
    pairs = []
    for variant in summary.protocol.method(claim["method"]).variants():
        value = float(variant.setting[claim["param"]])
        if low <= value <= high and summary.column(variant.name, claim["metric"], budget):
            pairs.append((value, variant.name))
    return sorted(pairs)


def _stable(summary: Summary, claim: Claim, budget: str, printed: bool | None) -> Verdict:
    pairs = _sweep(summary, claim, budget)
    if len(pairs) < 2:
        return Verdict(claim["text"], budget, None, NOT_RUN, "")
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
    states = [decide(claim["within"] - s.mean, s.se) for s in spreads.values()]
    state = FAILS if FAILS in states else UNDECIDED if UNDECIDED in states else HOLDS
    words = ", ".join(f"{data} {_with_error(s)}" for data, s in sorted(spreads.items()))
    return Verdict(claim["text"], budget, None, state, f"spread {words} points")


def _trend(summary: Summary, claim: Claim, budget: str, printed: bool | None) -> Verdict:
    pairs = _sweep(summary, claim, budget)
    if len(pairs) < 2:
        return Verdict(claim["text"], budget, None, NOT_RUN, "")
    first, last = (
        summary.column(name, claim["metric"], budget) for name in (pairs[0][1], pairs[-1][1])
    )
    return _direction(claim, budget, last, first, f"from {pairs[0][0]:g} to {pairs[-1][0]:g}")


def _direction(
    claim: Claim, budget: str, last: dict[Any, float], first: dict[Any, float], words: str
) -> Verdict:
    change = paired_stat(last, first)
    if change is None:
        return Verdict(claim["text"], budget, None, NOT_RUN, "")
    wanted = 1.0 if claim.get("direction", "up") == "up" else -1.0
    test, p = paired_test(paired(last, first))
    state = decide(wanted * change.mean, change.se)
    return Verdict(
        claim["text"], budget, None, state, f"change {_with_error(change)} {words}", test, p
    )


def _budget_trend(summary: Summary, claim: Claim, budget: str, printed: bool | None) -> Verdict:
    names = summary.budgets()
    first, last = (
        summary.column(claim["method"], claim["metric"], b) for b in (names[0], names[-1])
    )
    return _direction(claim, NO_LABELS, last, first, f"from {names[0]} to {names[-1]}")


def _converged(summary: Summary, claim: Claim, budget: str, printed: bool | None) -> Verdict:
    drops = []
    for result in summary.results:
        cell, history = result["cell"], result.get("history")
        if cell["method"] != claim["method"] or not history:
            continue
        if cell["budget_name"] not in (budget, NO_LABELS):
            continue
        values = np.asarray(history["values"], dtype=float)
        # values[i] is the objective after iteration 1 + i * step
        at = min((claim["by"] - 1) // history["step"], len(values) - 1)
        drops.append((cell["data"], float((values[at] - values[-1]) / abs(values[at]))))
    if not drops:
        return Verdict(claim["text"], budget, None, NOT_RUN, "")
    detail = "further fall " + ", ".join(f"{data} {100 * drop:.2g} %" for data, drop in drops)
    state = HOLDS if max(d for _, d in drops) < claim["within"] else FAILS
    return Verdict(claim["text"], budget, None, state, detail)


Rule = Callable[[Summary, Claim, str, "bool | None"], Verdict]
RULES: dict[str, Rule] = {
    "beats": _beats,
    "gap": _gap,
    "stable": _stable,
    "trend": _trend,
    "budget_trend": _budget_trend,
    "converged": _converged,
}
