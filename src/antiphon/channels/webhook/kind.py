"""The channel `webhook`: what the package declares."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from antiphon.channels.abilities import Ability
from antiphon.channels.kind import ChannelKind, Given, Inside, OpenChannel, PostAddress
from antiphon.channels.signature import SIGNATURE_HEADER, TIME_HEADER, Direction, refusal_of
from antiphon.channels.webhook.section import WebhookSection, WebhookSections
from antiphon.channels.webhook.settings import NAME, WebhookSettings
from antiphon.clock import Clock
from antiphon.domain.actor import OWNER
from antiphon.domain.chat_form import ChatForm
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId

if TYPE_CHECKING:
    from antiphon.channels.webhook.inbox import WebhookInbox

Sections = Mapping[str, WebhookSection]


class WebhookKind(ChannelKind[Sections, list[WebhookSettings]]):
    name = NAME
    title = "a webhook"
    label = "webhooks"
    section = WebhookSections
    about = "Programs that exchange signed POST requests with sessions, by name."
    sender = "webhook with a url"
    chats = ChatForm(hasty_seconds=1)
    abilities = frozenset({Ability.IDS, Ability.REPLAY, Ability.ACKS, Ability.FIRSTS, Ability.THREADS})

    @property
    def address(self) -> PostAddress:
        from antiphon.wire.runs import PostedShape  # half of the engine

        return PostAddress(
            operation="webhooks.receive",
            path=f"/channels/{NAME}/{{name}}",
            headers=(TIME_HEADER, SIGNATURE_HEADER),
            about="Accepts a signed message: `{messageId, peer, text, threadId?, sender?, wait?}`.",
            answer=PostedShape,
            status=202,
            refusal=refusal_of(Direction.IN),
        )

    def read(self, given: Given[Sections]) -> list[WebhookSettings]:
        """The webhooks with their secrets. Raises `Invalid` for one without a secret that protects."""
        return [_settings(given, name, section) for name, section in given.section.items()]

    def missing(self, given: Given[Sections]) -> Iterator[str]:
        for name in given.section:
            if problem := _problem(given, name):
                where = given.origins.where(given.origins.spelt(*given.place, name, "secret_env"))
                yield f"{where}: {problem.rstrip('.')}"

    def open(self, settings: list[WebhookSettings], clock: Clock) -> OpenChannel:
        return _OpenWebhooks(settings, clock)

    def summary(self, settings: list[WebhookSettings]) -> str:
        return ", ".join(f"{each.name} ({'both ways' if each.url else 'in only'})" for each in settings)


class _OpenWebhooks(OpenChannel):
    def __init__(self, webhooks: list[WebhookSettings], clock: Clock) -> None:
        self._webhooks = webhooks
        senders = [webhook for webhook in webhooks if webhook.url is not None]
        if senders:
            from antiphon.channels.webhook.channel import WebhookChannel  # its HTTP client takes 40 ms to import

            self.senders = [WebhookChannel(webhook, clock) for webhook in senders]

    def receiver(self, inside: Inside) -> "WebhookInbox":
        from antiphon.channels.webhook.inbox import WebhookInbox

        return WebhookInbox(self._webhooks, inside.services, inside.replies)


def _settings(given: Given[Sections], name: str, section: WebhookSection) -> WebhookSettings:
    if (problem := _problem(given, name)) is not None:
        raise Invalid(problem, code="invalid_config")
    return WebhookSettings(
        name=name,
        secret=section.key() or "",
        url=section.url,
        agent_id=AgentId(section.agent or given.default_agent),
        principal=OWNER if section.principal == "owner" else None,
        queue_mode=section.queue_mode,
        timeout_seconds=section.timeout_seconds,
        classification=given.classification(section.classification, name, "classification"),
    )


def _problem(given: Given[Sections], name: str) -> str | None:
    """Why the webhook cannot start: it has no secret that protects."""
    return given.section[name].secret_problem("Webhook", f"channels.{NAME}.{name}")


WEBHOOK = WebhookKind()
