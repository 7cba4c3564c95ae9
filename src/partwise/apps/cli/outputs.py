"""Output of commands: result folders, tables, notes and JSON."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from rich import box
from rich.console import Console
from rich.table import Table

from partwise.persistence.atomic import beside, recover, replace_folder, sweep, write_whole

#: Files that `partwise classify` and `cluster` write. With --force, only a folder without other
#: files is replaced.
FILES = {
    "assignments.csv",
    "label_next.csv",
    "representation.npy",
    "representation.csv",
    "model.partwise",
    "report.html",
    "skipped.csv",
    *(f"labelled{suffix}" for suffix in (".csv", ".tsv", ".jsonl", ".parquet")),
    "summary.json",
}


def check_folder(path: Path, *, force: bool, files: Iterable[str] = FILES) -> None:
    """Raise an error if results cannot be written to this folder; call this first.

    A folder with other files than ``files`` is never replaced. Temporary files of killed runs are
    removed.
    """
    if path.absolute().parent.is_dir():
        recover(path.absolute())
        sweep(path.absolute().parent)
    held = check_place(path, files)
    if held and not force:
        raise FileExistsError(f"{path} already contains results; use --force to overwrite them.")


def check_place(path: Path, files: Iterable[str]) -> list[str]:
    """Return the names of files in a result folder; raise an error for other files."""
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} for {path.name} does not exist.")
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise FileExistsError(f"{path} exists and is not a folder; choose another name.")
    held = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    foreign = [name for name in held if name not in files]
    if foreign:
        raise FileExistsError(
            f"{path} contains other files ({', '.join(foreign[:3])}); choose a new or empty folder."
        )
    return held


@contextlib.contextmanager
def whole_folder(path: Path, *, force: bool, files: Iterable[str] = FILES) -> Iterator[Path]:
    """Yield a temporary folder that replaces ``path`` on success.

    The temporary folder is deleted if an error occurs.
    """
    check_folder(path, force=force, files=files)
    path = path.absolute()
    part = beside(path)
    try:
        part.mkdir()
        yield part
        # another program may have written to it meanwhile
        check_folder(path, force=force, files=files)
        replace_folder(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_summary(folder: Path, summary: dict[str, Any], notes: list[str]) -> None:
    """Write summary.json, with the notes and the names of all files in the folder."""
    summary["notes"] = notes
    summary["files"] = sorted([*(f.name for f in folder.iterdir()), "summary.json"])
    write_whole(folder / "summary.json", as_json(summary) + "\n")


# -- text that commands print ---------------------------------------------------------------------


def printer(*, stderr: bool = False) -> Console:
    """Return a console that prints text without changes or line breaks."""
    return Console(stderr=stderr, highlight=False, markup=False, soft_wrap=True)


def as_text(table: Table) -> str:
    """Return a table as the text that `printer` would print."""
    console = printer()
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip("\n")


def say_notes(notes: Iterable[str]) -> None:
    """Print notes to standard error."""
    for note in notes:
        printer(stderr=True).print(f"Note: {note}")


def say_next(ids: Iterable[str]) -> None:
    """Print the samples that should be labelled next, if there are any."""
    first = ", ".join(list(ids)[:5])
    if first:
        printer().print(
            f"To improve the result, label these samples: {first} (see label_next.csv)."
        )


def stop(console: Console, done: int, total: int, what: str) -> NoReturn:
    """Print that the same command continues an interrupted run, and end the command."""
    text = f"Stopped after {done} of {total} {what}; the same command continues from there."
    console.print(text, highlight=False)
    raise SystemExit(130) from None


def as_json(content: Any) -> str:
    """Return content as indented JSON text."""
    return json.dumps(content, indent=2, ensure_ascii=False)


def plain_table(*heads: str, **how: Any) -> Table:
    """Return a table without lines, with the given column headings.

    A heading that ends in ">" marks a column of numbers, and one that ends in "!" names without
    breaks.
    """
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, title_justify="left", **how)
    for head in heads:
        whole, right = head.endswith((">", "!")), head.endswith(">")
        table.add_column(
            head.rstrip(">!"), justify="right" if right else "left", no_wrap=whole, overflow="fold"
        )
    return table
