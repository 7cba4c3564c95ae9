"""Partwise: parts-based representations that listen to labels, graphs, sparsity and locality."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partwise._lazy import lazy
from partwise._versions import __version__
from partwise.estimators.methods import ESTIMATORS

if TYPE_CHECKING:  # an editor knows every class; at run time each is imported when it is used
    from partwise import cells, cluster, datasets, graph, io, metrics, plot, report, terms
    from partwise.classify.parts_classifier import PartsClassifier
    from partwise.estimators.ansnmf import AnsNMF
    from partwise.estimators.cdnmf import CDNMF
    from partwise.estimators.cf import CF, LCF
    from partwise.estimators.cnmf import CNMF
    from partwise.estimators.constrained import ConstrainedNMF
    from partwise.estimators.gnmf import GNMF, SemiGNMF
    from partwise.estimators.lpcnmf import LpCNMF
    from partwise.estimators.minibatch import MiniBatchNMF
    from partwise.estimators.nmf import NMF, non_negative_factorization
    from partwise.estimators.nmfdc import NMFDC, NSNMF
    from partwise.estimators.ntf import NTF
    from partwise.estimators.saving import load, register
    from partwise.estimators.semi_nmf import SemiNMF
    from partwise.estimators.sparse_nmf import SparseNMF
    from partwise.estimators.sym_nmf import SymNMF
    from partwise.selection.consensus import Consensus, consensus
    from partwise.selection.intervals import Intervals, bootstrap_intervals
    from partwise.selection.parameters import Selection, select
    from partwise.selection.rank import Choice, choose_k
    from partwise.selection.signatures import match_parts, refit

_MODULES = ("cells", "cluster", "datasets", "graph", "io", "metrics", "plot", "report", "terms")
_NAMES = {
    **ESTIMATORS,
    "Choice": "partwise.selection.rank",
    "choose_k": "partwise.selection.rank",
    "bootstrap_intervals": "partwise.selection.intervals",
    "Intervals": "partwise.selection.intervals",
    "Consensus": "partwise.selection.consensus",
    "consensus": "partwise.selection.consensus",
    "non_negative_factorization": "partwise.estimators.nmf",
    "load": "partwise.estimators.saving",
    "register": "partwise.estimators.saving",
    "match_parts": "partwise.selection.signatures",
    "refit": "partwise.selection.signatures",
    "Selection": "partwise.selection.parameters",
    "select": "partwise.selection.parameters",
}
__all__ = [
    "CDNMF",
    "CF",
    "CNMF",
    "GNMF",
    "LCF",
    "NMF",
    "NMFDC",
    "NSNMF",
    "NTF",
    "AnsNMF",
    "Choice",
    "Consensus",
    "ConstrainedNMF",
    "Intervals",
    "LpCNMF",
    "MiniBatchNMF",
    "PartsClassifier",
    "Selection",
    "SemiGNMF",
    "SemiNMF",
    "SparseNMF",
    "SymNMF",
    "__version__",
    "bootstrap_intervals",
    "cells",
    "choose_k",
    "cluster",
    "consensus",
    "datasets",
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
    "terms",
]

__getattr__, __dir__ = lazy(__name__, _NAMES, _MODULES)
