"""A file and `ANTIPHON_…` variables, checked once, then frozen."""
