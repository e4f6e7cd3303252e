"""A program that exchanges signed messages with sessions, in both directions."""
