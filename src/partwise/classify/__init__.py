"""Naming samples from a few labels: features, heads, their weights, and what they mean."""
