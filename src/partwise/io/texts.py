"""Texts as samples: tf-idf weights of their words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.io._common import Options
from partwise.io.samples import Samples

SUFFIXES = {".txt", ".text", ".md"}
MAX_WORDS = 20_000
HOVER = 300


def read_text_files(
    folder: Path, files: Sequence[Path], options: Options, recipe: Mapping[str, Any] | None
) -> Samples:
    """Every text file of a folder."""
    texts, odd = [], 0
    for done, file in enumerate(files):
        options.step(done, len(files), "reading texts")
        data = file.read_bytes()
        try:
            texts.append(data.decode("utf-8-sig"))
        except UnicodeDecodeError:
            texts.append(data.decode("latin-1"))
            odd += 1
    options.step(len(files), len(files), "reading texts")
    notes = (f"{odd} of the texts are not UTF-8 and were read as Latin-1.",) if odd else ()
    ids = [file.relative_to(folder).as_posix() for file in files]
    return text_samples(texts, ids, str(folder), recipe, notes=notes)


def text_samples(
    texts: Sequence[str],
    ids: Sequence[str],
    source: str,
    recipe: Mapping[str, Any] | None = None,
    *,
    y: np.ndarray | None = None,
    notes: tuple[str, ...] = (),
) -> Samples:
    """Texts as tf-idf rows of length one, with the papers' weights (1 + log tf) log(N/df).

    The vocabulary leaves out words of a single text, of more than half of all texts, and the rarest
    beyond 20,000; a recipe brings the vocabulary and weights of the texts that a model has seen.
    """
    empty = [name for name, text in zip(ids, texts) if not text.strip()]
    if empty:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        raise ValueError(f"{source}: the text {empty[0]!r} is empty{more}; leave it out.")
    made = learn_words(texts, source) if recipe is None else dict(recipe)
    X = weigh(texts, made)
    nothing = int((X.sum(axis=1) == 0).sum())
    if nothing == len(texts):
        raise ValueError(f"{source}: no text has a word of the vocabulary.")
    if nothing:
        notes += (f"{nothing} of the texts have no word of the vocabulary; their rows are zero.",)
    return Samples(
        X,
        list(ids),
        "texts",
        feature_names=list(made["words"]),
        texts=[" ".join(text[: 2 * HOVER].split())[:HOVER] for text in texts],
        y=y,
        source=source,
        preparation=f"Texts as tf-idf weights of {len(made['words'])} words, "
        "each scaled to length one.",
        recipe=made,
        notes=notes,
    )


def learn_words(texts: Sequence[str], source: str) -> dict[str, Any]:
    """The vocabulary and its idf weights."""
    from sklearn.feature_extraction.text import CountVectorizer

    n = len(texts)
    limits: dict[str, Any] = {"min_df": 2, "max_df": 0.5} if n >= 20 else {}
    try:
        counter = CountVectorizer(max_features=MAX_WORDS, **limits)
        counts = counter.fit_transform(texts)
    except ValueError as error:
        raise ValueError(
            f"{source}: the texts share too few words to compare them ({error})."
        ) from error
    df = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log(n / df)
    words = counter.get_feature_names_out()
    kept = idf > 0
    if not kept.any():
        raise ValueError(f"{source}: every text has the same words.")
    return {
        "kind": "texts",
        "reader": "texts",
        "scale": "unit",
        "words": [str(word) for word in words[kept]],
        "idf": idf[kept],
    }


def weigh(texts: Sequence[str], recipe: Mapping[str, Any]) -> sp.csr_array:
    """tf-idf rows by the words and weights of a recipe."""
    from sklearn.feature_extraction.text import CountVectorizer

    from partwise.io.datasets import unit_rows

    counts = CountVectorizer(vocabulary=list(recipe["words"])).transform(texts)
    X = sp.csr_array(counts.astype(np.float64))
    X.data = (1 + np.log(X.data)) * np.asarray(recipe["idf"])[X.indices]
    return sp.csr_array(unit_rows(X))
