"""Load a data set by name."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from partwise.io.datasets.catalogue import CATALOGUE, Entry, canonical
from partwise.io.datasets.matrix_files import Dataset, read


def load(name: str, *, data_home: str | Path | None = None, download: bool = False) -> Dataset:
    """Load a data set by name: ``"digits"``, ``"orl"``, ``"tdt2"``, ...

    The file is ``<name>.npz`` or ``.mat``, or has the usual name of a public set, for example
    ``ORL_32x32.mat``. It is searched for in `data_home`, in the folder ``$PARTWISE_DATA``, and in
    :func:`user_cache`. :func:`read` describes the content of such a file, and :func:`available`
    returns the names of the public sets.

    Parameters
    ----------
    name : str
        Name in any case. A name that is not in the catalogue is the name of your own file.
    data_home : path, default=None
        Folder to search first.
    download : bool, default=False
        If there is no file, let scikit-learn download the set. This works for ``"orl"`` (Olivetti
        faces), ``"lfw"`` and ``"news20"``.

    Returns
    -------
    Dataset
        ``X``, and ``y``, ``class_names``, ``image_shape`` and ``terms`` if they are known.

    Raises
    ------
    FileNotFoundError
        If there is no file. The message names a source of the set and the folders.
    ValueError
        If the file is damaged or has another layout.

    Examples
    --------
    >>> from partwise.datasets import load
    >>> digits = load("digits")
    >>> digits.X.shape, digits.image_shape
    ((1797, 64), (8, 8))
    """
    if Path(name).name != name:
        raise ValueError(f"{name!r} is a path; use partwise.datasets.read for a single file.")
    key = canonical(name)
    if key == "digits":
        return _digits()
    entry = CATALOGUE.get(key)
    folders = _folders(data_home)
    path = _find(entry.stems if entry else (key,), folders)
    if path is not None:
        dataset = read(path)
        return _described(dataset, key, entry) if entry else replace(dataset, name=key)
    if download and entry and entry.fetched:
        return _fetch(key, entry.fetched)
    raise FileNotFoundError(_how_to_get(key, entry, folders, download))


def available(data_home: str | Path | None = None) -> dict[str, str | None]:
    """Return every public data set and its file, or None if there is no file.

    Parameters
    ----------
    data_home : path, default=None
        Folder to search first.

    Returns
    -------
    dict of str to str or None

    Examples
    --------
    >>> from partwise.datasets import available
    >>> available()["digits"]
    'scikit-learn'
    """
    folders = _folders(data_home)
    found: dict[str, str | None] = {}
    for name, entry in CATALOGUE.items():
        path = _find(entry.stems, folders)
        found[name] = str(path) if path else ("scikit-learn" if name == "digits" else None)
    return found


def user_cache() -> Path:
    """Return the folder of this user's own copies, which may not exist.

    Returns
    -------
    Path

    Examples
    --------
    >>> from partwise.datasets import user_cache
    >>> user_cache().name
    'partwise'
    """
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "partwise"


def _folders(data_home: str | Path | None) -> list[Path]:
    named = [data_home, os.environ.get("PARTWISE_DATA")]
    return [Path(folder).expanduser() for folder in named if folder] + [user_cache()]


def _find(stems: tuple[str, ...], folders: list[Path]) -> Path | None:
    """Return the first match: by folder, then by stem, then .npz before .mat."""
    names = [stem + suffix for stem in stems for suffix in (".npz", ".mat")]
    for folder in filter(Path.is_dir, folders):
        files = {path.name.lower(): path for path in sorted(folder.iterdir()) if path.is_file()}
        found = next((files[name] for name in names if name in files), None)
        if found is not None:
            return found
    return None


def _described(dataset: Dataset, name: str, entry: Entry) -> Dataset:
    """Return a data set with the names and the image shape of the catalogue."""
    classes = dataset.class_names
    if entry.class_names and classes and len(classes) == len(entry.class_names):
        classes = entry.class_names
    shape = entry.image_shape
    if shape and shape[0] * shape[1] != dataset.X.shape[1]:
        shape = None  # the same images at another size
    return replace(
        dataset,
        name=name,
        image_shape=shape,
        image_order=entry.image_order,
        class_names=classes,
        description=entry.description,
    )


def _digits() -> Dataset:
    from sklearn.datasets import load_digits

    found = load_digits()
    names = tuple(str(name) for name in found.target_names)
    digits = Dataset(found.data, found.target, "", class_names=names, source="scikit-learn")
    return _described(digits, "digits", CATALOGUE["digits"])


def _fetch(name: str, description: str) -> Dataset:
    """Let scikit-learn download a data set; pictures get grey values from 0 to 255."""
    from sklearn import datasets

    terms = None
    if name == "news20":
        found = datasets.fetch_20newsgroups_vectorized(subset="all", normalize=False)
        X, names = sparse.csr_array(found.data).astype(np.float64), found.target_names
        terms = np.asarray(found.feature_names, dtype=str)
    elif name == "orl":
        found = datasets.fetch_olivetti_faces()
        small = found.images.reshape(-1, 32, 2, 32, 2).mean(axis=(2, 4), dtype=np.float64)
        X, names = _pixels(small), np.unique(found.target)
    else:
        centre = slice(61, 189)
        how = {"min_faces_per_person": 20, "slice_": (centre, centre), "resize": 0.25}
        found = datasets.fetch_lfw_people(**how)
        X, names = _pixels(found.images), found.target_names
    return Dataset(
        X,
        np.asarray(found.target, dtype=np.intp),
        name,
        image_shape=None if name == "news20" else (32, 32),
        class_names=tuple(map(str, names)),
        terms=terms,
        description=description,
        source="scikit-learn",
    )


def _pixels(images: Any) -> np.ndarray:
    """Return images from 0 to 1 as rows of grey values from 0 to 255, column by column."""
    columns = np.asarray(images, dtype=np.float64).transpose(0, 2, 1)
    return 255 * columns.reshape(len(columns), -1)


def _how_to_get(key: str, entry: Entry | None, folders: list[Path], download: bool) -> str:
    places = ", ".join(str(folder) for folder in folders)
    if entry is None:
        known = ", ".join(CATALOGUE)
        return f"Unknown data set {key!r}. Choose one of {known}, or put {key}.npz into {places}."
    message = (
        f"Data set {key!r} was not found in {places}. Get it from {entry.get_from}, and put it "
        f"there as {entry.stems[0]}.npz or .mat; PARTWISE_DATA adds a folder of your own."
    )
    if entry.fetched and not download:
        message += f" Or let scikit-learn download it: load({key!r}, download=True)."
    return message
