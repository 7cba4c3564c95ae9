"""Dask arrays: V lies beside its rows of X."""
