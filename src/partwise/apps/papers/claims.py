"""Verdicts on the papers' claims, from printed and from measured numbers.

Each claim has a threshold that separates "holds" from "fails". The verdict is "undecided" if the
measured difference is within `CLEAR` standard errors of the threshold. Differences are paired: two
methods of a run have the same samples, labels and start. A claim with several comparisons (for
example at every K, or with every rival) holds if all comparisons hold. It fails if one comparison
fails by more than `critical` standard errors, which allows for the number of comparisons.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from partwise.apps.papers.protocol import Protocol
from partwise.apps.papers.summary import NOTHING, POINT, Stat, Summary, over_rows, paired_stat
from partwise.apps.papers.trials import NO_LABELS

Claim = dict[str, Any]
CLEAR = 2.0  # number of standard errors above which a difference is significant
HOLDS, FAILS, UNDECIDED, NOT_RUN = "holds", "fails", "undecided", "not run"
OPPOSITE = {HOLDS: FAILS, FAILS: HOLDS}
# If more runs per table row than this would be needed for a verdict, the text of the verdict
# reports that the methods are equal within the errors, instead of the number of runs.
MOST_RUNS = 100


class Finding(NamedTuple):
    """Distances of comparisons from their thresholds; positive ones support the claim.

    `together` computes the verdict from the distances, unless a rule sets ``state`` itself.
    """

    distances: list[Stat]
    detail: str
    state: str = ""


@dataclass(frozen=True)
class Verdict:
    """Verdict on a claim of a paper; ``printed`` is None if the paper has no numbers."""

    text: str
    budget: str
    printed: bool | None
    measured: str
    detail: str
    counted: bool = True  # False if the data or the number of labels differ from the paper
    sentence: str = ""  # the printed sentence that the claim is part of


def judge(summary: Summary, others: dict[str, Summary] | None = None) -> list[Verdict]:
    """Return a verdict on every claim about a table, for each number of labels.

    A claim that lists other variants of the settings in ``also`` depends on a setting that the
    paper does not print. It is judged in each of these variants, whose results are in ``others`` by
    name. It is undecided unless all variants agree.
    """
    theirs = {NO_LABELS} | {b.name for b in summary.protocol.budgets if b.printed}
    verdicts = []
    for claim in summary.protocol.claims:
        printed = _printed(summary.protocol, claim)
        for budget in [NO_LABELS] if claim["type"] == "budget_trend" else summary.budgets():
            state, detail = _judged(summary, claim, budget)
            for name in claim.get("also", []) if state != NOT_RUN else []:
                second, words = _judged((others or {}).get(name), claim, budget)
                detail += f'; with "{name}" {second}: {words or "0 runs"}'
                state = state if second in (state, NOT_RUN) else UNDECIDED
            counted = summary.protocol.comparable and budget in theirs
            about = (claim["text"], budget, printed, state, detail)
            verdicts.append(Verdict(*about, counted, claim.get("sentence", "")))
    return verdicts


def _judged(summary: Summary | None, claim: Claim, budget: str) -> tuple[str, str]:
    """Return the verdict on one claim, and the numbers that decide it as text."""
    found = RULES[claim["type"]](summary, claim, budget) if summary else None
    if found is None:
        return NOT_RUN, ""
    state = found.state or together(found.distances)[0]
    more = outlook(found.distances) if state == UNDECIDED and not found.state else ""
    if claim.get("sometimes"):  # the paper's sentence admits exceptions
        state = OPPOSITE.get(state, state)
    return state, found.detail + (f"; {more}" if more else "")


def outlook(distances: list[Stat]) -> str:
    """Return a text about how many runs per table row a verdict would need.

    The estimate assumes that the means and the standard deviations do not change.
    """
    known = [d for d in distances if d.se > 0 and d.mean != 0]
    behind = [d for d in known if d.mean < 0]
    limit = critical(len(known), 1_000_000) if behind else CLEAR
    needed = [d.n / d.rows * (limit * d.se / d.mean) ** 2 for d in behind or known]
    if not needed:
        return ""
    runs, have = (min if behind else max)(needed), known[0].n / known[0].rows
    if runs > MOST_RUNS:
        return f"level within the errors of {have:.0f} runs per row"
    return f"about {max(runs, have + 1):.0f} runs per row would decide it ({have:.0f} here)"


def decide(distance: float, se: float, *, against: float = CLEAR) -> str:
    """Return "holds", "fails" or "undecided" for a distance from a threshold.

    A claim fails if the distance is negative by more than ``against`` standard errors. This limit
    is larger for one of several comparisons.
    """
    if math.isnan(se) or abs(distance) <= (CLEAR if distance > 0 else against) * se:
        return UNDECIDED
    return HOLDS if distance > 0 else FAILS


@cache
def critical(comparisons: int, freedom: int) -> float:
    """Return the critical value, in standard errors, for one of several comparisons.

    With the Bonferroni correction, the largest of the differences exceeds it by chance no more
    often than a single difference exceeds `CLEAR`. Student's distribution is used, since the
    standard errors are estimates from a few runs.
    """
    from scipy import stats

    if comparisons < 2:
        return CLEAR
    return float(stats.t.isf(stats.norm.sf(CLEAR) / comparisons, max(freedom, 1)))


def together(distances: list[Stat]) -> tuple[str, list[str]]:
    """Return the verdict on a claim with several comparisons, and on each comparison."""
    known = sum(not math.isnan(d.se) for d in distances)
    states = [decide(d.mean, d.se, against=critical(known, d.n - d.rows)) for d in distances]
    if FAILS in states:
        return FAILS, states
    return (UNDECIDED if UNDECIDED in states else HOLDS), states


def _printed(protocol: Protocol, claim: Claim) -> bool | None:
    """Return whether a claim holds in the printed table; None if numbers are missing."""
    exact = claim["type"] == "gap"
    if not (exact or claim["type"] == "beats"):
        return None
    rows = {n.k for n in protocol.printed if n.metric == claim["metric"]}
    ks = rows - {"avg"} if claim.get("every_k") else rows & {"avg"}
    gaps = [_printed_gap(protocol, claim, k) for k in ks]
    if not gaps or None in gaps:
        return None
    holds = [abs(g - claim["points"]) < 0.06 if exact else g > 0 for g in gaps if g is not None]
    return all(holds) != bool(claim.get("sometimes"))


def _printed_gap(protocol: Protocol, claim: Claim, k: str) -> float | None:
    """Return the smallest printed lead of a method over its rivals, at K clusters."""
    names = (claim["method"], *claim["over"])
    own, *others = (protocol.printed_value(claim["metric"], k, name) for name in names)
    sign = -1.0 if claim.get("lower") else 1.0
    gaps = [sign * (own.mean - other.mean) for other in others if own and other]
    return min(gaps) if gaps and len(gaps) == len(others) else None


def _leads(summary: Summary, claim: Claim, budget: str, *, every_k: bool) -> Leads:
    """Return a method's lead over each rival, on average or per data set and K."""
    metric, scope = claim["metric"], summary.protocol.view.get("score", "all")
    sign = -1.0 if claim.get("lower") else 1.0
    own = sign * summary.column(claim["method"], metric, budget, scope)
    leads: Leads = []
    for name in claim["over"]:
        gaps = own - sign * summary.column(name, metric, budget, scope)
        groups: Any = gaps.groupby(level=["data", "k"]) if every_k else [(None, gaps)]
        found = [(name, row, stat) for row, part in groups if (stat := over_rows(part))]
        # A few runs may agree by chance, so the error at one K is at least the pooled error.
        pooled = float(np.sqrt(np.mean([s.sd**2 for *_, s in found if s.sd == s.sd] or [np.nan])))
        leads += [
            (*at, replace(s, se=float(np.fmax(s.se, pooled / np.sqrt(s.n)))) if every_k else s)
            for *at, s in found
        ]
    return leads


Leads = list[tuple[str, tuple[str, int] | None, Stat]]


def _beats(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """Judge the claim that a method is better than each of its rivals."""
    leads = _leads(summary, claim, budget, every_k=bool(claim.get("every_k")))
    if not leads:
        return None
    distances = [lead for _, _, lead in leads]
    states = together(distances)[1]
    rival, row, worst = min(leads, key=lambda entry: _in_errors(entry[2]))
    detail = f"smallest lead {_with_error(worst)}, over {rival}{_at(row)}"
    if len(leads) > 1:
        detail += f"; {len(leads)} comparisons, clearly ahead in {states.count(HOLDS)}"
    behind = [f"{n}{_at(r)}" for (n, r, _), s in zip(leads, states, strict=True) if s == FAILS]
    if behind:
        more = f" and {len(behind) - 4} more" if len(behind) > 4 else ""
        detail += f"; clearly behind {', '.join(behind[:4])}{more}"
    left_out = [name for name in claim["over"] if name not in {n for n, _, _ in leads}]
    if left_out:
        detail += f"; without {', '.join(left_out)}"
    return Finding(distances, detail)


def _most(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """Judge the claim that a method is best at most numbers of clusters K."""
    rows: dict[Any, list[Stat]] = {}
    for _, row, lead in _leads(summary, claim, budget, every_k=True):
        rows.setdefault(row, []).append(lead)
    if not rows:
        return None
    states = [together(leads)[0] for leads in rows.values()]
    best = sum(min(s.mean for s in leads) > 0 for leads in rows.values())
    half, clear, behind = len(states) / 2, states.count(HOLDS), states.count(FAILS)
    state = HOLDS if clear > half else FAILS if len(states) - behind <= half else UNDECIDED
    detail = f"the highest mean at {best} of {len(states)} K, clearly ahead of all at {clear}, "
    return Finding([], detail + f"clearly behind one at {behind}", state=state)


def _in_errors(lead: Stat) -> float:
    """Return the lead of a method divided by the standard error of the lead."""
    return lead.mean / lead.se if lead.se > 0 else math.copysign(math.inf, lead.mean)


def _at(row: tuple[str, int] | None) -> str:
    """Return text such as " at yale K=2" for one data set and K, or "" for an average."""
    return "" if row is None else f" at {row[0]} K={row[1]}"


def _with_error(stat: Stat) -> str:
    """Return a difference with its standard error as text."""
    return f"{stat.mean:+.3g}" + ("" if math.isnan(stat.se) else f" ± {stat.se:.2g}")


def _gap(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """Judge the claim that a method is better than a rival by some points."""
    names = (claim["method"], claim["over"][0])
    lead = paired_stat(*(summary.column(n, claim["metric"], budget) for n in names))
    if lead is None:
        return None
    # The threshold is half of the printed gain; a smaller gain counts as a different result.
    distance = replace(lead, mean=lead.mean - 0.5 * claim["points"])
    detail = f"measured {_with_error(lead)} points (it holds from half of {claim['points']})"
    return Finding([distance], detail)


def _sweep(summary: Summary, claim: Claim, budget: str) -> list[tuple[float, str]]:
    """Return the tried values of a parameter that have results, with their columns."""
    low, high = claim.get("range", (-np.inf, np.inf))
    pairs = []
    for column in summary.protocol.method(claim["method"]).columns():
        value = float(column.setting[claim["param"]])
        if low <= value <= high and not summary.column(column.name, claim["metric"], budget).empty:
            pairs.append((value, column.name))
    return sorted(pairs)


def _spread(columns: list[pd.Series]) -> Stat | None:
    """Return the paired difference of the columns with the highest and lowest mean."""
    ordered = sorted((c for c in columns if not c.empty), key=lambda column: float(column.mean()))
    return paired_stat(ordered[-1], ordered[0]) if len(ordered) > 1 else None


def _level(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """Judge the claim that averages differ by at most ``within`` points.

    The averages are those of several methods, or of several parameter values on each data set.
    """
    sweep = claim["type"] == "stable"
    names = [n for _, n in _sweep(summary, claim, budget)] if sweep else claim["over"]
    columns = [summary.column(name, claim["metric"], budget) for name in names]
    spreads = {}
    for data in summary.sets() if sweep else [""]:
        parts = [c[c.index.get_level_values("data") == data] if data else c for c in columns]
        if found := _spread(parts):
            spreads[data] = found
    room = [replace(s, mean=claim["within"] - s.mean) for s in spreads.values()]
    words = ", ".join(f"{data} {_with_error(s)}".strip() for data, s in spreads.items())
    return Finding(room, f"spread {words} points") if room else None


def _trend(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """Judge the change between the first and last parameter value or label number."""
    if claim["type"] == "budget_trend":
        ends = [(b, claim["method"], b) for b in summary.budgets()]
    else:
        ends = [(f"{value:g}", name, budget) for value, name in _sweep(summary, claim, budget)]
    if len(ends) < 2:
        return None
    columns = (summary.column(name, claim["metric"], b) for _, name, b in (ends[-1], ends[0]))
    change = paired_stat(*columns)
    if change is None:
        return None
    sign = 1.0 if claim.get("direction", "up") == "up" else -1.0
    distance = replace(change, mean=sign * change.mean)
    words = f"change {_with_error(change)} from {ends[0][0]} to {ends[-1][0]}"
    return Finding([distance], words)


class History(NamedTuple):
    """Iterations of a run, the objective after each, and the seconds per iteration."""

    at: Any
    values: Any
    seconds: float


def histories(
    summary: Summary, method: str, budget: str
) -> Iterator[tuple[tuple[str, int, int], History]]:
    """Yield data set, K and number of each run of a method, with its `History`."""
    for result in summary.results:
        cell, kept = result["cell"], result.get("history")
        if cell["method"] == method and kept and cell["budget_name"] in (budget, NO_LABELS):
            values = np.asarray(kept["values"], dtype=float)
            # `values[i]` is the objective after iteration `at[i]`
            at = 1 + kept["step"] * np.arange(len(values))
            # Use processor time if it was recorded, because other processes do not affect it.
            each = result.get("cpu_seconds", result["seconds"]) / (result["n_iter"] or at[-1])
            yield (cell["data"], cell["k"], cell["run"]), History(at, values, float(each))


def _series(values: dict[tuple[str, int, int], float]) -> pd.Series:
    """Return values by (data, K, run) as a pandas series."""
    return pd.Series(values, dtype=float).rename_axis(POINT) if values else NOTHING


def _done(summary: Summary, method: str, budget: str, by: int) -> pd.Series:
    """Return the percentage of the total decrease that iteration ``by`` has reached."""
    found = {}
    for point, (at, values, _) in histories(summary, method, budget):
        fall = values[0] - values[-1]
        left = values[0] - float(np.interp(by, at, values))
        found[point] = 100.0 * left / fall if fall > 0 else 100.0
    return _series(found)


def _by_data(values: pd.Series) -> dict[str, Stat]:
    """Return the mean and the standard error of values on each data set."""
    found = {str(data): over_rows(part) for data, part in values.groupby(level="data")}
    return {data: stat for data, stat in found.items() if stat}


def _converged(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """Judge the claim that a method has almost converged at a given iteration.

    The objective must have reached a share of its total decrease, or the share of each rival.
    """

    def words(done: pd.Series) -> str:
        shares = ((d, s.mean, s.se) for d, s in _by_data(done).items())
        return ", ".join(
            f"{d} {m:.1f}{'' if math.isnan(e) else f' ± {e:.1f}'}%" for d, m, e in shares
        )

    by = claim["by"]
    done = _done(summary, claim["method"], budget, by)
    if done.empty:
        return None
    line = 100.0 * (1.0 - claim.get("within", 0.0))
    detail = f"of the fall after iteration 1, {by} iterations do {words(done)}"
    for rival in claim.get("over", []):  # a rival is as fast if there is no clear difference
        other = _done(summary, rival, budget, by)
        detail += f"; {rival} {words(other)}"
        done, line = done - other, -100.0 * claim["margin"]
    far = [replace(s, mean=s.mean - line) for s in _by_data(done).values()]
    return Finding([replace(s, se=0.0) if math.isnan(s.se) else s for s in far], detail)


def seconds_until(summary: Summary, method: str, budget: str, within: float) -> pd.Series:
    """Return the seconds until a run's objective is close to its lowest value."""
    found = {}
    for point, (at, values, each) in histories(summary, method, budget):
        near = np.flatnonzero(values <= (1.0 + within) * values.min())
        found[point] = float(each * at[near[0]])
    return _series(found)


def slower(summary: Summary, claim: Claim, budget: str) -> dict[tuple[str, str], Stat]:
    """Return the log ratio of a rival's time to the method's, by rival and data set.

    Each time ends when a method comes close to its own lowest objective (`seconds_until`).
    """
    own = np.log(seconds_until(summary, claim["method"], budget, claim["within"]))
    found: dict[tuple[str, str], Stat] = {}
    for name in claim["over"]:
        other = np.log(seconds_until(summary, name, budget, claim["within"]))
        if not (other.empty or own.empty):
            found |= {(name, d): s for d, s in _by_data(other - own).items()}
    return found


def _sooner(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """Judge the claim that a method converges in less time than each of its rivals."""
    leads = slower(summary, claim, budget)
    if not leads:
        return None
    states = together(list(leads.values()))[1]
    names = [claim["method"], *claim["over"]]
    times = {n: seconds_until(summary, n, budget, claim["within"]) for n in names}
    table = pd.DataFrame({n: t for n, t in times.items() if not t.empty}).dropna()
    sets = ", ".join(sorted(set(table.index.get_level_values("data"))))
    means = ", ".join(f"{name} {1e3 * value:.0f}" for name, value in table.mean().items())
    detail = f"ms on average ({len(table)} runs, {sets}): {means}"
    behind = [f"{n} on {d}" for (n, d), s in zip(leads, states, strict=True) if s == FAILS]
    detail += f"; clearly slower than {', '.join(behind)}" if behind else ""
    return Finding(list(leads.values()), detail)


def _counts(summary: Summary, claim: Claim, budget: str) -> Finding | None:
    """Compare two methods at each value of a parameter that the paper does not print."""
    leads = []
    for value, name in _sweep(summary, claim, budget):
        rival = name.replace(f"{claim['method']}[", f"{claim['over'][0]}[")
        lead = paired_stat(*(summary.column(n, claim["metric"], budget) for n in (name, rival)))
        if lead is not None:
            leads.append((value, lead))
    if not leads:
        return None
    states = {decide(lead.mean, lead.se) for _, lead in leads}
    words = ", ".join(f"{value:g}: {_with_error(lead)}" for value, lead in leads)
    state = states.pop() if len(states) == 1 else UNDECIDED
    return Finding([lead for _, lead in leads], f"lead by {claim['param']} {words}", state=state)


RULES: dict[str, Callable[[Summary, Claim, str], Finding | None]] = {
    "beats": _beats,
    "gap": _gap,
    "most": _most,
    "stable": _level,
    "trend": _trend,
    "budget_trend": _trend,
    "converged": _converged,
    "sooner": _sooner,
    "comparable": _level,
    "counts": _counts,
}
