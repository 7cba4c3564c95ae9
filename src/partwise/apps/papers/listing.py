"""``partwise reproduce --list``: every table and figure, its runs and its time on this machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from partwise.apps.papers.estimate import seconds_left, words
from partwise.apps.papers.protocol import load_protocol, names
from partwise.apps.papers.runner import cores, plan
from partwise.apps.papers.sampling import data_found
from partwise.apps.papers.static_tables import PLAIN
from partwise.apps.papers.store import Store
from partwise.apps.papers.trials import PartOfProtocol

PLAIN_SECONDS = 1.0  # tables that are computed from print or counted in the data


def print_list(out: Path, data_home: Path | None, jobs: int | None, *, as_json: bool) -> None:
    """Print the listing; results that a folder already holds are not counted again."""
    store, workers = Store(out), jobs or cores()
    home = None if data_home is None else str(data_home)
    rows = [_row(name, store, workers, home) for name in names()]
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, pad_edge=False, header_style="")
    table.add_column("", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    for column in ("runs", "time", "quick"):
        table.add_column(column, no_wrap=True, justify="right")
    for row in rows:
        table.add_row(*_cells(row))
    console = Console(markup=False)
    console.print(table)
    console.print(
        f"Times are estimates for all readings on {workers} cores of this machine; "
        '"5 of 20": we run 5, print has 20.'
    )


def _row(name: str, store: Store, workers: int, home: str | None) -> dict[str, Any]:
    protocol = load_protocol(name)
    runs = protocol.read().runs() if protocol.data and protocol.kind not in PLAIN else None
    seconds: list[float | None] = [None, None]
    if protocol.kind in PLAIN:
        seconds = [PLAIN_SECONDS, PLAIN_SECONDS]
    elif protocol.own_data:
        seconds = [
            seconds_left(plan(protocol, PartOfProtocol(quick=q), home)[0], workers, store)
            for q in (False, True)
        ]
    return {
        "name": name,
        "title": protocol.title,
        "data": [d.name for d in protocol.data],
        "absent": [d.name for d in protocol.data if not data_found(d, home)],
        "runs": runs,
        "runs_printed": protocol.runs_printed,
        "runs_of": None if protocol.own_data else protocol.runs_of,
        "seconds": seconds[0],
        "seconds_quick": seconds[1],
    }


def _cells(row: dict[str, Any]) -> list[str]:
    title, runs = row["title"], "" if row["runs"] is None else str(row["runs"])
    if row["absent"]:
        title += f" (no data: {', '.join(row['absent'])})"
    if runs and (row["runs_printed"] or 0) > row["runs"]:
        runs += f" of {row['runs_printed']}"
    if row["runs_of"]:
        return [row["name"], title, runs, f"as {row['runs_of'].split('/')[1]}", ""]
    return [row["name"], title, runs, words(row["seconds"]), words(row["seconds_quick"])]
