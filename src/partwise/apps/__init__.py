"""Applications: single-cell data, plots, reports, papers, studio and command."""
