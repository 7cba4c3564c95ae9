"""Atomic writing: a file or folder appears complete or not at all.

A file is written under a hidden name next to its target, ``.NAME-HASH.HOST-PID-RANDOM.part``, and
then renamed. The hidden name identifies the writing process. Later writers can therefore remove the
unfinished file of a process that was killed.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import platform
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

WINDOWS = os.name == "nt"
_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:6]
_OURS = re.compile(r"\..+\.([0-9a-f]{6})-(\d+)-[0-9a-f]{8}\.(part|old)")
#: Age in seconds after which an unfinished file is treated as abandoned.
STALE = 86_400.0


def check_target(path: str | Path, *, force: bool = False) -> Path:
    """Return ``path`` if a file may be written there; call this before long work.

    Also remove the unfinished files of killed processes from the folder.

    Raises
    ------
    FileExistsError
        If the file exists and ``force`` is False.
    FileNotFoundError
        If its folder does not exist.
    IsADirectoryError
        If ``path`` is a folder.
    """
    path = _allowed(path, force)
    sweep(path.parent)
    return path


def _allowed(path: str | Path, force: bool) -> Path:
    """Return ``path`` if a file may be written there, else raise an error."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; pass the path of a file.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"The folder {path.parent} of the file {path.name} does not exist.")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already; use --force to overwrite it.")
    return path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that is renamed to ``path`` if the block succeeds.

    Otherwise it is removed. Readers never see an incomplete file, even if the disk is full. If
    several processes write the same file, the last one wins.
    """
    part = beside(path)
    try:
        with part.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def write_whole(path: str | Path, content: str | bytes, *, force: bool = False) -> Path:
    """Write ``content`` to a file, which appears complete or not at all."""
    path = _allowed(path, force)
    with whole_file(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def beside(path: Path, suffix: str = "part") -> Path:
    """Return a new hidden file name next to ``path`` that identifies this process."""
    own = f"{_HOST}-{os.getpid()}-{secrets.token_hex(4)}"
    return path.with_name(f".{_short(path.name)}.{own}.{suffix}")


def _short(name: str) -> str:
    """Return the start of a file name, followed by its hash.

    File systems limit names to 255 bytes.
    """
    return f"{name[:40]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}"


def sweep(folder: Path) -> int:
    """Remove unfinished files and folders of ended processes, and return their number."""
    removed = 0
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name.endswith(".part") and _abandoned(path):
                removed += _remove(path)
    return removed


def _abandoned(path: Path) -> bool:
    """Return whether the writing process has ended, or the file is a day old."""
    found = _OURS.fullmatch(path.name)
    if found is None:
        return False
    with contextlib.suppress(OSError):
        if found[1] == _HOST and not WINDOWS:  # on Windows, os.kill(pid, 0) would send Ctrl-C
            try:
                os.kill(int(found[2]), 0)
            except ProcessLookupError:
                return True
        return time.time() - path.stat().st_mtime > STALE
    return False


def _remove(path: Path) -> bool:
    """Delete a file or folder, and return whether it is gone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
    return not path.exists()


def replace_folder(part: Path, path: Path) -> None:
    """Rename the folder ``part`` to ``path``, which may be an existing folder.

    The existing folder is first renamed. If this process is killed in between, `recover` restores
    it.
    """
    old = beside(path, "old")
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, old)
    try:
        os.rename(part, path)
    except BaseException:
        if old.exists():
            os.rename(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def recover(path: Path) -> None:
    """Finish a `replace_folder` that was killed: restore or delete the renamed folder."""
    with contextlib.suppress(OSError):
        for old in sorted(path.parent.glob(f".{glob.escape(_short(path.name))}.*.old")):
            if _abandoned(old):
                if path.exists():
                    _remove(old)
                else:
                    os.rename(old, path)
