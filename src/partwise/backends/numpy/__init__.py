"""Back ends for numpy and scipy: in memory, on disk, with missing entries; numba kernels."""
