"""Authentication, and the sessions that each actor reaches."""
