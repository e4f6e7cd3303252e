"""One attempt to get past what Antiphon promises: who tries, through which door, and what."""

from dataclasses import dataclass
from enum import StrEnum

import pytest
from _pytest.mark import ParameterSet


class Attacker(StrEnum):
    NOBODY = "nobody"
    """Reaches the port, and has no credential."""
    PAGE = "page of another origin"
    LOCAL_USER = "another local user"
    GUEST = "guest"
    USER = "user"
    """Linked, below owner, in chats of their own beside those of others."""
    STRANGER = "stranger whose words are passed on"
    FORMER_READER = "user who read a guest's chats"
    """A code made them the guest's survivor, until the guest undid it."""
    BOUND_TOKEN = "bound token"
    WRITER = "token that may only write"
    SANDBOXED = "sandboxed agent"
    TOOL_RESULT = "tool result"
    CHILD = "child"


class Door(StrEnum):
    HTTP = "http"
    SSE = "sse"
    PAGE = "page"
    MCP = "mcp"
    COMMAND_LINE = "command line"
    WEBHOOK = "webhook"
    SANDBOX = "sandbox"
    TELEGRAM = "telegram"
    FILES = "files"


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A row of the table; each file beside this one adds the fields that its door needs."""

    attacker: Attacker
    door: Door
    what: str
    """What is tried, in a few words; unique in its file."""


def rows(*attempts: Attempt) -> list[ParameterSet]:
    """The rows as parameters of one test, named by attacker, door and what."""
    return [pytest.param(each, id=f"{each.attacker}, {each.door}: {each.what}") for each in attempts]
