"""Safe listing of the files in a folder."""

from __future__ import annotations

from pathlib import Path


def check_name(path: Path) -> None:
    """Raise if a name is not UTF-8, since no table, page or message could contain it."""
    if not _is_text(path):
        raise ValueError(f"{str(path)!a}: the name is not UTF-8; rename it.")


def _is_text(path: Path) -> bool:
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def listed(folder: Path) -> tuple[list[Path], tuple[str, ...]]:
    """Return the visible files of a folder and its sub-folders, and notes on what is left out.

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
        notes.append(f"Left out, since the name is not UTF-8: {_few(unnamed)}; rename them.")
    if links:
        notes.append(
            f"Left out, since they are links out of the folder: {_few(links)}; copy what is meant."
        )
    if notes and not files:
        raise ValueError(f"{folder} holds nothing to read. {' '.join(notes)}")
    return files, tuple(notes)


def _few(names: list[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(name[:200] for name in names[:most]) + more
