"""Numbers and dates as people write them: "43,006.82", "43.006,82", "1 200 €", "03.11.2026"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np

#: What stands for "nothing here" beyond what pandas knows.
NOTHING = {
    *("", "-", "--", "–", "—", "?", ".", "k.a.", "k. a.", "keine angabe", "n.a.", "none", "nan"),
    *("na", "n/a", "null", "missing", "unknown"),
}
_MONEY = re.compile(r"^(?:[€$£¥₹]|eur|usd|gbp|chf)\s*|\s*(?:[€$£¥₹%]|eur|usd|gbp|chf)$", re.I)
_SPACES = re.compile(r"[\s'’\u00a0\u202f]")
_POINT = re.compile(r"^[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:e[+-]?\d+)?$", re.I)
_COMMA = re.compile(r"^[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)?(?:,\d+)?(?:e[+-]?\d+)?$", re.I)
#: A share of the values that must be numbers or dates for a column to be one.
ENOUGH = 0.95
FORMATS = {
    "%Y-%m-%d": "year-month-day",
    "ISO8601": "date and time",
    "%d.%m.%Y": "day.month.year",
    "%d.%m.%y": "day.month.year",
    "%d.%m.%Y %H:%M": "day.month.year, time",
    "%Y/%m/%d": "year/month/day",
    "%d/%m/%Y": "day/month/year",
    "%m/%d/%Y": "month/day/year",
    "%d-%m-%Y": "day-month-year",
    "%d %b %Y": "day, month, year",
    "%b %d, %Y": "month, day, year",
}


def bare(value: str) -> str:
    """A number without spaces, currency or per cent."""
    return _SPACES.sub("", _MONEY.sub("", value.strip()))


def decimal_sign(values: Iterable[str], *, usual: str = ".") -> str | None:
    """ "." or ",": the sign before the fraction in most of the values; None if they are no numbers.

    "1,234" alone says nothing, and then it is the `usual` one.

    Examples
    --------
    >>> from partwise.io.numbers import decimal_sign
    >>> decimal_sign(["43,006.82", "7.5"]), decimal_sign(["43.006,82", "7,5"])
    ('.', ',')
    >>> decimal_sign(["blue", "red"])
    """
    point = comma = count = 0
    only_point = only_comma = 0
    for value in values:
        if value.strip().lower() in NOTHING:
            continue
        text = bare(value)
        count += 1
        a, b = bool(text and _POINT.match(text)), bool(text and _COMMA.match(text))
        point, comma = point + a, comma + b
        only_point, only_comma = only_point + (a and not b), only_comma + (b and not a)
    if not count or max(point, comma) < ENOUGH * count:
        return None
    if only_point == only_comma:
        return usual
    return "." if only_point > only_comma else ","


def to_numbers(values: Iterable[Any], decimal: str) -> np.ndarray:
    """Floats; NaN for what is no number."""
    pattern, drop = (_POINT, ",") if decimal == "." else (_COMMA, ".")
    out = []
    for value in values:
        text = bare(value) if isinstance(value, str) else ""
        if text and pattern.match(text):
            out.append(float(text.replace(drop, "").replace(",", ".")))
        else:
            out.append(np.nan)
    return np.array(out, dtype=np.float64)


def date_format(values: Any) -> str | None:
    """The format that reads nearly all of some texts as dates, or None."""
    import pandas

    known = [v.strip() for v in values if isinstance(v, str) and v.strip().lower() not in NOTHING]
    some = known[:500]
    if not some or not all(any(c.isdigit() for c in v) and len(v) >= 6 for v in some[:20]):
        return None
    if sum(v.replace(".", "", 1).isdigit() for v in some) > 0.5 * len(some):
        return None  # plain numbers

    def read(texts: list[str], form: str) -> bool:
        found = pandas.to_datetime(pandas.Series(texts), format=form, errors="coerce", utc=True)
        return bool(found.notna().mean() >= ENOUGH)

    return next((form for form in FORMATS if read(some, form) and read(known, form)), None)


def to_days(values: Any, form: str | None) -> np.ndarray:
    """Days since 1970; NaN for what is no date."""
    import pandas

    column = pandas.Series(list(values))
    if form is not None:
        column = column.where(column.map(lambda v: isinstance(v, str)), None).str.strip()
    found = pandas.to_datetime(column, format=form, errors="coerce", utc=True)
    seconds = (found - pandas.Timestamp(0, tz="UTC")).dt.total_seconds()
    return np.asarray(seconds, dtype=np.float64) / 86400
