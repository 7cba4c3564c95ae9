"""Public functions of the studio, in which you label samples in the browser."""

from partwise.apps.studio.server import start

__all__ = ["start"]
