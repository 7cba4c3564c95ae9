"""``partwise reproduce``"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as TimeLeft

DEFAULT_OUT = Path("partwise-results")


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(
            help='A table or figure, as "gnmf/table3"; a paper, as "gnmf"; "all"; or the .toml '
            "file of a protocol of your own."
        ),
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(help="Write the protocol of this table to the .toml file NAME, to edit it."),
    ] = None,
    list_all: Annotated[
        bool, typer.Option("--list", help="List every table and figure, its data and its time.")
    ] = False,
    runs: Annotated[
        int | None, typer.Option(min=1, help="Runs a row; the default is in the listing.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes; by default one for each core.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A small part of the protocol, otherwise unchanged.")
    ] = False,
    methods: Annotated[
        str | None, typer.Option(help="Only these methods, separated by commas.")
    ] = None,
    reading: Annotated[
        str | None,
        typer.Option(help="Only this reading of the tables, by its name; by default all of them."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The result folder; an old one is continued.")] = (
        DEFAULT_OUT
    ),
    store: Annotated[
        Path | None,
        typer.Option(help="A result folder to make the pages of; nothing is run."),
    ] = None,
    budget_seconds: Annotated[
        float | None,
        typer.Option(min=1, help="Do what is worth most first, and stop in time for this limit."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="A torch device for large fits, as cuda; in float64.")
    ] = None,
    data_home: Annotated[
        Path | None, typer.Option(help="A folder to look for data in, before PARTWISE_DATA.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run a paper's table or figure again, and compare the results with the printed numbers.

    Every finished run is kept at once: after a crash, the same command goes on where it stopped.

    Example: partwise reproduce cnmf/table2 --quick
    """
    if list_all or name is None:
        from partwise.apps.papers.listing import print_list

        print_list(out, data_home, jobs, as_json=as_json)
        return
    if export:
        from partwise.apps.papers.export import export as write

        write(export, Path(name))
        return
    if name.endswith(".toml"):  # its estimators may be in a module of the same folder
        sys.path.insert(0, str(Path(name).resolve().parent))
    from partwise.apps.papers.protocol import expand, load_protocol
    from partwise.apps.papers.trials import PartOfProtocol

    chosen = tuple(m.strip() for m in methods.split(",") if m.strip()) if methods else ()
    readings = (reading,) if reading else ()
    selection = PartOfProtocol(runs=runs, quick=quick, methods=chosen, readings=readings)
    wanted = expand(name)
    known = {r.name: None for n in wanted for r in load_protocol(n).readings} if reading else {}
    if reading and reading not in known:
        raise ValueError(f"no reading {reading!r} of {wanted[0]}; there are: {', '.join(known)}")
    if store is not None:
        _write(wanted, store, data_home, {}, as_json=as_json)
        return
    if device:
        from partwise.apps.papers.representations import DEVICE

        os.environ[DEVICE] = device  # the workers', who inherit it
    if _run(wanted, selection, jobs, out, data_home, budget_seconds, as_json=as_json):
        raise typer.Exit(1)


def _run(
    wanted: list[str],
    selection: Any,
    jobs: int | None,
    out: Path,
    data_home: Path | None,
    budget: float | None = None,
    *,
    as_json: bool,
) -> int:
    from partwise.apps.papers import runner
    from partwise.apps.papers.estimate import seconds_left, words
    from partwise.apps.papers.protocol import load_protocol
    from partwise.apps.papers.store import Store

    began = time.monotonic()
    store, home = Store(out), None if data_home is None else str(data_home)
    errors = Console(stderr=True)
    plans = {}
    for name in wanted:
        protocol = load_protocol(name)
        asked = selection
        if len(wanted) > 1 and selection.methods:  # a column that some of the tables have
            have = {m.name.lower() for m in protocol.methods}
            asked = replace(
                selection, methods=tuple(m for m in selection.methods if m.lower() in have)
            )
            if not asked.methods:
                continue
        plans[name] = (protocol, asked, runner.plan(protocol, asked, home)[0])
    if not plans:
        raise ValueError(f"none of {', '.join(wanted)} has a method {', '.join(selection.methods)}")
    todo = {name: store.missing(cells) for name, (_, _, cells) in plans.items()}
    unique = {cell.slug + cell.table for cells in todo.values() for cell in cells}
    workers = jobs or runner.cores()
    # where a table's runs are another one's that is run as well, they count once
    own = [n for n, (p, _, _) in plans.items() if p.own_data or p.runs_of not in plans]
    times = [seconds_left(todo[n], workers, store) for n in own]
    total = None if None in times else sum(t for t in times if t is not None)
    if unique:
        about = "" if total is None else f", about {words(total)}"
        errors.print(f"{len(unique)} runs to do{about}; results go to {out}", markup=False)
    failed: dict[str, dict[str, str]] = {}
    with _progress(errors) as progress, runner.pool(min(workers, max(1, len(unique)))) as submit:
        task = progress.add_task("", total=max(1, len(unique)))
        if budget is not None:  # across all tables, whatever the order they were named in
            ordered = runner.by_value([p for p, _, _ in plans.values() if p.own_data], selection)
            first = [c for c in store.missing(ordered) if c.slug + c.table in unique]
            whole = runner.Outcome("all", first)
            ran = submit(runner.until(first, began + budget), home, store)
            runner.fill(whole, ran, store, _step(progress, task, "by value"))
            errors.print(f"{whole.ran} runs of {len(first)} in the time given", markup=False)
            failed["all"] = whole.failed
        for name in plans if budget is None else []:
            outcome = runner.reproduce(
                name,
                out,
                selection=plans[name][1],
                data_home=home,
                progress=_step(progress, task, name),
                workers=submit,
            )
            failed[name] = outcome.failed
            _say(errors, name, outcome, home)
    _write(list(plans), out, data_home, failed, as_json=as_json)
    return sum(not _lacks(reason) for found in failed.values() for reason in found.values())


def _lacks(reason: str) -> bool:
    """Whether a run was left out since a package is not installed: no failure of ours."""
    return reason.startswith("ImportError: ")


def _write(
    wanted: list[str],
    out: Path,
    data_home: Path | None,
    failed: dict[str, dict[str, str]],
    *,
    as_json: bool,
) -> None:
    """Write the pages, and print what they come to: one table's own numbers, or a line for each."""
    from partwise.apps.papers import results_page
    from partwise.apps.papers.document import Section, to_text
    from partwise.apps.papers.printed_tables import first_screen
    from partwise.apps.papers.store import Store

    store, home = Store(out), None if data_home is None else str(data_home)
    told = [results_page.write_one(n, store, data_home=home, failed=failed.get(n)) for n in wanted]
    index = None if len(told) == 1 else results_page.write_index(store, told)
    if as_json:
        plain = [
            {**results_page.plain(t), "page": str(out / t.section.anchor / "table.html")}
            for t in told
        ]
        print(json.dumps(plain, indent=2, ensure_ascii=False))
        return
    if len(told) == 1:
        section = told[0].section
        print(to_text(section))
        for v in (v for v in told[0].verdicts if v.counted and v.detail):
            print(f"\n{v.measured:10} {v.text}\n{'':10} {v.detail}".rstrip())
        print(f"\n{out / section.anchor / 'table.html'}")
        print(results_page.banner(told))
        return
    for one in told:
        print(f"{one.section.anchor:14} {one.section.line}".rstrip())
    print("\n" + to_text(Section("", "", first_screen(told)), width=150).strip() + "\n")
    print(f"{index}\n{results_page.banner(told)}".rstrip())


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeLeft(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )


def _step(progress: Progress, task: TaskID, name: str) -> Any:
    def step(cell: Any, result: dict[str, Any] | None) -> None:
        where = f"{name} {cell.data.name} K={cell.k} {cell.variant.name}"
        progress.update(task, advance=1, description=where[:60])

    return step


def _say(console: Console, name: str, outcome: Any, data_home: str | None) -> None:
    from partwise.apps.papers.runner import ABSENT
    from partwise.io import datasets

    for left_out, reason in outcome.skipped.items():
        if not reason.startswith("printed only"):
            console.print(f"{name}: {left_out} was not run: {reason}", markup=False)
        if reason == ABSENT:
            try:
                datasets.load(left_out, data_home=data_home)
            except FileNotFoundError as error:  # it says where to get them
                console.print(str(error), markup=False)
    for reason in sorted(set(outcome.failed.values())):
        number = sum(r == reason for r in outcome.failed.values())
        if _lacks(reason):
            reason = reason.removeprefix("ImportError: ")
            console.print(f"{name}: {number} runs were left out: {reason}", markup=False)
        else:
            console.print(f"{name}: {number} runs failed: {reason}", markup=False)
