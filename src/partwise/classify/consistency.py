"""Check that the arrays of a `PartsClassifier` from a file fit each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp


def is_consistent(model: Any) -> bool:
    """Return whether numbers are finite, sizes agree, and a new sample gets probabilities.

    Arrays have a row per sample and a column per class. The classifiers check their own arrays, so
    one sample is classified here; it may raise any error if something does not fit.
    """
    fitted, state = vars(model), model._state
    n, rows, n_classes = len(fitted["embedding_"]), [state.get("labelled", ())], 0
    sources = [state["features"], *state["features"].get("others", {}).values()]
    by_sample = []
    for source in sources:
        by_sample += [source[name] for name in ("P", "graph", "V", "plain")]
        by_sample += [
            *source["views"].values(),
            *([source["marks"]] if len(source["marks"]) else []),
        ]
    if "answer" in state:
        answer, p, classes = state["answer"], fitted["label_distributions_"], fitted["classes_"]
        held, truth, n_classes = answer["held_out"], answer["truth"], len(classes)
        rows.append(answer["rows"])
        by_sample += [p, fitted["transduction_"]]
        by_sample += [h["scores"] for h in answer["heads"] if h.get("scores") is not None]
        agree = (
            p.shape[1] == n_classes
            and _are_probabilities(p)
            and np.isin(fitted["transduction_"], classes).all()
            and len(held) == len(truth) == len(answer["rows"])
            and (not len(held) or held.shape[1] == n_classes)
            and _within(truth, n_classes)
        )
        if not agree:
            return False
    sized = all(part.shape[0] == n for part in by_sample)
    sized = sized and all(source["graph"].shape == (n, n) for source in sources)
    # candidates may lack a score, and classifiers that were not weighed have no agreement
    numbers = {**state, "candidates": [], "answer": {**state.get("answer", {}), "agreement": 0.0}}
    if not (sized and _all_finite(numbers) and all(_within(at, n) for at in rows)):
        return False

    def sample(source: dict[str, Any]) -> Any:
        name = source.get("source", "")
        one = np.ones((1, state["also"][name] if name else fitted["n_features_in_"]))
        return sp.csr_array(one) if sp.issparse(source["P"]) else one

    new = {source.get("source", ""): sample(source) for source in sources}
    views, near, _ = model._features.new(new.pop(""), new)
    if n_classes:
        return _are_probabilities(model._answer.probabilities(views, near))
    return _all_finite(views)


def _within(numbers: Any, n: int) -> bool:
    return not len(numbers) or bool(0 <= np.min(numbers) <= np.max(numbers) < n)


def _are_probabilities(p: Any) -> bool:
    """Return whether rows add up to one; rounding of float32 is 1e-3 for thousands of classes."""
    return bool(_all_finite(p) and p.min() >= 0 and np.allclose(p.sum(axis=1), 1, atol=1e-3))


def _all_finite(value: Any) -> bool:
    """Return whether no number in nested lists, dicts and arrays is NaN or infinite."""
    if isinstance(value, dict):
        return all(map(_all_finite, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_all_finite, value))
    if sp.issparse(value):
        value = value.data
    if isinstance(value, (float, np.ndarray)) and np.asarray(value).dtype.kind == "f":
        return bool(np.isfinite(value).all())
    return True
