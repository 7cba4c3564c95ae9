"""Solvers: starts, steps, the loop, and checkpoints."""
