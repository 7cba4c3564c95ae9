"""Public data sets by name, and data sets in your own files.

Partwise ships no data. :func:`load` searches ``data_home``, the folder in the environment variable
``PARTWISE_DATA``, and a user cache. With ``download=True``, scikit-learn downloads the sets that it
can. ``"digits"`` is a part of scikit-learn.
"""

from partwise.io.datasets.loading import available, load, user_cache
from partwise.io.datasets.matrix_files import Dataset, read
from partwise.io.datasets.preprocessing import keep_labels, tfidf, unit_rows

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
