"""Back end for Dask arrays; each block of V is stored on the worker with its rows of X."""
