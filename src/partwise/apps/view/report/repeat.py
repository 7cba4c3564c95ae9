"""Python lines that repeat a fit, and the parameters of its model."""

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
    """Return Python lines that fit the same model to the same labels."""
    name = type(model).__name__
    changed = [(key, value) for key, value, is_new in parameters(model) if is_new]
    arrays = [(key, value) for key, value in changed if isinstance(value, _Array)]
    settings = [f"{k}={k if isinstance(v, _Array) else repr(v)}" for k, v in changed]
    options = [f"{key}={value!r}" for key, value in dataset.options.items()]
    imports, y = _label_lines(model, dataset, labels, label_share)
    arguments = ["samples.X", *(["y"] if y else [])]
    if dataset.also is not None:
        arguments.append("also=[samples.also]")
    pairs = {key: value for key, value in (links or {}).items() if len(value)}
    arguments += [f"{key}={key}" for key in pairs]
    lines = [
        f"from partwise import {name}" + (", load" if arrays else ""),
        f"from partwise.io import {', '.join(sorted(['read_samples', *imports]))}",
        "",
        f"samples = read_samples({', '.join([repr(dataset.source), *options])})",
        *y,
        *(f"{key} = {[tuple(map(int, pair)) for pair in value]!r}" for key, value in pairs.items()),
        *(f"{key} = load('model.partwise').{key}  # {value}" for key, value in arrays),
        f"model = {name}({', '.join(settings)})",
        f"model.fit({', '.join(arguments)})",
        "model.embedding_    # part weights, one row per sample",
    ]
    results = {
        "components_": "parts, one row per part",
        "labels_": "predicted labels" if names_classes(model) else "clusters",
    }
    lines += [
        f"model.{name:<13} # {what}" for name, what in results.items() if hasattr(model, name)
    ]
    return "\n".join(lines)


def _label_lines(
    model: Any,
    dataset: Samples,
    labels: Sequence[str | None] | None,
    label_share: float | None,
) -> tuple[list[str], list[str]]:
    """Return further imports, and the lines that define y as the model received it."""
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
    """Placeholder for an array that is too long to show."""

    __slots__ = ()
    __repr__ = str.__str__


def parameters(model: Any) -> list[tuple[str, Any, str]]:
    """Return name, value, and "changed" for each parameter that differs from its default."""
    defaults = inspect.signature(type(model).__init__).parameters
    rows = []
    for key, value in sorted(model.get_params(deep=False).items()):
        default = defaults[key].default if key in defaults else inspect.Parameter.empty
        same = value is default or repr(value) == repr(default)
        if isinstance(value, np.ndarray):
            value = _Array(f"array of shape {value.shape}")
        rows.append((key, value, "" if same else "changed"))
    return rows
