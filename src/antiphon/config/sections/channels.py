"""The sections of channels, each of which stands in the channel's package."""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, cast

from pydantic import SerializeAsAny, ValidatorFunctionWrapHandler, WrapValidator, create_model

from antiphon.channels.kinds import Unloaded, find_kind, installed_names, own_kinds
from antiphon.settings.section import Section


def _own_fields() -> dict[str, Any]:
    return {name: kind.field() for name, kind in own_kinds().items() if kind.place == ("channels", name)}


_OwnSection: type[Section] = create_model("_OwnSection", __base__=Section, **_own_fields())


class ChannelsSection(_OwnSection):
    def by_name(self) -> dict[str, Any]:
        """What is set, by the channel's name. Of a channel that cannot be loaded, as it was written."""
        return {name: section for name in sorted(self.model_fields_set) if (section := getattr(self, name)) is not None}


def sections_with(names: frozenset[str]) -> type[ChannelsSection]:
    """The same with the sections of these channels, of those that are installed."""
    others = names - own_kinds().keys()
    if others:
        others &= {*installed_names()}
    return _with(tuple(find_kind(name) for name in sorted(others))) if others else ChannelsSection


@cache
def _with(kinds: tuple[Any, ...]) -> type[ChannelsSection]:
    fields = {kind.name: (Any, None) if isinstance(kind, Unloaded) else kind.field() for kind in kinds}
    return create_model("ChannelsSection", __base__=ChannelsSection, **cast("dict[str, Any]", fields))


def _read(given: object, handler: ValidatorFunctionWrapHandler) -> object:
    """Imports the packages of the channels that are given, and no others."""
    if not isinstance(given, Mapping):
        return handler(given)
    sections = sections_with(frozenset(cast("Mapping[str, object]", given)))
    return handler(given) if sections is ChannelsSection else sections.model_validate(given)


GivenChannels = Annotated[SerializeAsAny[ChannelsSection], WrapValidator(_read)]
