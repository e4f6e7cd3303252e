"""Calls from outside a run that run once: for their `Idempotency-Key`, or after a yes."""
