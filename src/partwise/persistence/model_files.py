"""Model files without pickle: reading a file runs none of its content.

A file names an estimator of this package, its parameters and its arrays. `read` checks the sizes
and the checksum before it builds anything. Format 1 is::

    partwise-model 1 0.3.0        the format and the version of Partwise that wrote the file
    <64 hexadecimal digits>       the SHA-256 checksum of everything after this line
    <decimal number>              the length of the next part in bytes
    <JSON>                        class, parameters, attributes, recipe and a table of arrays
    <bytes>                       the arrays one after the other, as the table describes them

JSON has no arrays, tuples, NaN or dates; such a value is an object with one key, as in `values`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from partwise._versions import __version__
from partwise.backends.arrays import forget
from partwise.persistence.atomic import check_target, whole_file
from partwise.persistence.values import ARRAY_KINDS, Decoder, Encoder, PersistError

__all__ = ["PersistError", "read", "save"]

#: Function that returns the estimator class of a name, or None if there is no such class.
Known = Callable[[Any], Any]

FORMAT, VERSION = b"partwise-model", 1
#: Number of bytes that are written at a time, and the longest header line that is read.
PIECE, LINE = 1 << 24, 100
#: Private attributes that a model file may contain. Public attributes that end in "_" are always
#: allowed.
PRIVATE = frozenset(
    ["_X_fit", "_basis_gram", "_fit_arguments", "_groups", "_neighborhood", "_n_components"]
    + ["_signed", "_sklearn_output_config", "_state"]
)
#: NOT_KEPT: parameters that are not saved, because they refer to a folder of one machine. SKIPPED:
#: attributes that only have a meaning in the running process.
NOT_KEPT = frozenset(["checkpoint"])
SKIPPED = frozenset(["_skl_callbacks", "_callback_fit_ctx", "_parent_callback_ctx", "_cache"])


def save(
    model: Any, path: str | Path, known: Known, *, recipe: Mapping[str, Any] | None = None
) -> Path:
    """Write a model to a file, which appears complete or not at all.

    Parameters
    ----------
    model : estimator of partwise
        A fitted or unfitted estimator. A ``random_state`` that is a generator is saved as None. A
        ``checkpoint`` and callbacks are not saved. Tensors and Dask arrays come back as ndarrays.
    path : str or Path
        The file, usually ``*.partwise``; an existing file is replaced.
    known : callable
        Function from class name to class, as in `read`. A model of an unknown class is not written.
    recipe : mapping, optional
        Further data to keep, for example how the command prepared the samples.

    Returns
    -------
    Path

    Raises
    ------
    PersistError
        If the model has a value that cannot be saved, such as a callable kernel.
    """
    path = check_target(path, force=True)
    name = type(model).__name__
    if type(model) is not known(name):
        raise PersistError(
            f"{name} is not an estimator of partwise, so it cannot be saved or loaded; call "
            "partwise.register(cls) for your own class before you save or load it."
        )
    encoder, parameters = Encoder(), model.get_params(deep=False)
    if "_groups" in vars(model):  # compute clusters now, as k-means may differ on another machine
        model._groups.settle(model.embedding_)
    kept = {k: _parameter(name, k, v) for k, v in parameters.items() if k not in NOT_KEPT}
    fitted = {k: v for k, v in vars(model).items() if k not in parameters and k not in SKIPPED}
    for key in fitted:
        _check_attribute(type(model), key)
    content = {
        "class": name,
        "parameters": {k: encoder.encode(v, f"{name}.{k}") for k, v in kept.items()},
        "attributes": {k: encoder.encode(v, f"{name}.{k}") for k, v in fitted.items()},
        "recipe": encoder.encode(None if recipe is None else dict(recipe), "recipe"),
        "arrays": [[a.dtype.str, list(a.shape), _order(a)] for a in encoder.arrays],
    }
    with whole_file(path) as file:
        _write(file, content, encoder.arrays)
    return path


def read(path: str | Path, known: Known) -> tuple[Any, dict[str, Any] | None]:
    """Return the model in a file, and its preparation recipe or None.

    ``known(name)`` returns the class of an estimator that a file may contain, or None.
    """
    path = Path(path)
    with path.open("rb") as file:  # a missing file raises Python's own error
        try:
            content, arrays = _read(file, path.stat().st_size)
            decoder = Decoder(arrays)
            return _build(content, decoder, known), decoder.decode(content["recipe"])
        except PersistError as error:
            raise PersistError(f"{path}: {error}") from None
        except Warning:  # raised if the user's warning filter turns warnings into errors
            raise
        except Exception as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise PersistError(
                f"{path} is damaged, or not a model of partwise ({reason})."
            ) from error


def _order(array: np.ndarray) -> str:
    """Return the memory order of an array, "F" or "C"."""
    return "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"


def _write(file: BinaryIO, content: dict[str, Any], arrays: list[np.ndarray]) -> None:
    """Write the JSON and the arrays to a file, with their checksum."""
    text = json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8")
    file.write(b"%s %d %s\n" % (FORMAT, VERSION, __version__.encode()))
    place, digest = file.tell(), hashlib.sha256()
    file.write(bytes(64) + b"\n")

    def add(data: bytes) -> None:
        digest.update(data)
        file.write(data)

    add(b"%d\n%s" % (len(text), text))
    for array in arrays:
        rows = np.atleast_1d(array.T if _order(array) == "F" else array)
        for piece in np.array_split(rows, 1 + array.nbytes // PIECE):
            add(piece.tobytes())
            forget(array.base)  # release the memory of pages that were read from the file
    file.seek(place)
    file.write(digest.hexdigest().encode())


def _read(file: BinaryIO, size: int) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Return the JSON and the arrays of a file, after checking sizes and checksum."""
    name, *versions = file.readline(LINE).split()
    if name != FORMAT or len(versions) != 2:
        raise PersistError("no partwise model.")
    if int(versions[0]) > VERSION:
        raise PersistError(
            f"it was written by a newer version of partwise ({versions[1][:20].decode()}, format "
            f"{int(versions[0])}); {__version__} reads formats up to {VERSION}: upgrade partwise."
        )
    expected, line = file.readline(LINE).strip().decode(), file.readline(LINE)
    if not 0 <= int(line) <= size:
        raise PersistError("it is shorter than its header states.")
    text = file.read(int(line))
    digest = hashlib.sha256(line + text)
    content = json.loads(text.decode("utf-8"))
    arrays = []
    for dtype, shape, order in _checked_table(content["arrays"], size - file.tell()):
        array = np.empty(shape[::-1] if order == "F" else shape, dtype)
        if array.nbytes:
            data: Any = array.reshape(-1).view(np.uint8)
            if file.readinto(data) != len(data):  # type: ignore[attr-defined]
                raise PersistError("cut short.")
            digest.update(data)
        arrays.append(array.T if order == "F" else array)
    if digest.hexdigest() != expected:
        raise PersistError("its checksum is wrong.")
    return content, arrays


def _checked_table(rows: Any, size: int) -> list[tuple[Any, Any, str]]:
    """Return dtype, shape and order of each array; require ``size`` bytes in total."""
    table = [(np.dtype(kind), shape, order) for kind, shape, order in rows]
    for dtype, shape, order in table:
        right = dtype.kind in ARRAY_KINDS and order in ("C", "F")
        if not right or not all(type(n) is int and n >= 0 for n in shape):
            raise PersistError(f"it contains an array of type {dtype} and shape {shape}.")
    if sum(dtype.itemsize * math.prod(shape) for dtype, shape, _ in table) != size:
        raise PersistError("its arrays need more or fewer bytes than the file has.")
    return table


def _parameter(name: str, key: str, value: Any) -> Any:
    """Return a parameter's value as it is saved; raise an error for a function."""
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None
    if callable(value):
        raise PersistError(
            f"{name} with a function as {key} cannot be saved, because model files contain no "
            f"code; use a named {key}, or keep the model in memory."
        )
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _check_attribute(cls: type, key: str) -> None:
    """Raise an error if a model file must not contain this attribute."""
    public = key.isidentifier() and key.endswith("_") and not key.startswith("_")
    if not (public or key in PRIVATE) or hasattr(cls, key):
        raise PersistError(f"{cls.__name__} has no attribute {key[:60]!r} to load.")


def _build(content: dict[str, Any], decoder: Decoder, known: Known) -> Any:
    """Return the estimator that the content of a model file describes."""
    cls: Any = known(content["class"])
    if cls is None:
        raise PersistError(
            f"{str(content['class'])[:60]!r} is not an estimator of partwise, and was not passed "
            "to partwise.register; import the module that defines and registers it."
        )
    given = {k: v for k, v in content["parameters"].items() if k not in NOT_KEPT}
    # the constructor raises an error for an unknown parameter
    model = cls(**{k: decoder.decode(v) for k, v in given.items()})
    model._validate_params()
    for key in content["attributes"]:
        _check_attribute(cls, key)
    vars(model).update({k: decoder.decode(v) for k, v in content["attributes"].items()})
    _check_fit(model)
    return model


def _check_fit(model: Any) -> None:
    """Raise an error if the loaded arrays have contradictory shapes.

    Otherwise a method of the model could fail later.
    """
    fitted = vars(model)
    k, p, V = (fitted.get(name) for name in ("n_components_", "n_features_in_", "embedding_"))
    columns = {"components_": (k, p), "embedding_": (None, k), "concept_weights_": (None, k)}
    for name, shape in {**columns, "_basis_gram": (k, k)}.items():
        if fitted.get(name) is not None:
            _check_array(name, fitted[name], shape)
    if ("components_" in fitted or "concept_weights_" in fitted) and type(p) is not int:
        raise PersistError("n_features_in_ is missing.")
    groups = fitted.get("_groups")
    if groups is not None and not groups.fits(None if V is None else len(V), k):
        raise PersistError("the clusters or labels do not fit the rest of the model.")
    if fitted.get("_neighborhood") is not None:
        _check_neighborhood(fitted["_neighborhood"], V, p)
    if "features" in (fitted.get("_state") or ()):
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if not model._is_consistent():
                raise PersistError("the arrays of the classifier do not fit each other.")


def _check_array(name: str, value: Any, shape: tuple[Any, Any]) -> None:
    """Raise an error if a loaded attribute is not a finite matrix of this shape."""
    right = isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind == "f"
    if not right or any(b is not None and a != b for a, b in zip(value.shape, shape)):
        raise PersistError(f"{name} does not fit the rest of the model.")
    if not np.isfinite(value).all():
        raise PersistError(f"{name} holds NaN or infinity.")


def _check_neighborhood(kept: dict[str, Any], V: Any, p: Any) -> None:
    """Raise an error if a loaded graph does not match the training samples."""
    W, X, Q = kept["graph"], kept["samples"], kept["directions"]
    right = sp.issparse(W) and W.shape == (len(V), len(V)) and 0 < kept["bandwidth"] < math.inf
    if X is not None and Q is not None:
        right, p = right and Q.shape[0] == p, Q.shape[1]
    if not right or (X is not None and X.shape != (len(V), p)):
        raise PersistError("the graph does not fit the rest of the model.")
