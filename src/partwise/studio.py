"""The studio: label samples in the browser and see the predictions change at once."""

from partwise.apps.studio.server import Studio, start

__all__ = ["Studio", "start"]
