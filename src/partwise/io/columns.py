"""Columns of a table as features of similar weight: numbers, dates, yes/no and categories.

For most rows, every feature is between 0 and 1. Numbers and dates are scaled by their robust range,
yes becomes 1, and a category becomes one feature per value. If two rows differ in a column, it
contributes at most about one to their squared distance, for any unit and number of values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from partwise.io._common import shown
from partwise.io.numbers import (
    ENOUGH,
    FORMATS,
    NOTHING,
    date_format,
    date_formats,
    decimal_sign,
    to_days,
    to_hours,
    to_numbers,
)
from partwise.io.sheets import as_text

YES = {"yes", "y", "true", "t", "ja", "j", "oui", "si", "sí", "sim", "да", "是", "はい", "x", "1"}
YES |= {"1.0"}
NO = {"no", "n", "false", "f", "nein", "non", "não", "нет", "否", "いいえ", "0", "0.0"}
#: Names of columns that number the rows, if each value occurs once.
ID_NAMES = {"id", "ids", "nr", "no", "number", "nummer", "key", "index", "uuid", "row", "zeile"}
ID_NAMES |= {"编号", "序号", "番号", "№"}
MAX_VALUES = 30
MAX_GAPS = 0.5
LONG = 40
#: Numbers that commonly stand for a missing value.
MISSING_CODES = (-99, -999, -9999, -99999, -999999, 999, 9999, 99999, 999999)
LOW, HIGH = 0.05, 0.95
#: Values beyond the robust range are clipped here, so that one value cannot dominate a part.
TOP = 2.0


@dataclass(frozen=True)
class Column:
    """The detected type of a column, its conversion, and how to repeat it."""

    name: str
    read_as: str
    done: str
    spec: Mapping[str, Any] | None = field(default=None, repr=False)


# -- learning -------------------------------------------------------------------------------------


def learn_columns(frame: Any, *, usual: str = ".", ranged: bool = True) -> list[Column]:
    """Learn how to convert each column; `ranged` scales numbers by their robust range."""
    texts = [frame[name] for name in frame.columns if _is_text(frame[name])]
    signs = [decimal_sign(_cells(column)[:2000], usual=usual) for column in texts]
    clear = [sign for sign in signs if sign]
    common = max(set(clear), key=clear.count) if clear else usual
    return [_learn(frame[name], name, common, ranged) for name in frame.columns]


def _is_text(column: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return not (is_numeric_dtype(column) or is_bool_dtype(column) or column.dtype.kind in "mM")


def _cells(column: Any) -> list[Any]:
    """Return the values of a column that are not missing."""
    return [
        value
        for value, gap in zip(column, column.isna())
        if not gap and str(value).strip().lower() not in NOTHING
    ]


def _known(column: Any) -> list[str]:
    return [str(value).strip() for value in _cells(column)]


def _learn(column: Any, name: str, common: str, ranged: bool) -> Column:
    from pandas.api.types import is_complex_dtype

    if is_complex_dtype(column):
        return Column(name, "left out", "complex numbers")
    kinds = (list, tuple, dict, bytes, np.ndarray)
    strange = next((type(value).__name__ for value in column if isinstance(value, kinds)), None)
    if strange is not None:
        return Column(name, "left out", f"holds values of the type {strange}")
    cells = _cells(column)
    known = [str(value).strip() for value in cells]
    gaps = 1 - len(known) / len(column)
    if not known or gaps > MAX_GAPS:
        return Column(name, "left out", f"empty in {gaps:.0%} of the rows")
    values = set(known)
    if len({folded(value) for value in values}) == 1:
        return Column(name, "left out", f"always {shown(values)}")
    low = {value.lower() for value in values}
    if low <= YES | NO and low & YES and low & NO:
        share = np.mean([v.lower() in YES for v in known])
        done = f"1 for yes ({share:.0%} of the rows)"
        return Column(name, "yes/no", done, {"name": name, "as": "yes/no", "fill": float(share)})
    return _learn_values(column, name, cells, known, common, ranged)


def _learn_values(
    column: Any, name: str, cells: list[Any], known: list[str], common: str, ranged: bool
) -> Column:
    """Detect dates, times and numbers; other values are passed to `_learn_text`."""
    if column.dtype.kind == "M":
        return _date(name, column, None)
    hours = to_hours(cells)
    if np.isfinite(hours).mean() >= ENOUGH:
        return _time(name, column, [v for v, gap in zip(known, np.isnan(hours)) if gap])
    if not _is_text(column):
        if _numbers_rows(column, name):
            return Column(name, "left out", "numbers the rows")
        return _number(name, np.asarray(column, dtype=np.float64), None, ranged)
    return _learn_text(column, name, cells, known, common, ranged)


def _learn_text(
    column: Any, name: str, cells: list[Any], known: list[str], common: str, ranged: bool
) -> Column:
    """Detect numbers and dates written as text, categories, and text to leave out."""
    values = set(known)
    codes = next((value for value in known if is_code(value)), None)
    sign = decimal_sign(cells, usual=common) if codes is None else None
    if sign is not None:
        plain = not any("," in value or value.count(".") > 1 for value in known)
        numbers = to_numbers(column, sign)
        if _numbers_rows(numbers, name):
            return Column(name, "left out", "numbers the rows")
        found = _number(name, numbers, sign, ranged)
        # The note mentions the number format only if it is unusual.
        found = replace(found, done=found.done.partition("; ")[2]) if plain else found
        return _more(found, _unread([v for v, x in zip(known, to_numbers(cells, sign)) if x != x]))
    form = date_format(known)
    if form is not None:
        return _date(name, column, form)
    repeated = len(values) < len(known) and len(values) <= max(2, len(known) / 2)
    if codes is not None:
        if not repeated:
            return Column(
                name,
                "left out",
                f"codes with a leading zero, as {codes}; --id-column takes them as ids",
            )
        return _more(_category(name, known), f"codes with a leading zero, as {codes}")
    if not repeated or np.mean([len(v) for v in values]) > LONG:
        done = f"text with {len(values)} values; --text-column reads such a column"
        return Column(name, "left out", done)
    return _category(name, known)


def is_code(value: str) -> bool:
    """Return whether digits are a code, for example the zip code 01067."""
    return len(value) > 1 and value[0] == "0" and value.isdigit()


def folded(value: str) -> str:
    """Return a category without accidental differences in case and spaces."""
    return " ".join(value.split()).casefold()


def _more(column: Column, words: str) -> Column:
    return replace(column, done=f"{column.done}; {words}") if words else column


def _unread(odd: Sequence[str]) -> str:
    """Return a note on values that could not be read as the type of the column."""
    return f"{_rows(len(odd))} as {odd[0]!r} taken as missing" if odd else ""


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def looks_like_id(name: str) -> bool:
    """Return whether a column's name is that of an id."""
    words = name.strip().lower().replace("-", "_").replace(" ", "_").split("_")
    return words[-1] in ID_NAMES or words[0] in {"id", "uuid"} or name.strip().endswith("Id")


def may_be_id(name: str) -> bool:
    """Return whether a column's name ends in a word for number, such as "Kundennummer"."""
    return name.strip().rstrip(".").lower().endswith(("nummer", "nr", "number", "code", "key"))


def _numbers_rows(column: Any, name: str) -> bool:
    values = np.asarray(column, dtype=np.float64)
    if not np.isfinite(values).all() or (values != np.rint(values)).any():
        return False
    ordered = np.sort(values)
    if (np.diff(ordered) == 0).any():
        return False
    running = len(values) >= 20 and (np.diff(values) == 1).all()
    return bool(looks_like_id(name) or may_be_id(name) or running)


def _robust(values: np.ndarray) -> tuple[float, float]:
    """Return the values that become 0 and 1: quantiles, or 0 itself if amounts begin near it."""
    low = np.nanquantile(values, LOW, method="lower")
    high = np.nanquantile(values, HIGH, method="higher")
    least, most = np.nanmin(values), np.nanmax(values)
    if high <= low:  # nearly all values are equal
        low, high = least, most
    if least >= 0 and low <= 0.5 * high:
        low = 0.0
    return float(low), float(high)


def _scaled(name: str, kind: str, values: np.ndarray, spec: dict[str, Any], words: str) -> Column:
    low, high = _robust(values)
    done = f"{words} to 0 and 1"
    for end, beyond in (
        (f"{TOP:g}", np.nanmean(values > low + TOP * (high - low))),
        ("0", np.nanmean(values < low - (high - low))),  # 5% are below low
    ):
        if beyond > 0:
            done += f", cut at {end} ({max(beyond, 0.001):.1%} of the rows)"
    made = {"name": name, "as": kind, "low": low, "high": high, **spec}
    made["fill"] = float(np.nanmedian(_range(values, made)))
    return Column(name, kind, done, made)


def _number(name: str, values: np.ndarray, sign: str | None, ranged: bool) -> Column:
    values, words, gaps = _without_codes(values)
    if not np.isfinite(values).any():
        return Column(name, "left out", f"nothing but {words}")
    style = {None: "", ".": "written as 1,234.5; ", ",": "written as 1.234,5; "}[sign]
    odd = {**({"sign": sign} if sign else {}), **({"gaps": gaps} if gaps else {})}
    if not ranged:
        made = {"name": name, "as": "number", "fill": float(np.nanmedian(values)), **odd}
        return _more(Column(name, "number", f"{style}as it is", made), words)
    low, high = _robust(values)
    found = _scaled(name, "number", values, odd, f"{style}{low:,.6g} and {high:,.6g}")
    return _more(found, words)


def _without_codes(values: np.ndarray) -> tuple[np.ndarray, str, list[float]]:
    """Replace numbers that mean "missing" by NaN; return also a note and these numbers.

    These are infinite values, and a number such as -999 that is far from all other values of the
    column, or the only negative one.
    """
    said: list[str] = []
    codes: list[float] = []
    infinite = np.isinf(values)
    if infinite.any():
        said.append(f"{_rows(int(infinite.sum()))} with an infinite value taken as missing")
        values = np.where(infinite, np.nan, values)
    for code in MISSING_CODES:
        here = values == code
        others = values[~here & np.isfinite(values)]
        if not here.any() or not others.size:
            continue
        low, high = others.min(), others.max()
        far = max(2 * (high - low), 50.0)  # the minimum of 50 is for ages from 0 to 49
        if code < low - far or (code > high + far and here.sum() > 1) or (code < 0 <= low):
            said.append(f"{code:g} ({_rows(int(here.sum()))}) taken as missing")
            values, codes = np.where(here, np.nan, values), [*codes, float(code)]
    return values, ", ".join(said), codes


def _date(name: str, column: Any, form: str | None) -> Column:
    days = to_days(column, form)
    low, high = (np.datetime64(0, "D") + np.timedelta64(int(v), "D") for v in _robust(days))
    style = f"{FORMATS[form]}; " if form else ""
    found = _scaled(name, "date", days, {"format": form}, f"{style}{low} and {high}")
    odd = _unread(
        [v for v, day in zip(_known(column), to_days(_cells(column), form)) if day != day]
    )
    return _more(found, odd)


def _time(name: str, column: Any, odd: list[str]) -> Column:
    hours = to_hours(column)
    low, high = _robust(hours)
    found = _scaled(name, "time", hours, {}, f"{low:,.4g} and {high:,.4g} hours")
    return _more(found, _unread(odd))


def _category(name: str, known: Sequence[str]) -> Column:
    spelt: dict[str, Counter[str]] = {}
    for value in known:
        spelt.setdefault(folded(value), Counter())[value] += 1
    names = {key: max(own, key=lambda v: (own[v], v)) for key, own in spelt.items()}
    counts = {names[key]: own.total() for key, own in spelt.items()}
    kept = sorted(counts, key=lambda value: (-counts[value], value))
    rest = kept[MAX_VALUES:]
    kept = sorted(kept[:MAX_VALUES])
    shares = [counts[value] / len(known) for value in kept]
    done = f"one feature for each of {len(kept)} values"
    if rest:
        done += f"; {len(rest)} rarer ones count as none of them"
    merged = [f"{v!r} is {names[key]!r}" for key, own in spelt.items() for v in own]
    merged = [text for text in merged if text.split(" is ")[0] != text.split(" is ")[1]]
    if merged:
        done += f"; {shown(merged)}"
    spec = {"name": name, "as": "category", "values": kept, "fill": shares}
    return Column(name, "category", done, spec)


# -- conversion -----------------------------------------------------------------------------------


def _range(values: np.ndarray, spec: Mapping[str, Any]) -> np.ndarray:
    width = spec["high"] - spec["low"]
    shares: np.ndarray = (values - spec["low"]) / (width if width > 0 else 1.0)
    return shares.clip(0, TOP)


def encode_columns(
    frame: Any, specs: Sequence[Mapping[str, Any]]
) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Return features with NaN for missing values, their names, and the fill values."""
    blocks, names, fills = [], [], []
    for spec in specs:
        block, called = _encode(frame[spec["name"]], spec)
        weight = 2**-0.5 if spec["as"] == "category" else 1.0
        blocks.append(weight * block)
        names += called
        fills.append(weight * np.atleast_1d(np.asarray(spec["fill"], dtype=np.float64)))
    return np.hstack(blocks), names, np.concatenate(fills)


def _encode(column: Any, spec: Mapping[str, Any]) -> tuple[np.ndarray, list[str]]:
    name, kind = str(spec["name"]), spec["as"]
    if kind == "category":
        categories = list(spec["values"])
        block = np.zeros((len(column), len(categories)))
        at = {folded(value): j for j, value in enumerate(categories)}
        at |= {value: j for j, value in enumerate(categories)}
        for i, (value, gap) in enumerate(zip(column, column.isna())):
            text = as_text(value)
            if gap or text.lower() in NOTHING:
                block[i] = np.nan
            elif (j := at.get(text, at.get(folded(text)))) is not None:
                block[i, j] = 1
        return block, [f"{name} = {value}" for value in categories]
    if kind == "yes/no":
        words = [None if gap else str(v).strip().lower() for v, gap in zip(column, column.isna())]
        numbers = [1.0 if w in YES else 0.0 if w in NO else np.nan for w in words]
        return np.array(numbers)[:, None], [f"{name} = yes"]
    values, _ = _values_of(column, spec)
    return (_range(values, spec) if "low" in spec else values)[:, None], [name]


def _values_of(column: Any, spec: Mapping[str, Any]) -> tuple[np.ndarray, str]:
    """Return numbers, days or hours (NaN if missing), and a note on a different format.

    New rows may have another decimal sign or date format than the rows of the model.
    """
    kind, style = spec["as"], ""
    if kind == "time":
        return to_hours(column), ""
    if kind == "date":
        form = spec["format"]
        found = [] if column.dtype.kind == "M" else list(date_formats(_known(column)))
        if found and form not in found:
            readings = [to_days(column, own) for own in found]
            if all(np.array_equal(readings[0], own, equal_nan=True) for own in readings):
                return readings[0], f"as {FORMATS[found[0]]}"
            return np.full(len(column), np.nan), ""  # day and month may be exchanged
        if form is None and column.dtype.kind != "M":
            return np.full(len(column), np.nan), ""
        return to_days(column, form), ""
    if not _is_text(column):
        values = np.asarray(column, dtype=np.float64)
    else:
        own = spec.get("sign", ".")
        sign = decimal_sign(_cells(column), usual=own) or own
        style = "" if sign == own else "as 1.234,5" if sign == "," else "as 1,234.5"
        values = to_numbers(column, sign)
    gaps = np.isinf(values) | np.isin(values, spec.get("gaps", ()))
    return np.where(gaps, np.nan, values), style


def strange_values(frame: Any, specs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return notes on values of new rows that differ from those of the training data.

    A column with mostly unreadable values is an error. Otherwise the median of the training rows
    would replace them, and the result would look valid.
    """
    notes = []
    for spec in specs:
        name, column = str(spec["name"]), frame[spec["name"]]
        if spec["as"] == "category":
            notes += _new_categories(name, column, spec)
            continue
        if spec["as"] == "yes/no":
            values, style = _encode(column, spec)[0][:, 0], ""
        else:
            values, style = _values_of(column, spec)
            notes += _far_values(name, values, spec)
        if style:
            notes.append(f"The column {name!r} was read {style}, unlike in the model's data.")
        known = [(str(v).strip(), v) for v in column[np.isnan(values)] if v == v and v is not None]
        odd = [text for text, v in known if text.lower() not in NOTHING and not _is_gap(v, spec)]
        if not odd:
            continue
        what = {"number": "a number", "date": "a date", "time": "a time", "yes/no": "yes or no"}
        words = f"the column {name!r} has {odd[0]!r}, which is not {what[spec['as']]}"
        if len(odd) > MAX_GAPS * (np.isfinite(values).sum() + len(odd)):
            style = FORMATS.get(spec.get("format", ""), "")
            style = f", written as {style} or as year-month-day" if style else ""
            raise ValueError(
                f"{words}, and so have {len(odd)} of its {len(column)} rows; the model needs "
                f"{what[spec['as']]} there{style}."
            )
        notes.append(f"{words[0].upper()}{words[1:]} ({_rows(len(odd))} taken as missing).")
    return tuple(notes)


def _is_gap(value: Any, spec: Mapping[str, Any]) -> bool:
    """Return whether a number means a missing value or is infinite."""
    found = to_numbers([value], spec.get("sign", "."))[0]
    return bool(np.isinf(found) or found in spec.get("gaps", ()))


def _new_categories(name: str, column: Any, spec: Mapping[str, Any]) -> list[str]:
    known = {folded(value) for value in spec["values"]}
    texts = [as_text(value) for value in _cells(column)]
    new = Counter(text for text in texts if folded(text) not in known)
    if not new:
        return []
    said = shown(f"{text[:60]!r} ({_rows(count)})" for text, count in new.most_common())
    return [
        f"The column {name!r} has values that are not in the training data and belong to no "
        f"category: {said}."
    ]


def _far_values(name: str, values: np.ndarray, spec: Mapping[str, Any]) -> list[str]:
    if spec["as"] != "number" or "low" not in spec:
        return []
    width = spec["high"] - spec["low"]
    far = (values < spec["low"] - width) | (values > spec["low"] + TOP * width)
    if not far.any():
        return []
    said = shown(f"{value:g}" for value in np.unique(values[far]))
    return [
        f"The column {name!r} has {int(far.sum())} values far from those of the training data "
        f"({said}), which were clipped."
    ]
