"""Prior knowledge: labels, pairs of samples (links) and neighbour graphs."""
