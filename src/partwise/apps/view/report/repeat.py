"""Python code that repeats a fit, and the parameters of its model."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from partwise.apps.view.describe import names_classes
from partwise.io import Samples, keep_share


def recipe(
    model: Any,
    dataset: Samples,
    labels: Sequence[str | None] | None = None,
    *,
    label_share: float | None = None,
    links: Mapping[str, Any] | None = None,
) -> str:
    """Return Python code that fits the same model to the same data and labels."""
    name = type(model).__name__
    changed = {key: value for key, value, is_new in parameters(model) if is_new}
    arrays = {key: value for key, value in changed.items() if isinstance(value, _Array)}
    settings = [f"{k}={k if k in arrays else repr(v)}" for k, v in changed.items()]
    options = [f"{key}={value!r}" for key, value in dataset.options.items()]
    imports, y = _label_lines(model, dataset, labels, label_share)
    pairs = {key: value for key, value in (links or {}).items() if len(value)}
    arguments = ["samples.X", *["y"] * bool(y), *(f"{key}={key}" for key in pairs)]
    arguments += ["also=[samples.also]"] * (dataset.also is not None)
    lines = [
        f"from partwise import {name}" + (", load" if arrays else ""),
        f"from partwise.io import {', '.join(sorted(['read_samples', *imports]))}",
        "",
        f"samples = read_samples({', '.join([repr(dataset.source), *options])})",
        *y,
        *(f"{key} = {np.asarray(value, dtype=int).tolist()!r}" for key, value in pairs.items()),
        *(f"{key} = load('model.partwise').{key}  # {value}" for key, value in arrays.items()),
        f"model = {name}({', '.join(settings)})",
        f"model.fit({', '.join(arguments)})",
        *_results(model),
    ]
    return "\n".join(lines)


def _results(model: Any) -> list[str]:
    """Return a line of Python for each result attribute of the model."""
    results = {
        "embedding_": "part weights, one row per sample",
        "components_": "parts, one row per part",
        "labels_": "predicted labels" if names_classes(model) else "clusters",
    }
    return [f"model.{key:<13} # {text}" for key, text in results.items() if hasattr(model, key)]


def _label_lines(
    model: Any, dataset: Samples, labels: Sequence[str | None] | None, label_share: float | None
) -> tuple[list[str], list[str]]:
    """Return imports and lines of Python that define the labels y of the fit."""
    if labels is None:
        return [], []
    given = list(labels)
    known = np.full(len(given), None, dtype=object) if dataset.y is None else dataset.y
    if given == known.tolist():
        return [], ["y = samples.y  # None where unknown"]
    seed = getattr(model, "random_state", 0)
    if label_share is not None:
        kept = keep_share(known, label_share, random_state=seed)
        if given == kept.tolist():
            line = f"y = keep_share(samples.y, {label_share!r}, random_state={seed!r})"
            return ["keep_share"], [f"{line}  # None where unknown"]
    pairs = {i: label for i, label in zip(dataset.ids, given) if label is not None}
    return [], [f"known = {pairs!r}", "y = [known.get(name) for name in samples.ids]"]


class _Array(str):
    """Text that stands for an array that is too long to show."""

    __slots__ = ()
    __repr__ = str.__str__


def parameters(model: Any) -> list[tuple[str, Any, str]]:
    """Return name and value of all parameters, and "changed" or "" for each."""
    defaults = inspect.signature(type(model).__init__).parameters
    rows = []
    for key, value in sorted(model.get_params(deep=False).items()):
        default = defaults[key].default if key in defaults else inspect.Parameter.empty
        same = value is default or repr(value) == repr(default)
        if isinstance(value, np.ndarray):
            value = _Array(f"array of shape {value.shape}")
        rows.append((key, value, "" if same else "changed"))
    return rows
