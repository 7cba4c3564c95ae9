"""Extremely randomised trees as arrays: grown by scikit-learn, kept without pickle.

Each leaf votes for one class; new samples walk down all trees at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from partwise.backends.arrays import AnyArray
from partwise.backends.numpy.kernels._options import OPTIONS, compiled


@dataclass
class Grown:
    """Trees of scikit-learn, and the same as arrays."""

    trees: list[Any]
    arrays: dict[str, AnyArray]


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


def log_shares(made: dict[str, AnyArray], X: AnyArray) -> AnyArray:
    """Log of the share of votes for each class, (n, c), with half a vote spread over all.

    The forest was grown here or checked.
    """
    inner, c = made["feature"] >= 0, made["classes"].size
    itself = np.arange(inner.size)
    below = np.stack([np.where(inner, made[key], itself) for key in ("right", "left")], axis=1)
    small = (a.astype(np.uint32) for a in (np.maximum(made["feature"], 0), below, made["name"]))
    votes = np.zeros((len(X), c), np.int32)
    X = np.ascontiguousarray(X, dtype=np.float32)  # as scikit-learn compares
    at = np.empty(SIDE_BY_SIDE, np.uint32)
    _vote(X, made["roots"].astype(np.uint32), made["threshold"], *small, at, votes)
    return np.asarray(np.log((votes + 0.5 / c) / (made["roots"].size + 0.5)))


#: Trees that a sample walks down side by side: a step waits for the one before it, not for theirs.
SIDE_BY_SIDE = 8


@compiled(**OPTIONS)
def _vote(X, roots, threshold, feature, below, name, at, votes):
    """A leaf is below itself, so that those that are there wait for the others; ``at`` is room."""
    for begin in range(0, roots.size, at.size):
        count = min(at.size, roots.size - begin)
        for i in range(X.shape[0]):
            for k in range(count):
                at[k] = roots[begin + k]
            moved = True
            while moved:
                moved = False
                for k in range(count):
                    node = at[k]
                    # a place to look up, not a branch: which way it goes nobody can guess
                    to = below[node, np.uint32(X[i, feature[node]] <= threshold[node])]
                    moved |= to != node
                    at[k] = to
            for k in range(count):
                votes[i, name[at[k]]] += 1


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
