"""Columns of a table as features of similar weight: numbers, dates, yes/no and categories.

For most rows, every feature is between 0 and 1. Numbers and dates are scaled by their robust range,
yes becomes 1, and a category becomes one feature per value. If two rows differ in a column, it
contributes at most about one to their squared distance, for any unit and number of values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
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
#: Example of a number for each decimal sign.
STYLES = {".": "1,234.5", ",": "1.234,5"}
#: Values beyond the robust range are clipped here, so that one value cannot dominate a part.
TOP = 2.0


#: Type of a column, a description of its conversion, and how to repeat it on new rows.
Learned = tuple[str, str, dict[str, Any] | None]


# -- learning -------------------------------------------------------------------------------------


def learn_columns(
    frame: Any, *, usual: str = ".", ranged: bool = True
) -> tuple[list[tuple[str, str, str]], list[dict[str, Any]]]:
    """Learn how to convert each column; `ranged` scales numbers by their robust range.

    Return name, type and conversion of each column, and a specification of each column that is
    used, for `encode_columns`.
    """
    texts = [frame[name] for name in frame.columns if _is_text(frame[name])]
    signs = [decimal_sign(_cells(column)[:2000], usual=usual) for column in texts]
    clear = [sign for sign in signs if sign]
    common = max(set(clear), key=clear.count) if clear else usual
    columns, specs = [], []
    for name in frame.columns:
        kind, done, spec = _learn(frame[name], name, common, ranged)
        columns.append((name, kind, done))
        if spec is not None:
            specs.append({"name": name, "as": kind, **spec})
    return columns, specs


def _is_text(column: Any) -> bool:
    return column.dtype.kind not in "biufcmM"


def _cells(column: Any) -> list[Any]:
    """Return the values of a column that are not missing."""
    return [
        value
        for value, gap in zip(column, column.isna())
        if not gap and str(value).strip().lower() not in NOTHING
    ]


def _left_out(reason: str) -> Learned:
    return "left out", reason, None


def _learn(column: Any, name: str, common: str, ranged: bool) -> Learned:
    """Detect yes/no, dates, times and numbers; columns of other texts go to `_learn_text`."""
    kinds = (list, tuple, dict, bytes, complex, np.ndarray)
    strange = next((type(value).__name__ for value in column if isinstance(value, kinds)), None)
    if strange is not None:
        return _left_out(f"holds values of the type {strange}")
    cells = _cells(column)
    known = [as_text(value) for value in cells]
    gaps = 1 - len(known) / len(column)
    if not known or gaps > MAX_GAPS:
        return _left_out(f"empty in {gaps:.0%} of the rows")
    if len({folded(value) for value in known}) == 1:
        return _left_out(f"always {shown(set(known))}")
    low = {value.lower() for value in known}
    if low <= YES | NO and low & YES and low & NO:
        share = float(np.mean([value.lower() in YES for value in known]))
        return "yes/no", f"1 for yes ({share:.0%} of the rows)", {"fill": share}
    if column.dtype.kind == "M":
        return _date(column, known, None)
    hours = to_hours(cells)
    if np.isfinite(hours).mean() >= ENOUGH:
        odd = _unread([v for v, gap in zip(known, np.isnan(hours)) if gap])
        return _scaled("time", to_hours(column), {}, "{:,.4g} and {:,.4g} hours", odd)
    if _is_text(column):
        return _learn_text(column, name, cells, common, ranged)
    if _numbers_rows(column, name):
        return _left_out("numbers the rows")
    return _number(np.asarray(column, dtype=np.float64), {}, "", "", ranged)


def _learn_text(column: Any, name: str, cells: list[Any], common: str, ranged: bool) -> Learned:
    """Detect numbers and dates written as text, categories, and text to leave out."""
    known = [as_text(value) for value in cells]
    code = next((value for value in known if is_code(value)), None)
    sign = decimal_sign(cells, usual=common) if code is None else None
    if sign is not None:
        numbers = to_numbers(column, sign)
        if _numbers_rows(numbers, name):
            return _left_out("numbers the rows")
        # The description mentions the number format only if it is unusual.
        unusual = any("," in value or value.count(".") > 1 for value in known)
        style = f"written as {STYLES[sign]}; " if unusual else ""
        odd = _unread([v for v, x in zip(known, to_numbers(cells, sign)) if x != x])
        return _number(numbers, {"sign": sign}, style, odd, ranged)
    form = date_format(known)
    if form is not None:
        return _date(column, known, form)
    values = set(known)
    repeated = len(values) < len(known) and len(values) <= max(2, len(known) / 2)
    codes = "" if code is None else f"codes with a leading zero, as {code}"
    if codes and not repeated:
        return _left_out(f"{codes}; --id-column takes them as ids")
    if not codes and (not repeated or np.mean([len(v) for v in values]) > LONG):
        return _left_out(f"text with {len(values)} values; --text-column reads such a column")
    return _category(known, codes)


def is_code(value: str) -> bool:
    """Return whether digits are a code, for example the zip code 01067."""
    return len(value) > 1 and value[0] == "0" and value.isdigit()


def folded(value: str) -> str:
    """Return a category without accidental differences in case and spaces."""
    return " ".join(value.split()).casefold()


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


def _joined(*words: str) -> str:
    return "; ".join(word for word in words if word)


def _scaled(
    kind: str, values: np.ndarray, spec: dict[str, Any], words: str, odd: str, show: Any = float
) -> Learned:
    """Learn the robust range of values; ``words`` describes its ends, which ``show`` converts."""
    low, high = _robust(values)
    done = f"{words.format(show(low), show(high))} to 0 and 1"
    for end, beyond in (
        (f"{TOP:g}", np.nanmean(values > low + TOP * (high - low))),
        ("0", np.nanmean(values < low - (high - low))),  # 5% are below low
    ):
        if beyond > 0:
            done += f", cut at {end} ({max(beyond, 0.001):.1%} of the rows)"
    spec = {"low": low, "high": high, **spec}
    return kind, _joined(done, odd), {**spec, "fill": float(np.nanmedian(_range(values, spec)))}


def _number(
    values: np.ndarray, spec: dict[str, Any], style: str, odd: str, ranged: bool
) -> Learned:
    values, words, gaps = _without_codes(values)
    if not np.isfinite(values).any():
        return _left_out(f"nothing but {words}")
    spec |= {"gaps": gaps} if gaps else {}
    odd = _joined(words, odd)
    if ranged:
        return _scaled("number", values, spec, style + "{:,.6g} and {:,.6g}", odd)
    return "number", _joined(f"{style}as it is", odd), {"fill": float(np.nanmedian(values)), **spec}


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


def _date(column: Any, known: list[str], form: str | None) -> Learned:
    words = _joined(FORMATS[form] if form else "", "{} and {}")
    odd = _unread([v for v, day in zip(known, to_days(_cells(column), form)) if day != day])
    days = to_days(column, form)
    return _scaled(
        "date", days, {"format": form}, words, odd, lambda day: np.datetime64(int(day), "D")
    )


def _category(known: Sequence[str], codes: str) -> Learned:
    spelt: dict[str, Counter[str]] = {}
    for value in known:
        spelt.setdefault(folded(value), Counter())[value] += 1
    names = {key: max(own, key=lambda v: (own[v], v)) for key, own in spelt.items()}
    counts = Counter(names[folded(value)] for value in known)
    kept = sorted(sorted(counts, key=lambda value: (-counts[value], value))[:MAX_VALUES])
    rarer = len(counts) - len(kept)
    merged = shown(
        f"{value!r} is {names[key]!r}"
        for key, own in spelt.items()
        for value in own
        if value != names[key]
    )
    done = _joined(
        f"one feature for each of {len(kept)} values",
        f"{rarer} rarer ones count as none of them" if rarer else "",
        merged,
        codes,
    )
    return "category", done, {"values": kept, "fill": [counts[v] / len(known) for v in kept]}


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
        for i, (value, gap) in enumerate(zip(column, column.isna())):
            text = as_text(value)
            if gap or text.lower() in NOTHING:
                block[i] = np.nan
            elif folded(text) in at:
                block[i, at[folded(text)]] = 1
        return block, [f"{name} = {value}" for value in categories]
    values, _ = _values_of(column, spec)
    values = _range(values, spec) if "low" in spec else values
    return values[:, None], [f"{name} = yes" if kind == "yes/no" else name]


def _values_of(column: Any, spec: Mapping[str, Any]) -> tuple[np.ndarray, str]:
    """Return numbers, days, hours or 1 for yes (NaN if missing), and a note on a different format.

    New rows may have another decimal sign or date format than the rows of the model.
    """
    kind, style = spec["as"], ""
    if kind == "yes/no":
        words = [str(value).strip().lower() for value in column]
        return np.array([1.0 if w in YES else 0.0 if w in NO else np.nan for w in words]), ""
    if kind == "time":
        return to_hours(column), ""
    if kind == "date":
        return _days_of(column, spec["format"])
    if not _is_text(column):
        values = np.asarray(column, dtype=np.float64)
    else:
        own = spec.get("sign", ".")
        sign = decimal_sign(_cells(column), usual=own) or own
        style = "" if sign == own else f"as {STYLES[sign]}"
        values = to_numbers(column, sign)
    gaps = np.isinf(values) | np.isin(values, spec.get("gaps", ()))
    return np.where(gaps, np.nan, values), style


def _days_of(column: Any, form: str | None) -> tuple[np.ndarray, str]:
    """Return days, NaN if missing, and a note if the dates are in another format than ``form``."""
    is_date = column.dtype.kind == "M"
    found = [] if is_date else list(date_formats(map(str, _cells(column))))
    if is_date or form in found or (form and not found):
        return to_days(column, form), ""
    readings = [to_days(column, own) for own in found]
    if readings and all(np.array_equal(readings[0], own, equal_nan=True) for own in readings):
        return readings[0], f"as {FORMATS[found[0]]}"
    return np.full(len(column), np.nan), ""  # day and month may be exchanged


def strange_values(frame: Any, specs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return notes on values of new rows that differ from those of the training data.

    A column with mostly unreadable values is an error. Otherwise the median of the training rows
    would replace them, and the result would look valid.
    """
    notes = []
    for spec in specs:
        name, kind, column = str(spec["name"]), spec["as"], frame[spec["name"]]
        if kind == "category":
            notes += _new_categories(name, column, spec)
            continue
        values, style = _values_of(column, spec)
        if style:
            notes.append(f"The column {name!r} was read {style}, unlike in the model's data.")
        if kind == "number" and "low" in spec:
            notes += _far_values(name, values, spec)
        odd = [as_text(v) for v in _cells(column[np.isnan(values)]) if not _is_gap(v, spec)]
        if not odd:
            continue
        what = {"yes/no": "yes or no"}.get(kind, f"a {kind}")
        words = f"the column {name!r} has {odd[0]!r}, which is not {what}"
        if len(odd) > MAX_GAPS * (np.isfinite(values).sum() + len(odd)):
            style = FORMATS.get(spec.get("format", ""), "")
            style = f", written as {style} or as year-month-day" if style else ""
            raise ValueError(
                f"{words}, and so have {len(odd)} of its {len(column)} rows; the model needs "
                f"{what} there{style}."
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
    return [f"The column {name!r} has values that are not in the model's data: {said}."]


def _far_values(name: str, values: np.ndarray, spec: Mapping[str, Any]) -> list[str]:
    width = spec["high"] - spec["low"]
    far = (values < spec["low"] - width) | (values > spec["low"] + TOP * width)
    if not far.any():
        return []
    said = shown(f"{value:g}" for value in np.unique(values[far]))
    return [f"The column {name!r} has {int(far.sum())} values far from the model's data ({said})."]
