"""Files and folders that appear complete or not at all.

Each is written under a hidden name next to its target, ``.NAME-HASH.HOST-PID-RANDOM.part``, and
then renamed. The name identifies the writer, so that later writers remove what a killed one left.
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
#: Seconds after which an unfinished file counts as abandoned.
STALE = 86_400.0


def check_target(path: str | Path, *, force: bool = False) -> Path:
    """Return `path` if a file may be written there; call it before the work that fills the file.

    Also remove the unfinished files of killed writers from the folder.

    Raises
    ------
    FileExistsError
        If the file exists and `force` is False.
    FileNotFoundError
        If its folder does not exist.
    IsADirectoryError
        If `path` is a folder.
    """
    path = _allowed(path, force)
    sweep(path.parent)
    return path


def _allowed(path: str | Path, force: bool) -> Path:
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
    """Open a file that gets the name `path` if the block succeeds, and is removed otherwise.

    Readers never see a part of it, not even if the disk is full; of several writers the last wins.
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
    """Write a file that appears complete or not at all."""
    path = _allowed(path, force)
    with whole_file(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def beside(path: Path, suffix: str = "part") -> Path:
    """Return a new hidden name next to `path` that identifies this process."""
    own = f"{_HOST}-{os.getpid()}-{secrets.token_hex(4)}"
    return path.with_name(f".{_short(path.name)}.{own}.{suffix}")


def _short(name: str) -> str:
    """Return the start of a name and its hash, since file systems limit names to 255 bytes."""
    return f"{name[:40]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}"


def sweep(folder: Path) -> int:
    """Remove the unfinished files and folders of ended writers; return their number."""
    removed = 0
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            if path.name.endswith(".part") and _abandoned(path):
                removed += _remove(path)
    return removed


def _abandoned(path: Path) -> bool:
    """Return whether the writer of one of our files has ended, or the file is a day old."""
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
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
    return not path.exists()


def replace_folder(part: Path, path: Path) -> None:
    """Rename the folder `part` to `path`, which may be a folder already.

    The old folder is renamed first. If this process is killed then, `recover` restores it.
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
    """Restore a folder that a killed `replace_folder` had renamed, or delete it if replaced."""
    with contextlib.suppress(OSError):
        for old in sorted(path.parent.glob(f".{glob.escape(_short(path.name))}.*.old")):
            if _abandoned(old):
                if path.exists():
                    _remove(old)
                else:
                    os.rename(old, path)
