"""Conversion of Python values to and from the JSON and the arrays of a model file."""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp

from partwise.backends import back_end
from partwise.backends.arrays import to_numpy
from partwise.backends.compressed import csr_of
from partwise.evaluation.groups import GroupProbabilities, Groups
from partwise.evaluation.kmeans import Clustering
from partwise.knowledge.labels import Labels

Class = TypeVar("Class", bound=type)
#: Data classes whose objects a model file may contain. Other packages add their classes with
#: `may_be_saved`. NOT_KEPT lists fields that are not saved because only `fit` uses them.
CLASSES: dict[str, Any] = {
    cls.__name__: cls for cls in (Clustering, Groups, GroupProbabilities, Labels)
}
NOT_KEPT = {"Groups": {"weights", "links"}}
#: Kinds of numpy dtypes that contain no Python objects.
ARRAY_KINDS = "biufcUSmM"
SCALARS = (type(None), str, int, float, bytes, np.generic, dt.date, dt.time, dt.timedelta)
DATES = {cls.__name__: cls for cls in (dt.datetime, dt.date, dt.time)}


def may_be_saved(cls: Class) -> Class:
    """Allow objects of a data class in model files; usable as a decorator.

    Whoever reads a file must check the arrays of such an object.
    """
    CLASSES[cls.__name__] = cls
    return cls


class PersistError(ValueError):
    """Error for a model that cannot be saved, or a file that is not a valid model.

    Its message is one line.
    """


class Encoder:
    """Converter of Python values to JSON for a model file.

    The JSON refers to arrays by their position in the list `arrays`.
    """

    def __init__(self) -> None:
        self.arrays: list[np.ndarray] = []
        # position of each array by its id, so that it is written once
        self._numbers: dict[int, int] = {}

    def encode(self, value: Any, where: str) -> Any:
        """Return the JSON of a value; ``where`` describes the value in error messages."""
        if isinstance(value, np.generic) and value.dtype.kind not in "mM":
            value = value.item()
        if isinstance(value, SCALARS) and type(value).__name__ != "NaTType":
            return _scalar(value, where)
        name = type(value).__name__
        if name in CLASSES:
            names = sorted({field.name for field in fields(value)} - NOT_KEPT.get(name, set()))
            parts = {k: self.encode(getattr(value, k), f"{where}.{k}") for k in names}
            return {"object": [name, parts]}
        if back_end(value) is not None:
            value = to_numpy(value)  # the reading machine may lack this array package
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if sp.issparse(value):
            csr = sp.csr_array(value)
            places = [
                p.astype(np.min_scalar_type(p.max(initial=0))) for p in (csr.indices, csr.indptr)
            ]
            arrays = [self._array(part, where) for part in (csr.data, *places)]
            return {"sparse": [*arrays, list(csr.shape)]}
        return self._nested(value, where)

    def _nested(self, value: Any, where: str) -> Any:
        """Return the JSON of a list, tuple or dictionary."""
        if isinstance(value, (tuple, list)):
            items = [self.encode(item, where) for item in value]
            return items if isinstance(value, list) else {"tuple": items}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {"dict": {k: self.encode(v, f"{where}[{k!r}]") for k, v in value.items()}}
        raise PersistError(
            f"{where} contains a {type(value).__name__}, which cannot be saved: model files "
            "contain numbers, text, dates and arrays. If it is a label, convert it with str."
        )

    def _array(self, value: np.ndarray, where: str) -> Any:
        """Return the JSON that refers to an array, and add the array to the list."""
        if value.dtype.kind == "O":
            items = [self.encode(item, where) for item in value.ravel().tolist()]
            return {"objects": [items, list(value.shape)]}
        if value.dtype.kind not in ARRAY_KINDS:
            raise PersistError(f"{where} is an array of {value.dtype}, which cannot be saved.")
        if id(value) not in self._numbers:
            self._numbers[id(value)] = len(self.arrays)
            self.arrays.append(np.asarray(value))
        return {"array": self._numbers[id(value)]}


def _scalar(value: Any, where: str) -> Any:
    """Return the JSON of a number, text or date; a pandas date becomes a Python date."""
    if isinstance(value, np.generic):
        return {"time": [value.dtype.str, str(value.astype(np.int64))]}
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": repr(float(value))}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
        raise PersistError(
            f"{where} contains {value} with nanoseconds, which cannot be saved; use an array of "
            "datetime64 or timedelta64."
        )
    if isinstance(value, dt.timedelta):
        return {"date": ["timedelta", [value.days, value.seconds, value.microseconds]]}
    # A datetime is also a date, so DATES lists datetime first.
    kind = next(name for name, cls in DATES.items() if isinstance(value, cls))
    return {"date": [kind, value.isoformat()]}


class Decoder:
    """Converter of a model file's JSON to Python values, which checks the content."""

    def __init__(self, arrays: list[np.ndarray]) -> None:
        self.arrays = arrays

    def decode(self, value: Any) -> Any:
        """Return the Python value of a piece of JSON."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        ((kind, content),) = value.items()
        return getattr(self, f"read_{kind}")(content)  # calls one of the methods below

    def read_array(self, number: Any) -> np.ndarray:
        if not (isinstance(number, int) and 0 <= number < len(self.arrays)):
            raise PersistError(f"it refers to array {str(number)[:40]}, which does not exist.")
        return self.arrays[number]

    def read_sparse(self, content: Any) -> sp.csr_array:
        data, indices, indptr, shape = content
        return csr_of(self.decode(data), self.decode(indices), self.decode(indptr), shape)

    def read_objects(self, content: Any) -> np.ndarray:
        items, shape = content
        array = np.empty(len(items), dtype=object)
        array[:] = [self.decode(item) for item in items]
        return array.reshape(shape)

    def read_tuple(self, content: Any) -> tuple[Any, ...]:
        return tuple(self.decode(item) for item in content)

    def read_dict(self, content: Any) -> dict[str, Any]:
        return {key: self.decode(item) for key, item in content.items()}

    def read_float(self, content: Any) -> float:
        return {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}[content]

    def read_bytes(self, content: Any) -> bytes:
        return bytes.fromhex(content)

    def read_time(self, content: Any) -> Any:
        dtype = np.dtype(content[0])
        if dtype.kind not in "mM":
            raise PersistError("it holds a malformed time.")
        return np.array(int(content[1]), dtype=np.int64).view(dtype)[()]

    def read_date(self, content: Any) -> Any:
        kind, value = content
        return dt.timedelta(*value) if kind == "timedelta" else DATES[kind].fromisoformat(value)

    def read_object(self, content: Any) -> Any:
        name, parts = content
        value = CLASSES[name](**{key: self.decode(item) for key, item in parts.items()})
        if hasattr(value, "check"):
            value.check()
        return value
