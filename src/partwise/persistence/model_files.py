"""Models in files: a zip of JSON and ``.npy`` arrays, without pickle.

Loading a stranger's model runs none of its code: the file names an estimator of this package, its
parameters and its arrays, and every name, size and checksum is checked before anything is used.

The format, version 1, is a zip archive whose members are stored, not compressed, so that reading
takes no more memory than the file has bytes:

``manifest.json``
    ``format`` ("partwise-model"), ``version`` (1), ``partwise`` (the version that wrote it), and
    ``members``: for every other member its ``sha256`` and ``bytes``, and for an array its
    ``dtype`` and ``shape``.
``model.json``
    ``class``, ``parameters`` (as of ``get_params``), ``attributes`` (the fitted ones), and
    ``recipe`` (how the command prepared the data, or null).
``a0000.npy``, ``a0001.npy``, ...
    The arrays that ``model.json`` refers to, written with ``allow_pickle=False``.

JSON has no arrays, tuples, NaN or non-string keys; such a value is an object with the single key
``array``, ``sparse``, ``objects``, ``tuple``, ``dict``, ``float``, ``bytes``, ``time``, ``date`` or
``clustering``.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import scipy.sparse as sp

from partwise._versions import __version__
from partwise.backends.arrays import forget
from partwise.persistence.atomic import check_target, whole_file
from partwise.persistence.values import Decoder, Encoder, PersistError

__all__ = ["PersistError", "read", "save"]

#: The class of an estimator by its name; None for all else.
Known = Callable[[Any], Any]

FORMAT, VERSION = "partwise-model", 1
MANIFEST, MODEL = "manifest.json", "model.json"
_ARRAY_NAME = re.compile(r"a\d{4}\.npy")
_MAX_MANIFEST = 4_000_000  # bytes; an array takes about 200 of them

#: Fitted attributes that a file may hold. All are data: none is called, opened or written to.
ATTRIBUTES = frozenset(
    [
        "_X_fit",
        "_basis_gram",
        "_groups",
        "_neighborhood",
        "_n_components",
        "_signed",
        "_state",
        "_sklearn_output_config",
        "basis_",
        "cg_iterations_",
        "classes_",
        "components_",
        "concept_weights_",
        "embedding_",
        "feature_names_in_",
        "kkt_residual_",
        "l21_epsilon_",
        "label_distributions_",
        "mixing_",
        "n_components_",
        "n_features_in_",
        "n_iter_",
        "n_steps_",
        "objective_",
        "objective_history_",
        "preparation_",
        "reconstruction_err_",
        "solver_",
        "status_",
        "transduction_",
    ]
)
#: Parameters of one machine, or that act: a folder to write to is for whoever fits to name.
NOT_KEPT = frozenset({"checkpoint"})
#: What scikit-learn hangs on an estimator while it runs, or because of where; caches.
_SKIPPED = frozenset({"_skl_callbacks", "_callback_fit_ctx", "_parent_callback_ctx", "_memory"})


def save(
    model: Any, path: str | Path, known: Known, *, recipe: Mapping[str, Any] | None = None
) -> Path:
    """Write a fitted model to a file, which appears whole or not at all.

    Parameters
    ----------
    model : estimator of partwise
        Fitted or not. A ``random_state`` that is a generator is saved as None, a ``checkpoint``
        and callbacks are not saved; tensors and Dask arrays come back as ndarrays.
    path : str or Path
        The file, by custom ``*.partwise``; an old one is replaced.
    known : callable
        As in `read`: what cannot be read back is not written.
    recipe : mapping, optional
        What else to keep: the command keeps how it prepared the data.

    Returns
    -------
    Path

    Raises
    ------
    PersistError
        The model holds something that a file cannot hold, such as a callable kernel.
    """
    path = check_target(path, force=True)
    name = type(model).__name__
    if type(model) is not known(name):
        raise PersistError(
            f"{name} is not an estimator of partwise, so that no file can name it; of a class of "
            "your own call partwise.register(cls) first, where it is saved and where it is loaded."
        )
    encoder = Encoder()
    parameters = model.get_params(deep=False)
    if "_groups" in vars(model):  # here, since another machine may find other clusters
        model._groups.settle(model.embedding_)
    content = {
        "class": name,
        "parameters": {
            key: encoder.encode(_parameter(name, key, value), f"{name}.{key}")
            for key, value in parameters.items()
            if key not in NOT_KEPT
        },
        "attributes": {
            key: encoder.encode(_listed(name, key, value), f"{name}.{key}")
            for key, value in vars(model).items()
            if key not in parameters and key not in _SKIPPED
        },
        "recipe": encoder.encode(None if recipe is None else dict(recipe), "recipe"),
    }
    with whole_file(path) as file:
        _write(file, content, encoder.arrays)
    return path


def read(path: str | Path, known: Known) -> tuple[Any, dict[str, Any] | None]:
    """The model of a file, and the recipe that was saved with it, or None.

    ``known(name)`` is the class of an estimator that a file may name, None for all else.
    """
    path = Path(path)
    with path.open("rb") as file:  # a file that is not there, or not ours to read, says so
        return _read(file, path, known)


def _read(file: BinaryIO, path: Path, known: Known) -> tuple[Any, dict[str, Any] | None]:
    try:
        with zipfile.ZipFile(file) as archive:
            manifest = _manifest(archive)
            members = _members(archive, manifest, path.stat().st_size)
        content = _json(members.pop(MODEL), MODEL)
        decoder = Decoder({name: _array(name, *member) for name, member in members.items()})
        return _build(content, decoder, known), decoder.decode(content.get("recipe"))
    except PersistError as error:
        raise PersistError(f"{path}: {error}") from None
    except zipfile.BadZipFile as error:
        raise PersistError(f"{path}: no partwise model, or cut short ({error}).") from None
    except Warning:  # that somebody made an error: none of the file's
        raise
    except Exception as error:  # whatever else it brings out, as OSError from a negative place
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise PersistError(f"{path}: damaged, or no partwise model ({reason}).") from error


# -- writing ------------------------------------------------------------------------------------


def _parameter(name: str, key: str, value: Any) -> Any:
    if isinstance(value, (np.random.RandomState, np.random.Generator)):
        return None
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if callable(value):
        raise PersistError(
            f"{name} with a function as {key} cannot be saved, since a file without code cannot "
            f"hold it; use a named {key}, or keep the model in memory."
        )
    return value


def _listed(name: str, key: str, value: Any) -> Any:
    if key not in ATTRIBUTES:
        raise PersistError(
            f"{name}.{key} is no attribute that a model file holds; delete it before saving."
        )
    return value


def _write(file: Any, content: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False).encode("utf-8")
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        members: dict[str, Any] = {MODEL: _add(archive, MODEL, lambda out: out.write(text))}
        for name, array in arrays.items():
            whole = partial(np.lib.format.write_array, array=array, allow_pickle=False)
            described = _add(archive, name, whole, array.base)
            members[name] = {**described, "dtype": array.dtype.str, "shape": list(array.shape)}
        manifest = {
            "format": FORMAT,
            "version": VERSION,
            "partwise": __version__,
            "members": members,
        }
        last = json.dumps(manifest, indent=1).encode("utf-8")
        _add(archive, MANIFEST, lambda out: out.write(last))


class _Member:
    """A member that is being written: bytes on their way to the file, counted and summed up.

    numpy hands over some megabytes at a time where it does not know the kind of file.
    """

    def __init__(self, out: Any, source: Any) -> None:
        self.out, self.source, self.sum, self.size = out, source, hashlib.sha256(), 0

    def write(self, data: bytes) -> None:
        self.out.write(data)
        self.sum.update(data)
        self.size += len(data)
        forget(self.source)  # of samples on disk


def _add(
    archive: zipfile.ZipFile, name: str, write: Callable[[Any], Any], source: Any = None
) -> dict[str, Any]:
    # one date for all: the same model gives the same bytes
    info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
    with archive.open(info, "w", force_zip64=True) as out:
        member = _Member(out, source)
        write(member)
    return {"sha256": member.sum.hexdigest(), "bytes": member.size}


# -- reading ------------------------------------------------------------------------------------


def _manifest(archive: zipfile.ZipFile) -> dict[str, Any]:
    """The manifest, once its format and version are ours."""
    if archive.namelist().count(MANIFEST) != 1:
        raise PersistError("no partwise model: it has no manifest.json.")
    info = archive.getinfo(MANIFEST)
    if info.file_size > _MAX_MANIFEST or info.compress_type != zipfile.ZIP_STORED:
        raise PersistError(f"{MANIFEST} is compressed or too large for a model.")
    manifest = _json(archive.read(MANIFEST), MANIFEST)
    if manifest.get("format") != FORMAT or not isinstance(manifest.get("version"), int):
        raise PersistError(f"no partwise model: {MANIFEST} is of another format.")
    if manifest["version"] > VERSION:
        raise PersistError(
            f"written by a newer partwise ({str(manifest.get('partwise'))[:20]}, format "
            f"{manifest['version']}); {__version__} reads formats up to {VERSION}: "
            "upgrade partwise."
        )
    if not isinstance(manifest.get("members"), dict):
        raise PersistError(f"{MANIFEST} lists no members.")
    return manifest


def _members(archive: zipfile.ZipFile, manifest: dict[str, Any], total: int) -> dict[str, Any]:
    """Every member's bytes, once names, sizes and checksums agree with the manifest."""
    described = manifest["members"]
    for info in archive.infolist():
        if info.filename not in (MANIFEST, MODEL) and not _ARRAY_NAME.fullmatch(info.filename):
            raise PersistError(f"it has a member {info.filename[:60]!r}, which no model has.")
    names = [name for name in archive.namelist() if name != MANIFEST]
    if len(set(names)) != len(names) or set(names) != set(described) or MODEL not in described:
        raise PersistError(f"its members are not those that {MANIFEST} lists.")
    infos = [archive.getinfo(name) for name in names]
    # stored members that share no bytes cannot be larger than the file
    if sum(info.file_size for info in infos) > total:
        raise PersistError("its members claim more bytes than the file has.")
    found: dict[str, Any] = {}
    for info in infos:
        entry = described[info.filename]
        if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
            raise PersistError(f"{info.filename} is compressed; members of a model are not.")
        if not isinstance(entry, dict) or entry.get("bytes") != info.file_size:
            raise PersistError(f"{info.filename} has another size than {MANIFEST} says.")
        data = archive.read(info)
        if hashlib.sha256(data).hexdigest() != entry.get("sha256"):
            raise PersistError(f"damaged: the checksum of {info.filename} is wrong.")
        found[info.filename] = data if info.filename == MODEL else (data, entry)
    return found


def _json(data: bytes, name: str) -> dict[str, Any]:
    def refuse(text: str) -> None:
        raise PersistError(f"{name} holds {text}, which is no JSON.")

    content = json.loads(data.decode("utf-8"), parse_constant=refuse)
    if not isinstance(content, dict):
        raise PersistError(f"{name} is no JSON object.")
    return content


def _array(name: str, data: bytes, entry: dict[str, Any]) -> np.ndarray:
    """One array; its header must say what the manifest says, and no more than its bytes hold."""
    file = io.BytesIO(data)
    readers = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    try:
        shape, _, dtype = readers[np.lib.format.read_magic(file)](file)
    except (ValueError, KeyError) as error:
        raise PersistError(f"{name} is no array.") from error
    if dtype.hasobject:
        raise PersistError(f"{name} holds pickled objects, which are never loaded.")
    if [dtype.str, list(shape)] != [entry.get("dtype"), entry.get("shape")]:
        raise PersistError(f"{name} has another shape or type than {MANIFEST} says.")
    # in Python's integers, which do not overflow
    size = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if dtype.names is not None or size != len(data) - file.tell():
        raise PersistError(f"{name} holds more or fewer bytes than its shape says.")
    file.seek(0)
    return np.asarray(np.load(file, allow_pickle=False))


def _build(content: dict[str, Any], decoder: Decoder, known: Known) -> Any:
    cls: Any = known(content.get("class"))
    if cls is None:
        raise PersistError(
            f"{str(content.get('class'))[:60]!r} is not an estimator of partwise, nor was it "
            "given to partwise.register here; import the module that has it."
        )
    given = {k: v for k, v in content["parameters"].items() if k not in NOT_KEPT}
    parameters = {k: decoder.decode(v) for k, v in given.items()}
    unknown = parameters.keys() - cls().get_params().keys()
    if unknown:
        raise PersistError(f"{cls.__name__} has no parameter {min(unknown)[:60]!r}.")
    model = cls(**parameters)
    model._validate_params()
    strange = content["attributes"].keys() - ATTRIBUTES
    if strange:
        raise PersistError(f"{cls.__name__} has no attribute {min(strange)[:60]!r}.")
    vars(model).update({k: decoder.decode(v) for k, v in content["attributes"].items()})
    _check_shapes(model)
    return model


def _check_shapes(model: Any) -> None:
    """Arrays that must fit each other do; so a forged model fails here, and not in `transform`."""
    fitted = vars(model)
    H, C = fitted.get("components_"), fitted.get("concept_weights_")
    k = fitted.get("n_components_")
    wanted = {
        "components_": (k, fitted.get("n_features_in_")),
        "embedding_": (None, k),
        "concept_weights_": (None, k),
        "_basis_gram": (k, k),
    }
    for name, shape in wanted.items():
        value = fitted.get(name)
        if value is None:
            continue
        right = isinstance(value, np.ndarray) and value.ndim == 2 and value.dtype.kind == "f"
        sizes = zip(value.shape, shape) if right else ()
        if not right or any(b is not None and a != b for a, b in sizes):
            raise PersistError(f"{name} does not fit the rest of the model.")
        if not np.isfinite(value).all():
            raise PersistError(f"{name} holds NaN or infinity.")
    _check_groups(fitted.get("_groups"), fitted.get("embedding_"), k)
    if (H is not None or C is not None) and not isinstance(fitted.get("n_features_in_"), int):
        raise PersistError("n_features_in_ is missing.")
    kept = fitted.get("_neighborhood")
    if kept is not None:
        _check_neighborhood(kept, fitted)
    if "features" in (fitted.get("_state") or ()):
        _check_classifier(model)
    X = fitted.get("_X_fit")
    if X is not None and not (sp.issparse(X) or isinstance(X, np.ndarray)):
        raise PersistError("the training samples are no matrix.")


def _check_classifier(model: Any) -> None:
    """Numbers are finite, arrays have a row a sample and a column a class, and one answer adds up.

    What the heads are made of is theirs to know: a sample that is asked about finds what does not
    fit, here and not on the first new one.
    """
    try:
        right = _is_classifier(model)
    except Exception:  # whatever a forged shape brings out
        right = False
    if not right:
        raise PersistError("the codes or the heads of the classifier do not fit each other.")


def _is_classifier(model: Any) -> bool:
    fitted, state = vars(model), model._state
    n, rows, n_classes = len(fitted["embedding_"]), [state.get("labelled", ())], 0
    looks = [state["features"], *state["features"].get("others", {}).values()]
    by_sample = []
    for look in looks:
        by_sample += [look["P"], look["graph"], look["V"], look["plain"], *look["views"].values()]
        by_sample += [look["marks"]] if len(look["marks"]) else []
    if "answer" in state:
        answer, p, classes = state["answer"], fitted["label_distributions_"], fitted["classes_"]
        held, truth, n_classes = answer["held_out"], answer["truth"], len(classes)
        rows.append(answer["rows"])
        by_sample += [p, fitted["transduction_"]]
        by_sample += [h["scores"] for h in answer["heads"] if h.get("scores") is not None]
        agree = (
            p.shape[1] == n_classes
            and _add_up(p)
            and np.isin(fitted["transduction_"], classes).all()
            and len(held) == len(truth) == len(answer["rows"])
            and (not len(held) or held.shape[1] == n_classes)
            and _within(truth, n_classes)
        )
        if not agree:
            return False
    sized = all(part.shape[0] == n for part in by_sample)
    sized = sized and all(look["graph"].shape == (n, n) for look in looks)
    # what was tried may have no score, and heads that were not weighed no agreement
    told = {**state, "candidates": [], "answer": {**state.get("answer", {}), "agreement": 0.0}}
    if not (sized and _all_finite(told) and all(_within(at, n) for at in rows)):
        return False

    def row(look: dict[str, Any]) -> Any:
        source = look.get("source", "")
        one = np.ones((1, state["also"][source] if source else fitted["n_features_in_"]))
        return sp.csr_array(one) if sp.issparse(look["P"]) else one

    arrays = {look.get("source", ""): row(look) for look in looks}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        made = model._features.new(arrays.pop(""), arrays)
        if n_classes:
            return _add_up(model._answer.probabilities(*made[:2]))
        return _all_finite(made[0])


def _within(numbers: Any, n: int) -> bool:
    """Whether all are from 0 to n - 1."""
    return not len(numbers) or bool(0 <= np.min(numbers) <= np.max(numbers) < n)


def _add_up(p: Any) -> bool:
    """Whether rows are probabilities; thousands of classes in float32 add up to 1e-3 at worst."""
    return bool(_all_finite(p) and p.min() >= 0 and np.allclose(p.sum(axis=1), 1, atol=1e-3))


def _all_finite(value: Any) -> bool:
    """Whether no number in nested lists, dicts and arrays is NaN or infinite."""
    if isinstance(value, dict):
        return all(map(_all_finite, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_all_finite, value))
    if sp.issparse(value):
        value = value.data
    if isinstance(value, (float, np.ndarray)) and np.asarray(value).dtype.kind == "f":
        return bool(np.isfinite(value).all())
    return True


def _check_groups(groups: Any, V: Any, k: Any) -> None:
    """Labels for all samples, centres and decisions in the space of the codes."""
    if groups is None:
        return
    sizes = [] if groups.found is None else [groups.found.centers.shape[1]]
    sizes += [] if groups.head is None else [groups.head.weights.shape[0] / 2]
    sizes += [] if groups.labelled is None else [groups.labelled.shape[1]]
    sizes += [] if groups.owners is None else [groups.owners.size]
    n = None if V is None else len(V)
    lengths = [] if groups.labels is None else [groups.labels.codes.size]
    lengths += [] if groups.found is None else [groups.found.labels.size]
    if any(size != k for size in sizes) or any(size != n for size in lengths):
        raise PersistError("the clusters or labels do not fit the rest of the model.")


def _check_neighborhood(kept: Any, fitted: dict[str, Any]) -> None:
    """The graph and the training samples that new samples are coded beside."""
    malformed = PersistError("the graph does not fit the rest of the model.")
    if not isinstance(kept, dict) or set(kept) != {"graph", "samples", "bandwidth", "directions"}:
        raise malformed
    W, X, Q = kept["graph"], kept["samples"], kept["directions"]
    V = fitted.get("embedding_")
    if not (sp.issparse(W) and isinstance(V, np.ndarray) and W.shape == (len(V), len(V))):
        raise malformed
    if not (isinstance(kept["bandwidth"], float) and 0 < kept["bandwidth"] < np.inf):
        raise malformed
    if X is None:
        return
    p = fitted.get("n_features_in_")
    if Q is not None:
        if not (isinstance(Q, np.ndarray) and Q.ndim == 2 and Q.shape[0] == p):
            raise malformed
        p = Q.shape[1]
    if not (sp.issparse(X) or isinstance(X, np.ndarray)) or X.shape != (len(V), p):
        raise malformed
