"""Nouns: frozen dataclasses and pure functions."""
