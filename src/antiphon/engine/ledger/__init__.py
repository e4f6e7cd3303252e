"""What every other room stands on: runs come into being, words enter a log, waits end."""
