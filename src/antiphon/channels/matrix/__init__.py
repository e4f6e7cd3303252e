"""The channel `matrix`: an account of any homeserver, and the bridges that others keep there."""
