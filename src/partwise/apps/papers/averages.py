"""Comparison of measured averages with averages printed in a paper.

Each difference is listed with its cause, if a cause is known.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np

from partwise.apps.papers.claims import CLEAR
from partwise.apps.papers.protocol import Cause, Method, Printed, Protocol
from partwise.apps.papers.summary import Stat, Summary
from partwise.apps.papers.trials import NO_LABELS

# A printed average counts as reproduced up to this difference, in percentage points.
NEAR = 3.0


@dataclass(frozen=True)
class Comparison:
    """A printed average of a paper's table, with the average measured for it."""

    table: str
    metric: str
    method: str
    budget: str
    variant: str
    printed: float
    printed_se: float
    stat: Stat
    settings: str = ""  # source of the method's settings: "print", "program" or "choice"
    contradicts: bool = False  # a setting or the number of labels contradicts the paper

    @property
    def gap(self) -> float:
        """Difference of the measured average and the printed one."""
        return self.stat.mean - self.printed

    @property
    def near(self) -> bool:
        """True if the measured average is within `NEAR` points of the printed one."""
        return abs(self.gap) <= NEAR

    @property
    def noise(self) -> bool:
        """True if the difference is at most `CLEAR` combined standard errors."""
        return abs(self.gap) <= CLEAR * math.hypot(self.stat.se, self.printed_se)

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Identifier of the printed average.

        It does not depend on the variant of the settings.
        """
        return self.table, self.metric, self.method, self.budget


def compared_columns(protocol: Protocol) -> list[tuple[str, Method]]:
    """Return (metric, method) of the printed averages that are compared.

    If an earlier table prints the same column, only that table compares it. A table whose data
    differ from the paper's is not compared.
    """
    if not protocol.comparable or protocol.kind == "figure":
        return []
    printed = {(n.metric, n.method) for n in protocol.printed if n.metric != "seconds"}
    return [
        (metric, method)
        for metric, method in itertools.product(protocol.metrics, protocol.methods)
        if (metric, method.name) in printed and not protocol.copied_from(metric, method.name)
    ]


def comparisons(summary: Summary) -> list[Comparison]:
    """Return comparisons with all printed averages of a table that were measured."""
    protocol, found = summary.protocol, []
    ours = {b.name for b in protocol.budgets if not b.printed}
    for metric, method in compared_columns(protocol):
        name = method.name
        for budget in summary.budgets() if method.labels else summary.budgets()[:1]:
            printed = printed_average(summary, metric, name, budget)
            stat = summary.stat(name, metric, budget=budget)
            if printed is None or stat is None:
                continue
            labels = budget if method.labels else NO_LABELS
            about = (protocol.name, metric, name, labels, protocol.variant.name, printed)
            against = protocol.variant.contradicts or labels in ours
            source = protocol.settings_from(method)
            error = printed_error(summary, metric, name)
            found.append(Comparison(*about, error, stat, source, against))
    return found


def printed_average(
    summary: Summary, metric: str, method: str, budget: str = NO_LABELS
) -> float | None:
    """Return the mean of the printed values over the rows of a table that were run.

    If all rows were run, the result equals the printed average up to rounding.
    """
    if metric == "seconds":
        average = summary.protocol.printed_value("seconds", "avg", method)
        return average.mean if average else None
    ran = {str(k) for k in summary.column(method, metric, budget).index.get_level_values("k")}
    own = [n for n in summary.protocol.printed if (n.metric, n.method) == (metric, method)]
    values = [n.mean for n in own if n.k != "avg" and (not ran or n.k in ran)]
    return float(np.mean(values)) if values else None


def printed_error(summary: Summary, metric: str, method: str) -> float:
    """Return the standard error of a printed average.

    It comes from the printed standard deviations, or from the measured ones if the paper prints
    none.
    """
    protocol, sds = summary.protocol, list[float]()
    for data, k in summary.rows():
        printed = protocol.printed_value(metric, k, method)
        own = summary.stat(method, metric, budget=summary.budgets()[0], data=data, k=k)
        sd = printed.sd if printed and printed.sd is not None else own.sd if own else math.nan
        sds += [] if math.isnan(sd) else [sd]
    if not sds or not protocol.runs_printed:
        return math.nan
    return float(np.sqrt(np.square(sds).sum() / protocol.runs_printed) / len(sds))


@dataclass(frozen=True)
class Miss:
    """A printed average that was not reproduced, with the cause of the difference.

    ``whose`` names the cause: "noise" (random error), "ours" (a choice of Partwise), "not printed"
    (the paper leaves a setting open) or "print" (the paper contradicts itself or its authors'
    program). Except for noise, a cause is only named if another variant of the settings reproduces
    the average, or if a computation shows that two methods are identical. Otherwise it is "open",
    or "too few runs".
    """

    comparison: Comparison
    whose: str
    text: str


def misses(
    every: list[Comparison], main: list[Comparison], causes: tuple[Cause, ...], quick: bool = False
) -> list[Miss]:
    """Return every printed average that was not reproduced, with its cause.

    ``main`` contains the measured averages with the main settings, and ``every`` those with all
    variants of settings and numbers of labels. A ``quick`` run has only some of the declared runs,
    so it shows no causes.
    """
    found = []
    for c in (c for c in main if not c.near):
        fitting = [cause for cause in causes if cause.fits(c.table, c.metric, c.method)]
        shown = [_by_cause(cause, c, every) for cause in fitting]
        few = quick or math.isnan(c.stat.se)
        found.append(Miss(c, *(("too few runs", "") if few else _why(c, every, shown))))
    return found


def _why(
    missed: Comparison, every: list[Comparison], shown: list[tuple[str, str]]
) -> tuple[str, str]:
    """Return the cause of a difference, with the numbers that demonstrate it."""
    back = [c for c in every if c.key == missed.key and _reproduces(c, missed)]
    words = " ".join(_words(c, missed) for c in back[:2])
    if missed.noise:
        return "noise", f"Within two standard errors of both sides. {words}".strip()
    if not shown and back:
        return "not printed", f"Another variant that the paper allows reproduces it. {words}"
    return min([*shown, ("open", "")], key=lambda f: f[0] == "open")


def _by_cause(cause: Cause, missed: Comparison, every: list[Comparison]) -> tuple[str, str]:
    """Return one possible cause of a difference, with its numbers.

    The cause is "open" if the numbers do not demonstrate it.
    """
    shown_by = [c for c in every if _matches_cause(c, missed, cause)] if cause.compares else []
    shown = cause.identity or any(_reproduces(c, missed) for c in shown_by)
    numbers = [_words(c, missed) for c in shown_by] or ["[0 runs]"] * cause.compares
    return cause.whose if shown else "open", " ".join([cause.text, *numbers])


def _reproduces(c: Comparison, missed: Comparison) -> bool:
    """Return whether other runs for the same rows reproduce the printed average."""
    other = c.stat != missed.stat  # equal if two variants of the settings share the same runs
    return other and (c.near or c.noise) and abs(c.printed - missed.printed) < 0.05


def _matches_cause(c: Comparison, missed: Comparison, cause: Cause) -> bool:
    """Return whether a possible cause of differences refers to this measured average."""
    budget = cause.budget or (c.budget if cause.column else missed.budget)
    wanted = (cause.column or missed.method, cause.variant or missed.variant, budget)
    return c.metric == missed.metric and (c.method, c.variant, c.budget) == wanted


def _words(c: Comparison, missed: Comparison) -> str:
    """Return a measured average as text, with its settings that are not the main ones."""
    parts = [c.method] if c.method != missed.method else []
    parts += [f'variant "{c.variant}"'] if c.variant != missed.variant else []
    parts += [c.budget] if c.budget not in (missed.budget, NO_LABELS) else []
    number = with_error(c.stat, c.metric)
    # the measured average covers fewer rows of the table
    if c.method == missed.method and abs(c.printed - missed.printed) >= 0.05:
        number += f" over rows with a printed average of {c.printed:.1f}"
    return f"[{', '.join(parts)}: {number}]"


def number(value: float, metric: str) -> str:
    """Return a number as text with the digits that its metric needs."""
    if metric.startswith(("sparseness", "own")):
        return f"{value:.3f}"
    return f"{value:.3g}" if metric in ("seconds", "distance", "ray") else f"{value:.1f}"


def with_error(stat: Stat | None, metric: str) -> str:
    """Return a mean and its standard error, if it has one, as text."""
    if stat is None:
        return ""
    text = number(stat.mean, metric)
    return text if math.isnan(stat.se) else f"{text} ± {number(stat.se, metric)}"


def printed_words(printed: Printed | None) -> str:
    """Return a printed number as text with as many digits as in the paper."""
    if printed is None:
        return "–"
    text = f"{printed.mean:.{printed.decimals}f}"
    return text if printed.sd is None else f"{text} ± {printed.sd:.{printed.decimals}f}"
