"""Antiphon as a Python library: the same runtime inside a program, without a server."""
