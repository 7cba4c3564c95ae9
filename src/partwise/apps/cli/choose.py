"""The command ``choose``, and the option ``-k auto`` of other commands."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from partwise.apps.cli import outputs, work
from partwise.apps.cli.options import Asked, grid_of, span
from partwise.apps.cli.progress_bar import Bar
from partwise.apps.view.report.search_page import (
    answer_of,
    choice_page,
    rows_of,
    sentence,
    shown_rows,
)
from partwise.estimators.nmf import NMF
from partwise.io.sheets import csv_text
from partwise.persistence.atomic import sweep, write_whole
from partwise.selection.parameters import select
from partwise.selection.rank import choose_k

#: Maximum number of iterations per fit, unless --max-iter sets another number.
DEFAULT_ITERATIONS = 200
#: Files in the result folder of a search. The first is written during the search, the others at its
#: end.
FILES = ("results.jsonl", "choice.csv", "choice.json", "choice.html")


def run_choose(asked: Asked) -> None:
    """Choose the number of parts, or parameters in a grid, and write a result folder."""
    began, out = time.perf_counter(), asked.out
    numbers, grid = _candidates(asked)
    hidden = [p.name for p in out.iterdir() if p.name[0] == "."] if out.is_dir() else []
    outputs.check_place(out, [*FILES, *hidden])
    errors = Console(stderr=True)
    state = {"done": 0, "total": 0}
    with Bar(errors) as bar:
        task = work.read_task(asked, bar)
        if task.samples.also is not None:
            raise ValueError("choose needs --embeddings-only with --embeddings.")
        out.mkdir(exist_ok=True)
        sweep(out)
        for name in FILES if asked.force else ():
            (out / name).unlink(missing_ok=True)
        common = {
            "n_splits": asked.splits, "random_state": asked.seed, "results": out / FILES[0],
            "progress": _progress(bar, state),
        }  # fmt: skip
        try:
            if grid:
                found: Any = _selected(task, asked, grid, **common)
            else:
                found = _chosen(task, asked, numbers, n_runs=asked.runs, strict=True, **common)
        except KeyboardInterrupt:
            bar.start("stopping")
            outputs.stop(errors, state["done"], state["total"], "fits")
        except ValueError as error:
            if "another search" in str(error):
                raise ValueError(
                    f"{out} holds a search with other data or settings. Use --force to overwrite "
                    "it, or --out for another folder."
                ) from error
            raise
    summary = _summary(found, task, asked.command, time.perf_counter() - began)
    _write(found, task, summary, asked)
    _print(found, summary, asked)


def _candidates(asked: Asked) -> tuple[range | None, dict[str, list[Any]]]:
    """Return the numbers of parts in --range, or the parameter values in --grid.

    Raise an error for options that do not go with the option used.
    """
    ends, grid = span(asked.range, "--range"), grid_of(asked.grid)
    if grid and ends is not None:
        raise ValueError("--range cannot be used with --grid; pass one of them.")
    if grid and asked.runs is not None:
        raise ValueError("--runs has no effect with --grid; leave it out.")
    if asked.parts is not None and not grid:
        raise ValueError("--parts needs --grid; use --range for numbers of parts.")
    return (None if ends is None else range(ends[0], ends[1] + 1)), grid


def _chosen(
    task: work.Task, asked: Asked, numbers: range | None, *, strict: bool = False, **common: Any
) -> Any:
    """Return the result of `choose_k` for the data of a command.

    The model is plain NMF with the loss of the method. If the user set parameters that NMF does not
    have, ``strict`` raises an error; otherwise a note reports them. ``common`` are further
    arguments of `choose_k`.
    """
    X = task.samples.X
    low = float(X.min())
    if low < 0:
        raise ValueError(
            f"the number of parts can only be chosen for data without negative values, and the "
            f"lowest is {low:.3g}; pass a number with -k."
        )
    if isinstance(X, np.memmap):
        raise ValueError(
            "the number of parts can only be chosen for data in memory; pass a number with -k."
        )
    most = min(X.shape)
    if numbers is not None and numbers[-1] > most:
        of = f"{X.shape[0]:,} samples of {X.shape[1]:,} features have at most {most} parts"
        if numbers[0] > most:
            raise ValueError(f"--range starts at {numbers[0]}, but {of}.")
        task.notes.append(f"{of}, so --range ends there.")
        numbers = range(numbers[0], most + 1)
    model = _plain_model(task, asked, strict=strict)
    # This warning is suppressed, because the page and the printed result contain the same remark.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The lowest error is at")
        return choose_k(X, numbers, estimator=model, **common)


def _plain_model(task: work.Task, asked: Asked, *, strict: bool) -> Any:
    """Return NMF with the method's loss and the user's settings; None for the default."""
    method, known = asked.method, NMF().get_params()
    own = {} if method == "auto" else work.find_method(method).settings
    settings = dict(task.settings)
    if "beta_loss" in own:
        settings.setdefault("beta_loss", own["beta_loss"])
    other = ", ".join(name for name in settings if name not in known)
    if other and strict:
        raise ValueError(
            f"{other} has no effect on the number of parts, which is chosen with plain NMF. "
            "Use --grid to choose parameters of a method."
        )
    if method not in ("auto", "nmf", "nmf-kl") or other:
        without = f", without {other}" if other else ""
        task.notes.append(
            f"The number of parts was chosen with plain NMF under the loss of {method}{without}."
        )
    settings = {name: value for name, value in settings.items() if name in known}
    if strict and asked.max_iter != DEFAULT_ITERATIONS:
        settings["max_iter"] = asked.max_iter
    return NMF(**{"tol": 1e-3, **settings}) if settings else None


def auto_k(task: work.Task, asked: Asked, bar: Bar) -> Any:
    """Return the chosen number of parts for ``-k auto``.

    The runs that measure stability are left out, because they take longest.
    """
    progress = _progress(bar, {})
    return _chosen(task, asked, None, n_runs=0, random_state=asked.seed, progress=progress)


def _progress(bar: Bar, state: dict[str, int]) -> Any:
    """Return a callback that shows the progress of a search in the progress bar."""

    def progress(done: int, total: int, what: str) -> None:
        """Show that ``done`` of ``total`` fits are finished."""
        state.update(done=done, total=total)
        name = "choosing the number of parts" if what.startswith("k = ") else "comparing the grid"
        bar.step(done, total, name)

    return progress


def _selected(task: work.Task, asked: Asked, grid: dict[str, list[Any]], **common: Any) -> Any:
    """Return the result of `select` for the grid of parameters that the user passed."""
    size = asked.parts or len(task.classes) or None
    if size is None and "n_components" not in grid:
        raise ValueError("Without labels, --grid needs --parts, the number of parts.")
    model, name, _ = work.build(task, asked.method, asked, size or 1, parts=None)
    wrong = [key for key in grid if key not in model.get_params()]
    if wrong:
        known = ", ".join(sorted(model.get_params(deep=False)))
        raise ValueError(f"--method {name} has no parameter {wrong[0]!r}; it has {known}.")
    common["n_splits"] = common["n_splits"] or 5
    return select(task.samples.X, model, grid, y=task.given, **common)


# -- files of the result folder -------------------------------------------------------------------


def _summary(found: Any, task: work.Task, command: str, seconds: float) -> dict[str, Any]:
    """Return the content of choice.json."""
    rows = rows_of(found)
    return {
        "command": command,
        "source": task.samples.source,
        "samples": task.samples.n_samples,
        "features": int(task.samples.X.shape[1]),
        "preparation": task.samples.preparation,
        "answer": answer_of(found),
        "good": [{name: row[name] for name in answer_of(found)} for row in rows if row["good"]],
        "hidden": getattr(found, "by", "entries"),
        "splits": int(found.errors.shape[1]),
        "tried": rows,
        "seconds": round(seconds, 3),
        "notes": task.notes,
    }


def _write(found: Any, task: work.Task, summary: dict[str, Any], asked: Asked) -> None:
    """Write the table, the JSON and the page of a search to its folder."""
    rows = summary["tried"]
    cells = [["" if value is None else value for value in row.values()] for row in rows]
    title = "How many parts" if "k" in summary["answer"] else "Which parameters"
    page = choice_page(
        found,
        title=f"{title}: {Path(task.samples.source).name}",
        command=asked.command,
        source=f"Data: {task.samples.source}. {task.samples.preparation}",
    )
    for name, text in (
        ("choice.csv", csv_text(list(rows[0]), cells)),
        ("choice.json", outputs.as_json(summary) + "\n"),
        ("choice.html", page),
    ):
        write_whole(asked.out / name, text, force=True)


# -- text that the command prints -----------------------------------------------------------------


def _print(found: Any, summary: dict[str, Any], asked: Asked) -> None:
    """Print the result of a search, as a table or as JSON."""
    if asked.as_json:
        print(outputs.as_json({**summary, "out": str(asked.out)}))
        return
    console = outputs.printer()
    console.print(sentence(found))
    heads, cells = shown_rows(found)
    table = outputs.plain_table(*(f"{head}>" for head in heads), "")
    for row in cells:
        table.add_row(*row, style="bold" if row[-1] == "chosen" else None)
    console.print(table)
    console.print(
        f"Data: {summary['samples']:,} samples with {summary['features']:,} features. "
        f"{summary['preparation']}"
    )
    outputs.say_notes(summary["notes"])
    console.print(f"Wrote {asked.out} in {summary['seconds']:.1f} s.")
    console.print(f"Next: open {asked.out / 'choice.html'}")
