"""Settings of channels, and of what those may do who write there."""

import os
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr

from antiphon.channels.webhook_settings import NAME as WEBHOOK
from antiphon.config.sections.agents import DEFAULT_AGENT
from antiphon.config.sections.section import Section
from antiphon.domain.errors import Invalid
from antiphon.domain.keys import DmScope, direct_key, parse_agent_id


def _webhook_names(sections: "dict[str, WebhookSection]") -> "dict[str, WebhookSection]":
    """Names that can stand in addresses and in keys."""
    for name in sections:
        try:
            parse_agent_id(name)
            direct_key(DEFAULT_AGENT, channel=WEBHOOK, account=name, peer="x", scope=DmScope.PER_ACCOUNT_CHANNEL_PEER)
        except Invalid:
            raise ValueError(
                f"{name!r} cannot be a webhook's name; use 1 to 64 of a-z, 0-9, _ and -, and none of the words of keys"
            ) from None
    return sections


def _web_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_address = False
    if not is_address:
        raise ValueError("needs an address that begins with http:// or https:// and names a host")
    return url


MIN_SECRET_LENGTH = 16


class WebhookSection(Section):
    url: Annotated[str, AfterValidator(_web_address)] | None = None
    """Where replies are sent, by POST; without it the webhook only takes messages in."""
    secret: SecretStr | None = None
    """Signs what goes out and proves what comes in; 16 characters at least. Better is `secret_env`."""
    secret_env: str | None = None
    """The environment variable that holds the secret."""
    agent: str | None = None
    """Whose sessions its chats are; `agents.default` unless set."""
    principal: Literal["guest", "owner"] = "guest"
    """Whose rights its messages have: those of a guest, each peer its own, or the owner's."""
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 30.0
    """How long one request may take."""

    def key(self) -> str | None:
        """The secret set here or named by `secret_env`."""
        if self.secret is not None:
            return self.secret.get_secret_value()
        return os.environ.get(self.secret_env) if self.secret_env else None


class ChannelsSection(Section):
    webhook: Annotated[dict[str, WebhookSection], AfterValidator(_webhook_names)] = Field(
        default_factory=dict[str, WebhookSection]
    )
    """Programs that speak with sessions by signed POST requests, by their name."""


class GuestSection(Section):
    tools: tuple[str, ...] = ()
    """Tools that guests may cause calls of beside the session tools, which they have for the session alone that they
    write in: Python functions, `<server>__<tool>` of MCP servers, `run_command`, `sessions_spawn`."""


class RolesSection(Section):
    guest: GuestSection = GuestSection()
    """Whoever writes and is not the owner, such as the peers of a webhook."""


class AccessSection(Section):
    roles: RolesSection = RolesSection()
