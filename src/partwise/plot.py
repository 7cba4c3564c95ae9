"""Public functions that plot parts, part weights and fits with matplotlib."""

from partwise.apps.view.plot import *  # noqa: F403
from partwise.apps.view.plot import __all__ as __all__
