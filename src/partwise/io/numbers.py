"""Readers of numbers, dates and times such as "43.006,82", "(12,50)", "03.11.2026", "1:30"."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable
from numbers import Real
from typing import Any

import numpy as np

#: Texts that mean a missing value, in addition to those of pandas.
NOTHING = {
    *("", "-", "--", "–", "—", "?", ".", "k.a.", "k. a.", "keine angabe", "n.a.", "none", "nan"),
    *("na", "n/a", "null", "missing", "unknown"),
}
_MONEY = re.compile(r"^(?:[€$£¥₹]|eur|usd|gbp|chf)\s*|\s*(?:[€$£¥₹%]|eur|usd|gbp|chf)$", re.I)
_TIME = re.compile(r"([+-]?)(\d+):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?")
_SPACES = re.compile(r"[\s'’\u00a0\u202f]")
_POINT = re.compile(r"^[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?(?:e[+-]?\d+)?$", re.I)
_COMMA = re.compile(r"^[+-]?(?:\d{1,3}(?:\.\d{3})+|\d+)?(?:,\d+)?(?:e[+-]?\d+)?$", re.I)
#: Minimum share of values that are numbers or dates for a column to have this type.
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
    """Remove spaces, currency and percent signs; "(5)" and "5-" become "-5", as in accounting."""
    text = _SPACES.sub("", _MONEY.sub("", value.strip()))
    if text.startswith("(") and text.endswith(")"):
        text = f"-{bare(text[1:-1])}"
    elif text.endswith("-") and len(text) > 1:
        text = f"-{text[:-1]}"
    return text


def decimal_sign(values: Iterable[Any], *, usual: str = ".") -> str | None:
    """Find the decimal sign of most values, "." or ","; None if they are not numbers.

    If the values fit both, such as "1,234", the sign is the `usual` one.

    Examples
    --------
    >>> from partwise.io.numbers import decimal_sign
    >>> decimal_sign(["43,006.82", "7.5"]), decimal_sign(["43.006,82", "7,5"])
    ('.', ',')
    >>> decimal_sign(["blue", "red"])
    """
    point = comma = count = 0
    for value in values:
        if not isinstance(value, str):  # numbers in workbooks have no decimal sign
            point, comma, count = point + 1, comma + 1, count + 1
        elif value.strip().lower() not in NOTHING:
            text = bare(value)
            point += bool(text and _POINT.match(text))
            comma += bool(text and _COMMA.match(text))
            count += 1
    if not count or max(point, comma) < ENOUGH * count:
        return None
    return usual if point == comma else "." if point > comma else ","


def to_numbers(values: Iterable[Any], decimal: str) -> np.ndarray:
    """Convert values to floats; values that are not numbers become NaN."""
    pattern, drop = (_POINT, ",") if decimal == "." else (_COMMA, ".")

    def number(value: Any) -> float:
        if isinstance(value, Real):
            return float(value)
        text = bare(value) if isinstance(value, str) else ""
        is_number = text and pattern.match(text)
        return float(text.replace(drop, "").replace(",", ".")) if is_number else np.nan

    return np.array([number(value) for value in values], dtype=np.float64)


def date_format(values: Any) -> str | None:
    """Find the first format that reads nearly all of some texts as dates, or None."""
    return next(iter(date_formats(values)), None)


def date_formats(values: Any) -> Iterable[str]:
    """Find every format that reads nearly all of some texts as dates."""
    import pandas

    known = [v.strip() for v in values if isinstance(v, str) and v.strip().lower() not in NOTHING]
    some = known[:500]
    if not some or not all(any(c.isdigit() for c in v) and len(v) >= 6 for v in some[:20]):
        return
    if sum(v.replace(".", "", 1).isdigit() for v in some) > 0.5 * len(some):
        return  # plain numbers

    def read(texts: list[str], form: str) -> bool:
        found = pandas.to_datetime(pandas.Series(texts), format=form, errors="coerce", utc=True)
        return bool(found.notna().mean() >= ENOUGH)

    yield from (form for form in FORMATS if read(some, form) and read(known, form))


def to_days(values: Any, form: str | None) -> np.ndarray:
    """Convert dates to days since 1970; values that are not dates in this format become NaN."""
    import pandas

    column = pandas.Series(list(values))
    if form is not None and column.dtype.kind != "M":
        column = column.where(column.map(lambda v: isinstance(v, str)), None).str.strip()
    found = pandas.to_datetime(column, format=form, errors="coerce", utc=True)
    seconds = (found - pandas.Timestamp(0, tz="UTC")).dt.total_seconds()
    return np.asarray(seconds, dtype=np.float64) / 86400


def to_hours(values: Iterable[Any]) -> np.ndarray:
    """Convert times and durations ("1:30", "01:30:00", a timedelta) to hours; NaN for others."""
    return np.array([_hours(value) for value in values], dtype=np.float64)


def _hours(value: Any) -> float:
    if isinstance(value, dt.timedelta):  # includes pandas.Timedelta, but not NaT
        return value.total_seconds() / 3600
    if isinstance(value, dt.time):
        value = value.isoformat()
    found = _TIME.fullmatch(value.strip()) if isinstance(value, str) else None
    if not found:
        return np.nan
    sign, hours, minutes, seconds = found.groups()
    whole = int(hours) + int(minutes) / 60 + float(seconds or 0) / 3600
    return -whole if sign == "-" else whole
