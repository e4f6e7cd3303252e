"""What a check of the database reads about tasks, and about its clock."""

TASKS_SCHEMA = 30
"""The migration that made their tables."""
LIST_SCHEDULES = "SELECT id, schedule, next_at FROM tasks WHERE state = 'active'"
NEWEST_CHANGE = "SELECT max(updated_at) FROM sessions"
