"""``partwise datasets``"""

from __future__ import annotations

import json
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from partwise.io.datasets import available
from partwise.io.datasets.catalogue import CATALOGUE


def run(data_home: Path | None, *, as_json: bool) -> None:
    found = available(data_home)
    if as_json:
        rows = [
            {"name": name, "description": entry.description, "found": found[name]}
            for name, entry in CATALOGUE.items()
        ]
        print(json.dumps(rows, indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("name", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    table.add_column("found in", overflow="fold")
    for name, entry in CATALOGUE.items():
        where = found[name] or f"absent; from {entry.get_from}"
        table.add_row(name, entry.description, where)
    Console(markup=False).print(table)
