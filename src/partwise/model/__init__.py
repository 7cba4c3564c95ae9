"""The problem: losses, terms, maps, and the two subproblems of a factorization."""
