"""A person's own data: folders of images or texts, tables, matrices, AnnData."""

from partwise.io.annotated import from_anndata, to_anndata
from partwise.io.labels import keep_share, read_labels
from partwise.io.read import read_samples
from partwise.io.samples import Samples

__all__ = ["Samples", "from_anndata", "keep_share", "read_labels", "read_samples", "to_anndata"]
