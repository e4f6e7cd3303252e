"""Ready configurations for one person, a family and repositories, and what a configuration means in plain words."""
