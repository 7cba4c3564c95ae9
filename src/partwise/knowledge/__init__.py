"""What a person knows: labels and graphs, checked and encoded."""
