"""Small copies of a `PartsClassifier` for files, and checks of a classifier from a file."""

from __future__ import annotations

import copy
from dataclasses import is_dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from partwise.classify.ensemble import Ensemble
from partwise.classify.features import Features, Prepared
from partwise.classify.preparation import MANY

#: Largest size in bytes of the prepared samples that a copy keeps. With up to `MANY` samples, the
#: neighbours of new samples are searched in all prepared columns. A copy without the prepared
#: samples searches in the singular directions instead.
SAMPLES = 20_000_000
#: Arrays of each preparation that a copy stores in single precision.
SINGLE = ("V", "H", "data", "directions")


def compact(model: Any) -> Any:
    """Return a copy that holds only the arrays that `predict` needs, in single precision."""
    check_is_fitted(model, "classes_")
    state, new, features = model._state, copy.copy(model), model._features
    size = sum(_bytes(mine.P) for mine in features.prepared.values())
    keep = len(model.embedding_) <= MANY and size <= SAMPLES
    V = model.embedding_.astype(np.float32)

    def without_samples(mine: Prepared) -> Prepared:
        P, single = mine.P, {n: getattr(mine, n).astype(np.float32) for n in SINGLE}
        if not keep:
            P = sp.csr_array((0, P.shape[1]), dtype=P.dtype) if sp.issparse(P) else P[:0]
        if mine is features.first:
            single["V"] = V
        views = {name: mine.views[name] for name in ("parts",) if name in mine.views}
        return replace(mine, **single, P=P, views=views)

    prepared = {name: without_samples(mine) for name, mine in features.prepared.items()}
    features = replace(features, prepared=prepared, digests=np.empty(0, np.uint64))
    rest = {name: value for name, value in state.items() if name not in ("mark", "features")}
    new._state = {**_narrow(rest), "features": features, "for_predict": True}
    new._cache, new.embedding_ = {}, V
    first = prepared[""]
    new.components_ = model.components_.astype(np.float32) if first.preparation.signed else first.H
    new.label_distributions_ = model.label_distributions_.astype(np.float32)
    return new


def check_has_samples(model: Any, method: str) -> None:
    """Raise a ValueError if the model comes from a file without training samples."""
    if model._state.get("for_predict"):
        raise ValueError(
            f"{method} needs the training samples; this model was saved with for_predict=True."
        )


def _bytes(P: Any) -> int:
    return int(P.data.nbytes + P.indices.nbytes if sp.issparse(P) else P.nbytes)


def _narrow(value: Any) -> Any:
    """Return nested values with each integer array in the smallest type that it fits."""
    if isinstance(value, dict):
        return {name: _narrow(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_narrow(part) for part in value]
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **_narrow(vars(value)))
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "iu" or not value.size:
        return value
    low, high = (np.min_scalar_type(end) for end in (value.min(), value.max()))
    return value.astype(np.promote_types(low, high))


def is_consistent(model: Any) -> bool:
    """Return whether numbers are finite, sizes agree, and a new sample gets probabilities.

    Arrays must have a row per sample and a column per class. The classifiers check their own arrays
    when they predict, so this function predicts one sample. It may raise any error if an array does
    not fit.
    """
    state, n = model._state, len(model.embedding_)
    ensemble = state.get("ensemble")
    numbers = {**state, "ensemble": None}
    if ensemble is not None:
        arrays = [member.arrays for member in ensemble.members]
        # scores and agreement are NaN without held-out labels
        numbers["ensemble"] = {**vars(ensemble), "members": arrays, "agreement": 0.0}
    return (
        all(part.shape[0] == n for part in _by_sample(model._features, ensemble))
        and _within(state.get("labelled", ()), n)
        and _all_finite(numbers)
        and (ensemble is None or _fits_classes(ensemble, model))
        and _predicts(model)
    )


def _by_sample(features: Features, ensemble: Ensemble | None) -> list[Any]:
    """Return all arrays that have a row per training sample."""
    found, optional = [], [features.digests]
    for mine in features.prepared.values():
        found += [mine.graph, mine.graph.T, mine.V, mine.data, *mine.views.values()]
        optional.append(mine.P)
    members = [] if ensemble is None else ensemble.members
    found += [member.arrays["scores"] for member in members if "scores" in member.arrays]
    # a file for predictions alone has no samples and no digests
    return found + [part for part in optional if part.shape[0]]


def _fits_classes(ensemble: Ensemble, model: Any) -> bool:
    """Return whether held-out labels and training samples have probabilities of all classes."""
    p, classes, held = model.label_distributions_, model.classes_, ensemble.held_out
    return bool(
        p.shape == (len(model.embedding_), len(classes))
        and len(model.transduction_) == len(p)
        and _are_probabilities(p)
        and np.isin(model.transduction_, classes).all()
        and len(held) == len(ensemble.truth) == len(ensemble.rows)
        and (not len(held) or held.shape[1] == len(classes))
        and len(ensemble.calibration.error) == len(classes)
        and _within(ensemble.truth, len(classes))
        and _within(ensemble.rows, len(p))
    )


def _predicts(model: Any) -> bool:
    """Return whether one sample gets finite views of the right sizes, and probabilities."""
    columns, features = {"": model.n_features_in_, **model._state["also"]}, model._features
    sparse = {mine.source: sp.issparse(mine.P) for mine in features.prepared.values()}
    ones = {name: np.ones((1, columns[name])) for name in sparse}
    new = {name: sp.csr_array(one) if sparse[name] else one for name, one in ones.items()}
    views, near, _ = features.new(new.pop(""), new)
    for name, mine in features.prepared.items():
        if any(Z.shape[1] != views[name][view].shape[1] for view, Z in mine.views.items()):
            return False
    if "ensemble" not in model._state:
        return _all_finite(views)
    return _are_probabilities(model._ensemble.probabilities(views, near))


def _within(numbers: Any, n: int) -> bool:
    return not len(numbers) or bool(0 <= np.min(numbers) <= np.max(numbers) < n)


def _are_probabilities(p: Any) -> bool:
    """Return whether rows sum to one, up to 1e-3 (float32 with thousands of classes)."""
    return bool(_all_finite(p) and p.min() >= 0 and np.allclose(p.sum(axis=1), 1, atol=1e-3))


def _all_finite(value: Any) -> bool:
    """Return whether all numbers in nested values are finite."""
    if is_dataclass(value):
        value = vars(value)
    if isinstance(value, dict):
        return all(map(_all_finite, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_all_finite, value))
    if sp.issparse(value):
        value = value.data
    if isinstance(value, (float, np.ndarray)) and np.asarray(value).dtype.kind == "f":
        return bool(np.isfinite(value).all())
    return True
