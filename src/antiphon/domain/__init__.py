"""Nouns: frozen structs and pure functions."""
