"""Single-cell data: gene expression programs from counts, in arrays or AnnData."""
