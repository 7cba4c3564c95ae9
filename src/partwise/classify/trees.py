"""Extremely randomised trees as arrays: grown by scikit-learn, kept without pickle.

Each leaf votes for one class; new samples walk down all trees at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numba as nb
import numpy as np

from partwise.backends.arrays import AnyArray
from partwise.backends.numpy.kernels._options import OPTIONS


@dataclass
class Grown:
    """Trees of scikit-learn, and the same as arrays."""

    trees: list[Any]
    arrays: dict[str, AnyArray]

    def log_votes(self, X: AnyArray) -> AnyArray:
        X = np.ascontiguousarray(X, dtype=np.float32)
        leaves = np.stack([tree.apply(X) for tree in self.trees], axis=1)
        return log_votes(self.arrays, leaves + self.arrays["roots"])


def grow(
    X: AnyArray, y: AnyArray, weights: AnyArray, n_classes: int, seed: int, n_trees: int
) -> Grown:
    """Trees that classify the rows of X; classes count alike, whatever their number of samples.

    In the arrays, ``feature`` is -1 in leaves, ``name`` is the class of a leaf, ``roots`` where the
    trees begin, and ``classes`` all that there are. One tree after the other, not scikit-learn's
    forest: that sets the filters of warnings for each of them, which is not safe among threads.
    """
    from sklearn import config_context  # type: ignore[attr-defined]
    from sklearn.tree import ExtraTreeRegressor

    even = weights / np.bincount(y, weights)[y]
    # squared errors of indicators are Gini's impurity: the trees of a classifier, with fewer checks
    X, Y = np.ascontiguousarray(X, dtype=np.float32), np.eye(n_classes)[y]
    found, names = [], []
    tree = ExtraTreeRegressor(max_features="sqrt", random_state=np.random.RandomState(seed))
    # for small sets half of the time
    with config_context(skip_parameter_validation=True, assume_finite=True):
        for _ in range(n_trees):
            found.append(tree.fit(X, Y, sample_weight=even, check_input=False).tree_)
            names.append(found[-1].value.reshape(-1, n_classes).argmax(axis=1))
    roots = np.cumsum([0] + [tree.node_count for tree in found[:-1]])
    pairs = list(zip(found, roots, strict=True))
    arrays = {
        "roots": roots,
        "feature": np.concatenate([np.maximum(tree.feature, -1) for tree in found]),
        "threshold": np.concatenate([tree.threshold for tree in found]),
        "left": np.concatenate([tree.children_left + root for tree, root in pairs]),
        "right": np.concatenate([tree.children_right + root for tree, root in pairs]),
        "name": np.concatenate(names),
        "classes": np.arange(n_classes),
    }
    return Grown(found, arrays)


def log_votes(made: dict[str, AnyArray], at: AnyArray) -> AnyArray:
    """Log of the share of votes for each class, (n, c), with half a vote spread over all.

    ``at`` (n, n_trees) are the leaves of the samples.
    """
    (n, trees), c = at.shape, made["classes"].size
    flat = made["name"][at] + c * np.arange(n)[:, None]
    votes = np.bincount(flat.ravel(), minlength=n * c).reshape(n, c)
    return np.asarray(np.log((votes + 0.5 / c) / (trees + 0.5)))


def walk(made: dict[str, AnyArray], X: AnyArray) -> AnyArray:
    """The leaves of samples, by the arrays alone."""
    leaves = np.empty((len(X), made["roots"].size), dtype=np.intp)
    inner = (made[key] for key in ("roots", "feature", "threshold"))
    below = np.stack([made["right"], made["left"]], axis=1)
    # as scikit-learn compares
    _walk(np.ascontiguousarray(X, dtype=np.float32), *inner, below, leaves)
    return leaves


@nb.njit(**OPTIONS)
def _walk(X, roots, feature, threshold, below, leaves):
    for i in range(leaves.shape[0]):
        for tree in range(leaves.shape[1]):
            node = roots[tree]
            at = feature[node]
            while at >= 0:  # a place to look up, not a branch: which way it goes nobody can guess
                node = below[node, int(X[i, at] <= threshold[node])]
                at = feature[node]
            leaves[i, tree] = node


def check(made: dict[str, AnyArray], n_features: int) -> None:
    """Raise where a file holds no forest: a walk could leave its arrays, or never end."""
    nodes = np.arange(made["feature"].size)
    inner = made["feature"] >= 0
    sound = (
        all(made[key].shape == nodes.shape for key in ("threshold", "left", "right", "name"))
        and bool(np.isfinite(made["threshold"]).all())
        and bool((made["feature"] < n_features).all() and (made["feature"] >= -1).all())
        and bool(
            np.isin(made["roots"], nodes).all() and np.isin(made["name"], made["classes"]).all()
        )
        and all(  # children come after their parents
            bool((nodes[inner] < side).all() and (side < nodes.size).all())
            for side in (made["left"][inner], made["right"][inner])
        )
        and bool((made["classes"] == np.arange(made["classes"].size)).all())
    )
    if not sound:
        raise ValueError("the trees of the model are damaged.")


def log_shares(made: dict[str, AnyArray], X: AnyArray) -> AnyArray:
    """`log_votes` of samples that the forest, which was checked, has not seen."""
    return log_votes(made, walk(made, X))
