"""Evaluation: clusters of part weights, held-out data and scores."""
