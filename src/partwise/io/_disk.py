"""Matrices that stay on disk: `numpy.memmap`, seen by blocks of rows."""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from partwise.backends.arrays import forget
from partwise.backends.numpy.memmap import MemmapData

#: A .npy file of at least this many bytes is not loaded.
STREAM_FROM = 100_000_000


def streams(path: Path) -> bool:
    """Whether a file is so large that it stays on disk."""
    return os.path.getsize(path) >= STREAM_FROM


def pieces(X: Any) -> Iterator[Any]:
    """X by blocks of rows where it lies on disk, else X itself."""
    if not isinstance(X, np.memmap):
        yield X
        return
    for _, block in MemmapData(X).read():
        yield block


def mapped(X: np.memmap, change: Callable[[Any], Any]) -> np.memmap:
    """``change`` of every block, in a temporary file that goes with the array."""
    dtype = X.dtype if X.dtype.kind == "f" else np.dtype(np.float64)
    place = tempfile.gettempdir()
    need, free = X.size * dtype.itemsize, shutil.disk_usage(place).free
    if need > free:
        raise OSError(
            f"{X.filename} stays on disk, and its scaled copy needs {need / 1e9:.1f} GB: {place} "
            f"has {free / 1e9:.1f} GB; set TMPDIR to a larger folder, or use --scale none."
        )
    folder = tempfile.mkdtemp(prefix="partwise-")
    try:
        path = Path(folder) / "scaled.npy"
        out = np.lib.format.open_memmap(path, "w+", dtype, X.shape)
        at = 0
        for block in pieces(X):
            out[at : at + len(block)] = change(block)
            at += len(block)
            forget(out)
        out.flush()
        made: np.memmap = np.load(path, mmap_mode="r")
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    weakref.finalize(made, shutil.rmtree, folder, True)
    return made
