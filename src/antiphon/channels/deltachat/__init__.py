"""The channel `deltachat`: end-to-end encrypted chats over a mailbox. Its core runs only if it is configured."""
