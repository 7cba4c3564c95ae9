"""The optimisation problem: losses, penalty terms and the two subproblems."""
