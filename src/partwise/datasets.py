"""Data sets by name, and anyone's own files."""

from partwise.io.datasets import (
    Dataset,
    available,
    keep_labels,
    load,
    read,
    tfidf,
    unit_rows,
    user_cache,
)

__all__ = [
    "Dataset",
    "available",
    "keep_labels",
    "load",
    "read",
    "tfidf",
    "unit_rows",
    "user_cache",
]
