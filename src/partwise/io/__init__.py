"""A person's own data: folders of images or texts, tables, matrices, AnnData."""

from partwise.io.samples import Samples

__all__ = ["Samples"]
