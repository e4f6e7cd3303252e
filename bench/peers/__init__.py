"""Antiphon's store beside those of other packages, each in an environment of its own, in one run."""
