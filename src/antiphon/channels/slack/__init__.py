"""The channel `slack`: an app in a workspace of Slack, to which people write in private, in channels and in threads."""
