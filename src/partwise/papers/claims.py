"""The papers' sentences, judged: in the printed table, and in what was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from partwise.papers.cells import NO_LABELS
from partwise.papers.protocol import Protocol
from partwise.papers.summary import Summary, paired, paired_test

Claim = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """A claim with what became of it; None where it cannot be judged."""

    text: str
    budget: str
    printed: bool | None
    measured: bool | None
    detail: str
    test: str = ""
    p: float | None = None


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
        for budget in budgets:
            printed = _printed(summary.protocol, claim)
            verdicts.append(rule(summary, claim, budget, printed))
    return verdicts


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
    metric, sign = claim["metric"], -1.0 if claim.get("lower") else 1.0
    scope = _scope(summary)
    have = [name for name in claim["over"] if summary.column(name, metric, budget, scope)]
    own = summary.column(claim["method"], metric, budget, scope)
    if not own or not have:
        return Verdict(claim["text"], budget, printed, None, "not run")
    rows: list[tuple[str | None, int | None]] = [(None, None)]
    if claim.get("every_k"):
        rows = [(d, k) for d, k in summary.rows()]
    losses, worst, rival = [], np.inf, have[0]
    for data, k in rows:
        mine = summary.stat(claim["method"], metric, budget=budget, scope=scope, data=data, k=k)
        for name in have:
            other = summary.stat(name, metric, budget=budget, scope=scope, data=data, k=k)
            if mine is None or other is None:
                continue
            gap = sign * (mine.mean - other.mean)
            if gap < worst:
                worst, rival = gap, name
            if gap <= 0:
                losses.append(f"{name}{'' if k is None else f' at {data} K={k}'}")
    differences = sign * paired(own, summary.column(rival, metric, budget, scope))
    test, p = paired_test(differences)
    unit = " s" if metric == "seconds" else ""
    detail = f"smallest lead {worst:+.3g}{unit}, over {rival}"
    if losses:
        shown = ", ".join(losses[:4]) + (f" and {len(losses) - 4} more" if len(losses) > 4 else "")
        detail += f"; not ahead of {shown}"
    left_out = [name for name in claim["over"] if name not in have]
    if left_out:
        detail += f"; without {', '.join(left_out)}"
    return Verdict(claim["text"], budget, printed, not losses, detail, test, p)


def _gap(summary: Summary, claim: Claim, budget: str, printed: bool | None) -> Verdict:
    metric, rival = claim["metric"], claim["over"][0]
    own, other = (summary.stat(name, metric, budget=budget) for name in (claim["method"], rival))
    if own is None or other is None:
        return Verdict(claim["text"], budget, printed, None, "not run")
    differences = paired(
        summary.column(claim["method"], metric, budget), summary.column(rival, metric, budget)
    )
    test, p = paired_test(differences)
    gap = own.mean - other.mean
    # Half the printed gain is the line: a smaller one is another result.
    holds = gap >= 0.5 * claim["points"]
    detail = f"measured {gap:+.2f} points (holds from half of the printed {claim['points']})"
    return Verdict(claim["text"], budget, printed, holds, detail, test, p)


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
        return Verdict(claim["text"], budget, None, None, "not run")
    spreads = {}
    for data in {d for d, _ in summary.rows()}:
        stats = [summary.stat(name, claim["metric"], budget=budget, data=data) for _, name in pairs]
        means = [s.mean for s in stats if s is not None]
        spreads[data] = max(means) - min(means)
    detail = "spread " + ", ".join(f"{data} {spread:.1f}" for data, spread in spreads.items())
    holds = max(spreads.values()) <= claim["within"]
    return Verdict(claim["text"], budget, None, holds, detail + " points")


def _trend(summary: Summary, claim: Claim, budget: str, printed: bool | None) -> Verdict:
    pairs = _sweep(summary, claim, budget)
    if len(pairs) < 2:
        return Verdict(claim["text"], budget, None, None, "not run")
    first, last = (
        summary.column(name, claim["metric"], budget) for name in (pairs[0][1], pairs[-1][1])
    )
    return _direction(claim, budget, paired(last, first), pairs[0][0], pairs[-1][0])


def _direction(
    claim: Claim, budget: str, differences: np.ndarray, start: object, end: object
) -> Verdict:
    if len(differences) == 0:
        return Verdict(claim["text"], budget, None, None, "not run")
    change = float(np.mean(differences))
    wanted = 1.0 if claim.get("direction", "up") == "up" else -1.0
    test, p = paired_test(differences)
    detail = f"change {change:+.3g} from {start} to {end}"
    return Verdict(claim["text"], budget, None, wanted * change > 0, detail, test, p)


def _budget_trend(summary: Summary, claim: Claim, budget: str, printed: bool | None) -> Verdict:
    names = summary.budgets()
    ends = (names[0], names[-1])
    first, last = (summary.column(claim["method"], claim["metric"], b) for b in ends)
    return _direction(claim, NO_LABELS, paired(last, first), names[0], names[-1])


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
        return Verdict(claim["text"], budget, None, None, "not run")
    detail = "further fall " + ", ".join(f"{data} {100 * drop:.2g} %" for data, drop in drops)
    return Verdict(claim["text"], budget, None, max(d for _, d in drops) < claim["within"], detail)


Rule = Callable[[Summary, Claim, str, "bool | None"], Verdict]
RULES: dict[str, Rule] = {
    "beats": _beats,
    "gap": _gap,
    "stable": _stable,
    "trend": _trend,
    "budget_trend": _budget_trend,
    "converged": _converged,
}
