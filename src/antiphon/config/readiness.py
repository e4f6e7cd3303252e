"""What a valid configuration lacks at a start on this machine, and which of its channels refuse everything."""

from collections.abc import Iterator

from antiphon.channels.telegram.settings import NAME as TELEGRAM
from antiphon.channels.webhook_settings import NAME as WEBHOOK
from antiphon.config.config import Config
from antiphon.config.sections.channels import TelegramSection, WebhookSection
from antiphon.config.sections.classification import ClassificationSection, ClearanceSection
from antiphon.domain.classification import NO_COMPARTMENTS
from antiphon.domain.errors import Invalid
from antiphon.policy.flow import may_enter
from antiphon.policy.sinks import UNSET_CHANNEL


def missing(config: Config) -> Iterator[str]:
    """What a start lacks, with the place of the setting: tokens, secrets and keys that are not set."""
    origins = config.origins
    for name in config.channels.webhook:
        if problem := config.webhook_problem(name):
            yield f"{origins.where(origins.spelt('channels', WEBHOOK, name, 'secret_env'))}: {problem.rstrip('.')}"
    for name in config.hooks:
        if problem := config.hook_problem(name):
            yield f"{origins.where(origins.spelt('hooks', name, 'secret_env'))}: {problem.rstrip('.')}"
    if problem := config.shared_secret_problem():
        yield f"{origins.where(('hooks',))}: {problem.rstrip('.')}"
    try:
        config.telegram()
    except Invalid as error:
        yield error.message.rstrip(".")
    for name, provider in config.providers.items():
        variable = provider.api_key_env
        if variable and provider.key() is None:
            place = origins.spelt("providers", name, "api_key_env")
            yield f"{origins.where(place)}: {'.'.join(place)} names a variable that is not set: {variable!r}"


def refusing(config: Config) -> Iterator[str]:
    """The channels that refuse all messages, because these are classified above what may be sent there."""
    channels = config.channels
    places: dict[tuple[str, ...], WebhookSection | TelegramSection] = {
        ("channels", WEBHOOK, name): each for name, each in channels.webhook.items() if each.url is not None
    }
    if channels.telegram is not None:
        places["channels", TELEGRAM] = channels.telegram
    for place, section in places.items():
        if section.classification is not None and not _takes(section.clearance, section.classification):
            spelt = config.origins.spelt(*place, "classification")
            yield (
                f"{config.origins.where(spelt)}: {'.'.join(spelt)} is above the clearance: every message is refused. "
                f"Set {config.origins.named(*place, 'clearance')} at least as high, or leave the classification out"
            )


def _takes(clearance: ClearanceSection | None, data: ClassificationSection) -> bool:
    """Whether the data may be sent to the place; compartments are compared by name, without the home's table."""
    made_of = data.without_compartments.classification(NO_COMPARTMENTS)
    if clearance is None:
        return not data.compartments and may_enter(made_of, UNSET_CHANNEL)
    limit = clearance.without_compartments.classification(NO_COMPARTMENTS)
    return may_enter(made_of, limit) and set(data.compartments) <= set(clearance.compartments)
