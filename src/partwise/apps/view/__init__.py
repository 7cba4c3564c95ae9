"""Plots and HTML reports of fitted models."""
