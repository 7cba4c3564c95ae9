"""Version of Partwise, and of the libraries that can change its numerical results."""

from __future__ import annotations

import platform
from importlib import metadata

__version__ = "0.3.0"

#: Libraries whose versions `versions` always returns.
LIBRARIES = ("numpy", "scipy", "scikit-learn", "numba")


def versions(*more: str) -> dict[str, str]:
    """Return the versions of Partwise, Python, main libraries and other packages."""
    found = {"partwise": __version__, "python": platform.python_version()}
    for name in (*LIBRARIES, *more):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
