"""Arrays of numpy and scipy: in memory, on disk, incomplete; and the numba kernels."""
