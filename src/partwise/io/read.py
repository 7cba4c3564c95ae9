"""`read_samples`: the reader of all supported folders and files, which returns `Samples`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from partwise.io import images, texts
from partwise.io._common import SCALES, Options, Step, named, shown, silent
from partwise.io.embeddings import encoded, with_embeddings
from partwise.io.encoders import find_encoder
from partwise.io.folders import check_name, listed
from partwise.io.frames import HEADINGS
from partwise.io.label_files import SIMILAR, UNKNOWN, check_labels, labels_of
from partwise.io.matrices import read_matrix, read_named
from partwise.io.samples import Samples
from partwise.io.tables import MISSING, read_table

TABLES = (".csv", ".tsv", ".tab", ".txt", ".xlsx", ".jsonl", ".parquet")
#: Unsupported formats that are common, and how to convert them.
ELSE = {
    **dict.fromkeys((".xls", ".xlsb", ".ods", ".numbers"), "save it as .xlsx or .csv"),
    **dict.fromkeys((".feather", ".arrow", ".orc", ".sqlite", ".db"), "save it as .parquet"),
    **dict.fromkeys((".sav", ".dta", ".sas7bdat", ".rds", ".rdata"), "save it as .csv"),
    **dict.fromkeys((".eml", ".mbox", ".msg", ".pst"), "save the mails as .csv or .txt files"),
    ".json": "save it as .jsonl, an object a line, or as .csv",
    **dict.fromkeys((".zip", ".gz", ".tar", ".tgz", ".7z", ".rar"), "unpack it"),
    **dict.fromkeys((".docx", ".doc", ".odt", ".pdf", ".rtf"), "save it as .txt, in a folder"),
    **dict.fromkeys((".md", ".text"), "give the folder that holds the texts"),
}
MATRICES = (".npz", ".npy", ".mtx", ".mat", ".h5ad")
#: Allowed values of arguments.
CHOICES: dict[str, tuple[str | None, ...]] = {
    "kind": (None, "images", "texts", "table", "counts"),
    "scale": SCALES,
    "missing": MISSING,
    "heading": HEADINGS,
    "tokens": ("auto", "words", "characters"),
    "image_order": ("auto", "rows", "columns"),
    "similar_labels": SIMILAR,
    "unknown_labels": UNKNOWN,
}
#: The suffixes and the reader of each kind of files in a folder.
READERS: dict[str, tuple[set[str], Callable[[Path, list[Path], Options], Samples]]] = {
    "images": (images.SUFFIXES, images.read_images),
    "texts": (texts.SUFFIXES, texts.read_text_files),
}
#: Readers whose samples may contain only zeros.
MAY_BE_ZERO = ("a matrix", "image files")
#: Maximum number of texts (such as notes) per image in a folder of images, and the reverse.
STRAY = 0.2


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
    heading: str = "auto",
    sheet: str | None = None,
    skip_rows: int | None = None,
    stop_words: str = "auto",
    tokens: str = "auto",
    ngrams: tuple[int, int] | None = None,
    min_df: float | None = None,
    max_df: float | None = None,
    scale: str = "auto",
    missing: str = "auto",
    skip_unknown: bool = False,
    similar_labels: str = "ask",
    unknown_labels: str = "ask",
    transpose: bool = False,
    image_shape: tuple[int, int] | None = None,
    image_order: str = "auto",
    layer: str | None = None,
    genes: int | None = None,
    strict: bool = False,
    embeddings: str | Path | None = None,
    embeddings_only: bool = False,
    encoder: str | None = None,
    download: bool = False,
    offline: bool = False,
    recipe: Mapping[str, Any] | str | Path | None = None,
    step: Step = silent,
) -> Samples:
    """Read a folder or a file, and prepare it for a factorization.

    Parameters
    ----------
    path : str or Path
        A folder of images or of ``.txt`` files, with sub-folders or without; ``.csv``, ``.tsv``,
        ``.xlsx``, ``.jsonl`` or ``.parquet``; ``.npz``, ``.npy``, ``.mtx``, ``.mat`` (``fea``,
        ``gnd``) or ``.h5ad``; or the name of a data set of `partwise.datasets.load`.
        Samples are rows. A ``.npy`` file of
        100 MB or more is not loaded: X is a `numpy.memmap`, and unless ``scale="none"`` that of a
        scaled copy in the folder for temporary files, which goes when X does.
    labels : str or Path, optional
        A CSV file of ids and labels, see `read_labels`. They take precedence over those of the
        source.
    kind : {"images", "texts", "table", "counts"}, optional
        Kind of the data, if it is not detected correctly.
    size : (height, width), optional
        Resize images. None: their own size if they share one, else the median of their heights and
        widths, shrunk to at most 64 x 64 pixels.
    rgb : bool, default=False
        Keep colours.
    text_column, id_column, label_column : str, optional
        Columns of a table, ``"payload.text"`` for a field of an object. Without ``text_column``, a
        column of long texts is used where no column holds numbers. In ``.h5ad`` files
        ``label_column`` is a column of ``obs``. A column that is called id, Nr, customer_id, ...
        and differs in every row is detected, and so is the index that pandas writes.
        Without one, or with ``id_column="none"``, ids are row numbers from 0. A column of ids with
        a blank or a repetition is an error.
    columns, exclude : sequence of str, optional
        The columns of a table to use or to exclude. ``Samples.columns`` lists how each column was
        read (number, date, yes/no, category, left out) and converted.
    encoding, separator : str, optional
        Encoding and separator of text files and tables, for example "cp1252" and ";" or "tab".
        Set them if they are not detected correctly.
    heading : {"auto", "yes", "no"}, default="auto"
        Read the first row of a table as column names, or as data. "auto" reads it as data, with a
        note, if it looks like the others; columns are then called "column 1", "column 2", ...
    sheet : str, optional
        Sheet of a workbook, by its name or its number from 1. None selects the first sheet, unless
        another one contains much more.
    skip_rows : int, optional
        Number of rows above the heading of a table. None skips rows that look like a title.
    stop_words : str, default="auto"
        "auto" uses those of the texts' language, if there is a list; "off" uses none; "frequent"
        uses words of more than a fifth of the texts. Languages such as "english,french" and a file
        with one word per line also work.
    tokens : {"auto", "words", "characters"}, default="auto"
        Units into which texts are divided. "auto" uses groups of characters if most texts are in a
        script without spaces (Chinese, Japanese, Thai), else words.
    ngrams : (least, most), optional
        Minimum and maximum number of consecutive words or characters per feature. The default is
        (1, 1) for words and (2, 2) for characters.
    min_df, max_df : float, optional
        Leave out words that occur in fewer or more texts than this. A value below 1 is a share of
        the texts, any other value a number of texts. The default is 2 and 0.5; with fewer than 20
        texts, no words are left out.
    scale : {"auto", "none", "unit", "range", "max", "std", "total", "log"}, default="auto"
        "unit": samples of length one. "range": columns of a table brought to 0 to 1 by their 5 and
        95 % quantiles. "max", "std": columns divided by their largest absolute value
        or standard deviation. "total": samples scaled to the median total. "log": samples scaled
        to a total of 10,000, log(1 + x), then to length one. "auto": "unit" for images, texts and
        matrices, "range" for tables, "log" for counts of cells (``.h5ad``), "total" for other
        counts; "none" for matrices with negative values.
    missing : {"auto", "error", "median", "mean", "drop"}, default="auto"
        Missing values in a table: "auto" and "median" fill in the median of the column, "mean" its
        mean, "error" raises an error, and "drop" drops the row. Columns that are empty in more than
        half of the rows are left out. Empty texts are skipped, unless "error" refuses them.
    skip_unknown : bool, default=False
        Leave out lines of the labels file whose id is not in the data, instead of refusing it.
    similar_labels : {"ask", "merge", "keep"}, default="ask"
        Treat "Block 2" and "block2" as an error that asks, as one label or as two.
    unknown_labels : {"ask", "drop", "keep"}, default="ask"
        Treat labels such as "unknown" and "?" as an error that asks, as no label or as a class.
    transpose : bool, default=False
        Set to True if samples are the columns of the matrix.
    image_shape : (height, width), optional
        Shape of the images, if the rows of a matrix are images.
    image_order : {"auto", "rows", "columns"}, default="auto"
        How their pixels are stored. "auto": column by column in a ``.mat`` file, as MATLAB does,
        else row by row; X always has them row by row.
    layer : str, optional
        Layer of a ``.h5ad`` file to read instead of X.
    genes : int, optional
        Number of most variable genes to keep of a ``.h5ad`` file with counts; 0 keeps all. The
        default is 2,000 if there are more than 3,000.
    strict : bool, default=False
        Stop at the first file that cannot be read, an empty text or images of different sizes.
        Otherwise such samples are listed in ``Samples.skipped``, and images are resized.
    embeddings : str or Path, optional
        A file with an embedding of each sample, as a second view in addition to the words, pixels
        or columns (``Samples.also``): ``.npz`` with X and ids; ``.parquet`` or ``.csv`` with a
        column of ids and one column per dimension, or one column of lists; or ``.npy``, in the
        order of the samples.
    embeddings_only : bool, default=False
        Use the embeddings instead of words, pixels or columns, which are still shown.
    encoder : str, optional
        Compute the embeddings of texts or pictures with this pretrained encoder instead of reading
        them from a file, see `partwise.encode`.
    download, offline : bool, default=False
        Allow or forbid the download of the encoder's weights.
    recipe : mapping or path of a model file, optional
        Prepare new data as the training data of a model: with the same words, columns and sizes.
        Either ``Samples.recipe`` of the training data, or a file that the command, the studio or
        ``model.save(path, recipe=samples.recipe)`` wrote.
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
    columns, exclude = tuple(columns), tuple(exclude)
    if isinstance(recipe, (str, Path)):
        recipe = recipe_of(recipe)
    given: dict[str, Any] = dict(locals())
    path, notes = Path(given.pop("path")), list[str]()
    options = _checked(Options(**given, note=notes.append))
    check_name(path)
    if labels is not None and path.is_dir():
        # An invalid file of labels is an error before thousands of images are read.
        names = [file.relative_to(path).as_posix() for file in listed(path, Options())]
        _labels(names, replace(options, note=len))
    samples = _read_views(path, options)
    if samples.n_samples == 1 and recipe is None:
        lost = f" ({shown(name for name, _ in samples.skipped)} skipped)" if samples.skipped else ""
        raise ValueError(f"{path} contains a single sample{lost}; at least two are needed.")
    _note_zero_rows(samples, options)
    y = samples.y
    if labels is not None:
        y = _joined_labels(samples, options)
    elif y is not None:
        y = check_labels(y, str(path), options.similar_labels, options.unknown_labels)
    changed = {
        field.name: str(value) if isinstance(value, Path) else value
        for field in fields(options)
        if (value := getattr(options, field.name)) != field.default
        and field.name not in ("recipe", "step", "note")
    }
    return replace(samples, y=y, notes=(*samples.notes, *notes), options=changed)


def _checked(options: Options) -> Options:
    """Check the options; those of a model decide whether embeddings replace the data."""
    for name, known in CHOICES.items():
        value = getattr(options, name)
        if value not in known:
            raise ValueError(f"{name}={value!r} must be one of {', '.join(map(str, known))}.")
    if options.encoder is not None and options.embeddings is not None:
        raise ValueError("Pass either embeddings (a file) or encoder (a name), not both.")
    if options.recipe is not None:  # new data must be prepared like the training data
        return replace(options, embeddings_only=options.recipe["reader"] == "embeddings")
    if options.embeddings_only and options.embeddings is None and options.encoder is None:
        raise ValueError("embeddings_only needs embeddings (a file) or encoder (a name).")
    return options


def _labels(ids: Sequence[str], options: Options, skipped: Sequence[str] = ()) -> np.ndarray:
    """Return labels of the file for samples with these ids."""
    path = Path(str(options.labels))
    y = labels_of(path, ids, options, skipped)
    return check_labels(y, str(path), options.similar_labels, options.unknown_labels)


def _joined_labels(samples: Samples, options: Options) -> np.ndarray:
    """Return the labels of the file for the samples."""
    if samples.unjoinable:
        raise ValueError(f"{options.labels}: ids cannot be matched: {samples.unjoinable}")
    y = _labels(samples.ids, options, [name for name, _ in samples.skipped])
    if samples.ids == [str(i) for i in range(samples.n_samples)]:  # show how numbers were joined
        at = next(i for i, label in enumerate(y) if label is not None)
        what = f", {samples.texts[at][:60]!r}" if samples.texts else ""
        options.note(
            f"The ids of {options.labels} were taken as row numbers from 0: {at}, labelled "
            f"{y[at]!r}, is sample {at + 1} of {samples.n_samples}{what}."
        )
    return y


def recipe_of(model: str | Path) -> Mapping[str, Any]:
    """Return the preparation of the data that a model file contains."""
    from partwise.estimators import saving

    recipe = saving.read(model)[1]
    if recipe is None:
        raise ValueError(f"{model} has no recipe; save it with model.save(path, recipe=...).")
    return recipe


def _read_views(path: Path, options: Options) -> Samples:
    """Read samples, with embeddings if a file or an encoder provides them."""
    recipe, base, encoder = options.recipe, options.recipe, options.encoder
    if recipe is not None:
        base = recipe["base"] if options.embeddings_only else recipe
        fitted = recipe if options.embeddings_only else recipe.get("also")
        encoder = _fitted_encoder(path, fitted, options.embeddings, encoder)
    elif encoder is not None:
        find_encoder(encoder)
    with named(path):
        samples = _read(path, replace(options, recipe=base))
    if encoder is not None:
        return encoded(samples, encoder, options)
    if options.embeddings is not None:
        return with_embeddings(samples, Path(options.embeddings), options)
    return samples


def _fitted_encoder(
    path: Path, fitted: Any, embeddings: str | Path | None, encoder: str | None
) -> str | None:
    """Return the encoder that a model was fitted with; ``fitted`` is the recipe of embeddings."""
    given = f"--encoder {encoder}" if encoder is not None else f"--embeddings {embeddings}"
    if fitted is None:
        if given != "--embeddings None":
            raise ValueError(f"{given}: this model was fitted without embeddings.")
        return None
    if "encoder" not in fitted and embeddings is None:
        raise ValueError(f"{path}: this model was fitted to embeddings; pass --embeddings FILE.")
    if "encoder" not in fitted:
        return None
    name, revision = str(fitted["encoder"]["name"]), fitted["encoder"]["revision"]
    if embeddings is not None or encoder not in (None, name):
        raise ValueError(f"{given}: this model was fitted with --encoder {name}.")
    known = find_encoder(name).revision
    if known != revision:
        raise ValueError(f"Fit the model again: it needs revision {revision} of {name}.")
    return name


def _read(path: Path, options: Options) -> Samples:
    recipe, suffix = options.recipe, path.suffix.lower()
    kind = None if recipe is None else recipe["kind"]
    if path.is_dir():
        samples = _read_folder(path, options)
    elif not path.is_file():
        from partwise.io.datasets.catalogue import CATALOGUE

        if str(path) not in CATALOGUE:
            raise FileNotFoundError(f"There is no file or folder {path}.")
        samples = read_named(str(path), options)
    elif kind in READERS and suffix in READERS[kind][0]:
        samples = READERS[kind][1](path.parent, [path], options)
    elif suffix in TABLES:
        samples = read_table(path, options)
    elif suffix in MATRICES:
        samples = read_matrix(path, options)
    elif suffix in images.SUFFIXES:
        raise ValueError("this is one image; give the folder that holds the images.")
    elif suffix in ELSE:
        raise ValueError(f"this file cannot be read as it is; {ELSE[suffix]}.")
    else:
        known = ", ".join((*TABLES, *MATRICES))
        raise ValueError(f"expected a folder of images or texts, or one of {known}.")
    if recipe is not None and samples.kind != kind:
        raise ValueError(f"these are {samples.kind}; the model needs {kind}.")
    return samples


def _read_folder(folder: Path, options: Options) -> Samples:
    """Read all images, or all texts, of a folder and its sub-folders."""
    files = listed(folder, options)
    found = {
        kind: [file for file in files if file.suffix.lower() in suffixes]
        for kind, (suffixes, _) in READERS.items()
    }
    kind = _kind_of_folder(found, options)
    chosen = found[kind]
    samples = READERS[kind][1](folder, chosen, options)
    used = set(chosen)
    others = [file.relative_to(folder).as_posix() for file in files if file not in used]
    if others:
        options.note(f"Left out, since they are no {kind}: {len(others)} files, {shown(others)}.")
    left = [(name, f"is no {kind[:-1]}") for name in others]
    return replace(samples, y=_folder_labels(samples.ids), skipped=(*samples.skipped, *left))


def _kind_of_folder(found: Mapping[str, list[Path]], options: Options) -> str:
    """Return "images" or "texts", whichever the options ask for or most of the files are."""
    counts = {kind: len(files) for kind, files in found.items()}
    kind = options.kind
    if options.recipe is not None:
        kind = str(options.recipe["kind"])
        if options.recipe["reader"] not in ("image files", "texts"):
            raise ValueError(f"this is a folder; the model needs {options.recipe['reader']}.")
    elif kind is None:
        stray = 0.0 if options.strict else STRAY
        if min(counts.values()) > stray * max(counts.values()):
            both = f"{counts['images']} images and {counts['texts']} texts"
            raise ValueError(f"the folder holds {both}; choose one with --kind.")
        kind = max(counts, key=lambda name: counts[name])
    if not counts.get(kind):
        raise ValueError(f"the folder holds no {kind if kind in counts else 'images or texts'}.")
    return kind


def _note_zero_rows(samples: Samples, options: Options) -> None:
    """Note samples whose values are all zero, which no method can distinguish."""
    X, n = samples.X, samples.n_samples
    # The check would read a whole file on disk again.
    if samples.recipe.get("reader") not in MAY_BE_ZERO or isinstance(X, np.memmap):
        return
    held = np.diff(X.indptr) > 0 if samples.is_sparse else X.any(axis=1)
    zero = np.flatnonzero(~held).tolist()
    if zero:
        kind = "cells" if samples.source.lower().endswith(".h5ad") else "samples"
        names = shown(samples.ids[i] for i in zero)
        options.note(f"{len(zero)} of the {n} {kind} contain only zeros: {names}.")


def _folder_labels(ids: list[str]) -> np.ndarray | None:
    """Return the names of the sub-folders, if the samples are in two or more."""
    parents = [PurePosixPath(name).parts[:-1] for name in ids]
    y = np.array([parts[0] if parts else None for parts in parents], dtype=object)
    return y if len({name for name in y if name is not None}) > 1 else None
