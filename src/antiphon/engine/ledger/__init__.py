"""The base of every other room: runs are created, messages enter logs, waits end."""
