"""Labels of a person's samples: a file of ids and labels, and keeping a share of them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import numpy as np

from partwise.io._common import shown


def read_labels(path: str | Path, ids: Sequence[str]) -> np.ndarray:
    """Labels from a CSV file with the columns id and label, for samples with these ids.

    A heading is optional; other columns are ignored if there is one with ``id`` and ``label``. An
    empty label means unknown. The id of a file may be its path in the folder, its name, or its name
    without suffix, as long as that says which file is meant.

    Parameters
    ----------
    path : str or Path
        Separated by commas, or by tabs if its name ends in .tsv.
    ids : sequence of str
        The ids of the samples.

    Returns
    -------
    ndarray of object, shape (n_samples,)
        Labels as text, None where unknown.

    Raises
    ------
    ValueError
        A label for an id that no sample has, two labels for one id, a row without two fields.
    """
    path = Path(path)
    position = _names(ids)
    rows = _rows(path)
    first = [cell.strip().lower() for cell in rows[0][1]]
    id_at, label_at, width = 0, 1, 2
    if "id" in first and "label" in first:
        id_at, label_at, width = first.index("id"), first.index("label"), len(first)
        rows = rows[1:]
    elif rows[0][1][0].strip() not in position:
        rows = rows[1:]  # a heading under other names
    y = np.full(len(ids), None, dtype=object)
    unknown = []
    for line, row in rows:
        if len(row) != width:
            raise ValueError(
                f"{path}, line {line}: {len(row)} fields, not {width}; each line is id,label."
            )
        name, label = row[id_at].strip(), row[label_at].strip()
        at = position.get(name)
        if at is None:
            unknown.append(name)
        elif label:
            if y[at] not in (None, label):
                raise ValueError(
                    f"{path}, line {line}: {name!r} has two labels, {y[at]!r} and {label!r}."
                )
            y[at] = label
    if unknown:
        raise ValueError(
            f"{path}: {len(unknown)} of its {len(rows)} ids are not in the data "
            f"({shown(map(repr, unknown))}); ids there look like {ids[0]!r}."
        )
    if all(label is None for label in y):
        raise ValueError(f"{path} holds no label.")
    return y


def _rows(path: Path) -> list[tuple[int, list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file, delimiter="\t" if path.suffix.lower() == ".tsv" else ",")
            rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} is no CSV file in UTF-8 ({error}).") from error
    if not rows:
        raise ValueError(f"{path} is empty.")
    return rows


def _names(ids: Sequence[str]) -> dict[str, int]:
    """Where each sample is, also by a shorter name that only it has."""
    position: dict[str, int] = {}
    for shorten in (lambda p: p.stem, lambda p: p.name):  # the last one wins
        short: dict[str, int] = {}
        for at, name in enumerate(ids):
            key = shorten(PurePosixPath(name))
            short[key] = -1 if key in short else at
        position |= {key: at for key, at in short.items() if at >= 0}
    return position | {name: at for at, name in enumerate(ids)}


def keep_share(y: np.ndarray, share: float, *, random_state: int | None = 0) -> np.ndarray:
    """Labels with all but a random share of each class replaced by None.

    Parameters
    ----------
    y : ndarray of object
        Labels, None where unknown.
    share : float in (0, 1]
        The share that is kept, at least one label a class.
    random_state : int or None, default=0

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
