"""Programs that start runs with signed messages."""
