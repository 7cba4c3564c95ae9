"""Parts that a person knows, among the settings of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from partwise.evaluation.kmeans import Clustering
from partwise.io.known_parts import read_known, read_topics
from partwise.io.label_files import read_links


def know(
    task: Any, known: Path | None, seed_words: Path | None, links: Path | None = None, *,
    k: int | str | None, parts: int | None,
) -> int | str | None:  # fmt: skip
    """Parts of --known and --seed-words, among the task's settings; -k, or how many they are."""
    samples = task.samples
    if links is not None:
        if samples.unjoinable:
            raise ValueError(f"{links} cannot be joined by id: {samples.unjoinable}")
        task.links = read_links(links, samples.ids)
        counts = (len(task.links[name]) for name in ("must_link", "cannot_link"))
        task.notes.append("{} must-links and {} cannot-links.".format(*counts))
        if samples.ids == [str(i) for i in range(samples.n_samples)]:
            task.notes.append(f"The ids of {links.name} were taken as row numbers from 0.")
    for path, read, setting in (
        (known, read_known, "fixed_components"),
        (seed_words, read_topics, "seed_components"),
    ):
        if path is None:
            continue
        found = read(path, samples)
        task.settings[setting] = found.H.astype(samples.X.dtype)
        task.notes.extend(found.notes)
        task.part_names += found.names
    names = task.part_names
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"--known and --seed-words both have {twice!r}.")
    size = parts or k
    if names and isinstance(size, int) and size < len(names):
        option = "--parts" if parts else "-k"
        raise ValueError(
            f"{option} {size} is less than the {len(names)} parts of --known and --seed-words."
        )
    if k is None and names and not task.classes:
        return len(names)
    return k


def by_parts(names: list[str], model: Any) -> Any:
    """A cluster for each part, under its name: the samples that have most of it."""
    V = np.asarray(model.embedding_)
    k = V.shape[1]
    every = np.array([*names, *(f"part {j + 1}" for j in range(len(names), k))])
    lengths = np.linalg.norm(model.components_, axis=1).astype(np.float64)
    empty = Clustering(np.eye(k), every, every[:0], True, lengths)
    return Clustering(np.eye(k), every, empty.predict(V), True, lengths)
