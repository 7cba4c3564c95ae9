"""Colour or greyscale: which of the two separates the labels of a folder of images better."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from partwise.io._common import Options, Step, silent
from partwise.io.images import read_images
from partwise.io.read import read_samples
from partwise.io.samples import Samples

#: Maximum number of labelled images to compare; more would hardly change the two accuracies.
MOST = 2000


def choose_colour(
    samples: Samples, labels: Sequence[Any] | None, *, step: Step = silent
) -> tuple[Samples, str]:
    """Read images in colour or greyscale, whichever separates the labels better.

    Each labelled image is left out in turn, and its label is predicted by the closest other image.
    An image whose class has no other label is not scored, but it can be a neighbour. If both are
    equally accurate, the images stay as they are; with too few labels they are read in greyscale.
    Call this function again when you have more labels.

    Parameters
    ----------
    samples : Samples
        What `read_samples` returned, in colour or greyscale.
    labels : sequence or None
        The labels that may be used, None where unknown.
    step : callable, optional
        Called as ``step(done, total, what)`` while images are read.

    Returns
    -------
    samples : Samples
        The same object if it already is in the better form, or if its images have no colours.
    sentence : str
        The decision and its reason, also the last of ``samples.notes``; "" if there is no choice.
    """
    if samples.recipe.get("reader") != "image files":
        return samples, ""
    in_colour = bool(samples.recipe["rgb"])
    grey_notes = tuple(note for note in samples.notes if "--rgb" not in note)
    if not in_colour and len(grey_notes) == len(samples.notes):
        return samples, ""  # no image has colours
    found = _accuracies(samples, labels, step)
    if found is None:
        wanted = False
        sentence = (
            "The images were read in greyscale, since too few labels are known to compare: two "
            "labels of one class and one of another are needed; --rgb keeps the colours."
        )
    else:
        scored, grey, colour = found
        wanted = colour > grey or (in_colour and colour == grey)
        sentence = (
            f"Colours were {'kept' if wanted else 'dropped'}: the closest other labelled image has "
            f"the same label for {colour:.0%} of {scored} labels in colour and for {grey:.0%} in "
            f"greyscale; {'--grey drops' if wanted else '--rgb keeps'} them."
        )
    if wanted != in_colour:
        how = {**samples.options, "rgb": wanted}
        samples = read_samples(samples.source, step=step, **how)
    notes = (note for note in samples.notes if "--rgb" not in note and "--grey" not in note)
    return replace(samples, notes=(*notes, sentence)), sentence


def _accuracies(
    samples: Samples, labels: Sequence[Any] | None, step: Step
) -> tuple[int, float, float] | None:
    """Return the scored labels and the accuracies in greyscale and in colour."""
    from sklearn.neighbors import NearestNeighbors

    known = [] if labels is None else [i for i, label in enumerate(labels) if label is not None]
    if len(known) > MOST:
        known = np.random.RandomState(0).permutation(known)[:MOST].tolist()
    names = np.array([str(labels[i]) for i in known] if labels is not None else [])
    counts = Counter(names.tolist())
    scored = np.array([counts[name] > 1 for name in names.tolist()], dtype=bool)
    if len(counts) < 2 or not scored.any():
        return None
    folder = Path(samples.source)
    files = [folder / samples.ids[i] for i in known]
    size = samples.recipe["size"]
    found = []
    for rgb in (False, True):
        X = read_images(folder, files, Options(size=size, rgb=rgb, strict=True, step=step)).X
        # The closest row other than the row itself.
        closest = NearestNeighbors(n_neighbors=1).fit(X).kneighbors(return_distance=False)
        found.append(float((names[closest.ravel()] == names)[scored].mean()))
    return int(scored.sum()), found[0], found[1]
