"""Plots of objectives against time, and of the time of an iteration against size."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def draw(parts: dict[str, dict[str, Any]], folder: Path) -> dict[str, str]:
    """Draw a chart per case and one of the scaling; return their paths by title."""
    import matplotlib

    matplotlib.use("Agg")
    drawn = {}
    for name, part in parts.items():
        if part["kind"] == "race" and part["curve"]:
            drawn[part["title"]] = _save(_race(part), folder, f"{name}.svg")
        elif part["kind"] == "scaling" and part["series"]:
            drawn["Time of an iteration against size"] = _save(
                _scaling(part), folder, "scaling.svg"
            )
    return drawn


def _save(figure: Any, folder: Path, name: str) -> str:
    import matplotlib
    from matplotlib import pyplot

    folder.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": name}):
        figure.savefig(folder / name, bbox_inches="tight", metadata={"Date": None})
    pyplot.close(figure)
    return f"{folder.name}/{name}"


def _race(part: dict[str, Any]) -> Any:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.4, 4))
    axes.plot(*zip(*part["curve"], strict=True), "o-", color="black", label="partwise", zorder=3)
    for number, entry in enumerate(part["entries"]):
        if entry["curve"]:
            curve = zip(*entry["curve"], strict=True)
            axes.plot(*curve, "s--", color=f"C{number}", label=entry["peer"], markersize=4)
    loss = "½‖X - WH‖²" if part["loss"] == "frobenius" else "KL(X, WH)"
    axes.set(xscale="log", yscale="log", xlabel="seconds", ylabel=loss, title=part["title"])
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False, fontsize=8)
    return figure


def _scaling(part: dict[str, Any]) -> Any:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.4))
    for number, line in enumerate(part["series"]):
        base = line["sizes"][0]
        steps = [size / base for size in line["sizes"]]
        label = f"{line['name']}: slope {line['slope']:.2f}"
        style = "o-" if number < 7 else "s--"
        axes.plot(steps, line["seconds"], style, color=f"C{number % 7}", label=label, markersize=4)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="size over the smallest",
        ylabel="seconds an iteration",
        title="One size varied at a time",
    )
    axes.grid(alpha=0.3, which="both")
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    return figure
