"""Public functions for k-means clusters of part weights, as in the papers.

With labels, clusters are matched one to one with classes and take their names.
"""

from partwise.evaluation.kmeans import Clustering, cluster_representation

__all__ = ["Clustering", "cluster_representation"]
