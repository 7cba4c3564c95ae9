"""Single-cell data: from counts to gene expression programs, on arrays and on AnnData."""
