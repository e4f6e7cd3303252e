"""Use cases: every change of state passes here once."""
