"""Read-only views: lists, histories, trees, searches."""
