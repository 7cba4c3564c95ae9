"""How to fit the same model again."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np

from partwise.io.samples import Samples


def recipe(model: Any, dataset: Samples) -> str:
    """Python that fits the same model again."""
    name = type(model).__name__
    changed = [(key, value) for key, value, is_new in parameters(model) if is_new]
    arrays = [(key, value) for key, value in changed if isinstance(value, _Array)]
    settings = [
        f"{key}={key}" if (key, value) in arrays else f"{key}={value!r}" for key, value in changed
    ]
    options = [f"{key}={value!r}" for key, value in dataset.options.items()]
    lines = [
        f"from partwise import {name}" + (", load" if arrays else ""),
        "from partwise.io import read_samples",
        "",
        f"samples = read_samples({', '.join([repr(dataset.source), *options])})",
        *(f"{key} = load('model.partwise').{key}  # {value}" for key, value in arrays),
        f"model = {name}({', '.join(settings)})",
    ]
    if dataset.y is None:
        lines += ["model.fit(samples.X)"]
    else:
        also = "" if dataset.also is None else ", also=[samples.also]"
        lines += [f"model.fit(samples.X, samples.y{also})  # y: None where a label is unknown"]
    lines += ["model.embedding_    # the codes, one row a sample"]
    if hasattr(model, "components_"):
        lines += ["model.components_   # the parts"]
    if hasattr(model, "labels_"):
        lines += ["model.labels_       # the clusters"]
    return "\n".join(lines)


class _Array(str):
    """An array that is too long to show."""

    __slots__ = ()
    __repr__ = str.__str__


def parameters(model: Any) -> list[tuple[str, Any, str]]:
    """Name, value, and "changed" where it is not the default."""
    defaults = inspect.signature(type(model).__init__).parameters
    rows = []
    for key, value in sorted(model.get_params(deep=False).items()):
        default = defaults[key].default if key in defaults else inspect.Parameter.empty
        same = value is default or repr(value) == repr(default)
        if isinstance(value, np.ndarray):
            value = _Array(f"array of shape {value.shape}")
        rows.append((key, value, "" if same else "changed"))
    return rows
