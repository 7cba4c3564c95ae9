"""Checks of the unpacked size of compressed files, before they would fill the memory."""

from __future__ import annotations

import contextlib
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

#: Unpacked size in bytes that is allowed for every file, however small the file is.
FREE = 500_000_000
#: Larger files may unpack to this many times their size. Measured data sets have up to 4 times.
TIMES = 100


class Unsafe(ValueError):
    """An error for a file that unpacks to far more than its size or refers to another file."""


@contextlib.contextmanager
def whole(path: Path, kind: str) -> Iterator[None]:
    """Replace the errors of a reader by an error with one clear line.

    Errors whose message is clear already are raised unchanged.
    """
    try:
        yield
    except (FileNotFoundError, PermissionError, MemoryError, Unsafe, Warning):
        raise  # the user's filter may turn warnings into errors; the file is not at fault
    except Exception as error:  # damaged files raise nearly any exception
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{path}: no {kind}, or damaged ({reason}).") from error


def check_unpacked(path: Path, size: int) -> None:
    """Raise an error if the unpacked ``size`` is much larger than the file."""
    packed = path.stat().st_size
    if size > max(FREE, TIMES * packed):
        raise Unsafe(
            f"{path} has {packed / 1000000.0:.3g} MB and would unpack to {size / 1000000000.0:.3g} "
            "GB or more. If you trust the file, save its matrix as .npy, which Partwise reads "
            "from disk by blocks."
        )


def check_zip(path: Path) -> None:
    """Check the unpacked size of a .zip, .npz or .xlsx file."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except zipfile.BadZipFile:
        return  # the reader's own message is clearer
    check_unpacked(path, size)


def check_shape(path: Path, shape: Iterable[int]) -> None:
    """Check the memory for one number per row and column, which a sparse file may not contain."""
    check_unpacked(path, 8 * sum(abs(int(length)) for length in shape))


def check_mtx(path: Path) -> None:
    """Check the size of a Matrix Market file, which its second line declares."""
    import scipy.io

    rows, columns, entries, layout, _, symmetry = scipy.io.mminfo(path)
    if layout == "array":
        check_unpacked(path, 8 * rows * columns)
        return
    times = 1 if symmetry == "general" else 2
    check_unpacked(path, 8 * (rows + columns) + 16 * times * entries)


def check_h5ad(path: Path) -> None:
    """Check the size of an HDF5 file, and refuse contents from another file."""
    import h5py

    sizes: list[int] = []
    outside: list[tuple[str, str]] = []  # raised after the visit, because h5py hides errors in it

    def look(name: str, item: Any) -> None:
        sizes.append(getattr(item, "nbytes", 0))
        shape = item.attrs.get("shape", ())  # present for a sparse matrix
        sizes.append(8 * sum(abs(int(length)) for length in np.ravel(shape)))
        if isinstance(item, h5py.Dataset):
            outside.extend((name, other[0]) for other in item.external or ())
            virtual = item.virtual_sources() if item.is_virtual else ()
            outside.extend((name, v.file_name) for v in virtual if v.file_name != ".")  # this file

    def follow(name: str, link: Any) -> None:
        if isinstance(link, h5py.ExternalLink):
            outside.append((name, link.filename))

    with h5py.File(path, "r") as file:
        file.visititems_links(follow)
        file.visititems(look)
    for name, other in outside:
        raise Unsafe(
            f"{path}: {name} is stored in another file ({other}), which is not allowed; if you "
            "trust the file, write it again with anndata."
        )
    check_unpacked(path, sum(sizes))


def check_mat(path: Path, names: Iterable[str]) -> None:
    """Refuse a file in MATLAB's format 5 to 7 that is too large or has an undefined type.

    `scipy.io.loadmat` looks up the types of the named variables in a table without checking its
    range. In scipy 1.17.1, 10 of 14 undefined types ended the process with a segmentation fault.
    """
    for order, data in _variables(path):
        elements = _elements(data, order)
        (_, flags), _, (_, name) = (next(elements, (0, b"")) for _ in range(3))  # skip sizes
        text = name.decode("latin-1")
        if text not in names:
            continue
        if int.from_bytes(flags[:4], order) & 255 not in _CLASSES:
            raise ValueError(f"{text} must be a matrix of real numbers")
        wrong = [kind for kind, _ in elements if kind not in _NUMBERS]
        if wrong:
            raise ValueError(f"damaged: {text} has an element of type {wrong[0]}")


_COMPRESSED = 15
#: Types of elements with numbers: integers of 8 to 64 bits, single, double.
_NUMBERS = frozenset({1, 2, 3, 4, 5, 6, 7, 9, 12, 13})
#: Classes of matrices with numbers: sparse, double, single, integers of 8 to 64 bits.
_CLASSES = frozenset(range(5, 16))


def _variables(path: Path) -> Iterator[tuple[Any, bytes]]:
    """Yield the byte order and the unpacked bytes of each variable.

    Nothing is yielded for files in another format.
    """
    limit, size = max(FREE, TIMES * path.stat().st_size), 0
    with path.open("rb") as file:
        order: Any = {b"IM": "little", b"MI": "big"}.get(file.read(128)[126:])
        while order and len(tag := file.read(8)) == 8:
            kind, length = (int.from_bytes(tag[i : i + 4], order) for i in (0, 4))
            data = file.read(length)
            if kind == _COMPRESSED:
                unpack = zlib.decompressobj()
                try:
                    data = unpack.decompress(data, limit + 1 - size)
                except zlib.error as error:
                    raise ValueError(f"damaged: a variable cannot be unpacked ({error})") from error
                size += len(data)
                check_unpacked(path, size)
                if not unpack.eof:
                    raise ValueError("damaged: a variable is cut short")
                data = data[8 : 8 + int.from_bytes(data[4:8], order)]
            yield order, data


def _elements(data: bytes, order: Any) -> Iterator[tuple[int, bytes]]:
    """Yield type and bytes of each element of a variable.

    The bytes of small elements are stored in the tag that precedes other elements.
    """
    at = 0
    while at + 8 <= len(data):
        kind, length = (int.from_bytes(data[at + i : at + i + 4], order) for i in (0, 4))
        if kind >> 16:
            kind, length = kind & 0xFFFF, kind >> 16
            yield kind, data[at + 4 : at + 4 + length]
            at += 8
            continue
        if at + 8 + length > len(data):
            raise ValueError(f"damaged: an element of {length} bytes is cut short")
        yield kind, data[at + 8 : at + 8 + length]
        at += 8 + length + (-length % 8)
