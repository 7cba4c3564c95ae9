"""Partwise: semi-supervised classification and non-negative matrix factorization."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partwise._lazy import lazy
from partwise._versions import __version__
from partwise.estimators.methods import ESTIMATORS

# Type checkers and editors see these imports. At run time, each name is imported on its first use.
if TYPE_CHECKING:
    from partwise import cells, cluster, datasets, graph, io, metrics, plot, report, studio, terms
    from partwise.classify.multilabel import MultilabelClassifier as MultilabelClassifier
    from partwise.classify.parts_classifier import PartsClassifier as PartsClassifier
    from partwise.estimators.methods import *  # noqa: F403
    from partwise.estimators.nmf import non_negative_factorization
    from partwise.estimators.saving import load, register
    from partwise.io.encoders import encode
    from partwise.selection.consensus import Consensus, consensus
    from partwise.selection.intervals import Intervals, bootstrap_intervals
    from partwise.selection.parameters import Selection, select
    from partwise.selection.rank import Choice, choose_k
    from partwise.selection.signatures import match_parts, refit

_NAMES = {
    **ESTIMATORS,
    "Choice": "partwise.selection.rank",
    "choose_k": "partwise.selection.rank",
    "bootstrap_intervals": "partwise.selection.intervals",
    "Intervals": "partwise.selection.intervals",
    "Consensus": "partwise.selection.consensus",
    "consensus": "partwise.selection.consensus",
    "non_negative_factorization": "partwise.estimators.nmf",
    "encode": "partwise.io.encoders",
    "load": "partwise.estimators.saving",
    "register": "partwise.estimators.saving",
    "match_parts": "partwise.selection.signatures",
    "refit": "partwise.selection.signatures",
    "Selection": "partwise.selection.parameters",
    "select": "partwise.selection.parameters",
}
__all__ = [
    *ESTIMATORS,
    "Choice",
    "Consensus",
    "Intervals",
    "Selection",
    "__version__",
    "bootstrap_intervals",
    "cells",
    "choose_k",
    "cluster",
    "consensus",
    "datasets",
    "encode",
    "graph",
    "io",
    "load",
    "match_parts",
    "metrics",
    "non_negative_factorization",
    "plot",
    "refit",
    "register",
    "report",
    "select",
    "studio",
    "terms",
]

_MODULES = tuple(name for name in __all__ if name not in _NAMES and name != "__version__")
__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)
