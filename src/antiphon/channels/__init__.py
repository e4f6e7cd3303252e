"""Adapters to the places where people and programs write. Each only translates one platform's messages."""
