"""One file a method: a docstring with the objective, and what it fixes of a `Description`."""
