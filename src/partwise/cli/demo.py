"""``partwise demo``"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from partwise.cli import demonstration
from partwise.persistence.atomic import check_target, write_whole

PLAIN = "{:<22}{:>7}{:>7}{:>9}"


def run(out: Path, *, force: bool, as_json: bool = False) -> None:
    check_target(out, force=force)
    errors = Console(stderr=True)
    with Progress(
        BarColumn(),
        TextColumn("{task.completed}/{task.total} {task.description}"),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
        disable=not errors.is_terminal,
    ) as progress:
        task = progress.add_task("", total=len(demonstration.METHODS))

        def step(done: int, name: str) -> None:
            progress.update(task, completed=done, description=name)

        piped = not (as_json or Console().is_terminal)
        if piped:
            print(PLAIN.format("method", "AC", "NMI", "seconds"), flush=True)
        outcome = demonstration.run(step=step, seen=_line if piped else lambda row: None)
    write_whole(out, demonstration.page(outcome), force=force)
    if as_json:
        print(json.dumps(_summary(outcome, out), indent=2))
        return
    console = Console()
    if console.is_terminal:
        console.print(_table(outcome))
    else:
        console = Console(soft_wrap=True)
    console.print(outcome.scored, style="dim", highlight=False)
    if outcome.why:
        console.print(outcome.why, style="dim", highlight=False)
    console.print(f"Wrote {out}", highlight=False, soft_wrap=True)


def _line(row: demonstration.Result) -> None:
    """A row as it comes, where no terminal shows the progress."""
    numbers = (f"{row.accuracy:.3f}", f"{row.nmi:.3f}", f"{row.seconds:.2f}")
    print(PLAIN.format(row.name, *numbers), flush=True)


def _summary(outcome: demonstration.Score, out: Path) -> dict[str, Any]:
    columns = ("name", "accuracy", "nmi", "seconds", "iterations", "loss", "objective", "remark")
    return {
        "data": outcome.dataset.name,
        "n_components": outcome.n_components,
        "seed": outcome.seed,
        "scored": outcome.scored,
        "methods": [{c: getattr(row, c) for c in columns} for row in outcome.results],
        "page": str(out),
    }


def _table(outcome: demonstration.Score) -> Table:
    table = Table(
        title=f"Digits, {outcome.n_components} components",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        collapse_padding=True,
    )
    table.add_column("method", no_wrap=True)
    for heading in ("AC", "NMI", "seconds", "iterations"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("loss", no_wrap=True)
    table.add_column("objective", justify="right", no_wrap=True)
    for row in outcome.results:
        table.add_row(
            row.name,
            f"{row.accuracy:.3f}",
            f"{row.nmi:.3f}",
            f"{row.seconds:.2f}",
            str(row.iterations),
            row.loss,
            f"{row.objective:.2f}",
        )
    return table
