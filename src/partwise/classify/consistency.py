"""Checks that the arrays of a `PartsClassifier` from a file fit each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def is_consistent(model: Any) -> bool:
    """Return whether numbers are finite, sizes agree, and a new sample gets probabilities.

    Arrays must have a row per sample and a column per class. The classifiers check their own arrays
    when they predict, so this function predicts one sample. It may raise any error if an array does
    not fit.
    """
    fitted, state = vars(model), model._state
    n, rows, n_classes = len(fitted["embedding_"]), [state.get("labelled", ())], 0
    sources = list(state["features"]["prepared"].values())
    digests = state["features"]["digests"]
    by_sample = [digests] if len(digests) else []
    for source in sources:
        samples = [source["P"]] if source["P"].shape[0] else []  # none without training samples
        by_sample += [*samples, *(source[name] for name in ("graph", "V", "data"))]
        by_sample += [*source["views"].values()]
    if "ensemble" in state:
        ensemble, p, classes = state["ensemble"], fitted["label_distributions_"], fitted["classes_"]
        held, truth, n_classes = ensemble["held_out"], ensemble["truth"], len(classes)
        rows.append(ensemble["rows"])
        by_sample += [p, fitted["transduction_"]]
        arrays = [member["arrays"] for member in ensemble["members"]]
        by_sample += [mine["scores"] for mine in arrays if "scores" in mine]
        agree = (
            p.shape[1] == n_classes
            and _are_probabilities(p)
            and np.isin(fitted["transduction_"], classes).all()
            and len(held) == len(truth) == len(ensemble["rows"])
            and (not len(held) or held.shape[1] == n_classes)
            and _within(truth, n_classes)
        )
        if not agree:
            return False
    sized = all(part.shape[0] == n for part in by_sample)
    sized = sized and all(source["graph"].shape == (n, n) for source in sources)
    numbers = {**state, "ensemble": {}, "members": []}
    if "ensemble" in state:  # scores and agreement are NaN without held-out labels
        numbers["ensemble"] = {**state["ensemble"], "members": [], "agreement": 0.0}
        numbers["members"] = [member["arrays"] for member in state["ensemble"]["members"]]
    if not (sized and _all_finite(numbers) and all(_within(at, n) for at in rows)):
        return False

    def sample(source: dict[str, Any]) -> Any:
        name = source["source"]
        one = np.ones((1, state["also"][name] if name else fitted["n_features_in_"]))
        return sp.csr_array(one) if sp.issparse(source["P"]) else one

    new = {source["source"]: sample(source) for source in sources}
    features = model._features
    views, near, _ = features.new(new.pop(""), new)
    for name, mine in features.prepared.items():
        if any(Z.shape[1] != views[name][view].shape[1] for view, Z in mine.views.items()):
            return False
    if n_classes:
        return _are_probabilities(model._ensemble.probabilities(views, near))
    return _all_finite(views)


def _within(numbers: Any, n: int) -> bool:
    return not len(numbers) or bool(0 <= np.min(numbers) <= np.max(numbers) < n)


def _are_probabilities(p: Any) -> bool:
    """Return whether rows sum to one, up to 1e-3 (float32 with thousands of classes)."""
    return bool(_all_finite(p) and p.min() >= 0 and np.allclose(p.sum(axis=1), 1, atol=1e-3))


def _all_finite(value: Any) -> bool:
    """Return whether all numbers in nested lists, dicts and arrays are finite."""
    if isinstance(value, dict):
        return all(map(_all_finite, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_all_finite, value))
    if sp.issparse(value):
        value = value.data
    if isinstance(value, (float, np.ndarray)) and np.asarray(value).dtype.kind == "f":
        return bool(np.isfinite(value).all())
    return True
