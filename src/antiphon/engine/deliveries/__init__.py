"""Texts on their way out by a channel."""
