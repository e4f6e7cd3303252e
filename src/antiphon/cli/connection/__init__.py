"""The way from a command to a gateway."""
