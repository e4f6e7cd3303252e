"""What is read: lists, histories, trees, searches."""
