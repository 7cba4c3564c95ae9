"""Support for scikit-learn's callbacks, which need scikit-learn 1.9 or newer.

With an older scikit-learn, estimators run without callbacks.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["AVAILABLE", "CallbackSupportMixin", "with_callbacks"]

#: True if the installed scikit-learn supports callbacks, so that `set_callbacks` works.
AVAILABLE = importlib.util.find_spec("sklearn.callback") is not None
Method = TypeVar("Method", bound=Callable[..., Any])

if AVAILABLE and not TYPE_CHECKING:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
else:

    class CallbackSupportMixin:
        """Replacement for scikit-learn's mixin, for scikit-learn older than 1.9."""

        def set_callbacks(self, *callbacks: Any) -> Any:
            """Raise an error if callbacks are given, because they need scikit-learn 1.9."""
            if callbacks:
                raise ImportError(
                    "set_callbacks needs scikit-learn 1.9 or newer: pip install -U scikit-learn"
                )
            return self

    def with_callbacks(method: Method) -> Method:
        """Return the method unchanged, because this scikit-learn has no callbacks."""
        return method
