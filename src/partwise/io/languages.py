"""The language of a text, by its script and its stop words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any

from partwise.io._common import shown

#: Scripts of one or few languages. The first match counts, so Japanese comes before the Chinese
#: characters that it also uses.
SCRIPTS = {
    "japanese": re.compile(r"[\u3040-\u30ff]"),
    "korean": re.compile(r"[\uac00-\ud7af]"),
    "chinese": re.compile(r"[\u3400-\u9fff]"),
    "thai": re.compile(r"[\u0e00-\u0e7f]"),
    "greek": re.compile(r"[\u0370-\u03ff]"),
    "hebrew": re.compile(r"[\u0590-\u05ff]"),
    "arabic": re.compile(r"[\u0600-\u06ff]"),
    "hindi": re.compile(r"[\u0900-\u097f]"),
}
#: Minimum share of the letters of a text that are in the script.
MOSTLY = 0.3
#: A text's language is recognised if this share of its words are stop words of it. In ordinary
#: prose it is 0.35 to 0.5, in headlines about 0.2; in a neighbouring language below 0.1.
RECOGNISED = 0.12
#: Number of characters at the beginning of a text that show its language.
TEXT_BEGINS = 3000
#: A language counts if this share of the texts is written in it.
HAS_A_SHARE = 0.05
#: A language counts only if its texts have this many stop words that more frequent ones lack.
OWN_WORDS = 3
_WORD = re.compile(r"\w\w+")


@lru_cache(maxsize=1)
def stop_lists() -> dict[str, frozenset[str]]:
    """Stop words by language."""
    text = files("partwise.io").joinpath("stop_words.txt").read_text(encoding="utf-8")
    lines = (line.split(":", 1) for line in text.splitlines() if line.strip())
    return {name.strip(): frozenset(words.split()) for name, words in lines}


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case."""
    return _WORD.findall(text.lower())


def language_of(text: str) -> str:
    """Return the language of a text in lower case, or "" if it is not recognised.

    Examples
    --------
    >>> from partwise.io.languages import language_of
    >>> language_of("Der Hund und die Katze sind nicht in dem Haus")
    'german'
    """
    text = text[:TEXT_BEGINS]
    letters = sum(letter.isalpha() for letter in text)
    for name, script in SCRIPTS.items():
        if letters and len(script.findall(text)) > MOSTLY * letters:
            return name
    words = words_of(text)
    counts = {name: sum(word in stops for word in words) for name, stops in stop_lists().items()}
    (first, most), (_, second) = Counter(counts).most_common(2)
    return first if words and most >= RECOGNISED * len(words) and most > second else ""


def find_languages(texts: Sequence[str]) -> list[str]:
    """Return the languages of the texts; each text counts as one, however long it is.

    The language of a text is the one with the most stop words among its words, if their share is
    large enough and clearly above that of the next language. A language counts if enough texts are
    in it and they contain at least three of its stop words that more frequent languages lack.
    Otherwise "due" alone would make an English invoice Italian.
    """
    some = texts[:: max(1, len(texts) // 2000)]
    lists = stop_lists()
    found: Counter[str] = Counter()
    seen: dict[str, set[str]] = {name: set() for name in lists}
    for text in some:
        first = language_of(text)
        if first in lists:
            found[first] += 1
            seen[first] |= lists[first] & set(words_of(text[:TEXT_BEGINS]))
    if found.total() < HAS_A_SHARE * len(some):
        return []
    enough, known, kept = max(HAS_A_SHARE * found.total(), 1), set[str](), []
    for name, count in found.most_common():
        if count >= enough and len(seen[name] - known) >= OWN_WORDS:
            kept.append(name)
            known |= lists[name]
    return [name for name in lists if name in kept]


def language_notes(texts: Sequence[str], labels: Sequence[Any]) -> list[str]:
    """Return a warning for classes whose labels are all in one of several languages.

    ``labels`` holds None for texts without a label.

    Examples
    --------
    >>> from partwise.io.languages import language_notes
    >>> german, english = "Das ist der Brief und die Antwort", "This is the letter and the answer"
    >>> notes = language_notes([german, english] * 20, ["a", "b"] + [None] * 38)
    >>> len(notes)
    1
    """
    found = [language_of(text) for text in texts]
    enough = max(HAS_A_SHARE * len(found), 2)
    common = {name for name, n in Counter(found).items() if name and n >= enough}
    seen: dict[Any, set[str]] = {}
    for language, label in zip(found, labels, strict=True):
        if label is not None and language in common:
            seen.setdefault(label, set()).add(language.capitalize())
    alone = [f"{label!r} ({min(mine)})" for label, mine in seen.items() if len(mine) == 1]
    if len(common) < 2 or not alone:
        return []
    return [
        f"The texts are in several languages, but all labels of a class are in one: {shown(alone)}."
        " Partwise may take the language for the class; label texts of each class in each language."
    ]
