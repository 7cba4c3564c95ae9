"""Tables: .csv, .tsv, .xlsx, .jsonl and .parquet, as features by column or as a column of texts."""

from __future__ import annotations

import contextlib
import csv
import itertools
import re
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
    named,
    need,
    shown,
)
from partwise.io.archives import check_unpacked, whole
from partwise.io.columns import (
    Column,
    encode_columns,
    is_code,
    learn_columns,
    looks_like_id,
    strange_values,
)
from partwise.io.encoding import csv_rows, named_separator, said, text_format
from partwise.io.numbers import date_format, decimal_sign
from partwise.io.samples import Samples, repeated
from partwise.io.sheets import as_text, read_json_lines, read_sheet, unquoted
from partwise.io.texts import text_samples

#: What --id-column may be, beside a column: rows are numbered from 0.
NUMBERED = "none"
#: Columns that are meant as ids whatever they hold.
IDS = ("id", "ids", "uuid")
#: What pandas calls the column without a heading that its own files begin with.
NAMELESS = "Unnamed: 0"
#: How the columns that --write-back adds begin: what we said before is nothing to learn from.
OURS = "partwise_"
HEADINGS = ("auto", "yes", "no")
#: No column has a longer name.
NAME_LENGTH = 100
#: What pandas takes for a gap.
GAPS = (
    *("", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN"),
    *("<NA>", "N/A", "NA", "NULL", "NaN", "None", "n/a", "nan", "null"),
)
MISSING = ("auto", "error", "median", "mean", "drop")


def read_table(path: Path, options: Options) -> Samples:
    """A table with one sample a row."""
    recipe, kind = options.recipe, options.kind
    options.step(0, 1, "reading the table")
    if recipe is not None:
        if recipe["reader"] not in ("texts", "a table"):
            raise ValueError(f"{path} is a table, the model knows {recipe['reader']}.")
        kind = recipe["kind"]
        options = replace(options, text_column=options.text_column or recipe.get("text_column"))
    text_column = options.text_column
    frame, notes, usual = read_frame(path, options)
    if len(frame) == 1 and recipe is None:
        raise ValueError(f"{path} holds a single sample; a factorization needs more.")
    frame, ids, id_column, found, unjoinable = _take_ids(frame, path, options)
    frame, y = _take_labels(frame, path, options)
    notes = (*found, *notes)
    ours = [c for c in frame.columns if c.startswith(OURS) and c not in options.columns]
    if ours and recipe is None and text_column not in ours:
        frame = frame.drop(columns=ours)
        notes += (f"Columns of an earlier answer were left out: {shown(ours, 8)}.",)
    if kind == "texts" and text_column is None:
        raise ValueError(f"{path}: --text-column says which column holds the texts.")
    if text_column is not None and kind in (None, "texts"):
        column = _column(frame, text_column, path, "--text-column")
        texts = ["" if unknown else str(v) for v, unknown in zip(column, column.isna())]
        samples = text_samples(texts, ids, str(path), options, y=y)
        samples = replace(samples, recipe={**samples.recipe, "text_column": text_column})
    else:
        samples = _features(frame, ids, y, path, options, usual)
    options.step(1, 1, "reading the table")
    how = {"id_column": id_column} if recipe is None else {}
    return replace(
        samples,
        notes=(*notes, *samples.notes),
        recipe={**samples.recipe, **how},
        unjoinable=unjoinable,
    )


# -- the file -------------------------------------------------------------------------------------


def read_frame(path: Path, options: Options) -> tuple[Any, tuple[str, ...], str]:
    """The table, notes on how it was read, and the usual decimal sign."""
    specs = (options.recipe or {}).get("columns", ())
    # a decimal sign other than the point, and codes as 01067, are lost to pandas
    as_category = [str(s["name"]) for s in specs if s["as"] == "category" or s.get("sign") == ","]
    pandas = need("pandas", f"{path.suffix} files")
    notes: tuple[str, ...] = ()
    usual = "."
    if path.suffix.lower() == ".parquet":
        need("pyarrow", ".parquet files", extra="parquet")
        from pyarrow.parquet import ParquetFile

        with whole(path, ".parquet file"):
            with ParquetFile(path) as file:
                held = file.metadata
                check_unpacked(path, 8 * held.num_rows * held.num_columns)
            frame = pandas.read_parquet(path)
        if not isinstance(frame.index, pandas.RangeIndex):
            frame = frame.reset_index(names=frame.index.name or "id")
    elif path.suffix.lower() == ".xlsx":
        rows, notes = read_sheet(path)
        rows = [row for row in rows if any(as_text(cell) for cell in row)]
        if not rows:
            raise ValueError(f"{path} is empty.")
        shown_rows = [[as_text(cell) for cell in row] for row in rows[:200]]
        heading, found = find_heading(path, shown_rows, options)
        notes += found
        frame = pandas.DataFrame(rows if found else rows[1:], columns=heading, dtype=object)
        frame = frame.infer_objects()
    elif path.suffix.lower() == ".jsonl":
        frame = pandas.DataFrame(read_json_lines(path, options))
    else:
        encoding, separator, notes = text_format(path, options)
        rows_, codes, lost = _check_shape(path, separator, encoding)
        heading, found = find_heading(path, rows_, options)
        notes += (*found, *lost)
        usual = "," if separator == ";" else "."
        texts = {options.id_column, options.label_column, options.text_column}
        as_str = {
            name: str
            for name in heading
            if name in texts or looks_like_id(name) or name == NAMELESS
        }
        coded = {heading[j]: str for j in codes} | dict.fromkeys(as_category, str)
        how = {
            "sep": separator,
            "encoding": encoding,
            "index_col": False,
            "header": None if found else 0,
            "names": heading,
            "skiprows": int(named_separator(path, encoding) is not None),
            # "NA" and "null" are gaps among numbers, but names among ids, labels and texts
            "keep_default_na": False,
            "na_values": {name: GAPS for name in heading if name not in as_str},
        }
        try:
            head = pandas.read_csv(path, dtype=str, nrows=1000, **how)
            everything = any(  # pandas takes "43.006" for 43 and a bit
                decimal_sign(head[name].dropna(), usual=usual) == "," for name in head.columns
            )
            frame = pandas.read_csv(
                path, dtype=str if everything else coded | as_str, low_memory=False, **how
            )
        except (ValueError, csv.Error) as error:
            opened = re.search(r"EOF inside string starting at row (\d+)", str(error))
            if opened:
                raise ValueError(
                    f"{path}: a quote opens in row {opened[1]} and never closes; close it, or "
                    "write it twice where it belongs to the text."
                ) from error
            raise ValueError(f"{path} cannot be read as a table ({error}).") from error
        for name, column in frame.items():
            if column.dtype.kind == "O":
                frame[name] = column.map(unquoted, na_action="ignore")
    frame.columns = [str(column) for column in frame.columns]
    frame, found = _without_empty(frame)
    notes += found
    if not len(frame):
        raise ValueError(f"{path} has no rows.")
    return frame, notes, usual


def _check_shape(
    path: Path, delimiter: str, encoding: str
) -> tuple[list[list[str]], set[int], tuple[str, ...]]:
    """The first rows, which columns have codes as 01067, and a note where rows may be lost.

    All rows have as many fields, where pandas would fill or shift a ragged one.
    """
    first: list[list[str]] = []
    codes: set[int] = set()
    swallowed: list[int] = []
    try:
        with contextlib.closing(csv_rows(path, encoding, delimiter)) as lines:
            for line, row in lines:
                if row and first and len(row) != len(first[0]):
                    raise ValueError(
                        f"{path}, line {line}: {len(row)} fields, but the heading has "
                        f"{len(first[0])}."
                    )
                codes |= {j for j, cell in enumerate(row) if cell[:1] == "0" and is_code(cell)}
                for cell in row:
                    if "\0" in cell:
                        raise ValueError(
                            f"{path}, line {line}: a cell holds a zero byte, at which it would be "
                            "cut; save the table again without it."
                        )
                    if "\n" in cell and _swallows_rows(cell, delimiter, len(row)):
                        swallowed.append(line)
                if row and len(first) < 200:
                    first.append(row)
    except (UnicodeError, csv.Error) as error:
        raise ValueError(
            f"{path} is no table of text in {said(encoding)} ({error}); --encoding names another."
        ) from error
    if not first:
        raise ValueError(f"{path} is empty.")
    notes = tuple(
        f"A cell of {path.name} that ends in line {line} spans lines that look like rows; is a "
        "quote left open there?"
        for line in swallowed[:1]
    )
    return first, codes, notes


def _swallows_rows(cell: str, delimiter: str, width: int) -> bool:
    """Whether a cell of several lines holds what may be rows, as after a quote that was left open.

    All of its lines but the ends have as many separators as a row.
    """
    inner = cell.splitlines()[1:-1]
    return width > 1 and bool(inner) and all(own.count(delimiter) == width - 1 for own in inner)


def find_heading(
    path: Path, rows: list[list[str]], options: Options
) -> tuple[list[str], tuple[str, ...]]:
    """Names of the columns, and a note where the first row is no heading."""
    first = rows[0]
    known = [str(spec["name"]) for spec in (options.recipe or {}).get("columns", ())]
    asked = (options.id_column, options.label_column, options.text_column)
    named = {*asked, *options.columns, *options.exclude, *known} & set(first)
    if options.heading == "no" or (
        options.heading == "auto" and not named and _is_data(first, rows[1:])
    ):
        names = [f"column {j + 1}" for j in range(len(first))]
        said_so = (
            f"{path.name} has no heading, so its columns are called {names[0]} to {names[-1]}; "
            "--heading yes takes the first row as one."
        )
        return names, (said_so,)
    names = [name if name.strip() else f"Unnamed: {j}" for j, name in enumerate(first)]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"{path}: the column {twice[0]!r} occurs more than once.")
    return names, ()


def _is_data(first: list[str], rows: list[list[str]]) -> bool:
    """Whether a table's first row is one of its samples.

    Its cells come again below, are numbers among numbers or dates among dates, or as long as no
    name is. Years and running numbers do name columns, and so does a row with a blank.
    """
    cells = [cell.strip() for cell in first]
    if not rows or not all(cells):
        return False
    numbers = []
    for j, cell in enumerate(cells):
        below = [own for row in rows if (own := row[j].strip())]
        if cell in below and not cell.isdigit():
            return True
        if len(cell) > NAME_LENGTH or (date_format([cell]) and date_format(below)):
            return True
        signs = decimal_sign([cell]), decimal_sign(below)
        if all(signs):
            numbers.append(cell)
    if not all(number.isdigit() for number in numbers):
        return True
    values = [int(number) for number in numbers]
    steps = {b - a for a, b in itertools.pairwise(values)}
    years = all(1900 <= value <= 2100 for value in values)
    return bool(values) and not years and not (len(steps) == 1 and steps <= {1, 5, 10})


def _without_empty(frame: Any) -> tuple[Any, tuple[str, ...]]:
    """A table without the empty rows and nameless empty columns that spreadsheets add."""
    blank = frame.isna()
    for name in frame.columns:
        if frame[name].dtype.kind == "O":
            texts = frame[name].map(lambda v: isinstance(v, str) and not v.strip())
            blank[name] |= texts.astype(bool)
    columns = [
        name
        for name in frame.columns
        if not (name.startswith("Unnamed: ") and bool(blank[name].all()))
    ]
    empty = blank.all(axis=1) if len(columns) > 1 else blank.any(axis=1) & False
    notes: tuple[str, ...] = ()
    if empty.any():
        count = int(empty.sum())
        notes = (
            f"{count} empty rows were left out." if count > 1 else "An empty row was left out.",
        )
        frame = frame[~empty].reset_index(drop=True)
    return frame[columns], notes


def _column(frame: Any, name: str, path: Path, option: str) -> Any:
    if name not in frame.columns:
        raise ValueError(f"{path} has no column {name!r} ({option}); it has {shown(frame, 8)}.")
    return frame[name]


def _take_ids(
    frame: Any, path: Path, options: Options
) -> tuple[Any, list[str], str | None, tuple[str, ...], str]:
    """Ids from --id-column, else from a column whose name and values say so, else row numbers.

    Last comes why labels cannot be joined to such numbers. A column that is called id and has a
    blank or a repetition is an error: row numbers in its place would look like it.
    """
    name, notes = options.id_column, ()  # type: str | None, tuple[str, ...]
    numbers, recipe = [str(i) for i in range(len(frame))], options.recipe
    if name == NUMBERED and name not in frame.columns:
        return frame, numbers, None, (), ""
    if name is not None:
        _column(frame, name, path, "--id-column")
    elif recipe is not None and recipe.get("id_column") in frame.columns:
        name = recipe["id_column"]
    else:
        taken = (options.label_column, options.text_column, *options.columns)
        nameless = [c for c in frame.columns[:1] if c == NAMELESS]
        likely = [c for c in frame.columns if looks_like_id(c) or c in nameless]
        likely = [c for c in likely if c not in taken]
        likely.sort(key=lambda c: c.strip().lower() != "id")  # a column "id" before "Nr"
        sound = [c for c in likely if not _id_fault(frame, c)]
        # where a column "id" is damaged, no other one stands in for it
        first = [c for c in likely if c in sound or c.strip().lower() in IDS]
        name = next(iter([*first, *(c for c in likely if _mostly_own(frame[c]))]), None)
        if name is None:
            why = f"{_id_fault(frame, likely[0])}{_GO_ON}" if likely else ""
            return frame, numbers, None, (), f"{path}: {why}" if why else ""
        called = "without a heading" if name == NAMELESS else repr(name)
        notes = (f"The column {called} was taken as the samples' ids and left out.",)
    assert name is not None
    fault = _id_fault(frame, name)
    if fault:
        raise ValueError(f"{path}: {fault}{_GO_ON}")
    return frame.drop(columns=name), _id_texts(frame[name]), name, notes, ""


_GO_ON = (
    "; mend it, name another column by --id-column, or number the rows from 0 by "
    f"--id-column {NUMBERED}."
)


def _mostly_own(column: Any) -> bool:
    """Whether a column that repeats was still meant to tell the rows apart.

    Most of its values occur once, as a customer_id in a table of orders does not; and it holds no
    fractions.
    """
    if column.dtype.kind == "f" and (column.dropna() % 1 != 0).any():
        return False
    return int((~column.duplicated(keep=False) & column.notna()).sum()) > len(column) / 2


def _id_texts(column: Any) -> list[str]:
    """Ids as text; whole numbers that came as floats as whole numbers."""
    whole = column.dtype.kind == "f" and not (column.dropna() % 1).any()
    return [
        "" if gap else str(int(value) if whole else value).strip()
        for value, gap in zip(column, column.isna())
    ]


def _id_fault(frame: Any, name: str) -> str:
    """What is wrong with a column of ids; "" if nothing is."""
    ids = _id_texts(frame[name])
    blank = [row for row, own in enumerate(ids, 1) if not own]
    if blank:
        more = f" and {len(blank) - 1} more" if len(blank) > 1 else ""
        return f"the id column {name!r} is blank in row {blank[0]}{more}"
    return f"in the column {name!r} {repeated(ids)}" if len(set(ids)) < len(ids) else ""


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


def _features(
    frame: Any, ids: list[str], y: np.ndarray | None, path: Path, options: Options, usual: str
) -> Samples:
    counts = options.kind == "counts"
    scale, recipe = options.scale, options.recipe
    if scale == "auto":
        scale = "total" if counts else "range"
    columns: list[Column] = []
    if recipe is None:
        chosen = _chosen(frame, path, options)
        with named(path):
            columns = learn_columns(chosen, usual=usual, ranged=scale == "range")
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
    with named(path):
        strange = () if recipe is None else strange_values(frame, specs)
        values, names, fills = encode_columns(frame, specs)
    missing = options.missing
    if missing == "auto" and recipe is not None:
        missing = recipe.get("missing", "auto")
    values, rows, notes, fills = _fill(values, names, fills, path, missing, recipe)
    notes = (*strange, *notes)
    skipped: tuple[tuple[str, str], ...] = ()
    if rows is not None:
        kept = set(rows.tolist())
        gone = [own for i, own in enumerate(ids) if i not in kept]
        skipped = tuple((own, "a value is missing") for own in gone)
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
        skipped=skipped,
        rows=rows,
    )


def _chosen(frame: Any, path: Path, options: Options) -> Any:
    """The columns that were asked for."""
    for name in (*options.columns, *options.exclude):
        _column(frame, name, path, "--columns" if name in options.columns else "--exclude")
    wanted = options.columns or tuple(frame.columns)
    kept = [c for c in frame.columns if c in wanted and c not in options.exclude]
    if not kept:
        raise ValueError(f"{path}: --columns and --exclude leave no column.")
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
        one, many = "1 row with a missing value was", f"{rows} rows with missing values were"
        return values[whole], whole, (f"{one if rows == 1 else many} left out.",), fills
    # new samples are filled with what the model knows, whatever was asked for
    asked = missing if recipe is None else recipe.get("missing", missing)
    what = "mean" if asked == "mean" else "median"
    where = dict.fromkeys(names[j].partition(" = ")[0] for j in np.flatnonzero(holes.any(axis=0)))
    note = (
        f"Missing values in {rows} of {len(values)} rows ({shown(map(repr, where), 5)}) were "
        f"filled with their column's {what} (a category's shares); --missing drop leaves such rows "
        "out."
    )
    return np.where(holes, fills, values), None, (note,), fills
