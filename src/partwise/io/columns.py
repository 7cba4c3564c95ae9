"""Columns of a table as features: numbers, dates, yes/no and categories, none louder than another.

Every column ends between 0 and 1 for most rows: a number by its robust range, a date likewise, yes
as 1, a category as one feature for each value. Two rows that differ in a column differ there by a
squared distance of at most about one, whatever its unit and however many values it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from partwise.io._common import shown
from partwise.io.numbers import FORMATS, NOTHING, date_format, decimal_sign, to_days, to_numbers

YES = {"yes", "y", "true", "t", "ja", "j", "oui", "si", "sí", "sim", "да", "是", "はい", "1", "x"}
NO = {"no", "n", "false", "f", "nein", "non", "não", "нет", "否", "いいえ", "0"}
#: Names of columns that number the rows, where each value occurs once.
ID_NAMES = {"id", "ids", "nr", "no", "number", "nummer", "key", "index", "uuid", "row", "zeile"}
ID_NAMES |= {"编号", "序号", "番号", "№"}
MAX_VALUES = 30
MAX_GAPS = 0.5
LONG = 40
LOW, HIGH = 0.05, 0.95
#: Values beyond the robust range are cut here, so that a single one cannot stretch a part.
TOP = 2.0


@dataclass(frozen=True)
class Column:
    """What a column was taken for, what was done to it, and how to do it again."""

    name: str
    read_as: str
    done: str
    spec: Mapping[str, Any] | None = field(default=None, repr=False)


# -- learning -------------------------------------------------------------------------------------


def learn_columns(frame: Any, *, usual: str = ".", ranged: bool = True) -> list[Column]:
    """What to do with each column of a frame; `ranged` scales numbers by their robust range."""
    signs = {name: _sign(frame[name], usual) for name in frame.columns}
    clear = [sign for sign in signs.values() if sign]
    common = max(set(clear), key=clear.count) if clear else usual
    return [_learn(frame[name], name, common, ranged) for name in frame.columns]


def _is_text(column: Any) -> bool:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    return not (is_numeric_dtype(column) or is_bool_dtype(column) or column.dtype.kind in "mM")


def _known(column: Any) -> list[str]:
    return [
        text
        for value, gap in zip(column, column.isna())
        if not gap and (text := str(value).strip()).lower() not in NOTHING
    ]


def _sign(column: Any, usual: str) -> str | None:
    return decimal_sign(_known(column)[:2000], usual=usual) if _is_text(column) else None


def _learn(column: Any, name: str, common: str, ranged: bool) -> Column:
    from pandas.api.types import is_complex_dtype

    def left_out(why: str) -> Column:
        return Column(name, "left out", why)

    if is_complex_dtype(column):
        return left_out("complex numbers")
    if column.dtype.kind in "mM":
        return _date(name, column, None, ranged)
    known = _known(column)
    gaps = 1 - len(known) / len(column)
    if not known or gaps > MAX_GAPS:
        return left_out(f"empty in {gaps:.0%} of the rows")
    values = set(known)
    if len(values) == 1:
        return left_out(f"always {shown(values)}")
    low = {value.lower() for value in values}
    if low <= YES | NO | {"1.0", "0.0"} and low & (YES | {"1.0"}) and low & (NO | {"0.0"}):
        share = np.mean([v.lower() in YES or v == "1.0" for v in known])
        done = f"1 for yes ({share:.0%} of the rows)"
        return Column(name, "yes/no", done, {"name": name, "as": "yes/no", "fill": float(share)})
    if not _is_text(column):
        if _numbers_rows(column, name):
            return left_out("numbers the rows")
        return _number(name, np.asarray(column, dtype=np.float64), None, ranged)
    sign = decimal_sign(known, usual=common)
    if sign is not None:
        plain = not any("," in value or value.count(".") > 1 for value in known)
        found = _number(name, to_numbers(column, sign), sign, ranged)
        # how they are written is worth a word only where it is not plain
        return replace(found, done=found.done.partition("; ")[2]) if plain else found
    form = date_format(known)
    if form is not None:
        return _date(name, column, form, ranged)
    repeated = len(values) < len(known) and len(values) <= max(2, len(known) / 2)
    if not repeated or np.mean([len(v) for v in values]) > LONG:
        return left_out(f"text with {len(values)} values; --text-column reads such a column")
    return _category(name, known)


def looks_like_id(name: str) -> bool:
    """Whether a column's name says that it numbers the rows."""
    words = name.strip().lower().replace("-", "_").replace(" ", "_").split("_")
    return words[-1] in ID_NAMES or words[0] in {"id", "uuid"} or name.strip().endswith("Id")


def _numbers_rows(column: Any, name: str) -> bool:
    values = np.asarray(column, dtype=np.float64)
    if not np.isfinite(values).all() or (values != np.rint(values)).any():
        return False
    ordered = np.sort(values)
    if (np.diff(ordered) == 0).any():
        return False
    running = len(values) >= 20 and (np.diff(values) == 1).all()
    return bool(looks_like_id(name) or running)


def _robust(values: np.ndarray) -> tuple[float, float]:
    """What becomes 0 and 1: quantiles, and 0 itself where amounts begin near it."""
    low = np.nanquantile(values, LOW, method="lower")
    high = np.nanquantile(values, HIGH, method="higher")
    least, most = np.nanmin(values), np.nanmax(values)
    if high <= low:  # nearly all are alike
        low, high = least, most
    if least >= 0 and low <= 0.5 * high:
        low = 0.0
    return float(low), float(high)


def _scaled(name: str, kind: str, values: np.ndarray, spec: dict[str, Any], words: str) -> Column:
    low, high = _robust(values)
    beyond = np.nanmean(values > low + TOP * (high - low))
    done = f"{words} to 0 and 1"
    if beyond > 0:
        done += f", cut at {TOP:g} ({max(beyond, 0.001):.1%} of the rows)"
    made = {"name": name, "as": kind, "low": low, "high": high, **spec}
    made["fill"] = float(np.nanmedian(_range(values, made)))
    return Column(name, kind, done, made)


def _number(name: str, values: np.ndarray, sign: str | None, ranged: bool) -> Column:
    if np.isinf(values).any():
        raise ValueError(f"the column {name!r} must be finite, got infinity.")
    style = {None: "", ".": "written as 1,234.5; ", ",": "written as 1.234,5; "}[sign]
    odd = {"sign": sign} if sign else {}
    if not ranged:
        made = {"name": name, "as": "number", "fill": float(np.nanmedian(values)), **odd}
        return Column(name, "number", f"{style}as it is", made)
    low, high = _robust(values)
    return _scaled(name, "number", values, odd, f"{style}{low:,.6g} and {high:,.6g}")


def _date(name: str, column: Any, form: str | None, ranged: bool) -> Column:
    days = to_days(column, form)
    low, high = (np.datetime64(0, "D") + np.timedelta64(int(v), "D") for v in _robust(days))
    style = f"{FORMATS[form]}; " if form else ""
    return _scaled(name, "date", days, {"format": form}, f"{style}{low} and {high}")


def _category(name: str, known: Sequence[str]) -> Column:
    counts: dict[str, int] = {}
    for value in known:
        counts[value] = counts.get(value, 0) + 1
    kept = sorted(counts, key=lambda value: (-counts[value], value))
    rest = kept[MAX_VALUES:]
    kept = sorted(kept[:MAX_VALUES])
    shares = [counts[value] / len(known) for value in kept]
    done = f"one feature for each of {len(kept)} values"
    if rest:
        done += f"; {len(rest)} rarer ones count as none of them"
    spec = {"name": name, "as": "category", "values": kept, "fill": shares}
    return Column(name, "category", done, spec)


# -- doing it -------------------------------------------------------------------------------------


def _range(values: np.ndarray, spec: Mapping[str, Any]) -> np.ndarray:
    width = spec["high"] - spec["low"]
    return ((values - spec["low"]) / (width if width > 0 else 1.0)).clip(0, TOP)


def encode_columns(
    frame: Any, specs: Sequence[Mapping[str, Any]]
) -> tuple[np.ndarray, list[str], np.ndarray]:
    """Features with NaN where a value is missing, their names, and what would fill each gap."""
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
        values = list(spec["values"])
        block = np.zeros((len(column), len(values)))
        at = {value: j for j, value in enumerate(values)}
        for i, (value, gap) in enumerate(zip(column, column.isna())):
            text = str(value).strip()
            if gap or text.lower() in NOTHING:
                block[i] = np.nan
            elif text in at:
                block[i, at[text]] = 1
        return block, [f"{name} = {value}" for value in values]
    if kind == "yes/no":
        words = [None if gap else str(v).strip().lower() for v, gap in zip(column, column.isna())]
        yes, no = YES | {"1.0"}, NO | {"0.0"}
        numbers = [1.0 if w in yes else 0.0 if w in no else np.nan for w in words]
        return np.array(numbers)[:, None], [f"{name} = yes"]
    if kind == "date":
        return _range(to_days(column, spec["format"]), spec)[:, None], [name]
    if _is_text(column):
        numbers_ = to_numbers(column, spec.get("sign", "."))
        if np.isnan(numbers_).all():
            raise ValueError(f"the model knows numbers in {name}, here is text.")
    else:
        numbers_ = np.asarray(column, dtype=np.float64)
    return (_range(numbers_, spec) if "low" in spec else numbers_)[:, None], [name]
