"""Texts as samples: tf-idf weights of words, or of characters in scripts without spaces."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.io._common import Options, named, read_files, shown
from partwise.io.encoding import check_encoding, decode, said
from partwise.io.samples import Samples
from partwise.io.tokens import by_characters, cutter, find_stop_words

SUFFIXES = {".txt", ".text", ".md"}
MAX_WORDS = 20_000
HOVER = 300
#: Tags of mails and web pages. Other angle brackets stay, such as <3 or <name@example.org>.
TAG = re.compile(
    r"</?(?:html|head|body|div|p|br|hr|span|font|table|tbody|thead|tr|t[dh]|a|b|i|u|em|strong|ul|"
    r"ol|li|h[1-6]|img|style|script|title|meta|link|center|blockquote|pre)\b[^<>]*>",
    re.IGNORECASE,
)
#: Contents of a page that are not text, such as scripts.
HIDDEN = re.compile(r"<(style|script)\b.*?</\1\s*>|<!--.*?-->", re.IGNORECASE | re.DOTALL)


def read_text_files(folder: Path, files: Sequence[Path], options: Options) -> Samples:
    """Read all text files of a folder."""
    read = partial(_read, options=options)
    found, ids, skipped = read_files(folder, files, options, "texts", read)
    odd = Counter(encoding for _, encoding in found if not encoding.startswith("utf-8"))
    for encoding, count in odd.items() if options.encoding is None else ():
        options.note(f"Texts that are not UTF-8 were read as {said(encoding)}: {count}.")
    samples = text_samples([text for text, _ in found], ids, str(folder), options)
    return replace(samples, rows=None, skipped=tuple(sorted([*samples.skipped, *skipped])))


def _read(file: Path, options: Options) -> tuple[str, str]:
    """Return a text and its encoding."""
    data = file.read_bytes()
    if options.encoding is None:
        return decode(data, file.name)
    encoding = check_encoding(options.encoding)
    with named(file.name):
        return data.decode(encoding), encoding


def text_samples(
    texts: Sequence[str],
    ids: Sequence[str],
    source: str,
    options: Options,
    *,
    y: np.ndarray | None = None,
) -> Samples:
    """Return texts as tf-idf rows of length one, with the papers' weights (1 + log tf) log(N/df).

    The vocabulary leaves out stop words, words that occur in a single text or in more than half of
    all texts, and the rarest words beyond 20,000. A recipe contains the vocabulary and weights of
    the training texts of a model. Empty texts are skipped.
    """
    plain = [without_markup(text) for text in texts]
    tagged = sum(text is not old for text, old in zip(plain, texts, strict=True))
    if tagged:
        options.note(f"HTML tags were removed from {tagged:,} of {len(texts):,} texts.")
    written = np.flatnonzero([bool(text.strip()) for text in plain])
    empty = [ids[i] for i in np.setdiff1d(range(len(ids)), written).tolist()]
    if empty:
        _note_empty(empty, len(ids), options)
    texts, ids = ([some[i] for i in written.tolist()] for some in (plain, ids))
    X, made, words = _weights(texts, ids, options)
    what = "words" if made.get("tokens", "words") == "words" else "groups of characters"
    words = f"{len(made['words']):,} {what}{words and ', '}{words}"
    return Samples(
        X,
        ids,
        "texts",
        feature_names=list(made["words"]),
        texts=[" ".join(text[: 2 * HOVER].split())[:HOVER] for text in texts],
        whole_texts=texts,
        y=None if y is None else y[written],
        source=source,
        preparation=f"Texts as tf-idf weights of {words}, each scaled to length one.",
        recipe=made,
        skipped=tuple((name, "the text is empty") for name in empty),
        rows=written if empty else None,
    )


def _weights(
    texts: Sequence[str], ids: Sequence[str], options: Options
) -> tuple[sp.csr_array, dict[str, Any], str]:
    """Return the tf-idf rows of texts, their recipe, and a description of omitted words."""
    if options.embeddings_only:  # they replace the words
        made = {"kind": "texts", "reader": "texts", "scale": "none", "words": [""], "idf": [1.0]}
        return sp.csr_array((len(texts), 1)), made, ""
    recipe, words = options.recipe, ""
    if recipe is None:
        if len(texts) == 1:
            raise ValueError(f"only one text is not empty ({ids[0]!r}).")
        recipe, words = learn_words(texts, options)
    X = weigh(texts, recipe)
    bare = [ids[i] for i in np.flatnonzero(X.sum(axis=1) == 0).tolist()]
    if len(bare) == len(ids):
        raise ValueError("no text has a word of the vocabulary.")
    if bare:
        options.note(f"{len(bare)} texts have no word of the vocabulary: {shown(bare)}.")
    return X, dict(recipe), words


def _note_empty(empty: list[str], n: int, options: Options) -> None:
    """Note the empty texts that are skipped, or raise an error if none may be."""
    if options.strict or options.missing == "error" or len(empty) == n:
        more = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        raise ValueError(f"the text {empty[0]!r} is empty{more}; leave it out.")
    options.note(f"Skipped {len(empty)} of {n} texts, which are empty: {shown(empty)}.")


def without_markup(text: str) -> str:
    """Return the text of a web page or an HTML mail; return any other text unchanged."""
    if "<" not in text or TAG.search(text) is None:
        return text
    return html.unescape(TAG.sub(" ", HIDDEN.sub(" ", text)))


def learn_words(texts: Sequence[str], options: Options) -> tuple[dict[str, Any], str]:
    """Learn the vocabulary and its idf weights; also return a description of omitted words."""
    from sklearn.feature_extraction.text import CountVectorizer

    n = len(texts)
    characters = by_characters(texts) if options.tokens == "auto" else options.tokens != "words"
    stops, said_so = find_stop_words(texts, options.stop_words, characters=characters)
    made: dict[str, Any] = {
        "kind": "texts",
        "reader": "texts",
        "scale": "unit",
        "tokens": "characters" if characters else "words",
        "ngrams": options.ngrams or ((2, 2) if characters else (1, 1)),
        "stop_words": stops,
    }
    least, most = (2, 0.5) if n >= 20 else (1, 1.0)
    limits = {
        "min_df": least if options.min_df is None else _df(options.min_df, most=False),
        "max_df": most if options.max_df is None else _df(options.max_df, most=True),
    }
    counter = CountVectorizer(analyzer=cutter(made), max_features=MAX_WORDS, **limits)
    try:
        counts = counter.fit_transform(texts)
    except ValueError as error:
        raise ValueError(f"the texts share too few words ({error}).") from error
    df = np.bincount(counts.indices, minlength=counts.shape[1])
    idf = np.log(n / df)
    words = counter.get_feature_names_out()
    kept = idf > 0
    if not kept.any():
        raise ValueError("every text has the same words.")
    return {**made, "words": [str(word) for word in words[kept]], "idf": idf[kept]}, said_so


def _df(value: float, *, most: bool) -> int | float:
    """Convert a document frequency: a share if below 1, else a number of texts."""
    if value < 0:
        raise ValueError(f"min_df and max_df must be positive, got {value:g}.")
    return float(value) if value < 1 or (most and value == 1) else int(value)


def weigh(texts: Sequence[str], recipe: Mapping[str, Any]) -> sp.csr_array:
    """Return tf-idf rows by the words and weights of a recipe."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.preprocessing import normalize

    counter = CountVectorizer(vocabulary=list(recipe["words"]), analyzer=cutter(recipe))
    X = sp.csr_array(counter.transform(texts).astype(np.float64))
    X.data = (1 + np.log(X.data)) * np.asarray(recipe["idf"])[X.indices]
    return sp.csr_array(normalize(X))
