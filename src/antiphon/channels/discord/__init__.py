"""The channel `discord`: chats of people with bots. The client library is imported only if one is configured."""
