"""Issue warnings that point at the caller's line."""

from __future__ import annotations

import sys
import warnings

_OURS = ("partwise.", "sklearn.")


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line that called this package, through scikit-learn or not."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
