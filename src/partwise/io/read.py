"""`read_samples`: any folder or file that a person has, as `Samples`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from partwise.io import images, texts
from partwise.io._common import SCALES, Options, Step, silent
from partwise.io.labels import read_labels
from partwise.io.matrices import read_matrix, read_named
from partwise.io.samples import Samples
from partwise.io.tables import MISSING, read_table

TABLES = (".csv", ".tsv", ".parquet")
MATRICES = (".npz", ".npy", ".mtx", ".mat", ".h5ad")
KINDS = ("images", "texts", "table", "counts")


def read_samples(
    path: str | Path,
    *,
    labels: str | Path | None = None,
    kind: str | None = None,
    size: tuple[int, int] | None = None,
    rgb: bool = False,
    text_column: str | None = None,
    id_column: str | None = None,
    label_column: str | None = None,
    scale: str = "auto",
    missing: str = "error",
    transpose: bool = False,
    image_shape: tuple[int, int] | None = None,
    recipe: Mapping[str, Any] | None = None,
    step: Step = silent,
) -> Samples:
    """Read a folder or a file, and prepare it for a factorization.

    Parameters
    ----------
    path : str or Path
        A folder of images or of ``.txt`` files, with sub-folders or without; ``.csv``, ``.tsv`` or
        ``.parquet``; ``.npz``, ``.npy``, ``.mtx``, ``.mat`` (``fea``, ``gnd``) or ``.h5ad``; or the
        name of a data set that `partwise.datasets.load` knows. Samples are rows. A ``.npy`` file of
        100 MB or more is not loaded: X is a `numpy.memmap`, and unless ``scale="none"`` that of a
        scaled copy in the folder for temporary files, which goes when X does.
    labels : str or Path, optional
        A CSV file of ids and labels, see `read_labels`. They go before those of the source.
    kind : {"images", "texts", "table", "counts"}, optional
        What the data is, where it does not show.
    size : (height, width), optional
        Resize images. None: their own size if they share one, shrunk to at most 64 x 64 pixels.
    rgb : bool, default=False
        Keep colours.
    text_column, id_column, label_column : str, optional
        Columns of a table; of ``.h5ad``, ``label_column`` is a column of ``obs``. A column "id" is
        found by itself; without one, ids are row numbers from 0.
    scale : {"auto", "none", "unit", "max", "std", "total"}, default="auto"
        "unit": samples of length one. "max", "std": columns divided by their largest absolute value
        or standard deviation. "total": samples scaled to the median total. "auto": "unit" for
        images, texts and matrices, "max" for tables, "total" for counts; where there are negative
        values "std" for tables and "none" for matrices.
    missing : {"error", "mean", "drop"}, default="error"
        Missing numbers in a table: refuse, put the column's mean, or drop the row.
    transpose : bool, default=False
        Samples are the columns of the matrix.
    image_shape : (height, width), optional
        The rows of a matrix are images of this shape, stored row by row.
    recipe : mapping, optional
        ``Samples.recipe`` of other data: the same words, columns and sizes are used.
    step : callable, optional
        Called as ``step(done, total, what)``.

    Returns
    -------
    Samples

    Raises
    ------
    ValueError
        The data cannot be used; the message is one line that names the file.

    Examples
    --------
    >>> from partwise.io import read_samples
    >>> samples = read_samples("digits")
    >>> samples.X.shape, samples.kind, samples.image_shape
    ((1797, 64), 'images', (8, 8))
    """
    given = {
        "kind": kind,
        "size": size,
        "rgb": rgb,
        "text_column": text_column,
        "id_column": id_column,
        "label_column": label_column,
        "scale": scale,
        "missing": missing,
        "transpose": transpose,
        "image_shape": image_shape,
    }
    for name, value, known in (
        ("kind", kind, (None, *KINDS)),
        ("scale", scale, SCALES),
        ("missing", missing, MISSING),
    ):
        if value not in known:
            raise ValueError(f"{name}={value!r}; it can be {', '.join(map(str, known))}.")
    options = Options(**given, step=step)  # type: ignore[arg-type]
    path = Path(path)
    samples = _read(path, options, recipe)
    if samples.n_samples == 1 and recipe is None:
        raise ValueError(f"{path} holds a single sample; a factorization needs more.")
    if labels is not None:
        samples = replace(samples, y=read_labels(labels, samples.ids))
    default = {field.name: field.default for field in fields(Options)}
    changed: dict[str, Any] = {k: v for k, v in given.items() if v != default[k]}
    if labels is not None:
        changed = {"labels": str(labels), **changed}
    return replace(samples, options=changed)


def _read(path: Path, options: Options, recipe: Mapping[str, Any] | None) -> Samples:
    if path.is_dir():
        samples = _read_folder(path, options, recipe)
    elif path.is_file():
        suffix = path.suffix.lower()
        if suffix in TABLES:
            samples = read_table(path, options, recipe)
        elif suffix in MATRICES:
            samples = read_matrix(path, options, recipe)
        else:
            raise ValueError(
                f"{path}: a folder of images or texts, or a file that ends in "
                f"{', '.join((*TABLES, *MATRICES))}, is expected."
            )
    else:
        from partwise.io.datasets.catalogue import CATALOGUE

        if str(path) not in CATALOGUE:
            raise FileNotFoundError(f"There is no file or folder {path}.")
        samples = read_named(str(path), options, recipe)
    if recipe is not None and samples.kind != recipe["kind"]:
        raise ValueError(f"{path} holds {samples.kind}, the model knows {recipe['kind']}.")
    return samples


def _read_folder(folder: Path, options: Options, recipe: Mapping[str, Any] | None) -> Samples:
    """All images, or all texts, of a folder and its sub-folders."""
    files = sorted(
        file
        for file in folder.rglob("*")
        if file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )
    found = {
        "images": [file for file in files if file.suffix.lower() in images.SUFFIXES],
        "texts": [file for file in files if file.suffix.lower() in texts.SUFFIXES],
    }
    kind = options.kind if recipe is None else recipe["kind"]
    if kind is None:
        if found["images"] and found["texts"]:
            raise ValueError(
                f"{folder} holds {len(found['images'])} images and {len(found['texts'])} texts; "
                "--kind says which are meant."
            )
        kind = "texts" if found["texts"] else "images"
    if recipe is not None and recipe["reader"] not in ("image files", "texts"):
        raise ValueError(f"{folder} is a folder, the model knows {recipe['reader']}.")
    if kind not in found or not found[kind]:
        raise ValueError(f"{folder} holds no {kind if kind in found else 'images and no texts'}.")
    chosen = found[kind]
    if kind == "images":
        samples = images.read_images(folder, chosen, options, recipe)
    else:
        samples = texts.read_text_files(folder, chosen, options, recipe)
    notes = images.left_out(folder, [f for f in files if f not in set(chosen)], kind)
    return replace(samples, y=_folder_labels(samples.ids), notes=samples.notes + notes)


def _folder_labels(ids: list[str]) -> np.ndarray | None:
    """The names of the sub-folders, if the samples lie in two or more."""
    parents = [PurePosixPath(name).parts[:-1] for name in ids]
    y = np.array([parts[0] if parts else None for parts in parents], dtype=object)
    return y if len({name for name in y if name is not None}) > 1 else None
