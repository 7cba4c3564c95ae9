"""Functions that save and load estimators, and find estimator classes by name.

The file format is in `partwise.persistence.model_files`.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from partwise.estimators.methods import ESTIMATORS
from partwise.persistence import model_files

__all__ = ["estimator_class", "load", "read", "register", "save"]

Class = TypeVar("Class")
#: Classes of other packages that `register` added, by name.
_REGISTERED: dict[str, type] = {}


def register(model: Class) -> Class:
    """Allow model files to contain an estimator of your own; also a decorator.

    A file contains no code, only the name of a class. `load` searches the estimators of this
    package and those that were registered in the same process, so import your module before you
    load.

    Parameters
    ----------
    model : type
        A subclass of an estimator of this package, or of one of their base classes. Its
        constructor needs no argument, and its fitted attributes are those of its base class.

    Returns
    -------
    type
        The class itself.

    Examples
    --------
    >>> import partwise
    >>> @partwise.register
    ... class SmoothNMF(partwise.NSNMF):
    ...     pass
    >>> SmoothNMF().save  # doctest: +ELLIPSIS
    <bound method ...>
    """
    from partwise.estimators._base import Factorizer

    if not (isinstance(model, type) and issubclass(model, Factorizer)):
        raise TypeError(f"register needs a subclass of an estimator of partwise, got {model!r}.")
    if model.__name__ in ESTIMATORS:
        raise ValueError(
            f"partwise has an estimator called {model.__name__}; give your class another name."
        )
    _REGISTERED[model.__name__] = model
    return model


def estimator_class(name: Any) -> Any:
    """Return the estimator class of this name, or None.

    Classes of Partwise and registered classes are searched.
    """
    if not isinstance(name, str) or name not in ESTIMATORS:
        return _REGISTERED.get(name) if isinstance(name, str) else None
    return getattr(importlib.import_module(ESTIMATORS[name]), name)


def save(model: Any, path: str | Path, *, recipe: Mapping[str, Any] | None = None) -> Path:
    """Write an estimator to a file; see `partwise.persistence.model_files.save`."""
    return model_files.save(model, path, estimator_class, recipe=recipe)


def read(path: str | Path) -> tuple[Any, dict[str, Any] | None]:
    """Return the estimator of a model file, and the saved preparation recipe or None."""
    return model_files.read(path, estimator_class)


def load(path: str | Path) -> Any:
    """Read a model that `save` wrote.

    Parameters
    ----------
    path : str or Path

    Returns
    -------
    estimator
        The model as it was saved: ``transform`` and ``predict`` give the same numbers.

    Raises
    ------
    PersistError
        If the file is damaged, contains no model, or comes from a newer version of Partwise.

    Examples
    --------
    >>> import os, tempfile, numpy as np, partwise
    >>> X = np.random.default_rng(0).random((20, 6))
    >>> model = partwise.NMF(2, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = model.save(os.path.join(folder, "m.partwise"))
    ...     again = partwise.load(path)
    >>> bool((again.transform(X) == model.transform(X)).all())
    True
    """
    return read(path)[0]
