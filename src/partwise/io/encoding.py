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
import io
import itertools
import re
import unicodedata
from collections.abc import Generator, Iterator
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO

from partwise.io._common import Options

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16: its mark begins in the same way
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
#: Names of codecs. The first of several equally plausible ones is chosen.
NAMES = {
    "cp1252": "Latin-1 (Windows-1252)",
    "cp1250": "Windows-1250 (Central European)",
    "cp1254": "Windows-1254 (Turkish)",
    "mac_roman": "Mac Roman",
    "cp850": "DOS (code page 850)",
    "cp1251": "Windows-1251 (Cyrillic)",
    "koi8_r": "KOI8-R",
    "cp1253": "Windows-1253 (Greek)",
    "euc_kr": "EUC-KR",
    "cp932": "Shift JIS",
    "euc_jp": "EUC-JP",
    "big5": "Big5",
    "gb18030": "GB 18030",
    "cp874": "Windows-874 (Thai)",
    "utf-16": "UTF-16",
    "utf-32": "UTF-32",
}
#: Codecs to try for files that are not UTF-8, UTF-16 or UTF-32.
CANDIDATES = [name for name in NAMES if not name.startswith("utf")]
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
#: A codec that orders characters by frequency or script, and the first bytes of common ones.
COMMON = {
    "euc_kr": ("utf-16-be", b"\xac", b"\xd7"),  # Hangul
    "cp932": ("cp932", b"\x88", b"\x97"),
    "euc_jp": ("euc_jp", b"\xb0", b"\xcf"),
    "big5": ("big5", b"\xa4", b"\xc6"),
    "gb18030": ("gb2312", b"\xb0", b"\xd7"),
}


def find_encoding(path: Path, given: str | None = None) -> str:
    """Return the codec that the user named, or one that reads the whole file.

    Raises
    ------
    ValueError
        No codec reads the file, so it is not text, or there is no codec of the given name.
    """
    if given is not None:
        name = check_encoding(given)
    else:
        with path.open("rb") as file:
            name = _find(file, str(path))
    return "utf-8-sig" if name == "utf-8" else name


def decode(data: bytes, source: str) -> tuple[str, str]:
    """Decode bytes; return the text and the codec."""
    encoding = _find(io.BytesIO(data), source)
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
            f"encoding={name!r} is unknown; use for example utf-8, latin-1, cp1252, utf-16, "
            "gb18030 or shift_jis."
        ) from None


def _find(file: BinaryIO, source: str) -> str:
    head = file.read(2000)
    for mark, name in MARKS:
        if head.startswith(mark):
            return name
    wide = _utf16_without_mark(head)
    if wide:
        return wide
    with contextlib.suppress(UnicodeDecodeError):
        for _ in codecs.iterdecode(_chunks(file), "utf-8"):
            pass
        return "utf-8"
    sample = b""
    for line in (line for chunk in _chunks(file) for line in chunk.splitlines(keepends=True)):
        if not line.isascii():
            sample += line[:2000]
        if len(sample) >= ENOUGH:
            break
    return _likeliest(sample, source)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield a file from its beginning, a megabyte at a time."""
    file.seek(0)
    return iter(lambda: file.read(1 << 20), b"")


def _utf16_without_mark(head: bytes) -> str | None:
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
        raise ValueError(f"{source} is not a text in a known encoding; set it with --encoding.")
    return best


def _oddity(text: str, codec: str) -> float:
    """Return how unusual a decoded text is: 0 for ordinary text, about 1 for a wrong codec."""
    costs = [
        _cost(sign, text[at - 1 : at], text[at + 1 : at + 2], codec)
        for at, sign in enumerate(text)
        if not sign.isascii()
    ]
    return sum(costs) / max(len(costs), 1)


def _cost(sign: str, before: str, after: str, codec: str) -> float:
    """Return how unusual a character beyond ASCII is between two others, from 0 to 2."""
    script = _script(sign)
    if script == "odd":
        return 2.0
    if script == "sign":
        # A symbol or punctuation mark between two letters suggests a wrong encoding, unless it is
        # an apostrophe or a hyphen.
        return float(before.isalpha() and after.isalpha() and sign not in "’‘–‐·´\u00ad")
    if script == "wide":
        alone = not (_is_wide(before) or _is_wide(after))
        return 1.0 if alone else 0.0 if _is_common(sign, codec) else 0.6
    return _letter_cost(sign, script, before, after)


def _letter_cost(sign: str, script: str, before: str, after: str) -> float:
    """Return how unusual a letter is between two other characters, from 0 to 1."""
    letters = [other for other in (before, after) if other.isalpha()]
    if {_script(other) for other in letters} - {script}:
        return 1.0  # two scripts in one word
    if sign in RARE_LATIN:
        return 0.5
    if script == "latin" and len([other for other in letters if not other.isascii()]) == 2:
        return 1.0  # three letters with accents in a row
    return 0.7 if sign.isupper() and before.islower() else 0.0


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
    name = unicodedata.name(sign, "").partition(" ")[0]
    return name if name in ("CYRILLIC", "GREEK", "THAI", "HEBREW", "ARABIC") else "latin"


def _is_wide(sign: str) -> bool:
    return bool(sign) and unicodedata.east_asian_width(sign) in ("W", "F")


def _is_common(sign: str, codec: str) -> bool:
    """Return whether a wide character is common in the language of a codec."""
    if "\u3000" <= sign <= "\u303f" or "\uff00" <= sign <= "\uffef":  # punctuation
        return True
    if "\u3040" <= sign <= "\u30ff":  # kana; Japanese text without it is rare
        return codec in ("cp932", "euc_jp")
    table, first, last = COMMON.get(codec, (codec, b"", b"\xff"))
    return first <= sign.encode(table, errors="ignore")[:1] <= last


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
    best, found = (0, 0.0, 0), usual
    for sign in (usual, *SEPARATORS):
        with (
            contextlib.suppress(csv.Error, UnicodeError),  # the reader that follows reports it
            contextlib.closing(csv_rows(path, encoding, sign)) as lines,
        ):
            fit = _fit([row for (_, row), _ in zip(lines, range(200)) if row])
            if fit > best:
                best, found = fit, sign
    return found


def _fit(rows: list[list[str]]) -> tuple[int, float, int]:
    """Return how sure a separator is (0 to 2), the share of rows of the same width, and the width.

    A title, in a single field, may precede the heading; without a title the separator is surer.
    """
    table = list(itertools.dropwhile(lambda row: len(row) < 2, rows))
    if 2 * len(table) <= len(rows):
        return 0, 0.0, 0
    share = sum(len(row) == len(table[0]) for row in table) / len(table)
    whole = len(table) == len(rows)
    if share < SURE:
        return 0, share if whole else 0.0, len(table[0])
    return 1 + whole, share, len(table[0])


def text_format(path: Path, options: Options) -> tuple[str, str]:
    """Return the given or detected encoding and separator; note them if they are unusual."""
    encoding = find_encoding(path, options.encoding)
    usual = "\t" if path.suffix.lower() in TABS else ","
    separator = options.separator or find_separator(path, encoding)
    separator = {"tab": "\t", "\\t": "\t"}.get(separator, separator)
    if len(separator) != 1:
        raise ValueError(f"separator={separator!r} must be one character, or 'tab'.")
    said_so = []
    if options.encoding is None and encoding != "utf-8-sig":
        said_so.append(f"as {said(encoding)}")
    if options.separator is None and separator != usual:
        said_so.append(f"with {SEPARATOR_NAMES.get(separator, separator)} between columns")
    if said_so:
        options.note(f"{path.name} was read {' '.join(said_so)}.")
    return encoding, separator
