"""Durable state: all SQL lives here."""
