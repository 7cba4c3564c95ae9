"""Finding a data set by name."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

from partwise.io.datasets.catalogue import CATALOGUE, Entry, canonical
from partwise.io.datasets.fetch import FETCHERS
from partwise.io.datasets.matrix_files import Dataset, read


def load(name: str, *, data_home: str | Path | None = None, download: bool = False) -> Dataset:
    """Load a data set by name: ``"digits"``, ``"orl"``, ``"tdt2"``, ...

    Looks for ``<name>.npz`` or ``.mat`` (and the names under which a known set is usually found,
    e.g. ``ORL_32x32.mat``) in `data_home`, the folder ``$PARTWISE_DATA``, and :func:`user_cache`.
    See :func:`read` for what is in such a file, and :func:`available` for the known names.

    Parameters
    ----------
    name : str
        Case does not matter. A name that is not in the catalogue is taken as a file of your own.
    data_home : path, default=None
        A folder to look in first.
    download : bool, default=False
        Where no file is found, let scikit-learn fetch the set: ``"orl"`` (Olivetti faces),
        ``"lfw"`` and ``"news20"``.

    Returns
    -------
    Dataset
        With ``X``, ``y``, ``class_names``, ``image_shape`` and ``terms`` where they are known.

    Raises
    ------
    FileNotFoundError
        With where to get the set and where to put it.
    ValueError
        The file is damaged or of another layout.

    Examples
    --------
    >>> from partwise.datasets import load
    >>> digits = load("digits")
    >>> digits.X.shape, digits.image_shape
    ((1797, 64), (8, 8))
    """
    if Path(name).name != name:
        raise ValueError(f"{name!r} is a path; use partwise.io.datasets.read for a single file.")
    key = canonical(name)
    if key == "digits":
        return _digits()
    entry = CATALOGUE.get(key)
    folders = _folders(data_home)
    path = _find(entry.stems if entry else (key,), folders)
    if path is not None:
        dataset = read(path)
        return _described(dataset, key, entry) if entry else replace(dataset, name=key)
    if download and entry and entry.fetcher:
        return FETCHERS[entry.fetcher]()
    raise FileNotFoundError(_how_to_get(key, entry, folders, download))


def available(data_home: str | Path | None = None) -> dict[str, str | None]:
    """Every known data set and where it was found; None where it is absent.

    Parameters
    ----------
    data_home : path, default=None
        A folder to look in first.

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
    """The folder of this user's own copies; it need not exist.

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
    """The first match: folders in their order, then stems, then .npz before .mat."""
    for folder in folders:
        if not folder.is_dir():
            continue
        files = {path.name.lower(): path for path in sorted(folder.iterdir())}
        for stem in stems:
            for suffix in (".npz", ".mat"):
                path = files.get(stem + suffix)
                if path is not None and path.is_file():
                    return path
    return None


def _described(dataset: Dataset, name: str, entry: Entry) -> Dataset:
    """What the catalogue knows, laid over what the file says."""
    classes = dataset.class_names
    if entry.class_names and classes and len(classes) == len(entry.class_names):
        classes = entry.class_names
    shape = entry.image_shape
    if shape and shape[0] * shape[1] != dataset.X.shape[1]:
        shape = None  # the same set at another size
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


def _how_to_get(key: str, entry: Entry | None, folders: list[Path], download: bool) -> str:
    places = ", ".join(str(folder) for folder in folders)
    if entry is None:
        return (
            f"No data set {key!r}: it is not one of {', '.join(CATALOGUE)}, and neither {key}.npz "
            f"nor {key}.mat lies in {places}."
        )
    stem = entry.stems[0]
    message = (
        f"Data set {key!r} ({entry.description}) was not found in {places}. "
        f"Get it from {entry.get_from}, and put it into one of these folders as {stem}.npz or "
        f"{stem}.mat (partwise.io.datasets.read says what such a file holds); "
        "PARTWISE_DATA names a folder of your own."
    )
    if entry.fetcher and not download:
        message += f" Or let scikit-learn fetch it: load({key!r}, download=True)."
    return message
