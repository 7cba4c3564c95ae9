"""Benchmarks of Partwise against other packages, and of its models: `make bench`."""
