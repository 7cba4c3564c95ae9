"""Tables: .csv, .tsv and .parquet, as features by column or as a column of texts."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from partwise.io._common import (
    SCALE_WORDS,
    Options,
    apply_scale,
    check_matrix,
    learn_scale,
    need,
    shown,
)
from partwise.io.archives import TooLarge, check_unpacked
from partwise.io.columns import Column, encode_columns, learn_columns, looks_like_id
from partwise.io.encoding import said, text_format
from partwise.io.numbers import decimal_sign
from partwise.io.samples import Samples
from partwise.io.spreadsheets import unquoted
from partwise.io.texts import text_samples

MISSING = ("auto", "error", "median", "mean", "drop")


def read_table(path: Path, options: Options, recipe: Mapping[str, Any] | None) -> Samples:
    """A table with one sample a row."""
    options.step(0, 1, "reading the table")
    if recipe is not None and recipe["reader"] not in ("texts", "a table"):
        raise ValueError(f"{path} is a table, the model knows {recipe['reader']}.")
    kind = options.kind if recipe is None else recipe["kind"]
    text_column = options.text_column
    if recipe is not None:
        text_column = text_column or recipe.get("text_column")
    frame, notes, usual = read_frame(path, options, text_column)
    if len(frame) == 1 and recipe is None:
        raise ValueError(f"{path} holds a single sample; a factorization needs more.")
    frame, ids, id_column, found = _take_ids(frame, path, options, recipe)
    frame, y = _take_labels(frame, path, options)
    notes = (*found, *notes)
    if kind == "texts" and text_column is None:
        raise ValueError(f"{path}: --text-column says which column holds the texts.")
    if text_column is not None and kind in (None, "texts"):
        samples = _texts(frame, ids, y, text_column, path, options, recipe)
    else:
        samples = _features(frame, ids, y, path, options, recipe, usual)
    options.step(1, 1, "reading the table")
    how = {"id_column": id_column} if recipe is None else {}
    return replace(samples, notes=(*notes, *samples.notes), recipe={**samples.recipe, **how})


# -- the file -------------------------------------------------------------------------------------


def read_frame(
    path: Path, options: Options, text_column: str | None
) -> tuple[Any, tuple[str, ...], str]:
    """The table, notes on how it was read, and the usual decimal sign."""
    pandas = need("pandas", f"{path.suffix} files")
    notes: tuple[str, ...] = ()
    usual = "."
    if path.suffix.lower() == ".parquet":
        need("pyarrow", ".parquet files", extra="parquet")
        from pyarrow.parquet import ParquetFile

        try:
            with ParquetFile(path) as file:
                held = file.metadata
                check_unpacked(path, 8 * held.num_rows * held.num_columns)
            frame = pandas.read_parquet(path)
        except (OSError, TooLarge, Warning):
            raise
        except Exception as error:
            raise ValueError(f"{path} is no .parquet file, or damaged ({error}).") from error
        if not isinstance(frame.index, pandas.RangeIndex):
            frame = frame.reset_index(names=frame.index.name or "id")
    else:
        encoding, separator, notes = text_format(path, options)
        heading = _check_shape(path, separator, encoding)
        usual = "," if separator == ";" else "."
        texts = {options.id_column, options.label_column, text_column}
        as_text = {name: str for name in heading if name in texts or looks_like_id(name)}
        how = {"sep": separator, "encoding": encoding, "index_col": False}
        try:
            head = pandas.read_csv(path, dtype=str, nrows=1000, **how)
            everything = any(  # pandas takes "43.006" for 43 and a bit
                decimal_sign(head[name].dropna(), usual=usual) == "," for name in head.columns
            )
            frame = pandas.read_csv(
                path, dtype=str if everything else as_text, low_memory=False, **how
            )
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{path} cannot be read as a table ({error}).") from error
        for name, column in frame.items():
            if column.dtype.kind == "O":
                frame[name] = column.map(unquoted, na_action="ignore")
    frame.columns = [str(column) for column in frame.columns]
    if not len(frame):
        raise ValueError(f"{path} has no rows.")
    return frame, notes, usual


def _check_shape(path: Path, delimiter: str, encoding: str) -> list[str]:
    """The heading; every row has as many fields, where pandas would fill or shift a ragged one."""
    try:
        with path.open(newline="", encoding=encoding) as file:
            reader = csv.reader(file, delimiter=delimiter)
            heading = next(reader, None)
            if not heading:
                raise ValueError(f"{path} is empty.")
            for row in reader:
                if row and len(row) != len(heading):
                    raise ValueError(
                        f"{path}, line {reader.line_num}: {len(row)} fields, but the heading has "
                        f"{len(heading)}."
                    )
    except (UnicodeError, csv.Error) as error:
        raise ValueError(
            f"{path} is no table of text in {said(encoding)} ({error}); --encoding names another."
        ) from error
    twice = sorted({name for name in heading if heading.count(name) > 1})
    if twice:
        raise ValueError(f"{path}: the column {twice[0]!r} occurs more than once.")
    return heading


def _column(frame: Any, name: str, path: Path, option: str) -> Any:
    if name not in frame.columns:
        raise ValueError(f"{path} has no column {name!r} ({option}); it has {shown(frame, 8)}.")
    return frame[name]


def _take_ids(
    frame: Any, path: Path, options: Options, recipe: Mapping[str, Any] | None
) -> tuple[Any, list[str], str | None, tuple[str, ...]]:
    """Ids from --id-column, else from a column whose name and values say so, else row numbers."""
    name, notes = options.id_column, ()  # type: str | None, tuple[str, ...]
    if name is not None:
        column = _column(frame, name, path, "--id-column")
        if column.isna().any():
            raise ValueError(f"{path}: the id column {name!r} has empty fields.")
    elif recipe is not None and recipe.get("id_column") in frame.columns:
        name = recipe["id_column"]
    else:
        found = [
            c
            for c in frame.columns
            if looks_like_id(c)
            and c not in (options.label_column, options.text_column, *options.columns)
            and frame[c].is_unique
            and not frame[c].isna().any()
        ]
        found.sort(key=lambda c: c.strip().lower() != "id")  # a column "id" before "Nr"
        if not found:
            return frame, [str(i) for i in range(len(frame))], None, ()
        name = found[0]
        notes = (f"The column {name!r} was taken as the samples' ids and left out.",)
    assert name is not None
    return frame.drop(columns=name), [str(v).strip() for v in frame[name]], name, notes


def _take_labels(frame: Any, path: Path, options: Options) -> tuple[Any, np.ndarray | None]:
    name = options.label_column
    if name is None:
        return frame, None
    column = _column(frame, name, path, "--label-column")
    y = np.full(len(frame), None, dtype=object)
    for at, (value, unknown) in enumerate(zip(column, column.isna())):
        if not unknown and str(value).strip():
            y[at] = str(value).strip()
    return frame.drop(columns=name), y


# -- what is in it --------------------------------------------------------------------------------


def _texts(
    frame: Any,
    ids: list[str],
    y: np.ndarray | None,
    name: str,
    path: Path,
    options: Options,
    recipe: Mapping[str, Any] | None,
) -> Samples:
    column = _column(frame, name, path, "--text-column")
    texts = ["" if unknown else str(v) for v, unknown in zip(column, column.isna())]
    samples = text_samples(texts, ids, str(path), options, recipe, y=y)
    return replace(samples, recipe={**samples.recipe, "text_column": name})


def _features(
    frame: Any,
    ids: list[str],
    y: np.ndarray | None,
    path: Path,
    options: Options,
    recipe: Mapping[str, Any] | None,
    usual: str,
) -> Samples:
    counts = options.kind == "counts"
    scale = options.scale
    if scale == "auto":
        scale = "total" if counts else "range"
    columns: list[Column] = []
    if recipe is None:
        try:
            columns = learn_columns(
                _chosen(frame, path, options), usual=usual, ranged=scale == "range"
            )
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
        specs = [dict(column.spec) for column in columns if column.spec is not None]
        if not specs:
            raise ValueError(
                f"{path} has no column of numbers, dates or categories; --text-column NAME reads "
                "one of texts."
            )
    else:
        specs = list(recipe["columns"])
        gone = [spec["name"] for spec in specs if spec["name"] not in frame.columns]
        if gone:
            raise ValueError(f"{path} lacks columns that the model knows: {shown(gone, 8)}.")
    try:
        values, names, fills = encode_columns(frame, specs)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    missing = options.missing
    if missing == "auto" and recipe is not None:
        missing = recipe.get("missing", "auto")
    values, rows, notes, fills = _fill(values, names, fills, path, missing, recipe)
    if rows is not None:
        ids = [ids[i] for i in rows]
        y = None if y is None else y[rows]
    X = check_matrix(values, path)
    if recipe is None:
        made = {
            "kind": "counts" if counts else "table",
            "reader": "a table",
            "columns": specs,
            "missing": missing,
            "fill": fills,
            **learn_scale(X, scale),
        }
    else:
        made = dict(recipe)
    left = [column.name for column in columns if column.spec is None]
    if left:
        notes += (f"Columns left out: {shown(left, 8)}.",)
    return Samples(
        apply_scale(X, made),
        ids,
        made["kind"],
        feature_names=names,
        y=y,
        source=str(path),
        preparation=f"{len(specs)} columns; {SCALE_WORDS[made['scale']]}.",
        recipe=made,
        notes=notes,
        columns=tuple((column.name, column.read_as, column.done) for column in columns),
    )


def _chosen(frame: Any, path: Path, options: Options) -> Any:
    """The columns that were asked for."""
    for name in (*options.columns, *options.exclude):
        _column(frame, name, path, "--columns" if name in options.columns else "--exclude")
    kept = [
        c
        for c in frame.columns
        if c not in options.exclude and (not options.columns or c in options.columns)
    ]
    if not kept:
        raise ValueError("--columns and --exclude leave no column.")
    return frame[kept]


def _fill(
    values: np.ndarray,
    names: list[str],
    fills: np.ndarray,
    path: Path,
    missing: str,
    recipe: Mapping[str, Any] | None,
) -> tuple[np.ndarray, np.ndarray | None, tuple[str, ...], np.ndarray]:
    """Missing values: filled, refused, or their rows dropped."""
    holes = np.isnan(values)
    if recipe is not None:
        fills = np.asarray(recipe["fill"])
    elif missing == "mean":
        fills = np.where(holes, 0, values).sum(axis=0) / np.maximum((~holes).sum(axis=0), 1)
    if not holes.any():
        return values, None, (), fills
    count, rows = int(holes.sum()), int(holes.any(axis=1).sum())
    if missing == "error":
        row, column = (int(i) for i in np.argwhere(holes)[0])
        raise ValueError(
            f"{path}: {count} values are missing, the first in column {names[column]!r} of row "
            f"{row}; --missing median or mean fills them, --missing drop leaves their rows out."
        )
    if missing == "drop":
        whole = np.flatnonzero(~holes.any(axis=1))
        if not whole.size:
            raise ValueError(f"{path}: every row has a missing value; --missing median fills them.")
        return values[whole], whole, (f"{rows} rows with missing values were left out.",), fills
    what = "mean" if missing == "mean" else "median"
    note = (
        f"Missing values in {rows} of {len(values)} rows were filled with their column's {what} "
        "(a category's shares); --missing drop leaves such rows out."
    )
    return np.where(holes, fills, values), None, (note,), fills
