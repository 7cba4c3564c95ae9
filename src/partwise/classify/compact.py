"""Copies of a `PartsClassifier` that predict new samples without the training samples."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from partwise.backends.arrays import AnyArray
from partwise.classify.preparation import MANY

#: Largest size in bytes of the prepared samples that a copy keeps. With up to `MANY` samples, the
#: neighbours of new samples are searched in all prepared columns. A copy without the prepared
#: samples searches in the singular directions instead.
SAMPLES = 20_000_000


def compact(model: Any) -> Any:
    """Return a copy that holds only the arrays that `predict` needs, in single precision."""
    check_is_fitted(model, "classes_")
    state, new = model._state, copy.copy(model)
    sources = state["features"]["prepared"]
    size = sum(_bytes(mine["P"]) for mine in sources.values())
    keep = len(model.embedding_) <= MANY and size <= SAMPLES
    V = model.embedding_.astype(np.float32)

    def without_samples(mine: dict[str, Any]) -> dict[str, Any]:
        P = mine["P"]
        if not keep:
            P = sp.csr_array((0, P.shape[1]), dtype=P.dtype) if sp.issparse(P) else P[:0]
        single = {name: mine[name].astype(np.float32) for name in ("data", "H", "directions")}
        codes = V if len(mine["H"]) and mine["source"] == "" else mine["V"].astype(np.float32)
        views = {name: mine["views"][name] for name in ("parts",) if name in mine["views"]}
        return {**mine, **single, "P": P, "V": codes, "views": views}

    prepared = {name: without_samples(mine) for name, mine in sources.items()}
    features = {**state["features"], "prepared": prepared, "digests": np.empty(0, np.uint64)}
    new._state = {
        **{name: value for name, value in state.items() if name != "mark"},
        "features": features,
        **{name: _narrow(state[name]) for name in ("ensemble", "labels") if name in state},
        "for_predict": True,
    }
    new._cache, new.embedding_ = {}, V
    signed = prepared[""]["preparation"]["signed"]
    new.components_ = model.components_.astype(np.float32) if signed else prepared[""]["H"]
    new.label_distributions_ = model.label_distributions_.astype(np.float32)
    return new


def check_has_samples(model: Any, method: str) -> None:
    """Raise a ValueError if the model comes from a file without training samples."""
    if model._state.get("for_predict"):
        raise ValueError(
            f"{method} needs the training samples, which a model saved with for_predict=True "
            f"lacks; call {method} on the full model."
        )


def _bytes(P: Any) -> int:
    return int(P.data.nbytes + P.indices.nbytes if sp.issparse(P) else P.nbytes)


def _narrow(value: Any) -> Any:
    """Return nested lists and dicts with each integer array in the smallest type it fits."""
    if isinstance(value, dict):
        return {name: _narrow(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_narrow(part) for part in value]
    return _smallest(value) if isinstance(value, np.ndarray) else value


def _smallest(array: AnyArray) -> AnyArray:
    if array.dtype.kind not in "iu" or not array.size:
        return array
    low, high = (np.min_scalar_type(end) for end in (array.min(), array.max()))
    return array.astype(np.promote_types(low, high))
