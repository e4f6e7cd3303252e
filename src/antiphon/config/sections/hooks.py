"""Settings of hooks: programs that start runs by signed requests. Contract: keys 1, channels 1."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from antiphon.channels.hook_settings import HookSignature
from antiphon.config.sections.agents import AgentName
from antiphon.config.sections.classification import ClassificationSection
from antiphon.config.sections.section import Section, secret_from
from antiphon.domain.errors import Invalid
from antiphon.domain.keys import SessionKey, SessionKind, parse_agent_id, parse_key
from antiphon.domain.new_keys import check_new_key
from antiphon.domain.queue_mode import QueueMode


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


class HookPlaceSection(Section):
    channel: Literal["telegram", "webhook"]
    """The channel, which has to be configured."""
    account: str | None = None
    """The channel's account: for a webhook its name; for others it may be left out."""
    to: Annotated[str, Field(min_length=1, max_length=200)]
    """The chat or person there, by the platform's id; for a webhook the peer."""
    thread: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """A thread or topic of that chat."""


class HookSection(Section):
    secret: SecretStr | None = None
    """Verifies messages; at least 16 characters. Prefer `secret_env`."""
    secret_env: str | None = None
    """The environment variable that holds the secret."""
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

    def key(self) -> str | None:
        """The secret set here or named by `secret_env`."""
        return secret_from(self.secret, self.secret_env)

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
