"""Tables: .csv, .tsv, .xlsx, .jsonl and .parquet, as features by column or as a column of texts."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from partwise.io._common import (
    SCALE_WORDS,
    Options,
    apply_scale,
    check_matrix,
    learn_scale,
    named,
    shown,
)
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
    recipe, kind = options.recipe, options.kind
    options.step(0, 1, "reading the table")
    if recipe is not None:
        if recipe["reader"] not in ("texts", "a table"):
            raise ValueError(f"{path} is a table; the model needs {recipe['reader']}.")
        kind = recipe["kind"]
        options = replace(options, text_column=options.text_column or recipe.get("text_column"))
    frame, usual = read_frame(path, options)
    total = sum_row(frame, usual, options)
    whole = frame.iloc[:-1] if total else frame
    if len(whole) == 1 and recipe is None:
        raise ValueError(f"{path} contains a single sample; a factorization needs at least two.")
    frame, ids, id_column, unjoinable = _take_ids(whole, path, options)
    frame, y = _take_labels(frame, path, options)
    frame = _without_ours(frame, options)
    text_column = options.text_column
    if text_column is None and kind in (None, "texts") and recipe is None and not options.columns:
        text_column = _find_texts(frame, options)
    if text_column is not None and kind in (None, "texts"):
        column = _column(frame, text_column, path, "--text-column")
        texts = ["" if gap else str(v) for v, gap in zip(column, column.isna())]
        samples = text_samples(texts, ids, str(path), options, y=y)
        samples = replace(samples, recipe={**samples.recipe, "text_column": text_column})
    elif kind == "texts":
        raise ValueError(f"{path}: choose the column with the texts with --text-column.")
    else:
        samples = _features(frame, ids, y, path, options, usual)
    options.step(1, 1, "reading the table")
    how = {"id_column": id_column} if recipe is None else {}
    if total:
        rows = np.arange(len(whole)) if samples.rows is None else samples.rows
        skipped = (*samples.skipped, (f"{total} (last row)", "adds up the other rows"))
        samples = replace(samples, rows=rows, skipped=skipped)
    return replace(
        samples,
        table=whole if samples.rows is None else whole.iloc[samples.rows],
        recipe={**samples.recipe, **how},
        unjoinable=unjoinable,
    )


def _without_ours(frame: Any, options: Options) -> Any:
    """Leave out columns with earlier predictions, unless chosen or needed by a model."""
    ours = [c for c in frame.columns if c.startswith(OURS) and c not in options.columns]
    if not ours or options.recipe is not None or options.text_column in ours:
        return frame
    options.note(f"Columns of an earlier answer were left out: {shown(ours, 8)}.")
    return frame.drop(columns=ours)


def _find_texts(frame: Any, options: Options) -> str | None:
    """Find the main column of texts in a table, or None, and note it.

    The main column is the one with the longest texts. If there are columns of numbers, they are
    used instead, and the note lists the columns of texts that are left out.
    """
    lengths: dict[str, float] = {}
    has_numbers = False
    for name in frame.columns.difference(options.exclude, sort=False):
        is_number = frame[name].dtype.kind in "biuf"
        texts = [] if is_number else [v for v in frame[name] if isinstance(v, str) and v.strip()]
        if is_number or decimal_sign(texts[:200]) is not None:
            has_numbers = True
        elif len(texts) > ENOUGH * len(frame) / 2 and len(set(texts)) > len(texts) / 2:
            words = np.mean([len(text.split()) for text in texts])
            length = float(np.mean([len(text) for text in texts]))
            if length >= LONG_TEXT and words >= WORDS:
                lengths[name] = length
    if not lengths:
        return None
    longest = max(lengths, key=lambda name: lengths[name])
    about = f"{lengths[longest]:.0f} characters on average"
    if has_numbers:
        options.note(
            f"The column {longest!r} contains texts ({about}), which are left out because of the "
            f"columns of numbers; --text-column {longest} uses the texts instead."
        )
        return None
    options.note(
        f"The texts of the column {longest!r} ({about}) were used and no other column; "
        "--kind table uses the others instead."
    )
    return longest


# -- ids and labels ------------------------------------------------------------------------------


def _column(frame: Any, name: str, path: Path, option: str) -> Any:
    if name in frame.columns:
        return frame[name]
    inside = [column for column in frame.columns if column.startswith(f"{name}.")]
    if inside:
        raise ValueError(f"{path}: {name!r} holds objects; name one of {shown(inside, 8)}.")
    near = next((own for own in frame.columns if own.casefold() == name.casefold()), None)
    near = near or next(iter(get_close_matches(name, list(frame.columns), 1)), None)
    hint = "" if near is None else f" Did you mean {near!r}?"
    raise ValueError(f"{path} has no column {name!r} ({option}); it has {shown(frame, 8)}.{hint}")


def _take_ids(frame: Any, path: Path, options: Options) -> tuple[Any, list[str], str | None, str]:
    """Return ids from --id-column, else from a detected column, else row numbers.

    The last value explains why labels cannot be joined to row numbers. A column called id with a
    blank or repeated value is an error, because row numbers could be confused with it.
    """
    name, recipe = options.id_column, options.recipe or {}
    numbers = [str(i) for i in range(len(frame))]
    if name == NUMBERED and name not in frame.columns:
        return frame, numbers, None, ""
    if name is not None:
        _column(frame, name, path, "--id-column")
    elif recipe.get("id_column") in frame.columns:
        name = recipe["id_column"]
    else:
        name, why = _find_ids(frame, options)
        if name is None:
            return frame, numbers, None, f"{path}: {why}{_GO_ON}" if why else ""
        called = "without a heading" if name == NAMELESS else repr(name)
        options.note(f"The column {called} was taken as the samples' ids and left out.")
    fault = _id_fault(frame, str(name))
    if fault:
        raise ValueError(f"{path}: {fault}{_GO_ON}")
    return frame.drop(columns=name), _id_texts(frame[name]), name, ""


def _find_ids(frame: Any, options: Options) -> tuple[str | None, str]:
    """Return the column with ids, or None and the fault of the most likely one."""
    taken = (options.label_column, options.text_column, *options.columns)
    free = [c for c in frame.columns if c not in taken]
    likely = [c for c in free if looks_like_id(c) or (c == NAMELESS == frame.columns[0])]
    likely.sort(key=lambda c: c.strip().lower() != "id")  # a column "id" before "Nr"
    faults = {c: _id_fault(frame, c) for c in free if c in likely or may_be_id(c)}
    # If a column "id" is faulty, no other column is used instead.
    first = [c for c in likely if not faults[c] or c.strip().lower() in IDS]
    first += [c for c in faults if c not in likely and not faults[c]]
    first += [c for c in likely if _mostly_own(frame[c])]
    return next(iter(first), None), faults[likely[0]] if likely else ""


_GO_ON = (
    "; mend it, name another column by --id-column, or number the rows from 0 by "
    f"--id-column {NUMBERED}."
)


def _mostly_own(column: Any) -> bool:
    """Return whether a column was intended as an id although it has repeated values.

    If so, most of its values occur once and none are fractions. In contrast, the values of a
    customer_id in a table of orders are often repeated.
    """
    if column.dtype.kind == "f" and (column.dropna() % 1 != 0).any():
        return False
    return int((~column.duplicated(keep=False) & column.notna()).sum()) > len(column) / 2


def _id_texts(column: Any) -> list[str]:
    return ["" if gap else as_text(value) for value, gap in zip(column, column.isna())]


def _id_fault(frame: Any, name: str) -> str:
    """Return the fault of a column of ids, or ""."""
    ids = _id_texts(frame[name])
    if "" in ids:
        more = f" and {ids.count('') - 1} more" if ids.count("") > 1 else ""
        return f"the id column {name!r} is blank in row {ids.index('') + 1}{more}"
    return f"in the column {name!r} {repeated(ids)}" if len(set(ids)) < len(ids) else ""


def _take_labels(frame: Any, path: Path, options: Options) -> tuple[Any, np.ndarray | None]:
    name = options.label_column
    if name is None:
        return frame, None
    column = _column(frame, name, path, "--label-column")
    texts = ["" if gap else str(value).strip() for value, gap in zip(column, column.isna())]
    return frame.drop(columns=name), np.array([text or None for text in texts], dtype=object)


# -- values ---------------------------------------------------------------------------------------


def _features(
    frame: Any, ids: list[str], y: np.ndarray | None, path: Path, options: Options, usual: str
) -> Samples:
    recipe, scale = options.recipe, options.scale
    kind = "counts" if options.kind == "counts" else "table"
    if scale == "auto":
        scale = "total" if kind == "counts" else "range"
    columns, specs = _specs(frame, path, options, usual, ranged=scale == "range")
    with named(path):
        for note in () if recipe is None else strange_values(frame, specs):
            options.note(note)
        values, names, fills = encode_columns(frame, specs)
    missing = options.missing
    if missing == "auto" and recipe is not None:
        missing = recipe.get("missing", "auto")
    values, fills = _fill(values, names, fills, path, missing, options)
    kept = ~np.isnan(values).any(axis=1)
    skipped = [(ids[i], "a value is missing") for i in np.flatnonzero(~kept)]
    X = check_matrix(values[kept] if skipped else values, path)
    if recipe is None:
        made: dict[str, Any] = {"kind": kind, "reader": "a table"}
        made |= {"columns": specs, "missing": missing}
        made |= {"fill": fills, **learn_scale(X, scale)}
    else:
        made = dict(recipe)
    left = [name for name, kind, _ in columns if kind == "left out"]
    if left:
        options.note(f"Columns left out: {shown(left, 8)}.")
    return Samples(
        apply_scale(X, made),
        [name for name, is_kept in zip(ids, kept) if is_kept],
        made["kind"],
        feature_names=names,
        y=None if y is None else y[kept],
        source=str(path),
        preparation=f"{len(specs)} columns; {SCALE_WORDS[made['scale']]}.",
        recipe=made,
        columns=tuple(columns),
        skipped=tuple(skipped),
        rows=np.flatnonzero(kept) if skipped else None,
    )


def _specs(
    frame: Any, path: Path, options: Options, usual: str, *, ranged: bool
) -> tuple[list[tuple[str, str, str]], list[dict[str, Any]]]:
    """Return the columns that were learned, none with a recipe, and how to encode each."""
    if options.recipe is not None:
        specs = list(options.recipe["columns"])
        gone = [spec["name"] for spec in specs if spec["name"] not in frame.columns]
        if gone:
            raise ValueError(f"{path} lacks columns that the model needs: {shown(gone, 8)}.")
        return [], specs
    chosen = _chosen(frame, path, options)
    with named(path):
        columns, specs = learn_columns(chosen, usual=usual, ranged=ranged)
    if not specs:
        raise ValueError(f"{path} has no usable column; --text-column reads a column of texts.")
    return columns, specs


def _chosen(frame: Any, path: Path, options: Options) -> Any:
    """Return the columns that the options select."""
    for name in (*options.columns, *options.exclude):
        _column(frame, name, path, "--columns" if name in options.columns else "--exclude")
    wanted = options.columns or tuple(frame.columns)
    kept = [c for c in frame.columns if c in wanted and c not in options.exclude]
    if not kept:
        raise ValueError(f"{path}: no column is left after --columns and --exclude.")
    return frame[kept]


def _fill(
    values: np.ndarray,
    names: list[str],
    fills: np.ndarray,
    path: Path,
    missing: str,
    options: Options,
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
            f"{path}: {int(holes.sum())} values are missing, the first in column {names[column]!r} "
            f"of row {row}; --missing median fills them, --missing drop leaves their rows out."
        )
    if missing == "drop":
        if rows == len(values):
            raise ValueError(f"{path}: every row has missing values; use --missing median.")
        one, many = "1 row with a missing value was", f"{rows} rows with missing values were"
        options.note(f"{one if rows == 1 else many} left out.")
        return values, fills
    # New samples are filled with the values of the training data for every option.
    asked = missing if recipe is None else recipe.get("missing", missing)
    where = dict.fromkeys(names[j].partition(" = ")[0] for j in np.flatnonzero(holes.any(axis=0)))
    options.note(
        f"Missing values in {rows} of {len(values)} rows ({shown(map(repr, where), 5)}) were "
        f"filled with their column's {'mean' if asked == 'mean' else 'median'} (a category's "
        "shares); --missing drop leaves such rows out."
    )
    return np.where(holes, fills, values), fills
