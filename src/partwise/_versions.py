"""The version of this package and of those that its numbers depend on."""

from __future__ import annotations

import platform
from importlib import metadata

__version__ = "0.3.0"

#: Libraries in every table of versions.
LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")


def versions(*more: str) -> dict[str, str]:
    """Return the versions of partwise, Python, its libraries and those named."""
    found = {"partwise": __version__, "python": platform.python_version()}
    for name in (*LIBRARIES, *more):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
