"""Readers of known parts from CSV files, and of topics as lists of words from TOML files."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partwise.io.encoding import csv_rows, find_encoding, find_separator
from partwise.io.samples import Samples

__all__ = ["NamedParts", "read_known", "read_topics", "seed_parts"]


@dataclass(frozen=True)
class NamedParts:
    """Named parts, (n_parts, n_features), with NaN for unknown numbers; and notes on them."""

    names: list[str]
    H: np.ndarray
    notes: tuple[str, ...] = ()


def seed_parts(X: Any, words: Sequence[Sequence[int]]) -> np.ndarray:
    r"""Return one initial part per topic, for ``seed_components``.

    A part is the mean of the samples that contain the words of the topic, weighted by their share
    of each word:

    .. math:: h_t = \frac{\sum_i s_i x_i}{\sum_i s_i}, \qquad
              s_i = \sum_{w \in t} \frac{x_{iw}}{\sum_j x_{jw}}

    A rare word therefore counts as much as a frequent one.

    Parameters
    ----------
    X : array or sparse matrix of shape (n_samples, n_features)
        Non-negative data, for example tf-idf.
    words : sequence of sequences of int
        Columns of the words of each topic.

    Returns
    -------
    ndarray of shape (len(words), n_features)

    Examples
    --------
    >>> import numpy as np
    >>> from partwise.io import seed_parts
    >>> X = np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 0.0], [0.0, 1.0, 1.0]])
    >>> seed_parts(X, [[0], [1]]).round(2)
    array([[1.  , 0.  , 1.  ],
           [0.  , 1.67, 0.33]])
    """
    rows = []
    for columns in words:
        own = X[:, list(columns)]
        own = own.toarray() if hasattr(own, "toarray") else np.asarray(own)
        totals = own.sum(axis=0)
        share = (own / np.where(totals > 0, totals, 1)).sum(axis=1)
        rows.append(np.asarray(X.T @ share).ravel() / max(share.sum(), np.finfo(float).tiny))
    return np.array(rows)


def without_features(
    excluded: Sequence[Sequence[int | str]], features: int | Sequence[str]
) -> np.ndarray:
    """Return parts for ``fixed_components`` that must not use some features.

    The parts are 0 at these features and NaN, which means free, elsewhere.

    Parameters
    ----------
    excluded : sequence of sequences
        For each of the first parts of the model, the features that it must not use, by position or
        name. The fit determines the other features of these parts.
    features : int or sequence of str
        Number of features, or their names.

    Returns
    -------
    ndarray of shape (len(excluded), n_features)

    Examples
    --------
    >>> from partwise.io.known_parts import without_features
    >>> without_features([["the", "a"], [2]], ["the", "cat", "a"])
    array([[ 0., nan,  0.],
           [nan, nan,  0.]])
    """
    names = None if isinstance(features, int) else [str(name) for name in features]
    p = features if isinstance(features, int) else len(features)
    at = {} if names is None else {name: j for j, name in enumerate(names)}
    H = np.full((len(excluded), p), np.nan)
    for row, some in enumerate(excluded):
        if isinstance(some, str):
            raise ValueError(f"excluded[{row}] must be a list of features, got {some!r}.")
        for feature in some:
            column = at.get(feature, -1) if isinstance(feature, str) else int(feature)
            if not 0 <= column < p:
                raise ValueError(
                    f"excluded[{row}] names {feature!r}, which is none of the {p} features."
                )
            H[row, column] = 0
        if not np.isnan(H[row]).any():
            raise ValueError(f"excluded[{row}] leaves that part no feature.")
    return H


def read_topics(path: Path, samples: Samples) -> NamedParts:
    """Read topics such as ``sport = ["match", "player"]`` of a TOML file as parts."""
    if samples.kind != "texts" or samples.feature_names is None:
        raise ValueError(f"--seed-words is for texts, and {samples.source} holds {samples.kind}.")
    vocabulary = {str(word): j for j, word in enumerate(samples.feature_names)}
    columns, notes = [], []
    topics = _topics(path)
    for name, words in topics.items():
        found = [word for word in words if word in vocabulary]
        lost = [word for word in words if word not in vocabulary]
        if not found:
            raise ValueError(
                f"{path}: no word of {name!r} is among the words that count "
                f"({_closest(lost, vocabulary)})."
            )
        if lost:
            notes.append(f"{path}: {name!r} goes without {_closest(lost, vocabulary)}.")
        columns.append([vocabulary[word] for word in dict.fromkeys(found)])
    return NamedParts(list(topics), seed_parts(samples.X, columns), tuple(notes))


def _topics(path: Path) -> dict[str, list[str]]:
    """Return names and words in lower case, as in the vocabulary."""
    import tomllib

    try:
        held = tomllib.loads(_text(path, "--seed-words"))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(
            f'{path} cannot be read ({error}); a topic is a line as sport = ["match", "player"].'
        ) from error
    if not held:
        raise ValueError(f'{path} has no topic; one is a line as sport = ["match", "player"].')
    topics = {}
    for name, value in held.items():
        words = value.get("words") if isinstance(value, Mapping) else value
        if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
            raise ValueError(
                f"{path}: {name!r} must be a list of words, as {name} = "
                f'["match", "player"]; got {value!r}.'
            )
        topics[name] = [word.strip().lower() for word in words]
    return topics


def _closest(words: Sequence[str], vocabulary: Mapping[str, int]) -> str:
    """List each word with a similar one of the vocabulary."""
    said = []
    for word in words:
        near = difflib.get_close_matches(word, vocabulary, 1, 0.75)
        said.append(f"{word!r}" + (f" (there is {near[0]!r})" if near else ""))
    return ", ".join(said)


def read_known(path: Path, samples: Samples) -> NamedParts:
    """Read known parts of a CSV file: per line a name and one number per feature.

    The first line lists the names of the features in any order. Empty cells and features that are
    not listed are free. If the features have no names, each line has a number for each feature.
    """
    _text(path, "--known")
    encoding = find_encoding(path)
    rows_ = csv_rows(path, encoding, find_separator(path, encoding))
    lines = [row for _, row in rows_ if any(cell.strip() for cell in row)]
    if len(lines) < 2:
        raise ValueError(
            f"{path}: the file needs a line with the feature names and one line per part."
        )
    heading, rows = [cell.strip() for cell in lines[0]], lines[1:]
    columns = _columns(path, heading[1:], samples)
    H = np.full((len(rows), samples.X.shape[1]), np.nan)
    names = []
    for number, row in enumerate(rows, 2):
        if len(row) != len(heading):
            raise ValueError(
                f"{path}, line {number}: {len(row)} cells, and {len(heading)} in the first line."
            )
        names.append(row[0].strip() or f"known {number - 1}")
        H[number - 2, columns] = [
            _number(cell, path, number, name) for cell, name in zip(row[1:], heading[1:])
        ]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path}: two parts are called {twice!r}.")
    return NamedParts(names, _like_samples(H, path, samples))


def _columns(path: Path, heading: Sequence[str], samples: Samples) -> list[int]:
    p = samples.X.shape[1]
    if samples.feature_names is None:
        if len(heading) != p:
            raise ValueError(
                f"{path} has {len(heading)} numbers per part, but {samples.source} has {p} "
                "features; give one number per feature after the name of each part."
            )
        return list(range(p))
    at = {str(name): j for j, name in enumerate(samples.feature_names)}
    unknown = [name for name in heading if name not in at]
    if unknown:
        raise ValueError(
            f"{path}: no feature is called {_closest(unknown[:3], at)}"
            + (f", nor {len(unknown) - 3} others" if len(unknown) > 3 else "")
            + f"; the first line is the word name, then features of {samples.source}."
        )
    counts = Counter(str(name) for name in samples.feature_names)
    shared = next((name for name in heading if counts[name] > 1), None)
    if shared is not None:
        raise ValueError(
            f"{path}: {shared!r} is the name of {counts[shared]} features of {samples.source}; "
            "give each feature its own name there."
        )
    twice = next((name for name in heading if list(heading).count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path}: the feature {twice!r} comes twice.")
    return [at[name] for name in heading]


def _number(cell: str, path: Path, line: int, name: str) -> float:
    """Parse a number >= 0; an empty cell is NaN."""
    cell = cell.strip()
    if cell.lower() in ("", "nan", "na"):
        return np.nan
    try:
        value = float(cell)
    except ValueError:
        raise ValueError(f"{path}, line {line}, {name!r}: {cell!r} is no number.") from None
    if not 0 <= value < np.inf:
        raise ValueError(
            f"{path}, line {line}, {name!r}: {cell} is not a number >= 0; leave a cell empty where "
            "nothing is known."
        )
    return value


def _like_samples(H: np.ndarray, path: Path, samples: Samples) -> np.ndarray:
    """Convert numbers from the units of the data to those of the prepared samples."""
    scale = samples.recipe.get("scale", "none")
    if scale in ("range", "log"):
        raise ValueError(
            f"--known {path} needs --scale none, unit, max or std: with --scale {scale} the "
            "samples are no longer sums of parts in the units of the data."
        )
    return H / np.asarray(samples.recipe["divide"]) if scale in ("max", "std") else H


def _text(path: Path, option: str) -> str:
    if not path.is_file():
        raise ValueError(f"{option} {path}: there is no such file.")
    return path.read_text(encoding=find_encoding(path))
