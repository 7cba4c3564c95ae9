"""Write the results of all benchmarks as a Markdown page and a JSON file."""

from __future__ import annotations

from statistics import median
from typing import Any


def table(headers: list[str], rows: list[list[str]]) -> str:
    lines = ["| " + " | ".join(headers) + " |", "|" + "---|" * len(headers)]
    lines += ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def number(value: float | None, unit: str = "") -> str:
    """Format a number with three digits, without an exponent if possible."""
    if value is None:
        return "–"
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    text = f"{value:.{digits}f}" if abs(value) >= 0.01 or value == 0 else f"{value:.2g}"
    return f"{text}{unit}"


def verdict(reached: bool | None) -> str:
    return "–" if reached is None else "yes" if reached else "**no**"


def markdown(summary: dict[str, Any]) -> str:
    """Return the page of all benchmark results in Markdown."""
    results = summary["parts"]
    races = [part for part in results.values() if part["kind"] == "race"]
    others = {name: part for name, part in results.items() if part["kind"] != "race"}
    parts = [f"# Benchmarks ({summary['size']})", _made_with(summary)]
    if summary["size"] == "quick":
        parts.append("**A trial of the harness on small data: the numbers mean nothing.**")
    parts += [f"**Failed:** {failure}" for failure in summary.get("failures", [])]
    if races:
        parts += ["## Against the peers", _about(summary), goals(races), "### Every pair"]
        parts += [pairs(races), "### Warm-up, untimed above", warm_ups(races)]
    for name, part in others.items():
        parts += [f"## {part.get('title', name)}", part.get("about", ""), rows_table(part["rows"])]
    if summary.get("before"):
        parts += ["## Before and after", before_and_after(summary["before"], results)]
    plots = [f"![{title}]({path})" for title, path in summary.get("plots", {}).items()]
    if plots:
        parts += ["## Plots", "\n\n".join(plots)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _made_with(summary: dict[str, Any]) -> str:
    made = summary["machine"]
    machine = (
        f"{made['processor']}, {made['cores']} cores, {made['memory_GiB']} GiB, {made['system']}, "
        f"{made['threads']} threads for every contestant, {made['date']}."
    )
    named = {**summary["versions"], **(summary.get("peers") or {})}
    return machine + " " + ", ".join(f"{k} {v or 'not installed'}" for k, v in named.items()) + "."


def _about(summary: dict[str, Any]) -> str:
    return (
        "Time of the peer for 200 iterations (KL: 100), over ours to the objective that it then "
        "has, from the same start; medians of "
        f"{summary['runs']} ratios. The objective is evaluated by the benchmark, in float64."
    )


def goals(races: list[dict[str, Any]]) -> str:
    rows = []
    for race in races:
        against = race.get("seen_against") or race.get("skipped") or "no peer ran"
        if race.get("not_reached"):
            against += f"; objective of {', '.join(race['not_reached'])} not reached"
        seen = number(race.get("seen"), "x")
        reached = verdict(race.get("reached"))
        rows.append([race["title"], f"≥ {race['goal']:g}x", seen, against, reached])
    return table(["case", "goal", "seen", "best peer", "reached"], rows)


def pairs(races: list[dict[str, Any]]) -> str:
    rows = []
    for race in races:
        for entry in race["entries"]:
            if entry["ratio"] is None:
                rows.append([race["case"], entry["peer"], "–", "–", "–", entry["status"]])
                continue
            theirs, ours = median(entry["theirs"]), median(entry["ours"])
            spread = ", ".join(
                number(a / b) for a, b in zip(entry["theirs"], entry["ours"], strict=True)
            )
            rows.append(
                [
                    race["case"],
                    entry["peer"],
                    f"{number(theirs)} s ({entry['iterations']})",
                    f"{number(ours)} s ({entry['ours_iterations']})",
                    number(entry["ratio"], "x"),
                    f"ratios {spread}; objective {entry['target']:.6g}",
                ]
            )
    head = ["case", "peer", "theirs (iterations)", "ours (iterations)", "theirs/ours", "notes"]
    return table(head, rows)


def warm_ups(races: list[dict[str, Any]]) -> str:
    """Tabulate the time of two iterations, which compile and start everything."""
    rows = []
    for race in races:
        peers = [
            f"{entry['peer']} {number(entry['warm_up'])} s"
            for entry in race["entries"]
            if entry["warm_up"] is not None
        ]
        rows.append([race["case"], number(race.get("warm_up"), " s"), ", ".join(peers)])
    return table(["case", "ours", "peers"], rows)


def _seen(results: dict[str, Any]) -> dict[str, tuple[float | None, str]]:
    """Return the value of each line of the tables, with its unit."""
    found = {}
    for part in results.values():
        if part["kind"] == "race":
            found[part["title"]] = part.get("seen"), "x"
        else:
            found |= {row["what"]: (row["seen"], row["unit"]) for row in part["rows"]}
    return found


def before_and_after(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Compare the results that both an earlier run and this run contain."""
    then = _seen(old)
    rows = [
        [what, number(then[what][0], unit), number(seen, unit)]
        for what, (seen, unit) in _seen(new).items()
        if what in then
    ]
    return table(["what", "before", "after"], rows)


def rows_table(rows: list[dict[str, Any]]) -> str:
    cells = [
        [
            row["what"],
            row["goal"],
            number(row["seen"], row["unit"]),
            verdict(row["reached"]),
            row.get("note", ""),
        ]
        for row in rows
    ]
    return table(["what", "goal", "seen", "reached", "notes"], cells)
