"""The state of the loop in a folder, so that an interrupted fit goes on to the same answer."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from partwise.engine.arrays import to_numpy
from partwise.io.files import sweep, whole_file

NAME = "checkpoint.npz"


class Checkpoint:
    """Saves whole states every ``every`` iterations; a file appears whole or not at all.

    Parameters
    ----------
    folder : path
        Made if it is not there.
    model : FactorModel
    identity : str
        What must not change between the fits: the estimator, its parameters and the data.
    """

    def __init__(self, folder: Any, model: Any, identity: str, every: int = 5) -> None:
        self.path = Path(folder) / NAME
        self.model, self.every = model, every
        self.identity = hashlib.sha256(identity.encode()).hexdigest()

    def load(self) -> dict[str, Any] | None:
        """The last state with its arrays where X is; None where there is none."""
        sweep(self.path.parent)
        if not self.path.exists():
            return None
        try:
            with np.load(self.path, allow_pickle=False) as file:
                saved = {name: file[name] for name in file.files}
            identity = str(saved.pop("identity"))
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"checkpoint: {self.path} is no checkpoint; delete it to begin again."
            ) from error
        if identity != self.identity:
            raise ValueError(
                f"checkpoint: {self.path} belongs to another fit (other data or parameters); "
                "delete it, or give another folder."
            )
        point: dict[str, dict[str, Any]] = {}
        arrays: dict[str, Any] = {}
        for name in ("x", "y", "old"):
            point[name] = {}
            for side, place in (("V", self.model.R.rows), ("U", self.model.R.small)):
                key = str(saved[f"{name}{side}"])
                if key not in arrays:
                    arrays[key] = place(saved[key])
                point[name][side] = arrays[key]
        numbers = saved["numbers"]
        return {
            **point,
            "f": float(numbers[0]),
            "momentum": (float(numbers[1]), float(numbers[2])),
            "safe": bool(numbers[3]),
            "failures": int(numbers[4]),
            "history": saved["history"].tolist(),
            "n": int(numbers[5]),
        }

    def save(
        self, n: int, points: dict[str, Any], numbers: list[float], history: list[float]
    ) -> None:
        """Write the state after iteration n."""
        contents: dict[str, Any] = {"identity": self.identity, "history": np.asarray(history)}
        contents["numbers"] = np.asarray([*numbers, n], dtype=np.float64)
        names: dict[int, str] = {}
        for name, point in points.items():
            for side, array in point.items():
                if id(array) not in names:
                    names[id(array)] = f"a{len(names)}"
                    contents[names[id(array)]] = to_numpy(array)
                contents[f"{name}{side}"] = names[id(array)]  # shared arrays stay shared
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(self.path) as file:
            np.savez(file, **contents)
