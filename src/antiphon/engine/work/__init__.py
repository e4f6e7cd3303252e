"""Who carries runs out, and where."""
