"""The WebSocket: requests to all operations, and subscriptions to what changes."""
