"""Tasks: agents that act at set times, with the rights of their makers."""
