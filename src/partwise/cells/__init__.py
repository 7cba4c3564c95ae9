"""Counts of cells: programmes, places, samples, in the terms of AnnData."""
