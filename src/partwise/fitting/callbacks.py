"""scikit-learn's callbacks where it has them (1.9 and newer); elsewhere fits run without any."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["AVAILABLE", "CallbackSupportMixin", "with_callbacks"]

#: True if `set_callbacks` works.
AVAILABLE = importlib.util.find_spec("sklearn.callback") is not None
Method = TypeVar("Method", bound=Callable[..., Any])

if AVAILABLE and not TYPE_CHECKING:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
else:

    class CallbackSupportMixin:
        """Stand-in for scikit-learn's class, whose method raises an error with the reason."""

        def set_callbacks(self, *callbacks: Any) -> Any:
            """Raise an error, because this needs scikit-learn 1.9."""
            if callbacks:
                raise ImportError(
                    "set_callbacks needs scikit-learn 1.9 or newer: pip install -U scikit-learn"
                )
            return self

    def with_callbacks(method: Method) -> Method:
        """Return the method unchanged."""
        return method
