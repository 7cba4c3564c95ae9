"""Steps, one loop, starts: how a model is solved."""
