"""The channel `email`: a mailbox to which people write. Its client libraries are imported only if it is configured."""
