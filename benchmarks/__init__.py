"""Partwise against its peers, and its models against each other: `make bench`."""
