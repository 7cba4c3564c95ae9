"""What a model that names samples by class says of its own answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Samples to label next, and labels that look wrong, as many as are listed.
NEXT, ODD = 10, 5
#: A given label is called odd where another class was this probable when it was held out.
SURE = 0.9


def names_classes(model: Any) -> bool:
    """Whether a model gives classes with probabilities, and not clusters."""
    return hasattr(model, "predict_proba")


def naming(model: Any, ids: Sequence[str]) -> dict[str, Any] | None:
    """Agreement with given labels, the accuracy to expect, what to label next, what was tried.

    None for a model that forms clusters.
    """
    if not names_classes(model):
        return None
    classes = model.classes_
    rows, p, truth = model.held_out_
    right = p.argmax(axis=1) == truth
    expected = model.expected_accuracy_
    share, low, high = expected
    own = p[np.arange(truth.size), truth]
    odd = [i for i in np.argsort(own, kind="stable") if p[i].max() >= SURE and not right[i]]
    return {
        "held_out": int(truth.size),
        "agreed": int(right.sum()),
        "expected": None if np.isnan(share) else round(share, 4),
        "interval": [round(low, 4), round(high, 4)],
        "balanced": None if np.isnan(share) else round(expected.balanced, 4),
        "said": str(expected),
        "odd_labels": [
            {
                "id": ids[rows[i]],
                "given": str(classes[truth[i]]),
                "looks_like": str(classes[int(p[i].argmax())]),
                "probability": round(float(p[i].max()), 4),
            }
            for i in odd[:ODD]
        ],
        "label_next": [
            {
                "id": ids[i],
                "looks_like": str(model.transduction_[i]),
                "probability": round(float(model.label_distributions_[i].max()), 4),
            }
            for i in model.suggest(NEXT)
        ],
        "candidates": [row._asdict() for row in model.candidates_],
    }
