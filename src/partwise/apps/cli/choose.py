"""The command ``choose``, and ``-k auto`` of the other commands."""

from __future__ import annotations

import builtins
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from partwise.apps.cli import outputs, work
from partwise.apps.cli.options import grid_of, span
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

#: Iterations of a fit unless --max-iter asks for others.
DEFAULT_ITERATIONS = 200
#: Files in the folder of a search. The first is written during the search, the others at the end.
FILES = ("results.jsonl", "choice.csv", "choice.json", "choice.html")


def run_choose(
    data: str,
    *,
    out: Path,
    range: str | None,
    grid: list[str] | None,
    method: str,
    parts: int | None,
    label_share: float | None,
    splits: int | None,
    runs: int | None,
    seed: int,
    max_iter: int,
    force: bool,
    as_json: bool,
    reading: dict[str, Any],
    command: str,
) -> None:
    """Choose the number of parts or a grid of parameters, and write the folder of results."""
    began = time.perf_counter()
    ends, values = span(range, "--range"), grid_of(grid)
    numbers = None if ends is None else builtins.range(ends[0], ends[1] + 1)
    if values and numbers is not None:
        raise ValueError("--range cannot be used with --grid; pass one of them.")
    if values and runs is not None:
        raise ValueError("--runs has no effect with --grid; leave it out.")
    if parts is not None and not values:
        raise ValueError("--parts needs --grid; use --range for numbers of parts.")
    hidden = [p.name for p in out.iterdir() if p.name[0] == "."] if out.is_dir() else []
    outputs.check_place(out, [*FILES, *hidden])
    errors = Console(stderr=True)
    state = {"done": 0, "total": 0}
    with Bar(errors) as bar:
        task = work.read_task(data, bar, label_share=label_share, seed=seed, reading=reading)
        if task.samples.also is not None:
            raise ValueError("choose needs --embeddings-only with --embeddings.")
        progress = _progress(bar, state)
        out.mkdir(exist_ok=True)
        sweep(out)
        for name in FILES if force else ():
            (out / name).unlink(missing_ok=True)
        file = out / FILES[0]
        try:
            if values:
                found: Any = _selected(
                    task, method, values, parts, splits, seed, max_iter, file, progress
                )
            else:
                found = chosen(
                    task, method, numbers, runs=runs, splits=splits, seed=seed, max_iter=max_iter,
                    strict=True, results=file, progress=progress,
                )  # fmt: skip
        except KeyboardInterrupt:
            bar.start("stopping")
            errors.print(
                f"Stopped after {state['done']} of {state['total']} fits; the same command "
                "continues from there.", highlight=False,
            )  # fmt: skip
            raise SystemExit(130) from None
        except ValueError as error:
            if "another search" in str(error):
                raise ValueError(
                    f"{out} holds a search with other data or settings. Use --force to overwrite "
                    "it, or --out for another folder."
                ) from error
            raise
    summary = _summary(found, task, command, time.perf_counter() - began)
    _write(out, found, task, summary, command)
    _print(found, summary, out, as_json=as_json)


def chosen(
    task: work.Task,
    method: str = "auto",
    numbers: range | None = None,
    *,
    runs: int | None,
    splits: int | None = None,
    seed: int,
    max_iter: int | None = None,
    strict: bool = False,
    results: Path | None = None,
    progress: Any = None,
) -> Any:
    """Run `choose_k` on the samples of a task, with plain NMF under the loss of the method.

    Settings of the task that NMF has apply to it. Others are refused if ``strict``, and are named
    in a note otherwise.
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
    model = _plain_model(task, method, max_iter, strict=strict)
    with warnings.catch_warnings():  # the page and the output contain the same remark
        warnings.filterwarnings("ignore", message="The lowest error is at")
        return choose_k(
            X, numbers, estimator=model, n_splits=splits, n_runs=runs, random_state=seed,
            results=results, progress=progress,
        )  # fmt: skip


def _plain_model(task: work.Task, method: str, max_iter: int | None, *, strict: bool) -> Any:
    """Return NMF with the method's loss and the task's settings; None for the default model."""
    own = {} if method == "auto" else dict(work.find_method(method).settings)
    asked = {"beta_loss": own["beta_loss"]} if "beta_loss" in own else {}
    asked |= task.settings
    known = NMF().get_params()
    other = [name for name in asked if name not in known]
    if other and strict:
        raise ValueError(
            f"{other[0]} has no effect on the number of parts, which is chosen with plain NMF. "
            "Use --grid to choose parameters of a method."
        )
    if method not in ("auto", "nmf", "nmf-kl") or other:
        without = f", without {', '.join(other)}" if other else ""
        task.notes.append(
            f"The number of parts was chosen with plain NMF under the loss of {method}{without}."
        )
    settings = {name: value for name, value in asked.items() if name in known}
    if max_iter not in (None, DEFAULT_ITERATIONS):
        settings["max_iter"] = max_iter
    return NMF(**{"tol": 1e-3, **settings}) if settings else None


def auto_k(task: work.Task, method: str, bar: Bar, seed: int) -> Any:
    """Choose the number for ``-k auto``, without the runs for stability, which take longest."""
    return chosen(task, method, runs=0, seed=seed, progress=_progress(bar, {}))


def _progress(bar: Bar, state: dict[str, int]) -> Any:
    def progress(done: int, total: int, what: str) -> None:
        state.update(done=done, total=total)
        name = "choosing the number of parts" if what.startswith("k = ") else "comparing the grid"
        bar.step(done, total, name)

    return progress


def _selected(
    task: work.Task, method: str, grid: dict[str, list[Any]], parts: int | None, splits: int | None,
    seed: int, max_iter: int, file: Path, progress: Any,
) -> Any:  # fmt: skip
    size = parts or len(task.classes) or None
    if size is None and "n_components" not in grid:
        raise ValueError("Without labels, --grid needs --parts, the number of parts.")
    model, name, _ = work.build(task, method, k=size or 1, parts=None, seed=seed, max_iter=max_iter)
    wrong = [key for key in grid if key not in model.get_params()]
    if wrong:
        known = ", ".join(sorted(model.get_params(deep=False)))
        raise ValueError(f"--method {name} has no parameter {wrong[0]!r}; it has {known}.")
    return select(
        task.samples.X, model, grid, y=task.given, n_splits=splits or 5, random_state=seed,
        results=file, progress=progress,
    )  # fmt: skip


# -- the folder -----------------------------------------------------------------------------------


def _summary(found: Any, task: work.Task, command: str, seconds: float) -> dict[str, Any]:
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


def _write(out: Path, found: Any, task: work.Task, summary: dict[str, Any], command: str) -> None:
    rows = summary["tried"]
    cells = [["" if value is None else value for value in row.values()] for row in rows]
    title = "How many parts" if "k" in summary["answer"] else "Which parameters"
    page = choice_page(
        found,
        title=f"{title}: {Path(task.samples.source).name}",
        command=command,
        source=f"Data: {task.samples.source}. {task.samples.preparation}",
    )
    for name, text in (
        ("choice.csv", csv_text(list(rows[0]), cells)),
        ("choice.json", outputs.as_json(summary) + "\n"),
        ("choice.html", page),
    ):
        write_whole(out / name, text, force=True)


# -- output ---------------------------------------------------------------------------------------


def _print(found: Any, summary: dict[str, Any], out: Path, *, as_json: bool) -> None:
    if as_json:
        print(outputs.as_json({**summary, "out": str(out)}))
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
    console.print(f"Wrote {out} in {summary['seconds']:.1f} s.")
    console.print(f"Next: open {out / 'choice.html'}")
