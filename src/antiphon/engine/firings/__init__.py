"""What follows from the end of a task's run, and who is told of it."""
