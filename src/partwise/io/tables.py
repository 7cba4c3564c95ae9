"""Tables: .csv, .tsv and .parquet, numbers or a column of texts."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from partwise.io._common import (
    SCALE_WORDS,
    Options,
    apply_scale,
    check_matrix,
    learn_scale,
    lowest,
    need,
    shown,
)
from partwise.io.samples import Samples
from partwise.io.texts import text_samples

MISSING = ("error", "mean", "drop")


def read_table(path: Path, options: Options, recipe: Mapping[str, Any] | None) -> Samples:
    """A table with one sample a row."""
    options.step(0, 1, "reading the table")
    if recipe is not None and recipe["reader"] not in ("texts", "a table of numbers"):
        raise ValueError(f"{path} is a table, the model knows {recipe['reader']}.")
    frame = _frame(path)
    kind = options.kind if recipe is None else recipe["kind"]
    text_column = options.text_column
    if recipe is not None:
        text_column = text_column or recipe.get("text_column")
    frame, ids, id_column = _take_ids(frame, path, options)
    frame, y = _take_labels(frame, path, options)
    if kind == "texts" and text_column is None:
        raise ValueError(f"{path}: --text-column says which column holds the texts.")
    if text_column is not None and kind in (None, "texts"):
        samples = _texts(frame, ids, y, text_column, path, recipe)
    else:
        samples = _numbers(frame, ids, y, path, options, recipe)
    options.step(1, 1, "reading the table")
    if id_column and options.id_column is None:
        return _noted(samples, f"The column {id_column!r} was taken as the samples' ids.")
    return samples


def _noted(samples: Samples, note: str) -> Samples:
    from dataclasses import replace

    return replace(samples, notes=(note, *samples.notes))


# -- the file -------------------------------------------------------------------------------------


def _frame(path: Path) -> Any:
    pandas = need("pandas", f"{path.suffix} files")
    if path.suffix.lower() == ".parquet":
        need("pyarrow", ".parquet files")
        try:
            frame = pandas.read_parquet(path)
        except OSError:
            raise
        except Exception as error:
            raise ValueError(f"{path} is no .parquet file, or damaged ({error}).") from error
        if not isinstance(frame.index, pandas.RangeIndex):
            frame = frame.reset_index(names=frame.index.name or "id")
    else:
        delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
        _check_shape(path, delimiter)
        try:
            frame = pandas.read_csv(
                path, sep=delimiter, encoding="utf-8-sig", index_col=False, low_memory=False
            )
        except (ValueError, csv.Error) as error:
            raise ValueError(f"{path} cannot be read as a table ({error}).") from error
    frame.columns = [str(column) for column in frame.columns]
    if not len(frame):
        raise ValueError(f"{path} has no rows.")
    return frame


def _check_shape(path: Path, delimiter: str) -> None:
    """Every row has as many fields as the heading; pandas would fill or shift a ragged one."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
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
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is no table of text in UTF-8 ({error}).") from error
    twice = sorted({name for name in heading if heading.count(name) > 1})
    if twice:
        raise ValueError(f"{path}: the column {twice[0]!r} occurs more than once.")


def _column(frame: Any, name: str, path: Path, option: str) -> Any:
    if name not in frame.columns:
        raise ValueError(f"{path} has no column {name!r} ({option}); it has {shown(frame, 8)}.")
    return frame[name]


def _take_ids(frame: Any, path: Path, options: Options) -> tuple[Any, list[str], str | None]:
    """Ids from --id-column, else from a column called id, else row numbers from 0."""
    name = options.id_column
    if name is not None:
        column = _column(frame, name, path, "--id-column")
        if column.isna().any():
            raise ValueError(f"{path}: the id column {name!r} has empty fields.")
    else:
        found = [c for c in frame.columns if c.strip().lower() == "id" and frame[c].is_unique]
        if not found or frame[found[0]].isna().any():
            return frame, [str(i) for i in range(len(frame))], None
        name = found[0]
    return frame.drop(columns=name), [str(value) for value in frame[name]], name


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
    recipe: Mapping[str, Any] | None,
) -> Samples:
    column = _column(frame, name, path, "--text-column")
    texts = ["" if unknown else str(v) for v, unknown in zip(column, column.isna())]
    samples = text_samples(texts, ids, str(path), recipe, y=y)
    from dataclasses import replace

    return replace(samples, recipe={**samples.recipe, "text_column": name})


def _numbers(
    frame: Any,
    ids: list[str],
    y: np.ndarray | None,
    path: Path,
    options: Options,
    recipe: Mapping[str, Any] | None,
) -> Samples:
    from pandas.api.types import is_bool_dtype, is_complex_dtype, is_numeric_dtype

    notes: tuple[str, ...] = ()
    if recipe is None:
        numeric = [
            c
            for c in frame.columns
            if (is_numeric_dtype(frame[c]) or is_bool_dtype(frame[c]))
            and not is_complex_dtype(frame[c])
        ]
        other = [c for c in frame.columns if c not in numeric]
        if not numeric:
            raise ValueError(
                f"{path} has no column of numbers; --text-column NAME reads one of texts."
            )
        if other:
            notes = (f"Columns that hold no numbers were left out: {shown(other, 8)}.",)
    else:
        numeric = [str(c) for c in recipe["columns"]]
        gone = [c for c in numeric if c not in frame.columns]
        if gone:
            raise ValueError(f"{path} lacks columns that the model knows: {shown(gone, 8)}.")
        text = [c for c in numeric if not is_numeric_dtype(frame[c])]
        if text:
            raise ValueError(f"{path}: the model knows numbers in {shown(text)}, here is text.")
    values = frame[numeric].to_numpy(dtype=np.float64, na_value=np.nan)
    values, rows, fill = _fill(values, numeric, path, options, recipe)
    if rows is not None:
        notes += (f"{len(ids) - len(rows)} rows with missing values were left out.",)
        ids = [ids[i] for i in rows]
        y = None if y is None else y[rows]
    X = check_matrix(values, path)
    kind = options.kind if options.kind == "counts" else "table"
    if recipe is None:
        scale = options.scale
        if scale == "auto":
            scale = "total" if kind == "counts" else "std" if lowest(X) < 0 else "max"
        made = {
            "kind": kind,
            "reader": "a table of numbers",
            "columns": numeric,
            **fill,
            **learn_scale(X, scale),
        }
    else:
        made = dict(recipe)
        kind = made["kind"]
    return Samples(
        apply_scale(X, made),
        ids,
        kind,
        feature_names=numeric,
        y=y,
        source=str(path),
        preparation=f"{len(numeric)} columns of numbers; {SCALE_WORDS[made['scale']]}.",
        recipe=made,
        notes=notes,
    )


def _fill(
    values: np.ndarray,
    columns: list[str],
    path: Path,
    options: Options,
    recipe: Mapping[str, Any] | None,
) -> tuple[np.ndarray, np.ndarray | None, dict[str, Any]]:
    """Missing values: refused, replaced by the column's mean, or their rows dropped."""
    missing = options.missing if recipe is None else recipe.get("missing", options.missing)
    if missing == "error" and recipe is not None:
        missing = options.missing
    holes = np.isnan(values)
    if missing == "mean":
        if recipe is not None and "means" in recipe:
            means = np.asarray(recipe["means"])
        else:
            counts = (~holes).sum(axis=0)
            means = np.where(holes, 0, values).sum(axis=0) / np.maximum(counts, 1)
        return np.where(holes, means, values), None, {"missing": "mean", "means": means}
    if not holes.any():
        return values, None, {"missing": missing}
    if missing == "drop":
        rows = np.flatnonzero(~holes.any(axis=1))
        if not rows.size:
            raise ValueError(f"{path}: every row has a missing value; --missing mean fills them.")
        return values[rows], rows, {"missing": missing}
    row, column = (int(i) for i in np.argwhere(holes)[0])
    raise ValueError(
        f"{path}: {int(holes.sum())} values are missing, the first in column {columns[column]!r} "
        f"of row {row}; --missing mean fills them, --missing drop leaves their rows out."
    )
