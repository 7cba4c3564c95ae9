"""Safe listing of the files in a folder."""

from __future__ import annotations

from pathlib import Path

from partwise.io._common import Options, shown


def check_name(path: Path) -> None:
    """Raise if a name is not UTF-8, since no table, page or message could contain it."""
    if not _is_text(path):
        raise ValueError(f"{str(path)!a}: the name is not UTF-8; rename it.")


def _is_text(path: Path) -> bool:
    return str(path).encode(errors="ignore").decode() == str(path)


def listed(folder: Path, options: Options) -> list[Path]:
    """Return the visible files of a folder and its sub-folders; note what is left out.

    Files whose names are not UTF-8 are left out. Links to places outside of the folder are left
    out, too, because they could expose any file of this machine in a report.
    """
    home = folder.resolve()
    files, unnamed, links = [], [], []
    for file in sorted(folder.rglob("*")):
        inner = file.relative_to(folder)
        if not file.is_file() or any(part.startswith(".") for part in inner.parts):
            continue
        if not _is_text(inner):
            unnamed.append(ascii(str(inner)))
        elif not file.resolve().is_relative_to(home):
            links.append(f"{inner} -> {file.resolve()}")
        else:
            files.append(file)
    notes = []
    if unnamed:
        notes.append(f"Rename these files, whose names are not UTF-8: {shown(unnamed, width=200)}.")
    if links:
        notes.append(f"Links out of the folder were left out: {shown(links, width=200)}.")
    if notes and not files:
        raise ValueError(f"{folder} contains no files that Partwise can read. {' '.join(notes)}")
    for note in notes:
        options.note(note)
    return files
