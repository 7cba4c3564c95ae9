"""Public functions for k-means clusters of part weights, as in the papers.

A cluster takes the name of the class label that most of its samples have.
"""

from partwise.evaluation.kmeans import Clustering, cluster_representation

__all__ = ["Clustering", "cluster_representation"]
