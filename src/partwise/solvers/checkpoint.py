"""Checkpoints: files with the state of a fit, from which it can continue later."""

from __future__ import annotations

import hashlib
import json
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from partwise.backends import DataMatrix
from partwise.backends.arrays import AnyArray, to_numpy
from partwise.persistence.atomic import sweep, whole_file
from partwise.solvers.state import State

NAME = "checkpoint.npz"


class Identity(NamedTuple):
    """Properties of a fit that must be equal to continue from its checkpoint.

    Parameters
    ----------
    exact : dict of str to str
        Parameters, labels, graph and further settings by name, in the form that `describe` returns.
    close : dict of str to (array, float)
        Sums of X by name, and the relative difference that rounding errors may cause.
    """

    exact: dict[str, str]
    close: dict[str, tuple[AnyArray, float]]

    def differences(
        self, exact: Mapping[str, str], close: Mapping[str, AnyArray | None]
    ) -> list[str]:
        """Return the differences to another identity as texts for an error message."""
        found = []
        for name in sorted({*self.exact, *exact}):
            was, now = exact.get(name, "nothing"), self.exact.get(name, "nothing")
            if was != now:
                found.append(f"{name} was {was} and is {now}")
        for name, (now_sums, room) in self.close.items():
            was_sums = close.get(name)
            if was_sums is None or not _agree(was_sums, now_sums, room):
                found.append(f"the {name} of X differ")
        return found


def _agree(was: AnyArray, now: AnyArray, room: float) -> bool:
    if was.shape != now.shape:
        return False
    most = np.abs(was).max(initial=0.0)
    return bool(np.allclose(now, was, rtol=room, atol=1e-12 * most))


def identify(data: DataMatrix, named: Mapping[str, Any]) -> Identity:
    """Return an `Identity`, which differs between fits whose results would differ.

    It contains sums of ``data`` and a text for each of the ``named`` settings of the fit, such as
    parameters, labels and initial factors.
    """
    ones = data.constant_rows(np.ones(1, dtype=data.dtype))
    columns = to_numpy(data.tdot(ones)).ravel().astype(np.float64)
    # Sums of X depend on its chunks by rounding, and column sums have the precision of X.
    rounding = 4 * float(np.finfo(data.dtype).eps) * float(np.sqrt(data.shape[0]))
    close = {
        "row sums": (np.asarray(to_numpy(data.row_sums())), 1e-6),
        "row lengths": (np.asarray(to_numpy(data.row_sq_norms())), 1e-6),
        "column sums": (columns, max(1e-6, rounding)),
    }
    if data.lack is not None:
        one = data.small(np.ones((data.shape[1], 1), dtype=data.dtype))
        by_row, by_column = data.lack.dot(one), data.lack.tdot(ones)
        close["gaps by row"] = np.asarray(to_numpy(by_row)).ravel(), 1e-6
        close["gaps by column"] = np.asarray(to_numpy(by_column)).ravel(), 1e-6
    own = {"the shape of X": tuple(data.shape), "the dtype of X": np.dtype(data.given).name}
    return Identity({name: describe(v) for name, v in {**own, **named}.items()}, close)


def describe(value: Any) -> str:
    """Return a text that is equal for equal values, also in another process.

    Numbers and names are written as they are, arrays as a hash. A method ``identity()`` of an
    object returns the names and values that define it; otherwise its attributes define it.
    """
    if value is None or isinstance(value, (str, bool, int, float, complex, np.generic)):
        return repr(value.item() if isinstance(value, np.generic) else value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}: {describe(v)}" for name, v in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(describe, value)) + "]"
    if hasattr(value, "tocsr"):
        W = value.tocsr().copy()
        W.sum_duplicates()
        W.eliminate_zeros()
        return f"sparse {W.shape} {_hash(W.indptr.astype(int), W.indices.astype(int), W.data)}"
    value = to_numpy(value)
    if isinstance(value, np.ndarray):
        return f"array {value.shape} {_hash(value)}"
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return type(value).__name__  # without its state, which changes with every random number
    if callable(value) and hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    parts = value.identity() if hasattr(value, "identity") else getattr(value, "__dict__", {})
    return f"{type(value).__name__} {describe(dict(parts))}"


def _hash(*arrays: AnyArray) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        if array.dtype == object:
            digest.update(repr(array.tolist()).encode())
        else:
            digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:12]


class Checkpoint:
    """Folder in which the state of a fit is saved every ``every`` iterations.

    Parameters
    ----------
    folder : path
        Folder, created if it does not exist.
    data : DataMatrix
        Back end on which the factors are placed.
    identity : Identity
        Identity of the fit; a state of another fit is refused.
    """

    def __init__(
        self, folder: str | PathLike[str], data: DataMatrix, identity: Identity, every: int = 5
    ) -> None:
        self.path = Path(folder) / NAME
        self.data, self.identity, self.every = data, identity, every

    def load(self) -> State | None:
        """Return the last state with its arrays on the back end of X, or None."""
        sweep(self.path.parent)
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                saved = {name: file[name] for name in file.files}
            identity = json.loads(str(saved["identity"]))
            contents = {f.name: self._read(saved, f.name) for f in fields(State)}
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"checkpoint: {self.path} is not a checkpoint; delete it to start again."
            ) from error
        sums = {name: saved.get(f"identity {name}") for name in self.identity.close}
        differences = self.identity.differences(identity, sums)
        if differences:
            raise ValueError(
                f"checkpoint: {self.path} belongs to another fit: {'; '.join(differences)}. "
                "Delete it to begin again, pass another folder, or pass checkpoint=None to a "
                "search that fits several models."
            )
        return State(**self._placed(saved, contents))

    def _read(self, saved: dict[str, AnyArray], name: str) -> Any:
        """Read a stored field: a number, a list, or the names of two arrays."""
        if name in saved:
            return saved[name].tolist()
        return {side: str(saved[f"{name}.{side}"]) for side in "VU"}

    def _placed(self, saved: dict[str, AnyArray], contents: dict[str, Any]) -> dict[str, Any]:
        """Return the fields with their arrays; fields that shared an array share it again."""
        place = {"V": self.data.rows, "U": self.data.small}
        arrays: dict[str, AnyArray] = {}
        for name, point in contents.items():
            if isinstance(point, dict):
                for side, key in point.items():
                    if key not in arrays:
                        arrays[key] = place[side](saved[key])
                contents[name] = {side: arrays[key] for side, key in point.items()}
        return contents

    def save(self, state: State) -> None:
        """Write the state, each field under its name."""
        contents: dict[str, Any] = {"identity": json.dumps(self.identity.exact)}
        for name, (sums, _) in self.identity.close.items():
            contents[f"identity {name}"] = sums
        names: dict[int, str] = {}
        for f in fields(state):
            value = getattr(state, f.name)
            if not isinstance(value, dict):
                contents[f.name] = np.asarray(value)
                continue
            for side, array in value.items():
                if id(array) not in names:
                    names[id(array)] = f"array {len(names)}"
                    contents[names[id(array)]] = to_numpy(array)
                contents[f"{f.name}.{side}"] = names[id(array)]  # shared arrays stay shared
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(self.path) as file:
            np.savez(file, **contents)
