"""Adapters to where people and programs write: each translates one platform's messages, and decides nothing."""
