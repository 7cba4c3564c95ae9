"""What a model that names samples by class says of its answers, on a terminal and in files."""

from __future__ import annotations

from typing import Any


def next_rows(found: dict[str, Any], samples: Any) -> tuple[list[str], list[list[Any]]]:
    """Heading and rows of label_next.csv, with the text of each where there is one."""
    heading = ["id", "looks_like", "probability"]
    rows = [[row[name] for name in heading] for row in found["label_next"]]
    if samples.texts is None:
        return heading, rows
    texts = dict(zip(samples.ids, samples.texts))
    return [*heading, "text"], [[*row, texts[row[0]]] for row in rows]


def say_naming(found: dict[str, Any], console: Any) -> None:
    """The same on a terminal."""
    if found["expected"] is None:
        console.print(found["said"])
    else:
        low, high = found["interval"]
        said = (
            f"Expected share of right names on the rest: {found['expected']:.2f} ({low:.2f} to "
            f"{high:.2f}), if no other class occurs. {found['caution']}"
        )
        console.print(said.rstrip())
        console.print(
            f"With classes counted alike: {found['balanced']:.2f}. Of the {found['held_out']} "
            f"given labels, held out in turn, {found['agreed']} were named as they are."
        )
    far = found["none_of_these"]
    if far is not None and far["said"]:
        ids = ", ".join(str(name) for name in far["farthest"][:5])
        console.print(f"{far['said']} The farthest: {ids}.")
    for row in found["odd_labels"]:
        console.print(
            f"Look again: {row['id']} was given {row['given']} and looks like {row['looks_like']} "
            f"(wrong with probability {row['probability']:.2f})."
        )
    if found["label_next"]:
        ids = ", ".join(str(row["id"]) for row in found["label_next"][:5])
        console.print(f"To do better, label these next: {ids} (more in label_next.csv).")
