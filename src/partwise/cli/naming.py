"""What a model that names samples by class says of its answers: for `cluster` and `predict`."""

from __future__ import annotations

from typing import Any

import numpy as np

from partwise.cli import work

#: Samples to label next, and labels that look wrong, as many as are listed.
NEXT, ODD = 10, 5
#: A given label is called odd where another class was this probable when it was held out.
SURE = 0.9


def names_classes(model: Any) -> bool:
    """Whether a model gives classes with probabilities, and not clusters."""
    return hasattr(model, "predict_proba")


def naming(task: work.Task, model: Any) -> dict[str, Any] | None:
    """Agreement with given labels, the accuracy to expect, what to label next; for summary.json."""
    if not names_classes(model):
        return None
    ids, classes = task.samples.ids, model.classes_
    rows, p, truth = model.held_out_
    right = p.argmax(axis=1) == truth
    share, low, high = model.expected_accuracy_
    own = p[np.arange(truth.size), truth]
    odd = [i for i in np.argsort(own, kind="stable") if p[i].max() >= SURE and not right[i]]
    return {
        "held_out": int(truth.size),
        "agreed": int(right.sum()),
        "expected": None if np.isnan(share) else round(share, 4),
        "interval": [round(low, 4), round(high, 4)],
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


def next_rows(found: dict[str, Any]) -> list[list[Any]]:
    """Rows of label_next.csv."""
    return [[row["id"], row["looks_like"], row["probability"]] for row in found["label_next"]]


def say_naming(found: dict[str, Any], console: Any) -> None:
    """The same on a terminal."""
    if found["expected"] is not None:
        low, high = found["interval"]
        console.print(
            f"Expected share of right names on the rest: {found['expected']:.2f} ({low:.2f} to "
            f"{high:.2f}), since it names {found['agreed']} of {found['held_out']} given labels as "
            "they are when they are held out."
        )
    else:
        console.print("No class has two labels, so what to expect of the rest is unknown.")
    for row in found["odd_labels"]:
        console.print(
            f"Look again: {row['id']} was given {row['given']} and looks like {row['looks_like']} "
            f"({row['probability']:.2f})."
        )
    if found["label_next"]:
        ids = ", ".join(str(row["id"]) for row in found["label_next"][:5])
        console.print(f"To do better, label these next: {ids} (more in label_next.csv).")
