"""Pictures of parts, codes and fits, with matplotlib."""

from partwise.view.plot import (
    class_parts,
    components,
    convergence,
    embedding,
    parameter_path,
    top_terms,
)
from partwise.view.plot_many import choice, clustergram, selection

__all__ = [
    "choice",
    "class_parts",
    "clustergram",
    "components",
    "convergence",
    "embedding",
    "parameter_path",
    "selection",
    "top_terms",
]
