"""What agents remember: notes of people and groups, and the working memory of sessions."""
