"""What people and programs see of answers."""
