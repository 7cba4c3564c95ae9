"""Public sets that scikit-learn can download. It keeps them in its own data folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from partwise.io.datasets.matrix_files import Dataset


def olivetti() -> Dataset:
    """ORL: scikit-learn's 64x64 crops, each 2x2 block averaged; grey values 0 to 255."""
    from sklearn.datasets import fetch_olivetti_faces

    faces = fetch_olivetti_faces()
    small = faces.images.reshape(-1, 32, 2, 32, 2).mean(axis=(2, 4), dtype=np.float64)
    said = "ORL faces from scikit-learn's Olivetti set, 64x64 averaged to 32x32; near, but not "
    said += "equal to, the file that the papers used"
    names = np.unique(faces.target)
    return _pictures(small, faces.target, names, "orl", said, "fetch_olivetti_faces")


def lfw() -> Dataset:
    """LFW: the central 128x128 of each picture, shrunk to 32x32; grey values 0 to 255."""
    from sklearn.datasets import fetch_lfw_people

    centre = slice(61, 189)
    faces = fetch_lfw_people(min_faces_per_person=20, slice_=(centre, centre), resize=0.25)
    said = "LFW, people with 20 images or more, central crops at 32x32; not the crops of any paper"
    return _pictures(
        faces.images, faces.target, faces.target_names, "lfw", said, "fetch_lfw_people"
    )


def _pictures(
    images: Any, y: Any, names: Any, name: str, description: str, fetcher: str
) -> Dataset:
    """Grey values from 0 to 1, stored column by column as MATLAB does, from 0 to 255."""
    return Dataset(
        255 * np.asarray(images, dtype=np.float64).transpose(0, 2, 1).reshape(len(images), -1),
        np.asarray(y, dtype=np.intp),
        name,
        image_shape=(32, 32),
        class_names=tuple(map(str, names)),
        description=description,
        source=f"sklearn.datasets.{fetcher}",
    )


def newsgroups() -> Dataset:
    """20 Newsgroups, both splits, counts of scikit-learn's vocabulary."""
    from sklearn.datasets import fetch_20newsgroups_vectorized

    news = fetch_20newsgroups_vectorized(subset="all", normalize=False)
    return Dataset(
        sparse.csr_array(news.data).astype(np.float64),
        np.asarray(news.target, dtype=np.intp),
        "news20",
        class_names=tuple(str(name) for name in news.target_names),
        terms=np.asarray(news.feature_names, dtype=str),
        description="20 Newsgroups, term counts with scikit-learn's vocabulary",
        source="sklearn.datasets.fetch_20newsgroups_vectorized",
    )


FETCHERS: dict[str, Callable[[], Dataset]] = {
    "olivetti": olivetti,
    "lfw": lfw,
    "20newsgroups": newsgroups,
}
