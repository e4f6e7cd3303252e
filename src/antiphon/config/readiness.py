"""What a valid configuration lacks at a start on this machine, and which of its channels refuse everything."""

import shutil
from collections.abc import Iterator

from antiphon.config.config import Config
from antiphon.domain.classification import NO_COMPARTMENTS
from antiphon.policy.exit import takes
from antiphon.policy.sinks import UNSET_CHANNEL
from antiphon.settings.classification import ClassificationSection, ClearanceSection


def missing(config: Config) -> Iterator[str]:
    """What a start lacks, with the place of the setting: tokens, secrets and keys that are not set."""
    for name, problem in config.unloaded_channels():
        yield f"{config.origins.at('channels', name)} is broken: {problem.rstrip('.')}"
    for kind, given in config.given_channels():
        yield from kind.missing(given)
    for name, provider in config.providers.items():
        variable = provider.api_key_env
        if variable and provider.key() is None:
            place = config.origins.spelt("providers", name, "api_key_env")
            yield f"{config.origins.where(place)}: {'.'.join(place)} names a variable that is not set: {variable!r}"
    search = config.tools.search_web
    if search.kind is not None and search.key_env and search.key() is None:
        place = config.origins.spelt("tools", "search_web", "key_env")
        yield f"{config.origins.where(place)}: {'.'.join(place)} names a variable that is not set: {search.key_env!r}"
    command = config.database.password_command
    if command and shutil.which(command[0]) is None:
        place = config.origins.spelt("database", "password_command")
        yield (
            f"{config.origins.where(place)}: {'.'.join(place)} names a program that cannot be run here: "
            f"{command[0]!r}. Install it, or write its whole path"
        )


def refusing(config: Config) -> Iterator[str]:
    """The channels that refuse all messages, because these are classified above what may be sent there."""
    for _, _, place, section in config.accounts():
        is_above = section.classification is not None and not _takes(section.clearance, section.classification)
        if is_above and section.sends:
            spelt = config.origins.spelt(*place, "classification")
            yield (
                f"{config.origins.where(spelt)}: {'.'.join(spelt)} is above the clearance: every message is refused. "
                f"Set {config.origins.named(*place, 'clearance')} at least as high, or leave the classification out"
            )


def _takes(clearance: ClearanceSection | None, data: ClassificationSection) -> bool:
    """Whether the data may be sent to the place; compartments are compared by name, without the home's table."""
    made_of = data.without_compartments.classification(NO_COMPARTMENTS)
    if clearance is None:
        return not data.compartments and takes(UNSET_CHANNEL, made_of)
    limit = clearance.without_compartments.classification(NO_COMPARTMENTS)
    return takes(limit, made_of) and set(data.compartments) <= set(clearance.compartments)
