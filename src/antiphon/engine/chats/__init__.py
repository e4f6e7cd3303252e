"""Chats of people on channels: who writes, to which session, and commands."""
