"""What rules can look at: hooks, their fields, and how the values of these compare. Contract: flow 9."""

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Any, Final, NamedTuple, TypeAlias, cast

from msgspec import Struct

from antiphon.domain.agent import Effect
from antiphon.domain.classification import Integrity, Level
from antiphon.domain.message import JsonObject

Scalar: TypeAlias = str | int | float | bool
Facts: TypeAlias = Mapping[str, object]
"""What a hook knows, by field; the arguments of a call are one object, `arguments`."""

ARGUMENT: Final = "arguments."
TEXT: Final = "text"
RULE: Final = "rule"
"""The code of what a written rule or a check refuses."""
COMPARTMENTS: Final = "compartments"


class Hook(StrEnum):
    """Where rules are asked."""

    PRE_CONTEXT_INJECTION = "PRE_CONTEXT_INJECTION"
    """Before an entry first stands in a prompt."""
    PRE_TOOL_CALL = "PRE_TOOL_CALL"
    MCP_TOOL_CALL = "MCP_TOOL_CALL"
    """After `PRE_TOOL_CALL`, for a tool of an MCP server."""
    SECRET_ACCESS = "SECRET_ACCESS"
    """Before a call that carries a configured secret."""
    POST_TOOL_RESPONSE = "POST_TOOL_RESPONSE"
    PRE_OUTPUT = "PRE_OUTPUT"
    """Before words leave for a channel, or answer somebody who waits."""
    AGENT_INVOCATION = "AGENT_INVOCATION"
    """Before a session is sent to, spawned or steered, and before a turn of an exchange."""
    SESSION_RESET = "SESSION_RESET"


class Action(IntEnum):
    """What a rule wants, the stricter the higher."""

    ALLOW = 0
    REDACT = 1
    APPROVE = 2
    BLOCK = 3


CALL_HOOKS: Final = (Hook.PRE_TOOL_CALL, Hook.MCP_TOOL_CALL, Hook.SECRET_ACCESS)
"""The hooks before a call, in their order; `AGENT_INVOCATION` follows them."""
OF_CALLS: Final = frozenset({*CALL_HOOKS, Hook.POST_TOOL_RESPONSE})
ASKING: Final = frozenset({*CALL_HOOKS, Hook.AGENT_INVOCATION, Hook.PRE_OUTPUT})
REDACTING: Final = frozenset(Hook) - {Hook.AGENT_INVOCATION, Hook.SESSION_RESET}
_EVERY: Final = frozenset(Hook)


class Operator(StrEnum):
    EQ = "eq"
    NE = "ne"
    IN = "in"
    PREFIX = "prefix"
    CONTAINS = "contains"
    LIKE = "like"
    LT = "lt"
    LE = "le"
    GT = "gt"
    GE = "ge"


_SAME: Final = (Operator.EQ, Operator.NE, Operator.IN)
ORDER: Final = (Operator.LT, Operator.LE, Operator.GT, Operator.GE)
PARTS: Final = (Operator.PREFIX, Operator.CONTAINS, Operator.LIKE)


class ValueKind(StrEnum):
    """What values a field has."""

    TEXT = "text"
    WORD = "word"
    """One of a few words."""
    RANK = "rank"
    """One of a few words that have an order."""
    NUMBER = "number"
    SET = "set"
    """Any number of words; `contains` asks for one of them."""
    ANY = "any"
    """An argument: whatever JSON its tool takes. In lists and objects, `contains` and `like` look at each text."""


OPERATORS: Final[Mapping[ValueKind, tuple[Operator, ...]]] = {
    ValueKind.TEXT: (*_SAME, *PARTS),
    ValueKind.WORD: _SAME,
    ValueKind.RANK: (*_SAME, *ORDER),
    ValueKind.NUMBER: (*_SAME, *ORDER),
    ValueKind.SET: (Operator.CONTAINS,),
    ValueKind.ANY: tuple(Operator),
}


class Field(NamedTuple):
    """A field of facts."""

    kind: ValueKind
    hooks: frozenset[Hook]
    says: str
    words: tuple[str, ...] = ()


_LEVELS: Final = tuple(level.name for level in Level)
WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SOURCES: Final = ("person", "session", "tool", "hook", "memory", "description")
ACTS: Final = ("send", "spawn", "steer", "turn")
_EFFECTS: Final = tuple(effect.value for effect in Effect)
_OUTPUT: Final = frozenset({Hook.PRE_OUTPUT})
_CONTEXT: Final = frozenset({Hook.PRE_CONTEXT_INJECTION})
_INVOKING: Final = frozenset({Hook.AGENT_INVOCATION})
_RESETTING: Final = frozenset({Hook.SESSION_RESET})

FIELDS: Final[Mapping[str, Field]] = {
    "agent": Field(ValueKind.TEXT, _EVERY, "the agent of the session"),
    "session.kind": Field(ValueKind.TEXT, _EVERY, "what the session is: `main`, `subagent`, `cron`, `hook` and so on"),
    "session.channel": Field(ValueKind.TEXT, _EVERY, "the channel of its chat"),
    "session.chatType": Field(ValueKind.TEXT, _EVERY, "`direct`, `group` or `channel`"),
    "person": Field(ValueKind.TEXT, _EVERY, "whose rights it has, such as `person:owner`"),
    "role": Field(ValueKind.WORD, _EVERY, "what that person is", ("owner", "user", "guest")),
    "level": Field(ValueKind.RANK, _EVERY, "the level of what is decided about", _LEVELS),
    COMPARTMENTS: Field(ValueKind.SET, _EVERY, "its compartments, by name"),
    "integrity": Field(ValueKind.WORD, _EVERY, "whether it is trusted", ("trusted", "untrusted")),
    "hour": Field(ValueKind.NUMBER, _EVERY, "the hour of the day, 0 to 23, in the zone of tasks"),
    "weekday": Field(ValueKind.RANK, _EVERY, "the day of the week there", WEEKDAYS),
    "tool": Field(ValueKind.TEXT, OF_CALLS, "the name of the tool"),
    "server": Field(ValueKind.TEXT, OF_CALLS, "the MCP server that the tool is of"),
    "effects": Field(ValueKind.SET, OF_CALLS, "what the tool does", _EFFECTS),
    "sink.level": Field(ValueKind.RANK, OF_CALLS, "the highest level that may go to the tool", _LEVELS),
    "sink.channel": Field(ValueKind.TEXT, _OUTPUT, "the channel where the words go"),
    "sink.chatType": Field(ValueKind.WORD, _OUTPUT, "whether it is a group", ("direct", "group")),
    "sink.recipient": Field(ValueKind.TEXT, _OUTPUT, "the chat or person there, as the channel names it"),
    "source": Field(ValueKind.WORD, _CONTEXT, "where the entry comes from", SOURCES),
    "text": Field(ValueKind.TEXT, _OUTPUT | _CONTEXT | {Hook.POST_TOOL_RESPONSE}, "the words themselves"),
    "act": Field(ValueKind.WORD, _INVOKING, "how the session is reached", ACTS),
    "target.agent": Field(ValueKind.TEXT, _INVOKING, "the agent of that session"),
    "cause": Field(ValueKind.TEXT, _RESETTING, "why it is reset: `reset` by a person, `daily`, `idle` or `task`"),
    "by": Field(ValueKind.TEXT, _RESETTING, "who resets it, such as `person:owner`"),
}
ANY_ARGUMENT: Final = Field(ValueKind.ANY, frozenset(OF_CALLS), "an argument of the call, also one within an object")
ANY_ARGUMENT_FIELD: Final = f"{ARGUMENT}<name>"


def is_known(name: str) -> bool:
    """Whether some hook has the field."""
    return name in FIELDS or (name.startswith(ARGUMENT) and name not in (ARGUMENT, ANY_ARGUMENT_FIELD))


def field_of(name: str) -> Field:
    return ANY_ARGUMENT if name.startswith(ARGUMENT) and name != ARGUMENT else FIELDS[name]


class RuleCondition(Struct, frozen=True):
    field: str
    op: Operator
    value: Scalar | tuple[Scalar, ...]


class WrittenRule(Struct, frozen=True, kw_only=True):
    id: str
    hook: Hook
    when: tuple[RuleCondition, ...]
    action: Action
    message: str | None = None
    where: str = ""
    """The file and line in which it stands."""

    def data(self) -> JsonObject:
        """As it is written."""
        when = [{"field": each.field, "op": each.op.value, "value": _plain(each.value)} for each in self.when]
        said: JsonObject = {"id": self.id, "hook": self.hook.value, "when": cast(Any, when), "action": self.action.name}
        return said if self.message is None else said | {"message": self.message}


def _plain(value: Scalar | tuple[Scalar, ...]) -> Any:
    return list(value) if isinstance(value, tuple) else value


def is_number(value: object) -> bool:
    """Whether it is a number in JSON, where `true` is none."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def integrity_word(integrity: Integrity) -> str:
    """As rules write it: what a person with fewer rights said is untrusted."""
    return "trusted" if integrity is Integrity.TRUSTED else "untrusted"
