"""Detection of the encoding and the column separator of text files.

A byte order mark or valid UTF-8 determines the encoding. Other files are decoded with every codec
that is common in spreadsheets, and the most plausible text is chosen: each word in one script, no
signs inside words, Chinese characters next to each other. charset-normalizer is not used because
most files here are short with few letters beyond ASCII: it reads "Lieferung zu spät" in Latin-1 as
Big5.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import itertools
import re
import unicodedata
from collections.abc import Callable, Generator, Iterator
from functools import lru_cache
from pathlib import Path

from partwise.io._common import Options

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins in the same way
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: Codecs to try; the first of several equally plausible ones is chosen.
CANDIDATES = (
    *("cp1252", "cp1250", "cp1254", "mac_roman", "cp850", "cp1251", "koi8_r", "cp1253"),
    *("euc_kr", "cp932", "euc_jp", "big5", "gb18030", "cp874"),
)
NAMES = {
    "cp1252": "Latin-1 (Windows-1252)",
    "cp1250": "Windows-1250 (Central European)",
    "cp1254": "Windows-1254 (Turkish)",
    "mac_roman": "Mac Roman",
    "cp850": "DOS (code page 850)",
    "cp1251": "Windows-1251 (Cyrillic)",
    "koi8_r": "KOI8-R",
    "cp1253": "Windows-1253 (Greek)",
    "cp874": "Windows-874 (Thai)",
    "euc_kr": "EUC-KR",
    "cp932": "Shift JIS",
    "euc_jp": "EUC-JP",
    "big5": "Big5",
    "gb18030": "GB 18030",
    "utf-16": "UTF-16",
    "utf-32": "UTF-32",
}
_SEP_LINE = re.compile(r'"?sep=(.)"?', re.I)
#: Minimum share of rows with the same width for the rows below a title to be a table.
SURE = 0.95
#: Suffixes of tab-separated tables; Excel saves "Unicode Text" as .txt.
TABS = (".tsv", ".tab", ".txt")
SEPARATORS = (",", ";", "\t", "|")
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
#: Number of bytes examined, in lines with characters beyond ASCII; more would change nothing.
ENOUGH = 60_000
#: Oddity per character above which a file is not considered to be text.
TOO_ODD = 0.4
RARE_LATIN = set("¤¦¬¯¸þðÞÐĐđ")


def find_encoding(path: Path) -> str:
    """Return the name of a codec that reads the whole file.

    Raises
    ------
    ValueError
        No codec reads the file, so it is not text.
    """
    with path.open("rb") as file:
        chunks = iter(lambda: file.read(1 << 20), b"")
        return _find(chunks, str(path))


def decode(data: bytes, source: str) -> tuple[str, str]:
    """Decode bytes; return the text and the codec."""
    encoding = _find(iter([data]), source)
    return data.decode(encoding), encoding


def said(encoding: str) -> str:
    """Return the name of a codec for messages."""
    return NAMES.get(encoding, encoding)


def check_encoding(name: str) -> str:
    """Return the codec that the user named, or raise an error."""
    try:
        return codecs.lookup(name).name
    except LookupError:
        raise ValueError(
            f"encoding={name!r} is unknown; it can be utf-8, latin-1, cp1252, utf-16, gb18030, "
            "shift_jis, ..."
        ) from None


def _find(chunks: Iterator[bytes], source: str) -> str:
    sample, plain, first = bytearray(), codecs.getincrementaldecoder("utf-8")(), True
    valid = True
    for chunk in chunks:
        if first:
            first = False
            for mark, name in MARKS:
                if chunk.startswith(mark):
                    return name
            wide = _utf16_without_mark(chunk)
            if wide:
                return wide
        if valid:
            try:
                plain.decode(chunk)
            except UnicodeDecodeError:
                valid = False
        if len(sample) < ENOUGH and not chunk.isascii():
            for line in chunk.splitlines(keepends=True):
                if not line.isascii():
                    sample += line[:2000]
                if len(sample) >= ENOUGH:
                    break
    if valid and not plain.getstate()[0]:
        return "utf-8"
    return _likeliest(bytes(sample), source)


def _utf16_without_mark(chunk: bytes) -> str | None:
    head = chunk[:2000]
    zeros = head[0::2].count(0), head[1::2].count(0)
    if max(zeros) < 0.3 * len(head) / 2 or min(zeros) > 0.05 * len(head):
        return None
    return "utf-16-le" if zeros[1] > zeros[0] else "utf-16-be"


def _likeliest(sample: bytes, source: str) -> str:
    best, least = "", 1e9
    controls = sum(sample.count(byte) for byte in range(32) if byte not in b"\t\n\r\f\v\x1a")
    for name in CANDIDATES if controls <= 0.001 * len(sample) else ():
        try:
            text = sample.decode(name)
        except UnicodeDecodeError:
            # The last line may end inside a character.
            text = sample.decode(name, errors="replace")
            if text.count("\ufffd") > 1 + len(sample) // ENOUGH:
                continue
        cost = _oddity(text, name)
        if cost < least:
            best, least = name, cost
    if least > TOO_ODD:
        raise ValueError(f"{source} is no text in an encoding that is known; --encoding names one.")
    return best


def _oddity(text: str, codec: str) -> float:
    """Return how unusual a decoded text is: 0 for ordinary text, about 1 for a wrong codec."""
    cost, count = 0.0, 0
    common = _common(codec)
    for at, sign in enumerate(text):
        if sign.isascii():
            continue
        count += 1
        before, after = text[at - 1 : at], text[at + 1 : at + 2]
        script = _script(sign)
        if script == "odd":
            cost += 2
        elif script == "sign":
            # A sign inside a word is odd, except for apostrophes and hyphens.
            cost += before.isalpha() and after.isalpha() and sign not in "’‘–‐·´\u00ad"
        elif script == "wide":
            alone = not (_is_wide(before) or _is_wide(after))
            cost += 1 if alone else 0 if common(sign) else 0.6
        else:
            cost += _letter_cost(sign, script, before, after)
    return cost / max(count, 1)


def _letter_cost(sign: str, script: str, before: str, after: str) -> float:
    for other in (before, after):
        if other.isalpha() and _script(other) != script:
            return 1.0  # two scripts in one word
    if script == "latin":
        if sign in RARE_LATIN:
            return 0.5
        inside = all(other.isalpha() and not other.isascii() for other in (before, after))
        if inside:
            return 1.0  # three letters with accents in a row
    if sign.isupper() and before.islower():
        return 0.7
    return 0.0


@lru_cache(maxsize=4096)
def _script(sign: str) -> str:
    if not sign.isascii():
        kind = unicodedata.category(sign)
        if kind in ("Cc", "Cn", "Co", "Cs") or sign == "\ufffd":
            return "odd"
        if _is_wide(sign):
            return "wide"
        if kind[0] not in "LM":
            return "sign"
    name = unicodedata.name(sign, "")
    for word in ("CYRILLIC", "GREEK", "THAI", "HEBREW", "ARABIC"):
        if name.startswith(word):
            return word.lower()
    return "latin"


def _is_wide(sign: str) -> bool:
    return bool(sign) and unicodedata.east_asian_width(sign) in ("W", "F")


def _common(codec: str) -> Callable[[str], bool]:
    """Return a function that tests if a wide character is common in the codec's language."""

    def lead(sign: str, table: str) -> int:
        try:
            return sign.encode(table)[0]
        except UnicodeEncodeError:
            return 0

    def kana(sign: str) -> bool:
        return "\u3040" <= sign <= "\u30ff"

    def signs(sign: str) -> bool:
        return "\u3000" <= sign <= "\u303f" or "\uff00" <= sign <= "\uffef"

    rules: dict[str, Callable[[str], bool]] = {
        "euc_kr": lambda s: "\uac00" <= s <= "\ud7a3" or signs(s),
        # Japanese text without kana is rare, so kanji alone are not enough.
        "cp932": lambda s: kana(s) or signs(s) or 0x88 <= lead(s, "cp932") <= 0x97,
        "euc_jp": lambda s: kana(s) or signs(s) or 0xB0 <= lead(s, "euc_jp") <= 0xCF,
        "big5": lambda s: signs(s) or 0xA4 <= lead(s, "big5") <= 0xC6,
        "gb18030": lambda s: signs(s) or 0xB0 <= lead(s, "gb2312") <= 0xD7,
    }
    return rules.get(codec, lambda s: True)


# -- separators -----------------------------------------------------------------------------------


def named_separator(path: Path, encoding: str) -> str | None:
    """Return the separator in a first line ``sep=;``, which Excel writes and reads, or None."""
    with path.open(encoding=encoding) as file:
        try:
            found = _SEP_LINE.fullmatch(file.readline(20).rstrip("\r\n"))
        except UnicodeError:  # the reader that follows reports it
            return None
    return found[1] if found else None


def csv_rows(
    path: Path, encoding: str, separator: str
) -> Generator[tuple[int, list[str]], None, None]:
    """Yield the rows of a file with the number of their last line, without a line ``sep=;``.

    Cells may be of any length: csv refuses those of more than 131,072 characters.
    """
    before = csv.field_size_limit(2**31 - 1)  # the limit is global and must be restored
    try:
        with path.open(newline="", encoding=encoding) as file:
            reader = csv.reader(file, delimiter=separator)
            first = named_separator(path, encoding) is not None
            for row in reader:
                if not first:
                    yield reader.line_num, row
                first = False
    finally:
        csv.field_size_limit(before)


def find_separator(path: Path, encoding: str) -> str:
    """Find the sign that splits most of the first lines into as many fields as the heading."""
    named = named_separator(path, encoding)
    if named is not None:
        return named
    usual = "\t" if path.suffix.lower() in TABS else ","
    first: dict[str, list[list[str]]] = {}
    for sign in (usual, *(s for s in SEPARATORS if s != usual)):
        with (
            contextlib.suppress(csv.Error, UnicodeError),  # the reader that follows reports it
            contextlib.closing(csv_rows(path, encoding, sign)) as lines,
        ):
            first[sign] = [row for (_, row), _ in zip(lines, range(200)) if row]
    share, found = _best_separator(first, usual)
    if share < SURE:  # a title, in a single field, may precede the heading
        tables = {
            sign: list(itertools.dropwhile(lambda row: len(row) == 1, rows))
            for sign, rows in first.items()
        }
        tables = {sign: rows for sign, rows in tables.items() if 2 * len(rows) > len(first[sign])}
        share, below = _best_separator(tables, usual)
        found = below if share >= SURE else found
    return found


def _best_separator(rows: dict[str, list[list[str]]], usual: str) -> tuple[float, str]:
    """Return the sign that gives most rows the width of the first, and the share of these rows."""
    best, found = (0.0, 0), usual
    for sign, own in rows.items():
        width = len(own[0]) if own else 0
        if width < 2:
            continue
        share = sum(len(row) == width for row in own) / len(own)
        if (share, width) > best:
            best, found = (share, width), sign
    return best[0], found


def text_format(path: Path, options: Options) -> tuple[str, str, tuple[str, ...]]:
    """Return the given or detected encoding and separator, and a note if they are unusual."""
    encoding = check_encoding(options.encoding) if options.encoding else find_encoding(path)
    if encoding == "utf-8":
        encoding = "utf-8-sig"
    usual = "\t" if path.suffix.lower() in TABS else ","
    separator = options.separator or find_separator(path, encoding)
    separator = {"tab": "\t", "\\t": "\t"}.get(separator, separator)
    if len(separator) != 1:
        raise ValueError(f"separator={separator!r}; it is one sign, or tab.")
    said_so = []
    if options.encoding is None and encoding != "utf-8-sig":
        said_so.append(f"as {said(encoding)}")
    if options.separator is None and separator != usual:
        said_so.append(f"with {SEPARATOR_NAMES.get(separator, separator)} between columns")
    notes = (f"{path.name} was read {' '.join(said_so)}.",) if said_so else ()
    return encoding, separator, notes
