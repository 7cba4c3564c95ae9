"""Tables: .csv, .tsv, .xlsx, .jsonl and .parquet, as features by column or as a column of texts."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from partwise.io._common import SCALE_WORDS, Options, apply_scale, check_matrix, learn_scale, shown
from partwise.io.columns import (
    encode_columns,
    learn_columns,
    looks_like_id,
    may_be_id,
    strange_values,
)
from partwise.io.frames import NAMELESS, read_frame, sum_row
from partwise.io.numbers import ENOUGH, decimal_sign
from partwise.io.samples import Samples, repeated
from partwise.io.sheets import as_text
from partwise.io.texts import text_samples

#: Value of --id-column that numbers the rows from 0 instead of using a column.
NUMBERED = "none"
#: Names of columns that are ids, whatever they contain.
IDS = ("id", "ids", "uuid")
#: Prefix of columns from --write-back: earlier predictions must not be used as data.
OURS = "partwise_"
#: Minimum average number of characters and of words in a column of texts.
LONG_TEXT, WORDS = 60, 6
MISSING = ("auto", "error", "median", "mean", "drop")


def read_table(path: Path, options: Options) -> Samples:
    """Read a table with one sample per row."""
    recipe = options.recipe
    options.step(0, 1, "reading the table")
    if recipe is not None:
        if recipe["reader"] not in ("texts", "a table"):
            raise ValueError(f"this is a table; the model needs {recipe['reader']}.")
        column = options.text_column or recipe.get("text_column")
        options = replace(options, kind=recipe["kind"], text_column=column)
    frame, usual = read_frame(path, options)
    total = sum_row(frame, usual, options)
    whole = frame.iloc[:-1] if total else frame
    if len(whole) == 1 and recipe is None:
        raise ValueError("the table holds a single sample; a factorization needs more.")
    frame, ids, id_column, unjoinable = _take_ids(whole, options)
    frame, y = _take_labels(frame, options)
    frame = _without_ours(frame, options)
    name = _text_column(frame, options)
    if name is None:
        samples = _features(frame, ids, y, str(path), options, usual)
    else:
        column = _column(frame, name, "--text-column")
        texts = ["" if gap else str(v) for v, gap in zip(column, column.isna())]
        samples = text_samples(texts, ids, str(path), options, y=y)
        samples = replace(samples, recipe={**samples.recipe, "text_column": name})
    options.step(1, 1, "reading the table")
    rows, skipped = samples.rows, samples.skipped
    if total:
        rows = np.arange(len(whole)) if rows is None else rows
        skipped = (*skipped, (f"{total} (last row)", "adds up the other rows"))
    return replace(
        samples,
        table=whole if rows is None else whole.iloc[rows],
        recipe={**samples.recipe, **({"id_column": id_column} if recipe is None else {})},
        unjoinable=unjoinable,
        rows=rows,
        skipped=skipped,
    )


def _without_ours(frame: Any, options: Options) -> Any:
    """Leave out columns with earlier predictions, unless chosen or needed by a model."""
    ours = [c for c in frame.columns if c.startswith(OURS) and c not in options.columns]
    if not ours or options.recipe is not None or options.text_column in ours:
        return frame
    options.note(f"Columns of an earlier answer were left out: {shown(ours, 8)}.")
    return frame.drop(columns=ours)


def _text_column(frame: Any, options: Options) -> str | None:
    """Return the column of texts that was chosen, or the one that is found; None for a table."""
    name = options.text_column
    if options.kind not in (None, "texts"):
        return None
    if name is None and options.recipe is None and not options.columns:
        name = _find_texts(frame.drop(columns=list(options.exclude), errors="ignore"), options)
    if name is None and options.kind == "texts":
        raise ValueError("choose the column with the texts by --text-column.")
    return name


def _find_texts(frame: Any, options: Options) -> str | None:
    """Find the main column of texts in a table, or None, and note it.

    The main column is the one with the longest texts. If there are columns of numbers, they are
    used instead, and the note lists the columns of texts that are left out.
    """
    numbers = [name for name in frame.columns if _is_number(frame[name])]
    lengths = {c: _average_length(frame[c]) for c in frame.columns if c not in numbers}
    longest = str(max(lengths, key=lambda name: lengths[name], default=""))
    if not lengths.get(longest):
        return None
    about = f"{lengths[longest]:.0f} characters on average"
    if numbers:
        options.note(
            f"The column {longest!r} contains texts ({about}), which are left out because of the "
            f"columns of numbers; --text-column {longest} uses the texts instead."
        )
        return None
    options.note(f"Only the column {longest!r} ({about}) was used; --kind table uses the others.")
    return longest


def _is_number(column: Any) -> bool:
    """Return whether a column contains numbers, or texts that are numbers."""
    texts = (value for value in column if isinstance(value, str) and value.strip())
    return column.dtype.kind in "biuf" or decimal_sign(islice(texts, 200)) is not None


def _average_length(column: Any) -> float:
    """Return the average length of the texts in a column, 0 if they are short or often repeated."""
    texts = [value for value in column if isinstance(value, str) and value.strip()]
    if len(texts) <= ENOUGH * len(column) / 2 or len(set(texts)) <= len(texts) / 2:
        return 0.0
    words, length = np.mean([(len(text.split()), len(text)) for text in texts], axis=0)
    return float(length) if words >= WORDS and length >= LONG_TEXT else 0.0


# -- ids and labels ------------------------------------------------------------------------------


def _column(frame: Any, name: str, option: str) -> Any:
    if name in frame.columns:
        return frame[name]
    inside = [column for column in frame.columns if column.startswith(f"{name}.")]
    if inside:
        raise ValueError(f"{name!r} holds objects; name one of {shown(inside, 8)}.")
    folded = {column.casefold(): column for column in frame.columns}
    near = [folded[own] for own in get_close_matches(name.casefold(), folded, 1)]
    hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(f"there is no column {name!r} ({option}), only {shown(frame, 8)}.{hint}")


def _take_ids(frame: Any, options: Options) -> tuple[Any, list[str], str | None, str]:
    """Return ids from --id-column, else from a detected column, else row numbers.

    The last value explains why labels cannot be joined to row numbers. A column called id with a
    blank or repeated value is an error, because row numbers could be confused with it.
    """
    name, recipe = options.id_column, options.recipe or {}
    numbers = [str(i) for i in range(len(frame))]
    if name == NUMBERED and name not in frame.columns:
        return frame, numbers, None, ""
    if name is not None:
        _column(frame, name, "--id-column")
    elif recipe.get("id_column") in frame.columns:
        name = recipe["id_column"]
    else:
        name, why = _find_ids(frame, options)
        if name is None:
            return frame, numbers, None, why and f"{why}{_GO_ON}"
        called = "without a heading" if name == NAMELESS else repr(name)
        options.note(f"The column {called} was taken as the samples' ids and left out.")
    fault = _id_fault(frame, str(name))
    if fault:
        raise ValueError(f"{fault}{_GO_ON}")
    return frame.drop(columns=name), _texts_of(frame[name]), name, ""


def _find_ids(frame: Any, options: Options) -> tuple[str | None, str]:
    """Return the column with ids, or None and the fault of the most likely one."""
    taken = (options.label_column, options.text_column, *options.columns)
    free = [c for c in frame.columns if c not in taken]
    likely = [c for c in free if looks_like_id(c) or c == NAMELESS == frame.columns[0]]
    likely.sort(key=lambda c: c.strip().lower() != "id")  # a column "id" before "Nr"
    faults = {c: _id_fault(frame, c) for c in (*likely, *filter(may_be_id, free))}
    for name, fault in faults.items():
        # If a column "id" is faulty, no other column is used instead.
        if not fault or (name in likely and name.strip().lower() in IDS):
            return name, ""
    name = next((c for c in likely if _mostly_own(frame[c])), None)
    return name, faults[likely[0]] if likely else ""


_GO_ON = f"; correct it, or number the rows from 0 by --id-column {NUMBERED}."


def _mostly_own(column: Any) -> bool:
    """Return whether a column was intended as an id although it has repeated values.

    If so, most of its values occur once and none are fractions. In contrast, the values of a
    customer_id in a table of orders are often repeated.
    """
    if column.dtype.kind == "f" and (column.dropna() % 1 != 0).any():
        return False
    return int((~column.duplicated(keep=False) & column.notna()).sum()) > len(column) / 2


def _texts_of(column: Any) -> list[str]:
    """Return the values of a column as text, "" if missing."""
    return ["" if gap else as_text(value) for value, gap in zip(column, column.isna())]


def _id_fault(frame: Any, name: str) -> str:
    """Return the fault of a column of ids, or ""."""
    ids = _texts_of(frame[name])
    if "" in ids:
        more = f" and {ids.count('') - 1} more" if ids.count("") > 1 else ""
        return f"the id column {name!r} is blank in row {ids.index('') + 1}{more}"
    return f"in the column {name!r} {repeated(ids)}" if len(set(ids)) < len(ids) else ""


def _take_labels(frame: Any, options: Options) -> tuple[Any, np.ndarray | None]:
    """Return the table without the column of labels, and the labels, None where unknown."""
    if options.label_column is None:
        return frame, None
    labels = _texts_of(_column(frame, options.label_column, "--label-column"))
    y = np.array([label or None for label in labels], dtype=object)
    return frame.drop(columns=options.label_column), y


# -- values ---------------------------------------------------------------------------------------


def _features(
    frame: Any, ids: list[str], y: np.ndarray | None, source: str, options: Options, usual: str
) -> Samples:
    """Return samples with a feature per number, date or category."""
    recipe, missing, scale = options.recipe, options.missing, options.scale
    kind = "counts" if options.kind == "counts" else "table"
    if scale == "auto":
        scale = "total" if kind == "counts" else "range"
    if missing == "auto" and recipe is not None:
        missing = recipe.get("missing", "auto")
    columns, specs = _specs(frame, options, usual, scale == "range")
    values, names, fills = encode_columns(frame, specs)
    values, fills = _fill(values, names, fills, missing, options)
    kept = ~np.isnan(values).any(axis=1)
    skipped = [(ids[i], "a value is missing") for i in np.flatnonzero(~kept)]
    X = check_matrix(values[kept] if skipped else values, source)
    made = recipe or {
        **{"kind": kind, "reader": "a table", "columns": specs, "missing": missing, "fill": fills},
        **learn_scale(X, scale),
    }
    return Samples(
        apply_scale(X, made),
        [name for name, is_kept in zip(ids, kept) if is_kept],
        made["kind"],
        feature_names=names,
        y=None if y is None else y[kept],
        source=source,
        preparation=f"{len(specs)} columns; {SCALE_WORDS[made['scale']]}.",
        recipe=dict(made),
        columns=tuple(columns),
        skipped=tuple(skipped),
        rows=np.flatnonzero(kept) if skipped else None,
    )


def _specs(
    frame: Any, options: Options, usual: str, ranged: bool
) -> tuple[list[tuple[str, str, str]], list[dict[str, Any]]]:
    """Return the columns that were learned, none with a recipe, and how to encode each."""
    if options.recipe is not None:
        for note in strange_values(frame, options.recipe["columns"]):
            options.note(note)
        return [], list(options.recipe["columns"])
    columns, specs = learn_columns(_chosen(frame, options), usual=usual, ranged=ranged)
    if not specs:
        raise ValueError("there is no usable column; --text-column reads a column of texts.")
    left = [name for name, read_as, _ in columns if read_as == "left out"]
    if left:
        options.note(f"Columns left out: {shown(left, 8)}.")
    return columns, specs


def _chosen(frame: Any, options: Options) -> Any:
    """Return the columns that the options select."""
    for name in (*options.columns, *options.exclude):
        _column(frame, name, "--columns" if name in options.columns else "--exclude")
    wanted = options.columns or tuple(frame.columns)
    kept = [c for c in frame.columns if c in wanted and c not in options.exclude]
    if not kept:
        raise ValueError("--columns and --exclude leave no column.")
    return frame[kept]


def _fill(
    values: np.ndarray, names: list[str], fills: np.ndarray, missing: str, options: Options
) -> tuple[np.ndarray, np.ndarray]:
    """Fill missing values, refuse them, or leave them to be dropped; return the fills, too."""
    holes, recipe = np.isnan(values), options.recipe
    if recipe is not None:
        fills = np.asarray(recipe["fill"])
    elif missing == "mean":
        fills = np.where(holes, 0, values).sum(axis=0) / np.maximum((~holes).sum(axis=0), 1)
    if not holes.any():
        return values, fills
    rows = int(holes.any(axis=1).sum())
    if missing == "error":
        row, column = (int(i) for i in np.argwhere(holes)[0])
        raise ValueError(
            f"{int(holes.sum())} values are missing, the first in column {names[column]!r} of row "
            f"{row}; --missing median fills them, --missing drop leaves their rows out."
        )
    if missing == "drop":
        if rows == len(values):
            raise ValueError("every row has a missing value; --missing median fills them.")
        one, many = "1 row with a missing value was", f"{rows} rows with missing values were"
        options.note(f"{one if rows == 1 else many} left out.")
        return values, fills
    # New samples are filled with the values of the training data for every option.
    asked = missing if recipe is None else recipe.get("missing", missing)
    what = "mean" if asked == "mean" else "median (a category's shares)"
    where = dict.fromkeys(names[j].partition(" = ")[0] for j in np.flatnonzero(holes.any(axis=0)))
    options.note(
        f"Missing values in {rows} of {len(values)} rows ({shown(map(repr, where), 5)}) were "
        f"filled with their column's {what}; --missing drop leaves such rows out."
    )
    return np.where(holes, fills, values), fills
