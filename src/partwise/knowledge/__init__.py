"""Prior knowledge: labels, links and neighbour graphs, checked and encoded."""
