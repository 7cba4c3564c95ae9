"""Folders and files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

#: What `partwise cluster` may write; --force replaces a folder that holds nothing else.
FILES = {
    "assignments.csv",
    "representation.npy",
    "representation.csv",
    "model.partwise",
    "report.html",
    "summary.json",
}


def check_folder(path: Path, *, force: bool) -> None:
    """Refuse, before any work, a place where the results may not go."""
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to make {path.name} in.")
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
    part = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent))
    try:
        part.chmod(0o777 & ~_umask())  # mkdtemp makes it private
        yield part
        check_folder(path, force=force)  # something may have come meanwhile
        _replace(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _replace(part: Path, path: Path) -> None:
    if not path.exists() or not any(path.iterdir()):
        os.replace(part, path)  # onto an empty folder too
        return
    old = part.with_suffix(".old")
    os.replace(path, old)
    try:
        os.replace(part, path)
    except BaseException:
        os.replace(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def csv_text(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A CSV file as text."""
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows(rows)
    return buffer.getvalue()
