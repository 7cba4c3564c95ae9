"""Public sets that scikit-learn can download. It keeps them in its own data folder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from partwise.io.datasets.matrix_files import Dataset


def olivetti() -> Dataset:
    """ORL: scikit-learn's 64x64 crops, each 2x2 block averaged; grey values 0 to 255."""
    from sklearn.datasets import fetch_olivetti_faces

    faces = fetch_olivetti_faces()
    images = np.asarray(faces.images, dtype=np.float64)
    small = images.reshape(len(images), 32, 2, 32, 2).mean(axis=(2, 4)) * 255
    y = np.asarray(faces.target, dtype=np.intp)
    return Dataset(
        small.transpose(0, 2, 1).reshape(len(small), -1),
        y,
        "orl",
        image_shape=(32, 32),
        class_names=tuple(str(label) for label in np.unique(y)),
        description="ORL faces from scikit-learn's Olivetti set, 64x64 averaged to 32x32; "
        "near, but not equal to, the file that the papers used",
        source="sklearn.datasets.fetch_olivetti_faces",
    )


def lfw() -> Dataset:
    """LFW: the central 128x128 of each picture, shrunk to 32x32; grey values 0 to 255."""
    from sklearn.datasets import fetch_lfw_people

    centre = slice(61, 189)
    faces = fetch_lfw_people(min_faces_per_person=20, slice_=(centre, centre), resize=0.25)
    images = np.asarray(faces.images, dtype=np.float64) * 255
    return Dataset(
        images.transpose(0, 2, 1).reshape(len(images), -1),
        np.asarray(faces.target, dtype=np.intp),
        "lfw",
        image_shape=(32, 32),
        class_names=tuple(str(name) for name in faces.target_names),
        description="LFW, people with 20 images or more, central crops at 32x32; "
        "not the crops of any paper",
        source="sklearn.datasets.fetch_lfw_people",
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
