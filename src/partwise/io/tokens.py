"""Tokens of texts: stop words of several languages, n-grams, and scripts without spaces."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from partwise.io.encoding import decode
from partwise.io.languages import find_languages, stop_lists, words_of

#: "frequent": words of more than this share of the texts are stop words.
FREQUENT = 0.2
UNSPACED = 0.3  #: share of letters in such a script from which on texts are cut by characters
_RUN = re.compile(
    r"(?P<han>[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff々ー\U00020000-\U0003ffff]+)"
    r"|(?P<thai>[\u0e00-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f]+)|(?P<word>[^\W\d_]\w+)"
)
#: Chinese characters with a grammatical function, and Japanese words written in hiragana.
_GRAMMAR = set("的了是在和就也都着与及或而但个们这那有我你他她它吗呢吧啊被把对为从到很还又")
_HIRAGANA = re.compile(r"^[\u3040-\u309fー]+$")


def by_characters(texts: Iterable[str]) -> bool:
    """Return whether the texts are mostly in a script without spaces."""
    unspaced = letters = 0
    for text in texts:
        for run in _RUN.finditer(text[:2000]):
            letters += len(run.group())
            unspaced += len(run.group()) if run.lastgroup != "word" else 0
        if letters > 200_000:
            break
    return unspaced > UNSPACED * max(letters, 1)


def find_stop_words(texts: Sequence[str], asked: str, *, characters: bool) -> tuple[list[str], str]:
    """Return the stop words for some texts, and a note about them.

    ``asked`` is "auto", "off", "frequent", languages separated by commas, or a file.
    """
    lists = stop_lists()
    if asked == "off":
        return [], "no stop words"
    if asked not in ("auto", "frequent"):
        names = [name.strip().lower() for name in asked.split(",")]
        return _of_languages(names) if lists.keys() >= {*names} else _own(asked)
    if characters:
        return sorted(_GRAMMAR), "without characters of grammar"
    if asked == "auto":
        # Otherwise only max_df: with few topics, informative words are frequent, too.
        found = find_languages(texts)
        return _of_languages(found) if found else ([], "")
    seen = Counter(word for text in texts for word in set(words_of(text)))
    limit = FREQUENT * len(texts)
    common = sorted(word for word, count in seen.items() if count > limit)
    return common, f"without {len(common)} words that more than {FREQUENT:.0%} of the texts share"


def _of_languages(names: Sequence[str]) -> tuple[list[str], str]:
    """Return the stop words of some languages, and a note about them."""
    words = sorted(set().union(*(stop_lists()[name] for name in names)))
    return words, f"without {', '.join(name.capitalize() for name in names)} stop words"


def _own(path: str) -> tuple[list[str], str]:
    """Return the words of the user's file, and a note about them."""
    if not Path(path).is_file():
        known = ", ".join(("auto", "off", "frequent", *stop_lists()))
        raise ValueError(f"stop_words={path!r} is not a file, nor one of {known}.")
    text, _ = decode(Path(path).read_bytes(), path)
    words = sorted(set(words_of(text)))
    return words, f"without the {len(words)} stop words of {Path(path).name}"


def cutter(recipe: Mapping[str, Any]) -> Callable[[str], list[str]]:
    """Return the function that tokenizes a text as the recipe specifies."""
    stops = frozenset(recipe.get("stop_words", ()))
    low, high = (int(n) for n in recipe.get("ngrams", (1, 1)))
    if recipe.get("tokens", "words") == "words":

        def cut(text: str) -> list[str]:
            return _grams([w for w in words_of(text) if w not in stops], low, high, " ")

        return cut

    def cut_characters(text: str) -> list[str]:
        found: list[str] = []
        for run in _RUN.finditer(text.lower()):
            part = run.group()
            if run.lastgroup == "word":
                found.append(part)
                continue
            more = run.lastgroup == "thai"  # a Thai letter carries less than a Chinese character
            grams = _grams(list(part), low + more, high + more, "")
            if stops:
                grams = [g for g in grams if not (_HIRAGANA.match(g) or stops.intersection(g))]
            found += grams
        return found

    return cut_characters


def _grams(items: Sequence[str], low: int, high: int, glue: str) -> list[str]:
    return [
        glue.join(items[i : i + n]) for n in range(low, high + 1) for i in range(len(items) - n + 1)
    ]
