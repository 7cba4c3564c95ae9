"""One file per paper: a docstring with the objective, and the model it builds."""
