"""How numbers are written on the page."""

from __future__ import annotations

import math

from partwise.papers.document import Text
from partwise.papers.printed import FAR
from partwise.papers.protocol import ComparedMethod, Printed
from partwise.papers.summary import Stat

METRICS = {
    "name": "Right names (%)",
    "ac": "Accuracy (%)",
    "nmi": "Normalised mutual information (%)",
    "ari": "Adjusted Rand index (%)",
    "seconds": "Seconds of one fit",
    "sparseness_U": "Sparseness of the basis",
    "sparseness_V": "Sparseness of the representation",
    "distance": "Distance of the basis to the centres",
}
SHORT = {"name": "right names", "ac": "AC", "nmi": "NMI", "ari": "ARI"}


def number(value: float, metric: str) -> str:
    """A number with the digits that its metric deserves."""
    if metric.startswith("sparseness"):
        return f"{value:.3f}"
    return f"{value:.3g}" if metric in ("seconds", "distance") else f"{value:.1f}"


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
    gap = round(stat.mean - printed, 1) + 0.0  # no minus zero
    if metric == "seconds":
        return Text.of(f"x {stat.mean / printed:.2g}" if printed else "")
    if not comparable:
        return Text.of(f"({gap:+.1f})", "quiet")
    return (
        Text.of(f"{gap:+.1f} ▲", "far")
        if abs(stat.mean - printed) > FAR
        else Text.of(f"{gap:+.1f}")
    )


def near(printed: float | None, stat: Stat | None, metric: str, comparable: bool) -> Text:
    """Whether an average came back; empty where print is of other data, or of another machine."""
    if printed is None or stat is None or not comparable or metric == "seconds":
        return Text.of("")
    return Text.of("yes", "yes") if abs(stat.mean - printed) <= FAR else Text.of("no", "no")


def mark(method: ComparedMethod) -> str:
    """A dagger where parameters are chosen on the answer."""
    return "†" if method.chosen_on_answer else ""


def settings_words(settings: dict[str, object]) -> str:
    """Settings as a person would say them."""
    return ", ".join(f"{key} = {value}" for key, value in settings.items())
