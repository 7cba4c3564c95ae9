"""Single-cell data: gene programs from counts, on arrays and on AnnData objects."""
