"""Data sets by name, and anyone's own files."""

from partwise.io.datasets import *  # noqa: F403
from partwise.io.datasets import __all__ as __all__
