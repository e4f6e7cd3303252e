"""The channel `apprise`: notifications alone."""
