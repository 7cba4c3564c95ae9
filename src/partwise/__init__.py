"""Partwise: parts-based representations that listen to labels, graphs, sparsity and locality."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "NMF": "partwise.estimators.nmf",
    "non_negative_factorization": "partwise.estimators.nmf",
    "GNMF": "partwise.estimators.gnmf",
    "SemiGNMF": "partwise.estimators.gnmf",
    "CNMF": "partwise.estimators.cnmf",
    "CDNMF": "partwise.estimators.cdnmf",
    "NMFDC": "partwise.estimators.nmfdc",
    "NSNMF": "partwise.estimators.nmfdc",
    "ConstrainedNMF": "partwise.estimators.constrained",
    "CF": "partwise.estimators.concepts",
    "LCF": "partwise.estimators.concepts",
    "SparseNMF": "partwise.estimators.sparse_nmf",
    "NTF": "partwise.estimators.ntf",
    "load": "partwise.persist",
}
__all__ = ["__version__", *_LAZY]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'partwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
