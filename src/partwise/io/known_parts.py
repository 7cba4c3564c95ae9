"""Readers of known parts from CSV files, and of topics as lists of words from TOML files."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from partwise.io._common import named
from partwise.io.encoding import csv_rows, find_encoding, find_separator
from partwise.io.samples import Samples

TOPIC = 'a topic is a line such as sport = ["match", "player"]'


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
    p = features if isinstance(features, int) else len(features)
    at = {} if isinstance(features, int) else {str(name): j for j, name in enumerate(features)}
    H = np.full((len(excluded), p), np.nan)
    for row, some in enumerate(excluded):
        if isinstance(some, str):
            raise ValueError(f"excluded[{row}] must be a list of features, got {some!r}.")
        for feature in some:
            column = at.get(feature, -1) if isinstance(feature, str) else int(feature)
            if not 0 <= column < p:
                raise ValueError(f"excluded[{row}] names {feature!r}, none of the {p} features.")
            H[row, column] = 0
        if not np.isnan(H[row]).any():
            raise ValueError(f"excluded[{row}] excludes all features of this part.")
    return H


def read_topics(path: Path, samples: Samples) -> NamedParts:
    """Read topics such as ``sport = ["match", "player"]`` of a TOML file as parts."""
    if samples.kind != "texts" or samples.feature_names is None:
        raise ValueError(f"--seed-words needs texts, but {samples.source} contains {samples.kind}.")
    vocabulary = {str(word): j for j, word in enumerate(samples.feature_names)}
    columns, notes = [], []
    topics = _topics(path)
    for name, words in topics.items():
        found = [word for word in dict.fromkeys(words) if word in vocabulary]
        lost = [word for word in words if word not in vocabulary]
        if not found:
            raise ValueError(f"{path}: {name!r} has no known word: {_closest(lost, vocabulary)}.")
        if lost:
            notes.append(f"{path}: {name!r} goes without {_closest(lost, vocabulary)}.")
        columns.append([vocabulary[word] for word in found])
    return NamedParts(list(topics), seed_parts(samples.X, columns), tuple(notes))


def _topics(path: Path) -> dict[str, list[str]]:
    """Return names and words in lower case, as in the vocabulary."""
    import tomllib

    _check_file(path, "--seed-words")
    try:
        held = tomllib.loads(path.read_text(encoding=find_encoding(path)))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"{path} cannot be read ({error}); {TOPIC}.") from error
    if not held:
        raise ValueError(f"{path} is empty; {TOPIC}.")
    topics = {}
    for name, value in held.items():
        words = value.get("words") if isinstance(value, Mapping) else value
        if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
            raise ValueError(
                f'{path}: {name!r} must be a list of words, for example {name} = ["match", '
                f'"player"]; got {value!r}.'
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
    _check_file(path, "--known")
    encoding = find_encoding(path)
    rows = csv_rows(path, encoding, find_separator(path, encoding))
    lines = [[cell.strip() for cell in row] for _, row in rows]
    lines = [row for row in lines if any(row)]
    if len(lines) < 2:
        raise ValueError(f"{path} needs a line with the features and one line per part.")
    features = lines[0][1:]
    columns = _columns(path, features, samples)
    H = np.full((len(lines) - 1, samples.X.shape[1]), np.nan)
    for at, row in enumerate(lines[1:]):
        with named(f"{path}, line {at + 2}"):
            if len(row) != len(lines[0]):
                raise ValueError(f"{len(row)} cells instead of {len(lines[0])}.")
            H[at, columns] = [_number(cell, name) for cell, name in zip(row[1:], features)]
    names = [row[0] or f"known {at + 1}" for at, row in enumerate(lines[1:])]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path}: two parts are called {twice!r}.")
    return NamedParts(names, _like_samples(H, samples))


def _columns(path: Path, heading: list[str], samples: Samples) -> list[int]:
    """Return the positions of the features in the heading of a file."""
    p = samples.X.shape[1]
    if samples.feature_names is None:
        if len(heading) != p:
            raise ValueError(f"{path} has {len(heading)} features, {samples.source} has {p}.")
        return list(range(p))
    names = [str(name) for name in samples.feature_names]
    at = {name: j for j, name in enumerate(names)}
    unknown = [name for name in heading if name not in at]
    if unknown:
        raise ValueError(f"{path}: no feature is called {_closest(unknown[:3], at)}.")
    twice = next((n for n in heading if names.count(n) > 1 or heading.count(n) > 1), None)
    if twice is not None:
        raise ValueError(f"{path}: the feature {twice!r} occurs twice.")
    return [at[name] for name in heading]


def _number(cell: str, feature: str) -> float:
    """Parse a number >= 0; an empty cell is NaN."""
    try:
        value = np.nan if cell.lower() in ("", "na") else float(cell)
    except ValueError:
        value = -1.0
    if value < 0 or value == np.inf:
        raise ValueError(
            f"{feature!r}: {cell!r} is not a number >= 0; leave unknown numbers empty."
        )
    return value


def _like_samples(H: np.ndarray, samples: Samples) -> np.ndarray:
    """Convert numbers from the units of the data to those of the prepared samples."""
    scale = samples.recipe.get("scale", "none")
    if scale in ("range", "log"):
        raise ValueError(f"--known needs --scale none, unit, max or std, not {scale}.")
    return H / np.asarray(samples.recipe["divide"]) if scale in ("max", "std") else H


def _check_file(path: Path, option: str) -> None:
    if not path.is_file():
        raise ValueError(f"{option} {path}: there is no such file.")
