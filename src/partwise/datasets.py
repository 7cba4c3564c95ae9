"""Public functions that load known data sets by name, and your own files."""

from partwise.io.datasets import *  # noqa: F403
from partwise.io.datasets import __all__ as __all__
