"""The user's table with additional columns at its end, as bytes in the same file format."""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from partwise.io._common import Options
from partwise.io.encoding import csv_rows, text_format
from partwise.io.frames import find_heading
from partwise.io.samples import Samples
from partwise.io.sheets import as_text, quoted, read_json_lines, read_sheet

#: Suffix of the written file for each kind of table.
SUFFIXES = {".csv": ".csv", ".tsv": ".tsv", ".xlsx": ".csv", ".jsonl": ".jsonl"}
SUFFIXES[".parquet"] = ".parquet"


def named_table(samples: Samples, columns: Mapping[str, Sequence[Any]]) -> bytes:
    """Return the table that samples came from, unchanged, with new columns at the end.

    ``columns`` have a value for each sample; skipped rows have empty cells. `SUFFIXES` gives the
    format of the file. Text keeps the encoding and separator of the table.
    """
    path = Path(samples.source)
    options = Options(**samples.options, recipe=samples.recipe)
    n = samples.n_samples + len(samples.skipped)
    at = range(n) if samples.rows is None else samples.rows.tolist()
    whole: dict[str, list[Any]] = {name: [None] * n for name in columns}
    for name, values in columns.items():
        for row, value in zip(at, values, strict=True):
            whole[name][row] = value
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return _parquet(path, whole, n)
    if suffix == ".jsonl":
        return _json_lines(path, whole, n, options)
    return _text(path, whole, n, options)


def _check(path: Path, n: int, held: int) -> None:
    if n != held:
        raise ValueError(f"{path} had {n} rows when it was read, but has {held} rows now.")


def _parquet(path: Path, columns: dict[str, list[Any]], n: int) -> bytes:
    import pyarrow
    from pyarrow import parquet

    table = parquet.read_table(path)
    _check(path, n, table.num_rows)
    for name, values in columns.items():
        if name in table.column_names:
            table = table.drop_columns([name])
        table = table.append_column(name, pyarrow.array(values))
    buffer = io.BytesIO()
    parquet.write_table(table, buffer)
    return buffer.getvalue()


def _json_lines(path: Path, columns: dict[str, list[Any]], n: int, options: Options) -> bytes:
    records = read_json_lines(path, options, nested=True)
    _check(path, n, len(records))
    lines = [
        json.dumps(
            {**record, **{name: own[i] for name, own in columns.items()}}, ensure_ascii=False
        )
        for i, record in enumerate(records)
    ]
    return ("\n".join(lines) + "\n").encode("utf-8")


def _text(path: Path, columns: dict[str, list[Any]], n: int, options: Options) -> bytes:
    rows, encoding, separator = _cells(path, options)
    found = find_heading(path, rows[:200], options)
    names = rows[found.titles] if found.above > found.titles else found.names
    kept = [j for j, name in enumerate(names) if name not in columns]
    below = [row for row in rows[found.above :] if row]
    # In a table with a single column, an empty row is an empty value.
    is_sample = [len(names) == 1 or bool("".join(row).strip()) for row in below]
    _check(path, n, sum(is_sample))
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, delimiter=separator)
    writer.writerows(rows[: found.titles])
    writer.writerow([*(names[j] for j in kept), *columns])
    new = zip(*(map(quoted, own) for own in columns.values()), strict=True)
    for row, has_answer in zip(below, is_sample, strict=True):
        added = next(new) if has_answer else [""] * len(columns)
        writer.writerow([*(row[j] for j in kept), *added])
    try:
        return buffer.getvalue().encode(encoding)
    except UnicodeEncodeError:  # the encoding of the table lacks a letter
        return buffer.getvalue().encode("utf-8-sig")


def _cells(path: Path, options: Options) -> tuple[list[list[str]], str, str]:
    """Return the rows of a table with its encoding and separator; CSV for a workbook."""
    if path.suffix.lower() == ".xlsx":
        cells = read_sheet(path, options)
        return [[as_text(cell) for cell in row] for row in cells], "utf-8-sig", ","
    encoding, separator = text_format(path, options)
    rows = [row for _, row in csv_rows(path, encoding, separator)]
    marked = path.read_bytes()[:3] == codecs.BOM_UTF8
    return rows, "utf-8" if encoding == "utf-8-sig" and not marked else encoding, separator
