"""Label samples in the browser and watch the predictions change."""

from partwise.apps.studio.server import start

__all__ = ["start"]
