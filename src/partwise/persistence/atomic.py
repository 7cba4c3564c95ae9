"""Files and folders that appear whole or not at all, and nothing left of those that did not.

Each is written under a hidden name of its own beside its target, ``.NAME.HOST-PID-RANDOM.part``,
which says whose it is, and then renamed. What a killed writer left is removed by the next one.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import hashlib
import os
import platform
import re
import secrets
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

WINDOWS = os.name == "nt"
_HOST = hashlib.sha256(platform.node().encode()).hexdigest()[:6]
_OURS = re.compile(r"\..+\.([0-9a-f]{6})-(\d+)-[0-9a-f]{8}\.(part|old)")
#: Nobody takes longer than this over one file: seconds.
STALE = 86_400.0


def check_target(path: str | Path, *, force: bool = False) -> Path:
    """`path`, if a file may be written there; ask before the work that fills it begins.

    Also removes what killed writers left in its folder.

    Raises
    ------
    FileExistsError
        Something is there and `force` is False.
    FileNotFoundError
        Its folder does not exist.
    IsADirectoryError
        It is a folder.
    """
    path = _allowed(path, force)
    sweep(path.parent)
    return path


def _allowed(path: str | Path, force: bool) -> Path:
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; name a file in it.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {path.parent} to write {path.name} into.")
    if path.exists() and not force:
        raise FileExistsError(f"{path} exists already; --force overwrites it.")
    return path


@contextlib.contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the name `path` when the block ends well, else vanishes.

    No reader, and no full disk, sees half of it; of several writers the last one wins.
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
    """Write a file that is there whole or not at all."""
    path = _allowed(path, force)
    with whole_file(path) as file:
        file.write(content.encode("utf-8") if isinstance(content, str) else content)
    return path


def beside(path: Path, suffix: str = "part") -> Path:
    """A name of our own beside `path`."""
    own = f"{_HOST}-{os.getpid()}-{secrets.token_hex(4)}"
    return path.with_name(f".{_short(path.name)}.{own}.{suffix}")


def _short(name: str) -> str:
    """The name, or a stand-in where ours would pass the 255 bytes that file systems allow."""
    if len(os.fsencode(name)) <= 200:
        return name
    return f"{name[:40]}-{hashlib.sha256(os.fsencode(name)).hexdigest()[:12]}"


# -- what killed writers left ---------------------------------------------------------------------


def sweep(folder: Path) -> int:
    """Remove the unfinished files and folders of dead writers; the number removed."""
    removed = 0
    with contextlib.suppress(OSError):
        for path in folder.iterdir():
            found = _OURS.fullmatch(path.name)
            if found and found[3] == "part" and _abandoned(path):
                removed += _remove(path)
    return removed


def recover(path: Path) -> None:
    """Put back the folder that a killed `replace_folder` had set aside, or drop it if done."""
    with contextlib.suppress(OSError):
        for old in sorted(path.parent.glob(f".{glob.escape(_short(path.name))}.*.old")):
            if not _OURS.fullmatch(old.name) or not _abandoned(old):
                continue
            if path.exists():
                _remove(old)
            else:
                os.rename(old, path)


def _remove(path: Path) -> bool:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()
    return not path.exists()


def _abandoned(path: Path) -> bool:
    """Whether nobody can still be writing: a dead process of this machine, or a day of silence."""
    found = _OURS.fullmatch(path.name)
    if found is None:
        return False
    if found[1] == _HOST and not _alive(int(found[2])):
        return True
    with contextlib.suppress(OSError):
        return time.time() - path.stat().st_mtime > STALE
    return False


def _alive(pid: int) -> bool:
    """Whether a process runs; True where that cannot be asked without harm."""
    if WINDOWS:
        return True  # there os.kill(pid, 0) is Ctrl-C
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


# -- folders --------------------------------------------------------------------------------------


def replace_folder(part: Path, path: Path) -> None:
    """`part` takes the place of `path`, a folder or nothing.

    Where the system can swap two names at once, there is no moment without `path`; elsewhere the
    old folder is set aside, and `recover` puts it back if we are killed then.
    """
    if not path.exists():
        os.rename(part, path)
        return
    if _swap(part, path):
        shutil.rmtree(part, ignore_errors=True)
        return
    old = beside(path, "old")
    os.rename(path, old)
    try:
        os.rename(part, path)
    except BaseException:
        os.rename(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _swap(a: Path, b: Path) -> bool:
    """Exchange two names in one step; False where the system or the file system cannot."""
    first, second = os.fsencode(a), os.fsencode(b)
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE; RENAME_SWAP of macOS is 2 too
    try:
        libc = ctypes.CDLL(None)
        if sys.platform == "darwin":
            return libc.renamex_np(first, second, swap) == 0
        return bool(libc.renameat2(here, first, here, second, swap) == 0)
    except (AttributeError, OSError, TypeError):
        return False
