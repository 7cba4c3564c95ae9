"""Pictures of parts, codes and fits, with matplotlib."""

from partwise.view.plot import (
    class_parts,
    components,
    convergence,
    embedding,
    parameter_path,
    top_terms,
)
from partwise.view.plot_many import clustergram

__all__ = [
    "class_parts",
    "clustergram",
    "components",
    "convergence",
    "embedding",
    "parameter_path",
    "top_terms",
]
