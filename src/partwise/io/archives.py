"""Compressed files that would fill the memory, found by their contents' sizes before reading."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

#: Bytes that a file may unpack to, however small it is.
FREE = 500_000_000
#: Beyond those, so many times its own size: compressed data sets measured have up to 4.
TIMES = 100


class TooLarge(ValueError):
    """A file that would unpack to far more than it has."""


class Elsewhere(ValueError):
    """A file that names another one to read from."""


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


def check_shape(path: Path, shape: Iterable[int]) -> None:
    """The same, for what a number a row and a column takes: in a sparse file they may take none."""
    check_unpacked(path, 8 * sum(abs(int(length)) for length in shape))


def check_mtx(path: Path) -> None:
    """The same, for Matrix Market, whose second line says how much will come."""
    import scipy.io

    rows, columns, entries, layout, _, symmetry = scipy.io.mminfo(path)
    if layout == "array":
        check_unpacked(path, 8 * rows * columns)
        return
    times = 1 if symmetry == "general" else 2
    check_unpacked(path, 8 * (rows + columns) + 16 * times * entries)


def check_h5ad(path: Path) -> None:
    """The same, for HDF5; and it must not take its contents from another file."""
    import h5py

    sizes: list[int] = []
    outside: list[tuple[str, str]] = []  # raised later: h5py takes no error while it visits

    def look(name: str, item: Any) -> None:
        sizes.append(getattr(item, "nbytes", 0))
        shape = item.attrs.get("shape", ())  # of a sparse matrix
        sizes.append(8 * sum(abs(int(length)) for length in np.ravel(shape)))
        if isinstance(item, h5py.Dataset):
            outside.extend((name, other[0]) for other in item.external or ())
            virtual = item.virtual_sources() if item.is_virtual else ()
            outside.extend((name, v.file_name) for v in virtual if v.file_name != ".")  # this one

    def follow(name: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            outside.append((name, link.filename))

    with h5py.File(path, "r") as file:
        file.visititems_links(follow)
        file.visititems(look)
    for name, other in outside:
        raise Elsewhere(
            f"{path}: {name} lies in another file ({other}), which a .h5ad file may not name; if "
            "you trust it, write it anew with anndata."
        )
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
