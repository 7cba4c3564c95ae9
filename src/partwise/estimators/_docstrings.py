"""Text that the docstrings of several estimators share, inserted by `documented`."""

from __future__ import annotations

import inspect
import tomllib
from pathlib import Path
from typing import TypeVar

Class = TypeVar("Class", bound=type)

PARTS = tomllib.loads(Path(__file__).with_name("docstrings.toml").read_text("utf-8"))
SAMPLES = "ndarray of shape (n_samples,)"
CODES = "ndarray of shape (n_samples, n_components)"
#: For each method of scikit-learn's interface: where its parameters are documented, and the type of
#: its result.
METHODS = {
    "fit_predict": ("`fit`", SAMPLES),
    "fit_transform": ("`fit`", CODES),
    "transform": ("`fit`", CODES),
    "inverse_transform": ("`transform`, which it inverts", "ndarray"),
    "predict": ("`transform`", SAMPLES),
    "predict_confidence": ("`transform`", SAMPLES),
    "predict_proba": ("`transform`", "ndarray of shape (n_samples, n_classes)"),
    "score": ("`transform`; y is ignored", "float"),
    "save": ("`open` for writing", "Path"),
}


def documented(cls: Class) -> Class:
    """Insert shared text into the docstrings of a class, in place of each ``{name}``.

    Methods of scikit-learn's interface without sections for parameters and results get these
    sections.
    """
    for one in (cls, *filter(inspect.isfunction, vars(cls).values())):
        text = inspect.cleandoc(one.__doc__ or "")
        for name, part in reversed(PARTS.items()):
            text = text.replace("{" + name + "}", part)
        one.__doc__ = text + "\n" if text else None
    for name, (place, result) in METHODS.items():
        method = vars(cls).get(name)
        if method is None or not method.__doc__ or "Returns\n" in method.__doc__:
            continue
        taken = list(inspect.signature(method).parameters.values())[1:]
        names = ", ".join("**" * (one.kind is one.VAR_KEYWORD) + one.name for one in taken)
        method.__doc__ = (
            f"{inspect.cleandoc(method.__doc__)}\n\nParameters\n----------\n{names}\n"
            f"    As in {place}.\n\nReturns\n-------\n{result}\n"
        )
    return cls
