"""Values as JSON and arrays, for `models`: what a fitted model holds, and nothing that runs."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import numpy as np
import scipy.sparse as sp

from partwise.backends import back_end
from partwise.backends.arrays import to_numpy
from partwise.evaluation.groups import GroupProbabilities, Groups
from partwise.evaluation.kmeans import Clustering
from partwise.knowledge.labels import Labels
from partwise.persistence.compressed import csr_of


class PersistError(ValueError):
    """A model that cannot be saved, or a file that is no model; the message is one line."""


class Encoder:
    """Turns values into JSON; arrays are set aside under member names."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def encode(self, value: Any, where: str) -> Any:
        """JSON for a value; `where` names it in the error if there is none."""
        if value is None or isinstance(value, (bool, str)):
            return str(value) if isinstance(value, str) else value
        if isinstance(value, bytes):
            return {"bytes": value.hex()}
        if isinstance(value, (np.datetime64, np.timedelta64)):
            return {"time": [value.dtype.str, str(value.astype(np.int64))]}
        if isinstance(value, (dt.date, dt.time, dt.timedelta)) and value == value:
            return {"date": self._date(value, where)}
        if isinstance(value, np.generic):
            return self.encode(value.item(), where)
        if isinstance(value, int):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, Clustering):
            parts = {k: v for k, v in vars(value).items() if v is not None and v is not False}
            return {"clustering": {k: self.encode(v, f"{where}.{k}") for k, v in parts.items()}}
        if isinstance(value, Groups):
            return {"groups": {k: self.encode(v, f"{where}.{k}") for k, v in _parts(value).items()}}
        if back_end(value) is not None:
            value = to_numpy(value)  # a model file is read where its package may not be
        if isinstance(value, np.ndarray):
            return self._array(value, where)
        if sp.issparse(value):
            return self._sparse(value, where)
        if isinstance(value, (tuple, list)):
            items = [self.encode(item, where) for item in value]
            return items if isinstance(value, list) else {"tuple": items}
        if isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {"dict": {k: self.encode(v, f"{where}[{k!r}]") for k, v in value.items()}}
        raise PersistError(
            f"{where} holds a {type(value).__name__}, which a model file cannot hold: it holds "
            "numbers, text, dates and arrays; if it is a label, use its str."
        )

    def _array(self, value: np.ndarray, where: str) -> Any:
        if value.dtype.kind == "O":
            items = [self.encode(item, where) for item in value.ravel().tolist()]
            return {"objects": {"items": items, "shape": list(value.shape)}}
        if value.dtype.kind not in "biufcUSmM":
            raise PersistError(f"{where} is an array of {value.dtype}, which cannot be saved.")
        name = f"a{len(self.arrays):04d}.npy"
        self.arrays[name] = np.asarray(value)
        return {"array": name}

    def _date(self, value: Any, where: str) -> list[Any]:
        """Dates of Python; those of pandas, which may be absent later, as their equals."""
        if getattr(value, "nanosecond", 0) or getattr(value, "nanoseconds", 0):
            raise PersistError(
                f"{where} holds {value} with nanoseconds, which cannot be saved; use an array of "
                "datetime64 or timedelta64."
            )
        if isinstance(value, dt.timedelta):
            return ["timedelta", [value.days, value.seconds, value.microseconds]]
        kinds = {"datetime": dt.datetime, "date": dt.date, "time": dt.time}  # a datetime is a date
        kind = next(name for name, cls in kinds.items() if isinstance(value, cls))
        return [kind, value.isoformat()]

    def _sparse(self, value: Any, where: str) -> Any:
        csr = sp.csr_array(value)
        parts = {key: self._array(getattr(csr, key), where) for key in ("data", "indices")}
        parts["indptr"] = self._array(csr.indptr, where)
        return {"sparse": {**parts, "shape": list(csr.shape)}}


def _parts(groups: Groups) -> dict[str, Any]:
    labels, head = groups.labels, groups.head
    return {
        "n_clusters": groups.n_clusters,
        "seed": groups.seed,
        "classes": None if labels is None else labels.classes,
        "codes": None if labels is None else labels.codes,
        "shares": None if labels is None else labels.shares,
        "labelled": groups.labelled,
        "owners": groups.owners,
        "found": groups.found,
        "weights": None if head is None else head.weights,
        "intercept": None if head is None else head.intercept,
        "unit": groups.unit,
        "given": groups.given,
    }


class Decoder:
    """The way back; anything unexpected is a `PersistError`."""

    def __init__(self, arrays: dict[str, np.ndarray]) -> None:
        self.arrays = arrays

    def decode(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, list):
            return [self.decode(item) for item in value]
        if not isinstance(value, dict) or len(value) != 1:
            raise PersistError("model.json holds a value of an unknown kind.")
        ((kind, content),) = value.items()
        reader = getattr(self, f"read_{kind}", None)  # of these methods, and nothing else
        if reader is None:
            raise PersistError(f"model.json holds a value of the unknown kind {str(kind)[:40]!r}.")
        return reader(content)

    def read_array(self, name: Any) -> np.ndarray:
        if name not in self.arrays:
            raise PersistError(f"model.json refers to {str(name)[:40]!r}, which is not there.")
        return self.arrays[name]

    def read_sparse(self, content: Any) -> sp.csr_array:
        data, indices, indptr = (self.decode(content[key]) for key in ("data", "indices", "indptr"))
        return csr_of(data, indices, indptr, content["shape"])

    def read_objects(self, content: Any) -> np.ndarray:
        items = [self.decode(item) for item in content["items"]]
        array = np.empty(len(items), dtype=object)
        array[:] = items
        return array.reshape(content["shape"])

    def read_tuple(self, content: Any) -> tuple[Any, ...]:
        return tuple(self.decode(item) for item in content)

    def read_dict(self, content: Any) -> dict[str, Any]:
        return {key: self.decode(item) for key, item in content.items()}

    def read_float(self, content: Any) -> float:
        if content not in ("nan", "inf", "-inf"):
            raise PersistError("model.json holds a malformed number.")
        return float(content)

    def read_bytes(self, content: Any) -> bytes:
        return bytes.fromhex(content)

    def read_time(self, content: Any) -> Any:
        dtype = np.dtype(content[0])
        if dtype.kind not in "mM":
            raise PersistError("model.json holds a malformed time.")
        return np.array(int(content[1]), dtype=np.int64).view(dtype)[()]

    def read_date(self, content: Any) -> Any:
        kind, text = content
        if kind == "timedelta":
            return dt.timedelta(*map(int, text))
        if kind not in ("datetime", "date", "time"):
            raise PersistError("model.json holds a malformed date.")
        return getattr(dt, kind).fromisoformat(text)

    def read_clustering(self, content: Any) -> Clustering:
        parts = {key: self.decode(content[key]) for key in ("centers", "names", "labels")}
        centers, names, labels = parts["centers"], parts["names"], parts["labels"]
        arrays = all(isinstance(part, np.ndarray) for part in parts.values())
        if not arrays or centers.ndim != 2 or centers.dtype.kind != "f" or labels.ndim != 1:
            raise PersistError("the clusters are malformed.")
        if names.shape != centers.shape[:1] or not np.isfinite(centers).all():
            raise PersistError("the clusters are malformed.")
        lengths = self.decode(content["lengths"]) if "lengths" in content else None
        if lengths is not None and np.shape(lengths) != centers.shape[1:]:
            raise PersistError("the clusters are malformed.")
        return Clustering(**parts, unit=bool(content.get("unit", False)), lengths=lengths)

    def read_groups(self, content: Any) -> Groups:
        content = {"shares": None, "given": None, **content}  # which files of before have not
        parts = {key: self.decode(content[key]) for key in _parts(Groups(1, 0))}
        W, b = parts.pop("weights"), parts.pop("intercept")
        classes, codes, shares = (parts.pop(key) for key in ("classes", "codes", "shares"))
        groups = Groups(**parts | {"unit": parts["unit"] is True})
        if classes is not None:
            groups.labels = Labels(classes, codes, shares)
        if W is not None:
            groups.head = GroupProbabilities(W, b)
        if not _sound(groups):
            raise PersistError("the labels or the decisions are malformed.")
        return groups


def _sound(groups: Any) -> bool:
    """Whether what a file says of labels and decisions can be true."""
    labels, head, found = groups.labels, groups.head, groups.found
    if not (isinstance(groups.n_clusters, int) and isinstance(groups.seed, int)):
        return False
    if groups.n_clusters < 1 or not isinstance(found, (Clustering, type(None))):
        return False
    given, owners, own = groups.labelled, groups.owners, groups.given
    if labels is None:
        return all(part is None for part in (head, given, owners, own))
    classes, codes, shares = labels.classes, labels.codes, labels.shares
    if not (isinstance(classes, np.ndarray) and classes.ndim == 1 and _array_of("i", codes, 1)):
        return False
    c = len(classes)
    if codes.dtype != np.int64 or codes.size == 0 or not -1 <= codes.min() <= codes.max() < c:
        return False
    if shares is not None and not (
        _array_of("f", shares, 2) and shares.shape == (codes.size, c) and shares.min() >= 0
    ):
        return False
    if own is not None and not (_array_of("b", own, 1) and own.shape == codes.shape):
        return False
    if given is not None and not (_array_of("f", given, 2) and len(given) == labels.n_labelled):
        return False
    if owners is not None and not (
        _array_of("i", owners, 1) and -1 <= owners.min(initial=-1) <= owners.max(initial=-1) < c
    ):
        return False
    return head is None or (
        _array_of("f", head.weights, 2)
        and _array_of("f", head.intercept, 1)
        and head.weights.shape[1] == head.intercept.size == c > 1
    )


def _array_of(kind: str, a: Any, ndim: int) -> bool:
    """Whether it is an array of such numbers, all finite."""
    right = isinstance(a, np.ndarray) and a.ndim == ndim and a.dtype.kind == kind
    return right and bool(np.isfinite(a).all())
