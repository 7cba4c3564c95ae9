"""Output of ``partwise reproduce --list``: all tables and figures with their time."""

from __future__ import annotations

import json
import tomllib
from importlib import resources
from typing import Any

from joblib import cpu_count
from rich.console import Console
from rich.table import Column, Table

from partwise.apps.papers.protocol import load_protocol, names
from partwise.apps.papers.sampling import data_found
from partwise.apps.papers.static_tables import PLAIN


def print_list(data_home: str | None, jobs: int | None, *, as_json: bool) -> None:
    """Print every table and figure with its expected running time.

    The times were measured when Partwise's own results were computed. They are divided by the
    number of processes.
    """
    source = resources.files("partwise.apps.papers") / "timings.toml"
    seconds, workers = tomllib.loads(source.read_text(encoding="utf-8")), jobs or cpu_count()
    rows = [_row(name, seconds.get(name), workers, data_home) for name in names()]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    short: Any = {"no_wrap": True, "justify": "right"}
    first = (Column(no_wrap=True), Column("title", overflow="fold"))
    rest = (Column(name, **short) for name in ("runs", "time", "quick"))
    table = Table(*first, *rest, box=None, pad_edge=False, header_style="")
    for row in rows:
        absent = f" (no data: {', '.join(row['absent'])})" if row["absent"] else ""
        times = [words(row["seconds"]), words(row["seconds_quick"])]
        if row["runs_of"]:
            times = [f"as {row['runs_of'].split('/')[1]}", ""]
        table.add_row(row["name"], row["title"] + absent, str(row["runs"] or ""), *times)
    console = Console(markup=False)
    console.print(table)
    console.print(f"Times are those of our own runs of all variants, divided by {workers}.")


def _row(name: str, seconds: list[int] | None, workers: int, home: str | None) -> dict[str, Any]:
    """Return what the list shows about one table or figure."""
    protocol = load_protocol(name)
    return {
        "name": name,
        "title": protocol.title,
        "data": [d.name for d in protocol.data],
        "absent": [d.name for d in protocol.data if not data_found(d, home)],
        "runs": None if protocol.kind in PLAIN else protocol.under().runs(),
        "runs_printed": protocol.runs_printed,
        "runs_of": None if protocol.own_data else protocol.runs_of,
        "seconds": seconds[0] / workers if seconds else None,
        "seconds_quick": seconds[1] / workers if seconds else None,
    }


def words(seconds: float | None) -> str:
    """Return a duration as text in seconds, minutes or hours."""
    if seconds is None or seconds < 90:
        return "" if seconds is None else f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
