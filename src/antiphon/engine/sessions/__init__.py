"""What people and programs do to a session."""
