"""Indexing: slices, gathers and scatters."""
