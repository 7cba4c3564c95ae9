"""Partwise: parts-based representations that listen to labels, graphs, sparsity and locality."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partwise._lazy import lazy
from partwise._versions import __version__
from partwise.estimators import ESTIMATORS

if TYPE_CHECKING:  # an editor knows every class; at run time each is imported when it is used
    from partwise import cluster, datasets, graph, io, metrics, plot, report, terms
    from partwise.estimators.cdnmf import CDNMF
    from partwise.estimators.choice import Choice, choose_k
    from partwise.estimators.cnmf import CNMF
    from partwise.estimators.concepts import CF, LCF
    from partwise.estimators.consensus import Consensus, consensus
    from partwise.estimators.constrained import ConstrainedNMF
    from partwise.estimators.gnmf import GNMF, SemiGNMF
    from partwise.estimators.lpcnmf import LpCNMF
    from partwise.estimators.minibatch import MiniBatchNMF
    from partwise.estimators.nmf import NMF, non_negative_factorization
    from partwise.estimators.nmfdc import NMFDC, NSNMF
    from partwise.estimators.ntf import NTF
    from partwise.estimators.parts_classifier import PartsClassifier
    from partwise.estimators.registry import load, register
    from partwise.estimators.selection import Selection, select
    from partwise.estimators.semi_nmf import SemiNMF
    from partwise.estimators.signatures import match_parts, refit
    from partwise.estimators.sparse_nmf import SparseNMF
    from partwise.estimators.sym_nmf import SymNMF

_MODULES = ("cluster", "datasets", "graph", "io", "metrics", "plot", "report", "terms")
_NAMES = {
    **ESTIMATORS,
    "Choice": "partwise.estimators.choice",
    "choose_k": "partwise.estimators.choice",
    "Consensus": "partwise.estimators.consensus",
    "consensus": "partwise.estimators.consensus",
    "non_negative_factorization": "partwise.estimators.nmf",
    "load": "partwise.estimators.registry",
    "register": "partwise.estimators.registry",
    "match_parts": "partwise.estimators.signatures",
    "refit": "partwise.estimators.signatures",
    "Selection": "partwise.estimators.selection",
    "select": "partwise.estimators.selection",
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
    "Choice",
    "Consensus",
    "ConstrainedNMF",
    "LpCNMF",
    "MiniBatchNMF",
    "PartsClassifier",
    "Selection",
    "SemiGNMF",
    "SemiNMF",
    "SparseNMF",
    "SymNMF",
    "__version__",
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
