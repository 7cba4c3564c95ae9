"""The papers' clustering protocol: k-means on the codes, clusters named after classes."""

from partwise.evaluation.kmeans import Clustering, cluster_representation

__all__ = ["Clustering", "cluster_representation"]
