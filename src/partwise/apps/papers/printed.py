"""Measured averages beside printed ones, and the cause of each that is far from print."""

from __future__ import annotations

import math
from dataclasses import dataclass

from partwise.apps.papers.claims import CLEAR
from partwise.apps.papers.document import Text
from partwise.apps.papers.protocol import Cause, ComparedMethod, Printed, Protocol
from partwise.apps.papers.summary import Stat, Summary
from partwise.apps.papers.trials import NO_LABELS

NO_RUNS = "0 runs"
FAR = 3.0  # points from print beyond which an average did not come back


@dataclass(frozen=True)
class Comparison:
    """One printed average with what was measured over the same rows, in one reading."""

    table: str
    metric: str
    method: str
    budget: str
    reading: str
    printed: float
    printed_se: float
    stat: Stat

    @property
    def gap(self) -> float:
        """Measured minus printed."""
        return self.stat.mean - self.printed

    @property
    def near(self) -> bool:
        """Whether the average came back."""
        return abs(self.gap) <= FAR

    @property
    def noise(self) -> bool:
        """Whether a gap is within `CLEAR` standard errors of both sides together."""
        se = math.hypot(self.stat.se, self.printed_se)
        return not math.isnan(se) and abs(self.gap) <= CLEAR * se

    @property
    def key(self) -> tuple[str, str, str, str]:
        """What it is, in whatever reading."""
        return self.table, self.metric, self.method, self.budget


def comparisons(summary: Summary, *, every_budget: bool = False) -> list[Comparison]:
    """The averages of a table on the paper's own data, for the label budgets that print states.

    A column that print takes over from another table is judged there, once. With ``every_budget``
    also those under budgets of ours, beside the same printed numbers.
    """
    protocol = summary.protocol
    if not protocol.comparable or protocol.kind == "figure":
        return []
    found = []
    for metric in (m for m in protocol.metrics if m != "seconds"):
        for method in protocol.methods:
            if protocol.copied_from(metric, method.name):
                continue
            for budget in _budgets(protocol, method.labels, every_budget):
                printed = printed_average(summary, metric, method.name, budget)
                stat = summary.stat(method.name, metric, budget=budget)
                if printed is None or stat is None:
                    continue
                labels = budget if method.labels else NO_LABELS
                about = (protocol.name, metric, method.name, labels, protocol.reading.name)
                error = printed_error(summary, metric, method.name)
                found.append(Comparison(*about, printed, error, stat))
    return found


def _budgets(protocol: Protocol, labels: bool, every: bool) -> list[str]:
    if not labels or not protocol.budgets:
        return [protocol.budgets[0].name] if protocol.budgets else [NO_LABELS]
    return [b.name for b in protocol.budgets if b.printed or every]


def printed_average(
    summary: Summary, metric: str, method: str, budget: str = NO_LABELS
) -> float | None:
    """The printed mean over the rows of this column that were run.

    Over all rows this is the printed average up to rounding; over some (a quick pass) the printed
    average would not be the right thing to compare with.
    """
    protocol = summary.protocol
    if metric == "seconds":
        cell = protocol.printed_value("seconds", "avg", method)
        return cell.mean if cell else None
    ran = {k for _, k, _ in summary.column(method, metric, budget)}
    values = [
        c.mean
        for c in protocol.printed
        if (c.metric, c.method) == (metric, method)
        and c.k != "avg"
        and (not ran or int(c.k) in ran)
    ]
    return sum(values) / len(values) if values else None


def printed_error(summary: Summary, metric: str, method: str) -> float:
    """The standard error of a printed average: of its own deviations, or else of ours."""
    protocol = summary.protocol
    if not protocol.runs_printed:
        return float("nan")
    sds = []
    for data, k in summary.rows():
        cell = protocol.printed_value(metric, k, method)
        own = summary.stat(method, metric, budget=_first(protocol), data=data, k=k)
        sd = cell.sd if cell is not None and cell.sd is not None else own.sd if own else math.nan
        sds.append(sd)
    known = [sd for sd in sds if not math.isnan(sd)]
    if not known:
        return float("nan")
    return math.sqrt(sum(sd**2 for sd in known) / protocol.runs_printed) / len(known)


def _first(protocol: Protocol) -> str:
    return protocol.budgets[0].name if protocol.budgets else NO_LABELS


@dataclass(frozen=True)
class Miss:
    """An average that is far from print, and why.

    ``whose`` is "noise", "ours", "not printed" or "theirs", where that is shown: another reading
    comes back, or an identity is computed. Else it is "open", and of a part of the declared runs
    "too few runs".
    """

    comparison: Comparison
    whose: str
    text: str


def misses(
    every: dict[str, list[Comparison]],
    main: list[Comparison],
    causes: tuple[Cause, ...],
    *,
    identities: frozenset[str] = frozenset(),
    quick: bool = False,
) -> list[Miss]:
    """Every average of the ``main`` reading that did not come back, with its cause.

    ``every`` is all that was measured, by reading, under every label budget; ``identities`` are the
    columns that were computed to be another one with print's labels. ``quick``: only a part of the
    declared runs is there, and nobody is blamed.
    """
    listed = [c for found in every.values() for c in found]
    return [Miss(c, *_why(c, listed, causes, identities, quick)) for c in main if not c.near]


def _why(
    missed: Comparison,
    every: list[Comparison],
    causes: tuple[Cause, ...],
    identities: frozenset[str],
    quick: bool,
) -> tuple[str, str]:
    if quick or math.isnan(missed.stat.se):
        return "too few runs", ""
    same = [c for c in every if c.key == missed.key and c.reading != missed.reading]
    back = [c for c in same if _comes_back(c, missed)]
    words = " ".join(_words(c, missed) for c in back[:2])
    if missed.noise:
        return "noise", f"Within two standard errors of both sides. {words}".strip()
    said = [c for c in causes if c.fits(missed.table, missed.metric, missed.method)]
    opened = ""
    for cause in said:
        pointed = [c for c in every if _shows(c, missed, cause)]
        text = " ".join([cause.text, *(_words(c, missed) for c in pointed)])
        shown = cause.identity and missed.method in identities
        if shown or any(_comes_back(c, missed) for c in pointed):
            return cause.whose, text
        opened = opened or text
    if back and not said:
        return "not printed", f"Another reading that print allows comes back. {words}"
    return "open", opened


def _comes_back(c: Comparison, missed: Comparison) -> bool:
    """Whether it is at print, over the same rows: a part of a reading shows nothing."""
    return (c.near or c.noise) and abs(c.printed - missed.printed) < 0.05


def _shows(c: Comparison, missed: Comparison, said: Cause) -> bool:
    """Whether this is what a cause points at."""
    wanted = (
        missed.metric,
        said.column or missed.method,
        said.reading or missed.reading,
        said.budget or c.budget,
    )
    pointed = bool(said.reading or said.budget or said.column)
    own = said.budget or said.column or c.budget == missed.budget
    return pointed and bool(own) and (c.metric, c.method, c.reading, c.budget) == wanted


def _words(c: Comparison, missed: Comparison) -> str:
    """What was measured elsewhere, in a few words."""
    parts = []
    if c.method != missed.method:
        parts.append(c.method)
    if c.reading != missed.reading:
        parts.append(f'reading "{c.reading}"')
    if c.budget not in (missed.budget, NO_LABELS):
        parts.append(c.budget)
    number = f"{c.stat.mean:.1f}" + ("" if math.isnan(c.stat.se) else f" ± {c.stat.se:.1f}")
    if c.method == missed.method and abs(c.printed - missed.printed) >= 0.05:  # of fewer rows
        number += f" over rows where print has {c.printed:.1f}"
    return f"[{', '.join(parts)}: {number}]"


def average_mismatches(protocol: Protocol) -> dict[tuple[str, str], str]:
    """By (metric, method) what to say of the printed averages that their columns do not give.

    The tolerance is one unit of the last printed digit: half a unit for the rounding of the cells,
    half for that of the average; it also covers averages that were cut and not rounded, which
    two of the papers do throughout. A figure that shows a table's columns has nothing to check.
    """
    cells = protocol.printed if protocol.kind != "figure" else ()
    found = {}
    for average in (c for c in cells if c.k == "avg" and c.metric != "seconds"):
        key = (average.metric, average.method)
        column = [c for c in cells if (c.metric, c.method) == key and c.k != "avg"]
        mean = sum(c.mean for c in column) / len(column)
        # The cells' digits: some averages are printed with more digits than their column.
        decimals = min(c.decimals for c in (average, *column))
        if abs(mean - average.mean) > 10.0**-decimals + 1e-9:
            found[key] = (
                f"{protocol.name}, {', '.join(key)}: the printed average is {average.mean}, "
                f"the column gives {mean:.2f}"
            )
    return found


def listed_slips(protocol: Protocol) -> set[tuple[str, str]]:
    """The (metric, method) pairs whose average row the protocol says is wrong."""
    return {
        (slip["metric"], method)
        for slip in protocol.slips
        if slip.get("row") == "avg"
        for method in slip["methods"]
    }


METRICS = {
    "accuracy": "Accuracy of labels (%)",
    "ac": "Accuracy (%)",
    "nmi": "Normalised mutual information (%)",
    "ari": "Adjusted Rand index (%)",
    "seconds": "Seconds of one fit",
    "sparseness_U": "Sparseness of the basis",
    "sparseness_V": "Sparseness of the representation",
    "distance": "Distance of the basis to the centres",
    "own_V": "Share on the part of the own class, samples without a label",
    "own_labelled": "Share on the part of the own class, labelled samples",
    "largest": "Largest part weight on the part of the own class (%), samples without a label",
    "ray": "Distance of the basis to the centres, each basis vector with its best length",
}
SHORT = {"accuracy": "accuracy", "ac": "AC", "nmi": "NMI", "ari": "ARI"}


def number(value: float, metric: str) -> str:
    """A number with the digits that its metric deserves."""
    if metric.startswith(("sparseness", "own")):
        return f"{value:.3f}"
    return f"{value:.3g}" if metric in ("seconds", "distance", "ray") else f"{value:.1f}"


def with_error(stat: Stat | None, metric: str) -> str:
    """A mean with its standard error, where it has one."""
    if stat is None:
        return ""
    text = number(stat.mean, metric)
    return text if math.isnan(stat.se) else f"{text} ± {number(stat.se, metric)}"


def printed_words(cell: Printed | None) -> str:
    """A printed number with its own digits, its deviation with the same."""
    if cell is None:
        return "–"
    text = f"{cell.mean:.{cell.decimals}f}"
    return text if cell.sd is None else f"{text} ± {cell.sd:.{cell.decimals}f}"


def difference(printed: float | None, stat: Stat | None, metric: str, comparable: bool) -> Text:
    """Measured minus printed, marked where it is far; a ratio of times."""
    if printed is None or stat is None:
        return Text.of("")
    if metric == "seconds":
        return Text.of(f"x {stat.mean / printed:.2g}" if printed else "")
    gap = round(stat.mean - printed, 1) + 0.0  # no minus zero
    if not comparable:
        return Text.of(f"({gap:+.1f})", "quiet")
    far = abs(stat.mean - printed) > FAR
    return Text.of(f"{gap:+.1f} ▲", "far") if far else Text.of(f"{gap:+.1f}")


def near(printed: float | None, stat: Stat | None, metric: str, comparable: bool) -> Text:
    """Whether an average came back; empty where print is of other data, or of another machine."""
    if printed is None or stat is None or not comparable or metric == "seconds":
        return Text.of("")
    return Text.of("yes", "yes") if abs(stat.mean - printed) <= FAR else Text.of("no", "no")


def mark(method: ComparedMethod) -> str:
    """A dagger where parameters are chosen on the answer."""
    return "†" if method.chosen_on_answer else ""
