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


#: A description of a column's conversion, and how to repeat it; None if it is left out.
Learned = tuple[str, dict[str, Any] | None]
#: Descriptions of the two values that become 0 and 1.
ENDS = {
    "number": "{:,.6g} and {:,.6g} to 0 and 1",
    "date": "{} and {} to 0 and 1",
    "time": "{:,.4g} and {:,.4g} hours to 0 and 1",
}


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
        done, spec = _learn(frame[name], name, common, ranged)
        columns.append((name, spec["as"] if spec else "left out", done))
        if spec:
            specs.append({"name": name, **spec})
    return columns, specs


def _is_text(column: Any) -> bool:
    """Return whether a column contains neither numbers, dates nor durations."""
    return column.dtype.kind not in "biufcmM"


def _cells(column: Any) -> list[Any]:
    """Return the values of a column that are not missing."""
    return [
        value
        for value, gap in zip(column, column.isna())
        if not gap and str(value).strip().lower() not in NOTHING
    ]


def _learn(column: Any, name: str, common: str, ranged: bool) -> Learned:
    """Detect the type of a column, and learn how to convert it."""
    cells = _cells(column)
    known = [as_text(value) for value in cells]
    useless = _useless(column, known)
    if useless:
        return useless, None
    low = {value.lower() for value in known}
    if low <= YES | NO and low & YES and low & NO:
        share = float(np.mean([value.lower() in YES for value in known]))
        return f"1 for yes ({share:.0%} of the rows)", {"as": "yes/no", "fill": share}
    spec = _quantity(column, cells, known, common)
    if spec is None:
        return _category(known)
    values = _converted(column, spec)
    if spec["as"] == "number" and _numbers_rows(values, name):
        return "numbers the rows", None
    odd = [as_text(value) for value in _cells(column[np.isnan(values)])]
    unread = f"{_rows(len(odd))} as {odd[0]!r} taken as missing" if odd else ""
    if spec["as"] == "number":
        return _number(values, known, spec, unread, ranged)
    return _scaled(values, spec, FORMATS.get(spec.get("format") or "", ""), unread)


def _useless(column: Any, known: list[str]) -> str:
    """Return why a column cannot be used: its type, missing values, or a single value; else ""."""
    kinds = (list, tuple, dict, bytes, complex, np.ndarray)
    strange = next((type(value).__name__ for value in column if isinstance(value, kinds)), None)
    if strange is not None:
        return f"holds values of the type {strange}"
    gaps = 1 - len(known) / len(column)
    if not known or gaps > MAX_GAPS:
        return f"empty in {gaps:.0%} of the rows"
    is_constant = len({folded(value) for value in known}) == 1
    return f"always {shown(set(known))}" if is_constant else ""


def _quantity(
    column: Any, cells: list[Any], known: list[str], common: str
) -> dict[str, Any] | None:
    """Return how to read a column of dates, times or numbers; None for other columns."""
    if column.dtype.kind == "M":
        return {"as": "date", "format": None}
    if np.isfinite(to_hours(cells)).mean() >= ENOUGH:
        return {"as": "time"}
    if not _is_text(column):
        return {"as": "number"}
    sign = None if any(map(is_code, known)) else decimal_sign(cells, usual=common)
    if sign is not None:
        return {"as": "number", "sign": sign}
    form = date_format(known)
    return None if form is None else {"as": "date", "format": form}


def _converted(column: Any, spec: Mapping[str, Any]) -> np.ndarray:
    """Return numbers, days, hours or 1 for yes; NaN if missing or in another format."""
    kind = spec["as"]
    if kind == "yes/no":
        words = [str(value).strip().lower() for value in column]
        return np.array([1.0 if w in YES else 0.0 if w in NO else np.nan for w in words])
    if kind == "time":
        return to_hours(column)
    if kind == "date":
        return to_days(column, spec["format"])
    return to_numbers(column, spec.get("sign", ".")) if _is_text(column) else column.to_numpy(float)


def is_code(value: str) -> bool:
    """Return whether digits are a code, for example the zip code 01067."""
    return len(value) > 1 and value[0] == "0" and value.isdigit()


def folded(value: str) -> str:
    """Return a category without accidental differences in case and spaces."""
    return " ".join(value.split()).casefold()


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
    """Join the phrases that are not empty."""
    return "; ".join(word for word in words if word)


def _number(
    values: np.ndarray, known: list[str], spec: dict[str, Any], unread: str, ranged: bool
) -> Learned:
    """Learn how to convert numbers; their format is described only if it is unusual."""
    values, words, gaps = _without_codes(values)
    if not np.isfinite(values).any():
        return f"nothing but {words}", None
    unusual = any("," in value or value.count(".") > 1 for value in known)
    style = f"written as {STYLES[spec['sign']]}" if unusual and "sign" in spec else ""
    spec |= {"gaps": gaps} if gaps else {}
    if ranged:
        return _scaled(values, spec, style, _joined(words, unread))
    fill = float(np.nanmedian(values))
    return _joined(style, "as it is", words, unread), {**spec, "fill": fill}


def _scaled(values: np.ndarray, spec: dict[str, Any], style: str, remark: str) -> Learned:
    """Learn the robust range of values."""
    low, high = _robust(values)
    ends = np.array([low, high]).astype("M8[D]") if spec["as"] == "date" else (low, high)
    done = ENDS[spec["as"]].format(*ends)
    for end, beyond in (
        (f"{TOP:g}", np.nanmean(values > low + TOP * (high - low))),
        ("0", np.nanmean(values < low - (high - low))),  # 5% are below low
    ):
        if beyond > 0:
            done += f", cut at {end} ({max(beyond, 0.001):.1%} of the rows)"
    spec = {**spec, "low": low, "high": high}
    spec["fill"] = float(np.nanmedian(_range(values, spec)))
    return _joined(style, done, remark), spec


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


def _category(known: Sequence[str]) -> Learned:
    """Learn the categories of a column; omit columns of codes and of long texts."""
    values = set(known)
    repeated = len(values) < len(known) and len(values) <= max(2, len(known) / 2)
    code = next(filter(is_code, known), "")
    codes = code and f"codes with a leading zero, as {code}"
    if codes and not repeated:
        return f"{codes}; --id-column takes them as ids", None
    if not codes and (not repeated or np.mean([len(value) for value in values]) > LONG):
        return f"text with {len(values)} values; --text-column reads such a column", None
    spelt: dict[str, Counter[str]] = {}
    for value in known:
        spelt.setdefault(folded(value), Counter())[value] += 1
    names = {key: max(own, key=lambda v: (own[v], v)) for key, own in spelt.items()}
    counts = Counter(names[folded(value)] for value in known)
    kept = sorted(sorted(counts, key=lambda value: (-counts[value], value))[:MAX_VALUES])
    rarer = len(counts) - len(kept)
    done = _joined(
        f"one feature for each of {len(kept)} values",
        f"{rarer} rarer ones count as none of them" if rarer else "",
        shown(f"{v!r} is {names[folded(v)]!r}" for v in sorted(values - set(names.values()))),
        codes,
    )
    fill = [counts[value] / len(known) for value in kept]
    return done, {"as": "category", "values": kept, "fill": fill}


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
    """Return converted values, NaN if missing, and a note on a different format.

    New rows may have another decimal sign or date format than the rows of the model.
    """
    own, style = {**spec}, ""
    if spec["as"] == "number" and _is_text(column):
        usual = spec.get("sign", ".")
        own["sign"] = decimal_sign(_cells(column), usual=usual) or usual
        style = "" if own["sign"] == usual else f"as {STYLES[own['sign']]}"
    elif spec["as"] == "date" and column.dtype.kind != "M":
        found = list(date_formats(map(str, _cells(column)))) or [spec["format"]]
        own["format"] = spec["format"] if spec["format"] in found else found[0]
        style = "" if own["format"] == spec["format"] else f"as {FORMATS[own['format']]}"
        readings = [to_days(column, form) for form in found] if style else []
        if own["format"] is None or not all(
            np.array_equal(readings[0], reading, equal_nan=True) for reading in readings
        ):  # day and month may be exchanged
            return np.full(len(column), np.nan), ""
    values = _converted(column, own)
    gaps = np.isinf(values) | np.isin(values, spec.get("gaps", ()))
    return np.where(gaps, np.nan, values), style


def strange_values(frame: Any, specs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return notes on values of new rows that differ from those of the training data.

    A column with mostly unreadable values is an error. Otherwise the median of the training rows
    would replace them, and the result would look valid.
    """
    gone = [spec["name"] for spec in specs if spec["name"] not in frame.columns]
    if gone:
        raise ValueError(f"there are no columns {shown(gone, 8)}, which the model needs.")
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
