"""What computes: arrays, back ends, terms, losses, the problem and its solvers."""
