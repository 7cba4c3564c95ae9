"""Features of Caltech-101 pictures as in the cdNMF paper (section 6.3).

"We choose the 10 largest categories ... 3 044 images in total, and extract the SIFT descriptors to
form a 500-dimensional frequency histogram for each image." The total determines the ten
categories: the background class and one of the two sets of faces are excluded. The sizes 800, 798,
435, 239, 200, 128, 123, 114, 107 and 100 add up to 3044.

The paper does not state the other settings, so they are our choice: descriptors of 16 x 16 pixels
on a grid with a step of 8 pixels (Lowe 2004: 4 x 4 cells of 8 orientations, cut at 0.2), pictures
of at most 300 pixels, and visual words by k-means on a sample of the descriptors.

    python -m partwise.apps.papers.caltech 101_ObjectCategories caltech101.npz
"""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from partwise.apps.papers.store import write_whole

Array = NDArray[np.float32]
WORDS = 500
CATEGORIES = 10
TOTAL = 3044  # printed in the paper
LEFT_OUT = ("BACKGROUND_Google", "Faces_easy")
SUFFIXES = (".jpg", ".jpeg", ".png")
PATCH, STEP, CELLS, ORIENTATIONS = 16, 8, 4, 8
LARGEST_SIDE = 300
CUT = 0.2
SAMPLED = 100_000  # descriptors from which the words are learned


def largest_categories(folder: Path, number: int = CATEGORIES) -> dict[str, list[Path]]:
    """Return the categories (folders) with the most pictures, largest first."""
    found = {}
    for category in sorted(p for p in Path(folder).iterdir() if p.is_dir()):
        files = sorted(p for p in category.iterdir() if p.suffix.lower() in SUFFIXES)
        if files and category.name not in LEFT_OUT:
            found[category.name] = files
    if len(found) < number:
        raise ValueError(
            f"{folder} must have {number} folders of pictures, one a category, got {len(found)}; "
            "give the folder 101_ObjectCategories of Caltech-101."
        )
    names = sorted(found, key=lambda name: (-len(found[name]), name))[:number]
    return {name: found[name] for name in names}


def grey(file: Path) -> Array:
    """Read a picture in grey levels from 0 to 1, its larger side at most `LARGEST_SIDE`."""
    from PIL import Image

    with Image.open(file) as opened:
        picture = opened.convert("L")
        picture.thumbnail((LARGEST_SIDE, LARGEST_SIDE))
        return np.asarray(picture, dtype=np.float32) / 255.0


def descriptors(image: Array) -> Array:
    """Return SIFT descriptors on a grid: gradient directions in 4 x 4 cells around a point.

    The array has the shape (n, 128) and rows of unit length. Patches without a gradient are left
    out.
    """
    height, width = image.shape
    if min(height, width) < PATCH:
        return np.zeros((0, CELLS * CELLS * ORIENTATIONS), dtype=np.float32)
    dy, dx = np.gradient(image)
    size = np.hypot(dx, dy)
    # Each gradient is divided between the two nearest of the eight directions.
    place = np.arctan2(dy, dx) % (2 * np.pi) * (ORIENTATIONS / (2 * np.pi))
    low = np.floor(place).astype(int) % ORIENTATIONS
    part = place - np.floor(place)
    planes = np.zeros((ORIENTATIONS, height, width), dtype=np.float32)
    rows, columns = np.indices(image.shape)
    planes[low, rows, columns] = size * (1 - part)
    planes[(low + 1) % ORIENTATIONS, rows, columns] += size * part
    return _gather(planes)


def _gather(planes: Array) -> Array:
    """Sum over the cells of every patch, weighted towards its centre."""
    windows = np.lib.stride_tricks.sliding_window_view(planes, (PATCH, PATCH), axis=(1, 2))
    windows = windows[:, ::STEP, ::STEP]
    offset = np.arange(PATCH) - (PATCH - 1) / 2
    bell = np.exp(-(offset**2) / (2 * (PATCH / 2) ** 2))
    side = PATCH // CELLS
    weighted = windows * np.outer(bell, bell).astype(np.float32)
    cells = weighted.reshape(*weighted.shape[:3], CELLS, side, CELLS, side).sum(axis=(4, 6))
    found = np.moveaxis(cells, 0, -1).reshape(-1, CELLS * CELLS * ORIENTATIONS)
    found = found[np.linalg.norm(found, axis=1) > 1e-6]
    found = np.minimum(found / np.linalg.norm(found, axis=1, keepdims=True), CUT)
    return np.asarray(found / np.linalg.norm(found, axis=1, keepdims=True), dtype=np.float32)


def features(
    folder: Path,
    *,
    words: int = WORDS,
    categories: int = CATEGORIES,
    random_state: int = 0,
) -> tuple[NDArray[np.float64], NDArray[np.int64], list[str]]:
    """Compute histograms of visual words for the largest categories of a folder.

    Return X (n_pictures, n_words) with rows that sum to one, the number of each picture's category
    (0 is the largest), and the names of the categories. ``random_state`` determines the sample of
    descriptors and the visual words.
    """
    chosen = largest_categories(Path(folder), categories)
    pictures = [file for files in chosen.values() for file in files]
    centres = _vocabulary(pictures, words, random_state)
    squared = (centres**2).sum(axis=1)
    X = np.zeros((len(pictures), words))
    for row, file in enumerate(pictures):
        d = descriptors(grey(file))
        if len(d):
            nearest = (squared - 2.0 * (d @ centres.T)).argmin(axis=1)
            X[row] = np.bincount(nearest, minlength=words) / len(d)
    y = np.repeat(np.arange(len(chosen)), [len(files) for files in chosen.values()])
    return X, y.astype(np.int64), list(chosen)


def _vocabulary(pictures: list[Path], words: int, random_state: int) -> Array:
    """Learn visual words from a sample of descriptors; all would take gigabytes."""
    from sklearn.cluster import MiniBatchKMeans

    rng = np.random.default_rng(random_state)
    each = max(1, SAMPLED // max(1, len(pictures)))
    found = (descriptors(grey(file)) for file in pictures)
    sample = np.concatenate([d[rng.permutation(len(d))[:each]] for d in found])
    if len(sample) < words:
        raise ValueError(f"words must be at most the {len(sample)} descriptors found, got {words}.")
    model = MiniBatchKMeans(words, n_init=3, batch_size=4096, random_state=random_state)
    return np.asarray(model.fit(sample).cluster_centers_, dtype=np.float32)


def main(arguments: list[str]) -> int:
    """Write the features of a folder into a file for the data folder."""
    if len(arguments) != 2:
        print("usage: python -m partwise.apps.papers.caltech 101_ObjectCategories caltech101.npz")
        return 2
    X, y, names = features(Path(arguments[0]))
    buffer = io.BytesIO()
    np.savez_compressed(buffer, X=X, y=y, class_names=np.array(names))
    write_whole(Path(arguments[1]), buffer.getvalue())
    same = "as printed" if len(y) == TOTAL else f"print: {TOTAL}"
    print(f"{len(y)} pictures ({same}) of {', '.join(names)}: {arguments[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
