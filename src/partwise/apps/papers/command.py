"""The command ``partwise reproduce``."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

if TYPE_CHECKING:
    from partwise.apps.papers.runner import Outcome
    from partwise.apps.papers.trials import Selection

DEFAULT_OUT = Path("partwise-results")
MISSING_PACKAGE = "ImportError: "  # how the reason begins if an optional package is missing
# type: the reason of each failed run, by name of the table and name of the run
Failed = dict[str, dict[str, str]]


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(help='A table ("gnmf/table3"), a paper ("gnmf"), "all" or your .toml file.'),
    ] = None,
    export: Annotated[
        str | None,
        typer.Option(help="Write the settings of this table to the .toml file NAME, to edit them."),
    ] = None,
    list_all: Annotated[
        bool,
        typer.Option("--list", help="List every table and figure, its data and its running time."),
    ] = False,
    runs: Annotated[
        int | None,
        typer.Option(min=1, help="Number of runs per row of a table. --list shows the default."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Number of processes. Default: one per core.")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Run only a small part of the experiment.")
    ] = False,
    methods: Annotated[str, typer.Option(help="Run only these methods, separated by commas.")] = "",
    variant: Annotated[
        str,
        typer.Option(help='Run only the variant with this name; "main" is the one that counts.'),
    ] = "",
    out: Annotated[
        Path,
        typer.Option(help="Folder for the results. Runs that it already contains are kept."),
    ] = DEFAULT_OUT,
    store: Annotated[
        Path | None,
        typer.Option(help="Write pages for an existing result folder without running anything."),
    ] = None,
    data_home: Annotated[
        Path | None,
        typer.Option(help="Folder with data sets. It is searched before that in PARTWISE_DATA."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Repeat a table or figure of a paper, and compare the results with the printed numbers.

    Every finished run is stored. After an interruption, the same command continues.

    Example: partwise reproduce cnmf/table2 --quick
    """
    home = None if data_home is None else str(data_home)
    if list_all or name is None:
        from partwise.apps.papers.listing import print_list

        print_list(home, jobs, as_json=as_json)
        return
    if export:
        from partwise.apps.papers.export import export as write

        write(export, Path(name))
        return
    if name.endswith(".toml"):  # the folder of the file may contain the user's estimators
        sys.path.insert(0, str(Path(name).resolve().parent))
    from partwise.apps.papers.protocol import expand

    wanted = expand(name)
    if store is not None:
        _write(wanted, store, home, {}, as_json=as_json)
        return
    plans = _plans(wanted, runs, methods, variant, quick=quick)
    failed = _run(plans, jobs, out, home)
    _write(list(plans), out, home, failed, as_json=as_json)
    reasons = [reason for found in failed.values() for reason in found.values()]
    if any(not reason.startswith(MISSING_PACKAGE) for reason in reasons):
        raise typer.Exit(1)


def _plans(
    wanted: list[str], runs: int | None, methods: str, variant: str, *, quick: bool
) -> dict[str, Selection]:
    """Return which runs of each table to compute, for the user's options."""
    from partwise.apps.papers.protocol import load_protocol
    from partwise.apps.papers.trials import Selection

    chosen = tuple(m.strip() for m in methods.split(",")) if methods else ()
    protocols = [load_protocol(name) for name in wanted]
    known = ["main", *dict.fromkeys(v.name for p in protocols for v in p.variants)]
    if variant not in ("", *known):
        raise ValueError(f"no variant {variant!r} of {wanted[0]}; choose: {', '.join(known)}")
    plans = {}
    for name, p in zip(wanted, protocols, strict=True):
        theirs = {method.name.lower() for method in p.methods}
        have = tuple(m for m in chosen if len(wanted) == 1 or m.lower() in theirs)
        if have or not chosen:
            plans[name] = Selection(runs, quick, have, variant)
    if not plans:
        raise ValueError(f"none of {', '.join(wanted)} has a method {methods}")
    return plans


def _run(plans: dict[str, Selection], jobs: int | None, out: Path, home: str | None) -> Failed:
    """Compute the missing runs, and return the reasons of failed runs by table."""
    from partwise.apps.papers import runner

    errors, failed = Console(stderr=True), Failed()
    errors.print(f"Results go to {out}.", markup=False)
    with Progress(console=errors, transient=True, disable=not errors.is_terminal) as progress:
        for name, part in plans.items():
            task = progress.add_task(name)

            def step(total: int, task: Any = task) -> None:
                progress.update(task, advance=1, total=total)

            outcome = runner.reproduce(
                name, out, selection=part, jobs=jobs, data_home=home, progress=step
            )
            failed[name] = outcome.failed
            _report(errors, name, outcome, home)
    return failed


def _write(
    wanted: list[str], out: Path, home: str | None, failed: Failed, *, as_json: bool
) -> None:
    """Write result pages, and print the numbers of one table or a line per table."""
    from partwise.apps.papers import results_page as page
    from partwise.apps.papers.document import Section, to_text
    from partwise.apps.papers.store import Store

    store = Store(out)
    reports = [page.write_one(n, store, data_home=home, failed=failed.get(n)) for n in wanted]
    index = None if len(reports) == 1 else page.write_index(store, reports)
    pages = [out / r.section.anchor / "table.html" for r in reports]
    if as_json:
        told = [page.plain(r) | {"page": str(p)} for r, p in zip(reports, pages, strict=True)]
        print(json.dumps(told, indent=2, ensure_ascii=False))
        return
    if index is None:
        print(to_text(reports[0].section))
        for v in (v for v in reports[0].verdicts if v.counted and v.detail):
            print(f"\n{v.measured:10} {v.text}\n{'':10} {v.detail}")
    else:
        for report in reports:
            print(f"{report.section.anchor:16} {report.section.line}".rstrip())
        first = Section("", "", page.first_screen(reports))
        print("\n" + to_text(first, width=150).strip())
    print(f"\n{index or pages[0]}\n{page.banner(reports)}".rstrip())


def _report(console: Console, name: str, outcome: Outcome, home: str | None) -> None:
    """Print which methods or data sets were left out and which runs failed, and why."""
    from partwise import datasets
    from partwise.apps.papers.runner import ABSENT

    for left_out, reason in outcome.skipped.items():
        console.print(f"{name}: {left_out} was not run: {reason}", markup=False)
        if reason == ABSENT:
            try:
                datasets.load(left_out, data_home=home)
            except FileNotFoundError as error:  # the error message states where to get the data
                console.print(str(error), markup=False)
    for reason, count in sorted(Counter(outcome.failed.values()).items()):
        lacks = reason.startswith(MISSING_PACKAGE)
        words = "were left out" if lacks else "failed"
        text = f"{name}: {count} runs {words}: {reason.removeprefix(MISSING_PACKAGE)}"
        console.print(text, markup=False)
