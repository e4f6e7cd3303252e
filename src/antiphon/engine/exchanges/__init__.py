"""Sends between sessions, and the turns that follow them."""
