"""Arrays of numpy and scipy: in memory, on disk, with gaps; and the kernels that numba compiles."""
