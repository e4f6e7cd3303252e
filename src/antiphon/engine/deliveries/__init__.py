"""Texts that leave through a channel."""
