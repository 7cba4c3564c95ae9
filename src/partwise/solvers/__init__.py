"""Solvers: initial values, update steps, the iteration loop, and checkpoints."""
