"""Harnesses that speak the Agent Client Protocol, version 1: this program as their client."""
