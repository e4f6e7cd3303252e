"""Sessions that sessions spawn."""
