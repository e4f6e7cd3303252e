"""Hooks: programs that start runs with signed messages. What the package declares."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from antiphon.channels.hook.section import HookPlaceSection, HookSection, HookSections
from antiphon.channels.hook.settings import HookSettings, HookSignature
from antiphon.channels.hook.signature import HUB_HEADER, STRIPE_HEADER
from antiphon.channels.kind import ChannelKind, Given, Inside, OpenChannel, PostAddress
from antiphon.channels.signature import SIGNATURE_HEADER, TIME_HEADER, Direction, refusal_of
from antiphon.clock import Clock
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.machine_identities import HOOK as NAME
from antiphon.domain.session import DEFAULT_ACCOUNT, NOWHERE, DeliveryContext

if TYPE_CHECKING:
    from antiphon.channels.hook.inbox import HookInbox

Sections = Mapping[str, HookSection]


class HookKind(ChannelKind[Sections, list[HookSettings]]):
    name = NAME
    title = "a hook"
    label = "hooks"
    section = HookSections
    about = "Programs that start runs by signed requests to `/hooks/<name>`, by name."

    @property
    def address(self) -> PostAddress:
        from antiphon.wire.runs import PostedShape  # half of the engine

        return PostAddress(
            operation="hooks.receive",
            path="/hooks/{name}",
            headers=(TIME_HEADER, SIGNATURE_HEADER, HUB_HEADER, STRIPE_HEADER),
            about=(
                "Accepts a signed message of a program and starts a run: any JSON, or "
                "`{text, messageId?, data?, wait?}`."
            ),
            answer=PostedShape,
            status=202,
            refusal=refusal_of(Direction.HOOK),
        )

    @property
    def place(self) -> tuple[str, ...]:
        return ("hooks",)

    def read(self, given: Given[Sections]) -> list[HookSettings]:
        """The hooks with their secrets. Raises `Invalid` for one without a secret that protects."""
        found = [_settings(given, name, section) for name, section in given.section.items()]
        if (problem := _shared_secret_problem(given.section)) is not None:
            raise Invalid(problem, code="invalid_config")
        return found

    def missing(self, given: Given[Sections]) -> Iterator[str]:
        origins = given.origins
        for name, section in given.section.items():
            if problem := section.secret_problem("Hook", f"hooks.{name}"):
                yield f"{origins.where(origins.spelt('hooks', name, 'secret_env'))}: {problem.rstrip('.')}"
        if problem := _shared_secret_problem(given.section):
            yield f"{origins.where(('hooks',))}: {problem.rstrip('.')}"

    def open(self, settings: list[HookSettings], clock: Clock) -> OpenChannel:
        return _OpenHooks(settings)

    def summary(self, settings: list[HookSettings]) -> str:
        return ", ".join(f"{each.name} (agent {each.agent_id})" for each in settings)


class _OpenHooks(OpenChannel):
    def __init__(self, hooks: list[HookSettings]) -> None:
        self._hooks = hooks

    def receiver(self, inside: Inside) -> "HookInbox":
        from antiphon.channels.hook.inbox import HookInbox

        return HookInbox(self._hooks, inside.services, inside.replies)


def _settings(given: Given[Sections], name: str, section: HookSection) -> HookSettings:
    if (problem := section.secret_problem("Hook", f"hooks.{name}")) is not None:
        raise Invalid(problem, code="invalid_config")
    return HookSettings(
        name=name,
        secret=section.key() or "",
        signature=section.signature,
        agent_id=AgentId(section.agent or given.default_agent),
        session_key=section.session,
        place=NOWHERE if section.deliver is None else _place_of(section.deliver),
        queue_mode=section.queue_mode,
        classification=given.classification(section.classification, name, "classification"),
    )


def _place_of(place: HookPlaceSection) -> DeliveryContext:
    return DeliveryContext(
        channel=place.channel, to=place.to, account_id=place.account or DEFAULT_ACCOUNT, thread_id=place.thread
    )


def _shared_secret_problem(hooks: Sections) -> str | None:
    """Why two hooks cannot start: they have the same secret, and the signature of one does not name its hook."""
    by_secret: dict[str, str] = {}
    for name, hook in hooks.items():
        if not (secret := hook.key()):
            continue
        other = by_secret.setdefault(secret, name)
        signatures = {hook.signature, hooks[other].signature}
        if other != name and signatures != {HookSignature.ANTIPHON}:
            return (
                f"Hooks have the same secret: hooks.{other} and hooks.{name}. A signature of GitHub or Stripe "
                "does not name its hook, so each needs a secret of its own."
            )
    return None


HOOK = HookKind()
