"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path


def check_target(path: str | Path, *, force: bool = False) -> Path:
    """`path`, if a file may be written there; ask before the work that fills it begins.

    Raises
    ------
    FileExistsError
        Something is there and `force` is False.
    FileNotFoundError
        Its folder does not exist.
    IsADirectoryError
        It is a folder.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} into.")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already; --force overwrites it.")
    return path


def write_whole(path: str | Path, content: str | bytes, *, force: bool = False) -> Path:
    """Write a file beside `path` and rename it: no reader, and no full disk, sees half of it."""
    path = check_target(path, force=force)
    data = content.encode("utf-8") if isinstance(content, str) else content
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)
    return path
