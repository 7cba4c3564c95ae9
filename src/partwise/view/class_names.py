"""What a model that names samples by class says of its own answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

#: Samples to label next, labels that look wrong, and samples far from all labels, as are listed.
NEXT, ODD, FAR = 10, 5, 10
#: Samples are far where so many of the labelled classes should be nearer; more than twice as many
#: as that lets expect are said.
BEYOND = 0.95


def names_classes(model: Any) -> bool:
    """Whether a model gives classes with probabilities, and not clusters."""
    return hasattr(model, "predict_proba")


def naming(model: Any, ids: Sequence[str]) -> dict[str, Any] | None:
    """Agreement with given labels, the accuracy to expect, what to label next, what was tried.

    None for a model that forms clusters.
    """
    if not names_classes(model):
        return None
    _, p, truth = model.held_out_
    right = p.argmax(axis=1) == truth
    expected = model.expected_accuracy_
    share, low, high = expected
    return {
        "held_out": int(truth.size),
        "agreed": int(right.sum()),
        "expected": None if np.isnan(share) else round(share, 4),
        "interval": [round(low, 4), round(high, 4)],
        "balanced": None if np.isnan(share) else round(expected.balanced, 4),
        "said": str(expected),
        "caution": expected.caution,
        "odd_labels": [
            {
                "id": ids[doubt.sample],
                "given": str(doubt.given),
                "looks_like": str(doubt.suggested),
                "probability": round(doubt.probability, 4),
            }
            for doubt in model.doubtful_labels_[:ODD]
        ],
        "none_of_these": _far(model, ids),
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


def _far(model: Any, ids: Sequence[str]) -> dict[str, Any] | None:
    """Samples that are far from everything labelled; None where too few labels can tell."""
    try:
        far, found = model.outlyingness(), model.others_found_
    except ValueError:
        return None
    far[model.labelled_] = 0
    beyond = far > BEYOND
    rest = len(far) - len(model.labelled_)
    order = np.argsort(-far, kind="stable")[: int(beyond.sum())]
    many = beyond.sum() > 2 * (1 - BEYOND) * rest
    said = (
        f"{int(beyond.sum())} of {rest} samples are farther from every label than {BEYOND:.0%} of "
        "samples of these classes should be: perhaps they are none of these."
    )
    return {
        "samples": int(beyond.sum()),
        "found": None if np.isnan(found) else round(found, 4),
        "said": said if many else "",
        "farthest": [ids[i] for i in order[:FAR]],
    }
