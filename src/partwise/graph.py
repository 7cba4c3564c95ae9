"""Neighbour graphs: what `GNMF` builds, and how to build or check your own."""

from partwise.knowledge.graph import (
    check_graph,
    nearest_neighbors,
    neighbor_graph,
    semi_supervised_graph,
)

__all__ = ["check_graph", "nearest_neighbors", "neighbor_graph", "semi_supervised_graph"]
