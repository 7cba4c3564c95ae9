"""Evaluation: the clustering protocol of the papers, and scores."""
