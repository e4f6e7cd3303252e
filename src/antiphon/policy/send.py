"""Decides whether anything may be sent in a session, by its channel and chat type. Contract: send_policy 1, 3."""

from enum import StrEnum
from typing import Final

from msgspec import Struct

from antiphon.domain.session import SendOverride
from antiphon.policy.decision import ALLOW, Decision, Deny


class SendAction(StrEnum):
    ALLOW = "allow"
    DENY = "deny"


class SendRule(Struct, frozen=True, kw_only=True):
    """Applies to sessions that meet every condition; None sets no condition."""

    action: SendAction
    channel: str | None = None
    chat_type: str | None = None
    """`direct | group | channel`; `group` fits channels, too."""
    key_prefix: str | None = None
    """A prefix of the key, or of the part after `agent:<id>:`."""

    def concerns(self, facts: "SendFacts", keys: tuple[str, str]) -> bool:
        """`keys` are the session's key and the part after its agent, in lower case."""
        if self.chat_type is not None and facts.chat_type not in _FITTING.get(self.chat_type, {self.chat_type}):
            return False
        if self.channel is not None and self.channel.lower() != facts.channel.lower():
            return False
        if self.key_prefix is None:
            return True
        key, rest = keys
        prefix = self.key_prefix.lower()
        return key.startswith(prefix) or rest.startswith(prefix)


_FITTING: Final = {"group": frozenset({"group", "channel"})}


class SendFacts(Struct, frozen=True, kw_only=True):
    """The facts about a session, or about a chat by its place, that rules use."""

    key: str
    channel: str
    chat_type: str | None
    override: SendOverride | None


class SendPolicy(Struct, frozen=True, kw_only=True):
    rules: tuple[SendRule, ...] = ()
    default: SendAction = SendAction.ALLOW

    @property
    def is_off(self) -> bool:
        """Whether it denies nothing, so that only the session's own setting counts."""
        return not self.rules and self.default is SendAction.ALLOW


def decide_send(policy: SendPolicy, facts: SendFacts) -> Decision:
    """The session's own setting first, then any rule that denies, then any that allows, then the default."""
    if facts.override is not None:
        denied = facts.override is SendOverride.DENY
        return Deny("send.override", "Sending is switched off in this session.") if denied else ALLOW
    key = facts.key.lower()
    keys = key, _without_agent(key)
    met = {rule.action for rule in policy.rules if rule.concerns(facts, keys)}
    if SendAction.DENY in met:
        return Deny("send.rule", "A rule of session.sendPolicy denies sending in this session.")
    if SendAction.ALLOW in met or policy.default is SendAction.ALLOW:
        return ALLOW
    return Deny("send.default", "session.sendPolicy denies sending unless a rule allows it.")


def _without_agent(key: str) -> str:
    prefix, _, rest = key.partition(":")
    return rest.partition(":")[2] if prefix == "agent" else key
