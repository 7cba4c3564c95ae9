"""Public functions that build, combine or check neighbour graphs for `GNMF`."""

from partwise.knowledge.graph import (
    check_graph,
    nearest_neighbors,
    neighbor_graph,
    semi_supervised_graph,
)
from partwise.knowledge.graph.places import join_graphs, morans_i, pixel_places, spatial_graph

__all__ = [
    "check_graph",
    "join_graphs",
    "morans_i",
    "nearest_neighbors",
    "neighbor_graph",
    "pixel_places",
    "semi_supervised_graph",
    "spatial_graph",
]
