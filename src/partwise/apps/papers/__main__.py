"""Run stages of tables one after the other: ``python -m partwise.apps.papers STAGE ...``.

It needs neither typer nor rich, so it runs from a source tree on a computing node. A stage is
``names@reading#runs:methods``: tables or papers separated by commas; "main" or another reading, by
default all of them; the first runs, by default as many as the protocol declares; and methods
separated by commas, by default all. For example::

    python -m partwise.apps.papers cnmf,cdnmf/table3@main#10 gnmf/table3@main#5:NMF --seconds 500
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace

from partwise.apps.papers.protocol import expand, load_protocol
from partwise.apps.papers.runner import Outcome, cores, fill, plan, pool, until
from partwise.apps.papers.store import Store
from partwise.apps.papers.trials import Cell, PartOfProtocol


def stage_cells(stage: str, data_home: str | None = None) -> list[Cell]:
    """The cells of a stage, one run after the other, the longest of a run first."""
    from partwise.apps.papers.estimate import cell_seconds

    rest, _, methods = stage.partition(":")
    rest, _, runs = rest.partition("#")
    listed, _, reading = rest.partition("@")
    chosen = tuple(name for name in methods.split(",") if name)
    part = PartOfProtocol(runs=int(runs) if runs else None, methods=chosen)
    cells: dict[str, Cell] = {}
    for name in (n for group in listed.split(",") for n in expand(group)):
        protocol = load_protocol(name)
        wanted = protocol.main.name if reading == "main" else reading
        asked = replace(part, readings=(wanted,) if wanted else ())
        for cell in plan(protocol, asked, data_home)[0]:
            most = cell.variant.method.runs
            if most is None or cell.run < most:
                cells[cell.table + cell.slug] = cell
    return sorted(cells.values(), key=lambda cell: (cell.run, -cell_seconds(cell)))


def main(arguments: list[str] | None = None) -> None:
    """Run the stages within the time given, and print how many runs were done."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="+", help="names@reading#runs:methods")
    parser.add_argument("--out", default="partwise-results", help="the result folder")
    parser.add_argument("--jobs", type=int, default=cores(), help="processes of one thread each")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="when to stop")
    parser.add_argument("--data-home", help="a folder to look for data in")
    asked = parser.parse_args(arguments)
    began = time.monotonic()
    found = [cell for s in asked.stages for cell in stage_cells(s, asked.data_home)]
    ordered = list({cell.table + cell.slug: cell for cell in found}.values())
    store = Store(asked.out)
    todo = store.missing(ordered)
    whole = Outcome("stages", todo)
    with pool(asked.jobs) as submit:
        limited = until(todo, began + asked.seconds)
        fill(whole, submit(limited, asked.data_home, store), store)
    seconds = time.monotonic() - began
    print(f"{whole.ran} of {len(todo)} runs in {seconds:.0f} s; {len(whole.failed)} failed")
    for reason in sorted(set(whole.failed.values()))[:5]:
        print(reason)


if __name__ == "__main__":
    main()
