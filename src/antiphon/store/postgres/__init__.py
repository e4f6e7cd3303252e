"""PostgreSQL: the scale-out database, its schema, its notifications."""
