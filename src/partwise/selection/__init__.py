"""How many parts, which parameters, and which parts come back."""
