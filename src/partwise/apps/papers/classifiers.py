"""Classifiers of the table `partwise/table1`: ours, and those of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from partwise.apps.papers.representations import FitTask, Representation


def classify(task: FitTask) -> Representation:
    """The classes of all samples from those shown, by the classifier that ``params`` names."""
    from partwise.apps.papers.representations import Representation

    found = CLASSIFIERS[task.params["classifier"]](task.sample.X, task.y, task.seed)
    return Representation(None, labels=np.asarray(found, dtype=np.int64))


def _parts(X: Any, y: Any, seed: int) -> Any:
    from partwise.classify.parts_classifier import PartsClassifier

    return PartsClassifier(random_state=seed).fit(X, y).transduction_


def _sklearn(name: str, *given: Any, **params: Any) -> Any:
    """One of scikit-learn's, ``module:Class``, imported when it is used."""
    module, _, cls = name.partition(":")
    return getattr(import_module(f"sklearn.{module}"), cls)(*given, **params)


_logistic = partial(_sklearn, "linear_model:LogisticRegression", C=10, max_iter=300)


def _inductive(make: Callable[[], Any], view: Callable[[Any, int], Any]) -> Callable[..., Any]:
    """A classifier that looks at the labelled samples only, in some view of all."""

    def run(X: Any, y: Any, seed: int) -> Any:
        Z = view(X, seed)
        return make().fit(Z[y >= 0], y[y >= 0]).predict(Z)

    return run


def _plain(X: Any, seed: int) -> Any:
    return X


def _svd(X: Any, seed: int) -> Any:
    most = min(100, min(X.shape) - 1)
    return _sklearn("decomposition:TruncatedSVD", most, random_state=seed).fit_transform(X)


def _spectral(X: Any, seed: int) -> Any:
    dense = X.toarray() if hasattr(X, "toarray") else X
    how = {"affinity": "nearest_neighbors", "random_state": seed}
    Z = _sklearn("manifold:SpectralEmbedding", 30, **how).fit_transform(dense)
    return Z / Z.std()


def _self_training(X: Any, y: Any, seed: int) -> Any:
    return _sklearn("semi_supervised:SelfTrainingClassifier", _logistic()).fit(X, y).predict(X)


CLASSIFIERS: dict[str, Callable[[Any, Any, int], Any]] = {
    "parts": _parts,
    "logistic": _inductive(_logistic, _plain),
    "svc": _inductive(partial(_sklearn, "svm:LinearSVC"), _plain),
    "nearest": _inductive(partial(_sklearn, "neighbors:KNeighborsClassifier", 1), _plain),
    "svd": _inductive(_logistic, _svd),
    "spectral": _inductive(_logistic, _spectral),
    "self-training": _self_training,
}
