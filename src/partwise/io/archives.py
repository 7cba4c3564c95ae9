"""Compressed files that would fill the memory, found by their contents' sizes before reading."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

#: Bytes that a file may unpack to, however small it is.
FREE = 500_000_000
#: Beyond those, so many times its own size: compressed data sets measured have up to 4.
TIMES = 100


class TooLarge(ValueError):
    """A file that would unpack to far more than it has."""


def check_unpacked(path: Path, size: int) -> None:
    """Raise where `size` bytes are out of proportion to what the file has."""
    packed = path.stat().st_size
    if size > max(FREE, TIMES * packed):
        raise TooLarge(
            f"{path} has {packed / 1e6:.3g} MB and would unpack to {size / 1e9:.3g} GB or more; if "
            "you trust it, save its matrix as .npy, which is read from disk by blocks."
        )


def check_npz(path: Path) -> None:
    """The same, for an archive of arrays."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            check_unpacked(path, sum(member.file_size for member in archive.infolist()))


def check_h5ad(path: Path) -> None:
    """The same, for HDF5."""
    import h5py

    sizes: list[int] = []
    with h5py.File(path, "r") as file:
        file.visititems(lambda name, item: sizes.append(getattr(item, "nbytes", 0)))
    check_unpacked(path, sum(sizes))


def check_mat(path: Path) -> None:
    """The same, for MATLAB's format 5 to 7, whose variables are compressed one by one."""
    limit = max(FREE, TIMES * path.stat().st_size)
    size = 0
    for data in _compressed(path):
        unpack = zlib.decompressobj()
        while data and size <= limit and not unpack.eof:
            size += len(unpack.decompress(data, 1_000_000))
            data = unpack.unconsumed_tail
    check_unpacked(path, size)


def _compressed(path: Path) -> Iterator[bytes]:
    """The bytes of each compressed variable; nothing for a file of another format."""
    with path.open("rb") as file:
        head = file.read(128)
        order = {b"IM": "little", b"MI": "big"}.get(head[126:128])
        while order and len(tag := file.read(8)) == 8:
            kind, length = (int.from_bytes(tag[i : i + 4], order) for i in (0, 4))  # type: ignore[arg-type]
            if kind == 15:
                yield file.read(length)
            else:
                file.seek(length, 1)
