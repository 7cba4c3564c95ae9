"""Applications of the library: single-cell data, plots and reports, papers, studio, command."""
