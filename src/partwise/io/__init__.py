"""Readers for images, texts, tables, matrices and AnnData files."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partwise._lazy import lazy

if TYPE_CHECKING:
    from partwise.io.anndata_files import from_anndata, to_anndata
    from partwise.io.cnmf_folder import read_cnmf, write_cnmf
    from partwise.io.known_parts import seed_parts, without_features
    from partwise.io.label_files import keep_share, read_labels
    from partwise.io.read import read_samples
    from partwise.io.samples import Samples

__all__ = [
    "Samples",
    "from_anndata",
    "keep_share",
    "read_cnmf",
    "read_labels",
    "read_samples",
    "seed_parts",
    "to_anndata",
    "without_features",
    "write_cnmf",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Samples": "partwise.io.samples",
        "from_anndata": "partwise.io.anndata_files",
        "keep_share": "partwise.io.label_files",
        "read_cnmf": "partwise.io.cnmf_folder",
        "read_labels": "partwise.io.label_files",
        "read_samples": "partwise.io.read",
        "seed_parts": "partwise.io.known_parts",
        "to_anndata": "partwise.io.anndata_files",
        "without_features": "partwise.io.known_parts",
        "write_cnmf": "partwise.io.cnmf_folder",
    },
)
