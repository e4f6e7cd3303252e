"""Pages of the web, for tools that read them."""
