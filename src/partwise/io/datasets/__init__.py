"""Data sets: the papers' and other public ones by name, and anyone's own files.

Nothing is shipped. :func:`load` looks in ``data_home``, in the folder that the environment variable
``PARTWISE_DATA`` names, and in a user cache; where scikit-learn can fetch a public set,
``download=True`` asks it to. Only ``"digits"`` comes with scikit-learn itself.
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
