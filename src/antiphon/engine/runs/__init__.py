"""A run from its claim to its one end."""
