"""Results that children owe to their requesters."""
