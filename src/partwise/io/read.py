"""`read_samples`: any folder or file that a person has, as `Samples`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from partwise.io import images, texts
from partwise.io._common import SCALES, Options, Step, silent
from partwise.io.label_files import SIMILAR, check_labels, labels_of
from partwise.io.matrices import read_matrix, read_named
from partwise.io.samples import Samples
from partwise.io.tables import MISSING, read_table
from partwise.persistence.atomic import check_name, listed

TABLES = (".csv", ".tsv", ".parquet")
MATRICES = (".npz", ".npy", ".mtx", ".mat", ".h5ad")
KINDS = ("images", "texts", "table", "counts")
ORDERS = ("auto", "rows", "columns")
TOKENS = ("auto", "words", "characters")


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
    columns: Sequence[str] = (),
    exclude: Sequence[str] = (),
    encoding: str | None = None,
    separator: str | None = None,
    stop_words: str = "auto",
    tokens: str = "auto",
    ngrams: tuple[int, int] | None = None,
    min_df: float | None = None,
    max_df: float | None = None,
    scale: str = "auto",
    missing: str = "auto",
    skip_unknown: bool = False,
    similar_labels: str = "ask",
    transpose: bool = False,
    image_shape: tuple[int, int] | None = None,
    image_order: str = "auto",
    layer: str | None = None,
    genes: int | None = None,
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
        Columns of a table; of ``.h5ad``, ``label_column`` is a column of ``obs``. A column that is
        called id, Nr, customer_id, ... and differs in every row is found by itself; without one,
        ids are row numbers from 0.
    columns, exclude : sequence of str, optional
        The columns of a table that are used, or not used. ``Samples.columns`` says what each was
        taken for (number, date, yes/no, category, left out) and what was done to it.
    encoding, separator : str, optional
        Of text files and tables, where what is found is wrong: "cp1252", ";", "tab".
    stop_words : str, default="auto"
        "auto": those of the texts' language, where it is one with a list; "off"; "frequent": words
        of more than a fifth of the texts; languages, as "german" or "english,french"; or a file
        with a word a line.
    tokens : {"auto", "words", "characters"}, default="auto"
        What texts are cut into. "auto": groups of characters where most of the writing has no
        spaces (Chinese, Japanese, Thai), else words.
    ngrams : (least, most), optional
        Words in a row, or characters, that count as one; (1, 1) for words, (2, 2) for characters.
    min_df, max_df : float, optional
        Leave out words of fewer or more texts than this: a share below 1, a number above. By
        default 2 and 0.5, and none with fewer than 20 texts.
    scale : {"auto", "none", "unit", "range", "max", "std", "total", "log"}, default="auto"
        "unit": samples of length one. "range": columns of a table brought to 0 to 1 by their 5 and
        95 % quantiles. "max", "std": columns divided by their largest absolute value
        or standard deviation. "total": samples scaled to the median total. "log": samples scaled
        to a total of 10,000, log(1 + x), then to length one. "auto": "unit" for images, texts and
        matrices, "range" for tables, "log" for counts of cells (``.h5ad``), "total" for other
        counts; "none" for matrices with negative values.
    missing : {"auto", "error", "median", "mean", "drop"}, default="auto"
        Missing values in a table: fill with the column's median ("auto" too) or mean, refuse, or
        drop the row. Columns that are empty in more than half of the rows are left out.
    skip_unknown : bool, default=False
        Leave out lines of the labels file whose id is not in the data, instead of refusing it.
    similar_labels : {"ask", "merge", "keep"}, default="ask"
        What "Block 2" beside "block2" is: an error that asks, one label or two.
    transpose : bool, default=False
        Samples are the columns of the matrix.
    image_shape : (height, width), optional
        The rows of a matrix are images of this shape.
    image_order : {"auto", "rows", "columns"}, default="auto"
        How their pixels are stored. "auto": column by column in a ``.mat`` file, as MATLAB does,
        else row by row; X always has them row by row.
    layer : str, optional
        Of a ``.h5ad`` file, instead of X.
    genes : int, optional
        Keep that many genes of a ``.h5ad`` file with counts, those that vary most; 0 keeps all. By
        default 2,000 where there are more than 3,000.
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
        "columns": tuple(columns),
        "exclude": tuple(exclude),
        "encoding": encoding,
        "separator": separator,
        "stop_words": stop_words,
        "tokens": tokens,
        "ngrams": ngrams,
        "min_df": min_df,
        "max_df": max_df,
        "scale": scale,
        "missing": missing,
        "transpose": transpose,
        "image_shape": image_shape,
        "image_order": image_order,
        "layer": layer,
        "genes": genes,
    }
    for name, value, known in (
        ("kind", kind, (None, *KINDS)),
        ("scale", scale, SCALES),
        ("missing", missing, MISSING),
        ("tokens", tokens, TOKENS),
        ("image_order", image_order, ORDERS),
        ("similar_labels", similar_labels, SIMILAR),
    ):
        if value not in known:
            raise ValueError(f"{name}={value!r}; it can be {', '.join(map(str, known))}.")
    options = Options(**given, step=step)  # type: ignore[arg-type]
    path = Path(path)
    check_name(path)
    samples = _read(path, options, recipe)
    if samples.n_samples == 1 and recipe is None:
        raise ValueError(f"{path} holds a single sample; a factorization needs more.")
    if labels is not None:
        y, notes = labels_of(Path(labels), samples.ids, options, skip_unknown=skip_unknown)
        samples = replace(samples, y=y, notes=(*samples.notes, *notes))
    if samples.y is not None:
        source = str(path if labels is None else labels)
        samples = replace(samples, y=check_labels(samples.y, source, similar_labels))
    default = {field.name: field.default for field in fields(Options)}
    changed: dict[str, Any] = {k: v for k, v in given.items() if v != default[k]}
    apart: tuple[tuple[str, Any, Any], ...] = (
        ("similar_labels", similar_labels, "ask"),
        ("skip_unknown", skip_unknown, False),
        ("labels", None if labels is None else str(labels), None),
    )
    for name, value, usual in apart:
        if value != usual:
            changed = {name: value, **changed}
    return replace(samples, options=changed)


def _read(path: Path, options: Options, recipe: Mapping[str, Any] | None) -> Samples:
    if path.is_dir():
        samples = _read_folder(path, options, recipe)
    elif path.is_file():
        suffix = path.suffix.lower()
        one = {"images": images.SUFFIXES, "texts": texts.SUFFIXES}
        if recipe is not None and suffix in one.get(recipe["kind"], ()):
            reader = images.read_images if recipe["kind"] == "images" else texts.read_text_files
            samples = reader(path.parent, [path], options, recipe)
        elif suffix in TABLES:
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
    files, strange = listed(folder)
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
    return replace(samples, y=_folder_labels(samples.ids), notes=samples.notes + notes + strange)


def _folder_labels(ids: list[str]) -> np.ndarray | None:
    """The names of the sub-folders, if the samples lie in two or more."""
    parents = [PurePosixPath(name).parts[:-1] for name in ids]
    y = np.array([parts[0] if parts else None for parts in parents], dtype=object)
    return y if len({name for name in y if name is not None}) > 1 else None
