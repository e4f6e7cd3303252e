"""Reads logs and waits for new events."""
