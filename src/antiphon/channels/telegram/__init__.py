"""The channel `telegram`: chats of people with a bot. The client library is imported only if it is configured."""
