"""Public data sets that scikit-learn downloads into its own data folder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from partwise.io.datasets.matrix_files import Dataset


def olivetti() -> Dataset:
    """Return ORL: scikit-learn's cropped images at 32x32, with grey values from 0 to 255."""
    from sklearn.datasets import fetch_olivetti_faces

    faces = fetch_olivetti_faces()
    small = faces.images.reshape(-1, 32, 2, 32, 2).mean(axis=(2, 4), dtype=np.float64)
    about = "ORL faces from scikit-learn's Olivetti set, 64x64 averaged to 32x32; similar, but not "
    about += "equal, to the file that the papers used"
    names = np.unique(faces.target)
    return _pictures(small, faces.target, names, "orl", about, "fetch_olivetti_faces")


def lfw() -> Dataset:
    """Return LFW: the centre of each picture at 32x32, with grey values from 0 to 255."""
    from sklearn.datasets import fetch_lfw_people

    centre = slice(61, 189)
    faces = fetch_lfw_people(min_faces_per_person=20, slice_=(centre, centre), resize=0.25)
    about = "LFW, people with 20 images or more, central crops at 32x32; no paper used these crops"
    return _pictures(
        faces.images, faces.target, faces.target_names, "lfw", about, "fetch_lfw_people"
    )


def _pictures(
    images: Any, y: Any, names: Any, name: str, description: str, fetcher: str
) -> Dataset:
    """Return images from 0 to 1 as rows of grey values from 0 to 255, column by column."""
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
    """Return both parts of 20 Newsgroups, as counts of scikit-learn's vocabulary."""
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
