"""The studio: label a few samples in the browser, and see the answer change at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from partwise._lazy import lazy

if TYPE_CHECKING:
    from partwise.studio.server import Studio, start

__all__ = ["Studio", "start"]

__getattr__, __dir__ = lazy(
    __name__, {"Studio": "partwise.studio.server", "start": "partwise.studio.server"}
)
