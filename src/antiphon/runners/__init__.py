"""Runners for frameworks of others: each module needs its framework, and uses of Antiphon what any program may."""
