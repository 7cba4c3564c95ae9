"""Files of labels and links: ids with class labels, and pairs of samples."""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

import numpy as np

from partwise.io import images, texts
from partwise.io._common import Options, shown
from partwise.io.archives import whole
from partwise.io.encoding import csv_rows, text_format
from partwise.io.frames import read_frame
from partwise.io.sheets import as_text, read_sheet, unquoted
from partwise.knowledge.labels import says_unknown as says_unknown

Rows = list[tuple[int, list[str]]]  #: numbered lines of cells
#: Samples that are files may also be listed by shorter names.
FILES = images.SUFFIXES | texts.SUFFIXES
SIMILAR = ("ask", "merge", "keep")
UNKNOWN = ("ask", "drop", "keep")
#: Names of the column with the labels in a table of many columns, the most likely first.
LABEL_NAMES = ["label", "given_label", "labels", "class", "klasse", "kategorie", "category"]
LABEL_NAMES += ["classe", "catégorie", "etikett", "target", "y"]


def read_labels(
    path: str | Path,
    ids: Sequence[str],
    *,
    skip_unknown: bool = False,
    similar: str = "ask",
    unknown: str = "ask",
) -> np.ndarray:
    r"""Read the labels of samples from a table with a column of ids and one of labels.

    The table is a .csv, .tsv, .txt, .xlsx, .jsonl or .parquet file, for example assignments.csv
    with its column given_label. A JSON export of Label Studio works as well: it has one choice per
    task, and the task's data contain the sample's id.

    Two columns need no heading. In a wider table, the function detects the column with the samples'
    ids, and the column that is called label, class, given_label, ...; a note reports both. An empty
    label means unknown. The id of a file may be its path in the folder, its name, or its name
    without suffix, if this is unambiguous. Encoding and separator are detected.

    Parameters
    ----------
    path : str or Path
    ids : sequence of str
        The ids of the samples.
    skip_unknown : bool, default=False
        Leave out lines whose id no sample has.
    similar : {"ask", "merge", "keep"}, default="ask"
        Treat "Block 2" and "block2" as an error, as one label or as two.
    unknown : {"ask", "drop", "keep"}, default="ask"
        Treat a label such as "unknown", "?" or "n/a" as an error, as no label or as a class.

    Returns
    -------
    ndarray of object, shape (n_samples,)
        Labels as text, None where unknown.

    Raises
    ------
    ValueError
        A label for an id that no sample has, two labels for one id, a row without two fields,
        labels that differ only in case or spaces, or a label such as "unknown".

    Examples
    --------
    >>> import os, tempfile
    >>> from partwise.io import read_labels
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "labels.csv")
    ...     with open(path, "w") as file:
    ...         _ = file.write("id,label\nb.png,cat\n")
    ...     read_labels(path, ["a.png", "b.png"]).tolist()
    [None, 'cat']
    """
    path = Path(path)
    y = labels_of(path, ids, Options(skip_unknown=skip_unknown, unknown_labels=unknown))
    return check_labels(y, str(path), similar, unknown)


def labels_of(
    path: Path, ids: Sequence[str], options: Options, skipped: Sequence[str] = ()
) -> np.ndarray:
    """Return the labels of a file, and note how it was read."""
    position, gone = find_names(ids), find_names(skipped)
    unit, unknown = _unit(path), options.unknown_labels
    rows = _rows(path, options) if unit == "line" else _tasks(path, position | gone)
    id_at, label_at, begin = _columns(path, rows, position | gone, options)
    y = np.full(len(ids), None, dtype=object)
    strange: Rows = []
    lost: list[str] = []
    for line, row in rows[begin:]:
        name, label = row[id_at], row[label_at]
        at = place(position, name)
        if at is None and place(gone, name) is not None:
            lost.append(name)
        elif at is None:
            strange.append((line, [name]))
        elif label and (unknown != "drop" or not says_unknown(label)):
            _check_same(y[at], label, f"{path}, {unit} {line}: {name!r}", unknown)
            y[at] = label
    if strange:
        if not options.skip_unknown or len(strange) == len(rows) - begin:
            raise ValueError(_no_such_id(path, strange, len(rows) - begin, list(ids), position))
        lines = shown((line for line, _ in strange), 5)
        options.note(f"Ids of {path.name} without a sample: {len(strange)} ({unit} {lines}).")
    if lost:
        options.note(f"Skipped samples that have a label in {path.name}: {shown(lost, 8)}.")
    if set(y) <= {None}:
        raise ValueError(f"{path} holds no label.")
    return y


def _check_same(old: str | None, new: str, where: str, unknown: str) -> None:
    """Raise if a sample has two labels; if one means unknown, the error explains what to do."""
    if old not in (None, new):
        check_labels(np.array([old, new], dtype=object), where, "keep", unknown)
        raise ValueError(f"{where} has two labels, {old!r} and {new!r}.")


def _columns(
    path: Path, rows: Rows, known: dict[str, int], options: Options
) -> tuple[int, int, int]:
    """Find the columns of ids and labels, and the first line below a heading; note them."""
    width = max(2, len(rows[0][1]))
    for line, row in rows:
        if len(row) != width:
            raise ValueError(f"{path}, {_unit(path)} {line}: {len(row)} fields instead of {width}.")
    heading = rows[0][1]
    first = [name.casefold() for name in heading]
    if "id" in first and "label" in first:
        return first.index("id"), first.index("label"), 1
    if len(first) > 2:
        id_at, label_at = _of_many(path, heading, rows[1:], known)
    elif _is_heading(rows, known):
        id_at = 1 if first[1] == "id" else 0
        label_at = 1 - id_at
    else:
        return 0, 1, 0
    options.note(
        f"{path.name}: ids are those of the column {heading[id_at]!r}, labels those of "
        f"{heading[label_at]!r}."
    )
    return id_at, label_at, 1


def _of_many(path: Path, heading: list[str], rows: Rows, known: dict[str, int]) -> tuple[int, int]:
    """Find ids and labels in a table of more than two columns, by its heading."""
    first = [name.casefold() for name in heading]
    some = [row for _, row in rows[:500]]
    held = [sum(place(known, row[j]) is not None for row in some) for j in range(len(first))]
    id_at = first.index("id") if "id" in first else int(np.argmax(held))
    called = [first.index(name) for name in LABEL_NAMES if name in first]
    label_at = next((j for j in called if j != id_at), None)
    if label_at is None:
        names = shown(heading, 8)
        raise ValueError(
            f"{path}: {len(first)} columns, not 2; call two columns id and label: {names}."
        )
    if "id" not in first and not held[id_at]:
        name = next(iter(known), "")
        raise ValueError(f"{path}: no column contains ids such as {name!r}; call it id.")
    return id_at, label_at


def read_links(path: str | Path, ids: Sequence[str]) -> dict[str, list[tuple[int, int]]]:
    """Read pairs of samples from a CSV file of lines id,id,must or id,id,cannot.

    Return them as ``must_link`` and ``cannot_link`` for `fit`. A heading is optional. Ids are
    matched as in `read_labels`. An unknown id or a line in another format raises a ValueError.
    """
    path = Path(path)
    position = find_names(ids)
    rows = _rows(path, Options())
    words = {"must": "must_link", "cannot": "cannot_link"}
    first = rows[0][1]
    if first[-1].lower() not in words and all(place(position, name) is None for name in first[:2]):
        rows = rows[1:]  # a heading
    links: dict[str, list[tuple[int, int]]] = {"must_link": [], "cannot_link": []}
    for line, row in rows:
        *pair, kind = row
        if len(pair) != 2 or kind.lower() not in words:
            raise ValueError(f"{path}, line {line}: {','.join(row)!r} is not id,id,must or cannot.")
        a, b = (place(position, name) for name in pair)
        if a is None or b is None:
            unknown = [(line, [pair[0] if a is None else pair[1]])]
            raise ValueError(_no_such_id(path, unknown, len(rows), list(ids), position))
        links[words[kind.lower()]].append((a, b))
    if not rows:
        raise ValueError(f"{path} holds no link.")
    return links


def _no_such_id(
    path: Path, unknown: Rows, count: int, ids: list[str], known: dict[str, int]
) -> str:
    line, (name,) = unknown[0]
    others = ""
    if len(unknown) > 1:
        lines = shown((at for at, _ in unknown[1:]), 4)
        others = f" ({len(unknown)} of its {count} ids are unknown, also on {_unit(path)}s {lines})"
    skip = "" if len(unknown) == count else " (--skip-unknown leaves such lines out.)"
    hint = _id_hint(name, ids, known)
    return f"{path}, {_unit(path)} {line}: no sample has the id {name!r}{others}; {hint}{skip}"


def _id_hint(name: str, ids: list[str], known: dict[str, int]) -> str:
    """Return a hint at the id that may have been meant by an unknown id."""
    number = name.removesuffix(".0")
    if sum(name in (PurePosixPath(i).name, PurePosixPath(i).stem) for i in ids) > 1:
        return "several files have this name, give its folder."
    if number == str(len(ids)) and ids == [str(i) for i in range(len(ids))]:
        return "ids are row numbers here, and they are counted from 0."
    folded = {own.casefold(): own for own in [*known, *ids][:20_000]}
    near = folded.get(name.casefold())
    if near is None and number.isdigit() and all(i.isdigit() for i in ids):
        near = min(ids, key=lambda i: abs(int(i) - int(number)))
    if near is None:
        near = next((folded[i] for i in get_close_matches(name.casefold(), folded, 1)), None)
    return f"an id there is for example {ids[0]!r}." if near is None else f"did you mean {near!r}?"


def check_labels(
    y: np.ndarray, source: str, similar: str = "ask", unknown: str = "ask"
) -> np.ndarray:
    """Handle labels such as "unknown", or labels that differ only in case or spaces."""
    y = _without_unknown(y, source, unknown)
    counts = Counter(label for label in y if label is not None)
    if "-1" in counts and not all(label.lstrip("+-").isdigit() for label in counts):
        raise ValueError(f"{source}: leave unknown labels empty instead of '-1'.")
    groups: dict[str, list[str]] = {}
    for label in sorted(counts, key=lambda label: (-counts[label], label)):
        groups.setdefault("".join(label.split()).casefold(), []).append(label)
    twins = max(groups.values(), key=len, default=[])
    if len(twins) < 2 or similar == "keep":
        return y
    if similar == "ask":
        said = " and ".join(f"{label!r} ({counts[label]})" for label in twins)
        ways = "--similar-labels merge joins such labels, --similar-labels keep does not"
        raise ValueError(f"{source}: {said} may be the same label; {ways}.")
    same = {label: group[0] for group in groups.values() for label in group}
    return np.array([same.get(label, label) for label in y], dtype=object)


def _without_unknown(y: np.ndarray, source: str, unknown: str) -> np.ndarray:
    """Ask about labels such as "unknown" and "?", keep them, or drop them."""
    counts = Counter(label for label in y if label is not None and says_unknown(label))
    if not counts or unknown == "keep":
        return y
    if unknown == "ask":
        said = shown(f"{label!r} ({n})" for label, n in counts.items())
        ways = "--unknown-labels drop treats it as no label, --unknown-labels keep as a class"
        raise ValueError(f"{source}: {said} may be a class or no label; {ways}.")
    y = np.array([None if label in counts else label for label in y], dtype=object)
    if all(label is None for label in y):
        raise ValueError(f"{source} contains only {shown(map(repr, counts))}.")
    return y


def _unit(path: Path) -> str:
    return "task" if path.suffix.lower() == ".json" else "line"


def _tasks(path: Path, known: dict[str, int]) -> Rows:
    """Return id and label of every annotation of a JSON export of Label Studio, with a heading."""
    with whole(path, "JSON export of Label Studio"):
        tasks = json.loads(path.read_text("utf-8-sig"))
        contents = [dict(task["data"]) for task in tasks]
    rows = [(0, ["id", "label"])]
    for number, (task, data) in enumerate(zip(tasks, contents), 1):
        values = [str(data["id"])] if "id" in data else []
        values += [value for value in data.values() if isinstance(value, str)]
        names = [name for value in values for name in names_in(value)]
        found = [name for name in names if place(known, name) is not None]
        for choice in _choices(task, f"{path}, task {number}"):
            rows.append((number, [next(iter(found + names), ""), choice]))
    if len(rows) == 1:
        raise ValueError(f"{path}: none of the {len(tasks)} tasks has a choice.")
    return rows


def _choices(task: dict[str, Any], where: str) -> Iterator[str]:
    """Yield the choice of each annotation of a task of Label Studio."""
    for made in task.get("annotations") or []:
        results = [] if made.get("was_cancelled") else made.get("result") or []
        chosen = [c for one in results for c in one.get("value", {}).get("choices", ())]
        if len(set(chosen)) > 1:
            raise ValueError(f"{where} has several choices, {shown(map(repr, chosen))}; keep one.")
        yield from map(str, chosen[:1])


def names_in(value: str) -> list[str]:
    """Return the ids that a task's data may mean: an id, or a file name in an address."""
    path = unquote(value.rpartition("?d=")[2])
    last = PurePosixPath(path).name
    return [value, path, last, re.sub(r"^[0-9a-f]{8}-", "", last)]  # prefix of uploads


def _rows(path: Path, options: Options) -> Rows:
    suffix = path.suffix.lower()
    if suffix in (".jsonl", ".parquet"):
        frame, _ = read_frame(path, options)
        cells = frame.astype(object).where(frame.notna(), None).itertuples(index=False)
        rows = list(enumerate([list(frame.columns), *([as_text(c) for c in row] for row in cells)]))
    elif suffix == ".xlsx":
        held = enumerate(read_sheet(path, Options(note=options.note)), 1)
        rows = [(line, [as_text(cell) for cell in row]) for line, row in held]
        rows = list(itertools.dropwhile(lambda row: sum(map(bool, row[1])) < 2, rows))
    else:
        encoding, separator = text_format(path, options)
        with whole(path, f"CSV file in {encoding}"):
            rows = list(csv_rows(path, encoding, separator))
    rows = [(line, [unquoted(cell.strip()) for cell in row]) for line, row in rows]
    rows = [(line, row) for line, row in rows if any(row)]
    if not rows:
        raise ValueError(f"{path} is empty.")
    return rows


def _is_heading(rows: Rows, position: dict[str, int]) -> bool:
    """Return whether the first line is a heading, and not an unknown id with its label.

    A label that occurs again is not the name of a column, and neither is a number or a file name.
    """
    first = rows[0][1]
    if place(position, first[0]) is not None:
        return False
    if first[0].isdigit() or PurePosixPath(first[0]).suffix.lower() in FILES:
        return False
    return first[1] not in {row[1] for _, row in rows[1:]}


def _composed(name: str) -> str:
    """Compose letters and accents, which macOS stores separately in file names."""
    return unicodedata.normalize("NFC", name)


def find_names(ids: Sequence[str]) -> dict[str, int]:
    """Return the position of each id, and of shorter file names that are unique."""
    position: dict[str, int] = {}
    paths = [PurePosixPath(_composed(name)) for name in ids]
    for part in ("stem", "name"):  # later keys win
        short: dict[str, list[int]] = {}
        for at, path in enumerate(paths):
            if path.suffix.lower() in FILES:  # "3.5" and "2019/12" have no shorter name
                short.setdefault(getattr(path, part), []).append(at)
        position |= {key: own[0] for key, own in short.items() if len(own) == 1}
    position |= {_composed(name): at for at, name in enumerate(ids)}
    return position | {name: at for at, name in enumerate(ids)}


def place(position: dict[str, int], name: str) -> int | None:
    """Return the position of a sample's name, also as a Windows path, or None."""
    found = position.get(name, position.get(_composed(name)))
    if found is None and "\\" in name:
        found = position.get(_composed(name.replace("\\", "/")))
    return found


def keep_share(y: np.ndarray, share: float, *, random_state: int | None = 0) -> np.ndarray:
    """Return labels with a random share kept per class, and None for the others.

    Parameters
    ----------
    y : ndarray of object
        Labels, None where unknown.
    share : float in (0, 1]
        The share to keep; at least one label per class is kept.
    random_state : int or None, default=0

    Returns
    -------
    ndarray of object

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.io import keep_share
    >>> y = np.array(["a"] * 10 + ["b"] * 3, dtype=object)
    >>> kept = keep_share(y, 0.2)
    >>> [int((kept == name).sum()) for name in "ab"]
    [2, 1]
    """
    if not 0 < share <= 1:
        raise ValueError(f"label_share must be in (0, 1], got {share:g}.")
    rng = np.random.RandomState(random_state)
    kept = np.full(len(y), None, dtype=object)
    for label in sorted({label for label in y if label is not None}):
        members = np.flatnonzero(y == label)
        chosen = rng.permutation(members)[: max(1, round(share * len(members)))]
        kept[chosen] = label
    return kept
