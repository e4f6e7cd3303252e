"""The settings of webhooks: programs that exchange signed messages with sessions."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, SecretStr

from antiphon.channels.sections import AccountSection, SignedSection
from antiphon.channels.webhook.settings import NAME
from antiphon.domain.errors import Invalid
from antiphon.domain.keys import DmScope, direct_key, parse_agent_id
from antiphon.domain.queue_mode import QueueMode
from antiphon.settings.addresses import WebAddress
from antiphon.settings.classification import ClearanceSection
from antiphon.settings.names import DEFAULT_AGENT


class WebhookSection(AccountSection, SignedSection):
    url: WebAddress | None = None
    """The address that replies are posted to; without it, the webhook only receives messages."""
    secret: SecretStr | None = Field(default=None, exclude=True)
    """Signs outgoing texts and verifies incoming messages; at least 16 characters. Prefer `secret_env`."""
    principal: Literal["guest", "owner"] = "guest"
    """The rights of its messages: each peer is a guest of its own, or all have the owner's rights."""
    queue_mode: QueueMode = QueueMode.COLLECT
    """How its messages are handled if their session is busy, unless the session has a mode of its own. With
    `collect`, one run answers all messages that wait."""
    timeout_seconds: Annotated[float, Field(gt=0, le=600)] = 30.0
    """How long one request may take."""
    clearance: ClearanceSection | None = None
    """What may be sent to it, as far as the person there may read it too; public data unless set. Its sessions take in
    no more than that."""

    @property
    def is_owners(self) -> bool:
        return self.principal == "owner"

    @property
    def sends(self) -> bool:
        return self.url is not None


def _webhook_names(sections: dict[str, WebhookSection]) -> dict[str, WebhookSection]:
    """The sections, if each name fits into addresses and keys."""
    for name in sections:
        try:
            parse_agent_id(name)
            direct_key(DEFAULT_AGENT, channel=NAME, account=name, peer="x", scope=DmScope.PER_ACCOUNT_CHANNEL_PEER)
        except Invalid:
            raise ValueError(
                f"{name!r} cannot be a webhook's name; use 1 to 64 of a-z, 0-9, _ and -, and no word that keys use"
            ) from None
    return sections


WebhookSections = Annotated[dict[str, WebhookSection], AfterValidator(_webhook_names)]
