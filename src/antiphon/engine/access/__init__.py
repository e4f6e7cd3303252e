"""Who acts, and which sessions they reach."""
