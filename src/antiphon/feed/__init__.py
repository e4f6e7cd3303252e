"""Reading the log and waiting for it."""
