"""What can be set, by subject."""
