"""Folders and files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from partwise.persistence.atomic import beside, recover, replace_folder, sweep

#: What `partwise cluster` may write; --force replaces a folder that holds nothing else.
FILES = {
    "assignments.csv",
    "label_next.csv",
    "representation.npy",
    "representation.csv",
    "model.partwise",
    "report.html",
    "skipped.csv",
    *(f"named{suffix}" for suffix in (".csv", ".tsv", ".jsonl", ".parquet")),
    "summary.json",
}


def check_folder(path: Path, *, force: bool) -> None:
    """Refuse, before any work, a place where the results may not go.

    Also clears up after runs that were killed.
    """
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to make {path.name} in.")
    recover(path.absolute())
    sweep(path.absolute().parent)
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        raise FileExistsError(f"{path} is there and no folder; name another.")
    if not path.is_dir():
        return
    held = sorted(entry.name for entry in path.iterdir())
    foreign = [name for name in held if name not in FILES]
    if foreign:
        raise FileExistsError(
            f"{path} holds other files ({', '.join(foreign[:3])}); name a new or empty folder."
        )
    if held and not force:
        raise FileExistsError(f"{path} holds results already; --force overwrites them.")


@contextlib.contextmanager
def whole_folder(path: Path, *, force: bool) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its name if all goes well, else vanishes."""
    check_folder(path, force=force)
    path = path.absolute()
    part = beside(path)
    try:
        part.mkdir()
        yield part
        check_folder(path, force=force)  # something may have come meanwhile
        replace_folder(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
