"""Settings of hooks: programs that start runs by signed requests. Contract: keys 1, channels 1."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from antiphon.channels.hook.settings import HookSignature
from antiphon.channels.kinds import installed_names
from antiphon.channels.sections import CHANNEL_NAME, SignedSection
from antiphon.domain.errors import Invalid
from antiphon.domain.keys import SessionKey, SessionKind, parse_agent_id, parse_key
from antiphon.domain.new_keys import check_new_key
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.session import INTERNAL, WEBCHAT
from antiphon.settings.classification import ClassificationSection
from antiphon.settings.names import AgentName
from antiphon.settings.section import Section


def _hook_key(text: str) -> str:
    """The key, if it is a hook's."""
    try:
        key = parse_key(text)
        check_new_key(key)
    except Invalid as error:
        if "hook:" not in text:
            raise _not_of_a_hook(text) from error
        raise ValueError(error.message) from error
    if key.kind is not SessionKind.HOOK:
        raise _not_of_a_hook(text)
    return text


def _not_of_a_hook(text: str) -> ValueError:
    return ValueError(f"{text[:80]!r} is not the key of a hook; write 'hook:<name>' or 'agent:<agentId>:hook:<name>'")


def _channel(name: str) -> str:
    """One that is installed, or may be served by one that is: whether it is, is checked with all settings."""
    is_possible = re.fullmatch(CHANNEL_NAME, name) and name not in (INTERNAL, WEBCHAT)
    if name not in (names := installed_names()) and not is_possible:
        raise ValueError(f"{name[:80]!r} is no channel; choose from {', '.join(names)}")
    return name


class HookPlaceSection(Section):
    channel: Annotated[str, AfterValidator(_channel)]
    """The channel, which has to be configured."""
    account: str | None = None
    """The channel's account: for a webhook its name; for others it may be left out."""
    to: Annotated[str, Field(min_length=1, max_length=200)]
    """The chat or person there, by the platform's id; for a webhook the peer."""
    thread: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """A thread or topic of that chat."""


class HookSection(SignedSection):
    signature: HookSignature = HookSignature.ANTIPHON
    """How the sender signs: `antiphon`, or as `github` or `stripe` do."""
    agent: AgentName | None = None
    """The agent that answers; `agents.default` unless set."""
    session_key: Annotated[str, AfterValidator(_hook_key)] | None = None
    """The session of all its messages, such as `hook:ci`; unless set, each message has a session of its own."""
    deliver: HookPlaceSection | None = None
    """Where replies are sent; they stay in the log unless set."""
    queue_mode: QueueMode = QueueMode.ENQUEUE
    """How its messages are handled if their session is busy, unless the session has a mode of its own."""
    classification: ClassificationSection | None = None
    """The classification of its messages, and the least classification of its new sessions; public unless set. They are
    untrusted in any case."""

    @property
    def session(self) -> SessionKey | None:
        return None if self.session_key is None else parse_key(self.session_key)


def _hook_names(sections: dict[str, HookSection]) -> dict[str, HookSection]:
    """The sections, if each name fits into addresses and signatures."""
    for name in sections:
        try:
            parse_agent_id(name)
        except Invalid:
            raise ValueError(f"{name[:80]!r} cannot be a hook's name; use 1 to 64 of a-z, 0-9, _ and -") from None
    return sections


HookSections = Annotated[dict[str, HookSection], AfterValidator(_hook_names)]
