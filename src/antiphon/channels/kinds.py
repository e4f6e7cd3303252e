"""The kinds of channels that are installed: Antiphon's own, and those of other packages. Contract: channels 1.

A package of others is imported only if the settings have a section for its channel.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, distribution, entry_points
from types import MappingProxyType
from typing import NamedTuple, cast

from antiphon.channels.kind import AnyKind, ChannelKind
from antiphon.domain.errors import Invalid

GROUP = "antiphon.channels"
"""The entry points by which a package offers channels, each named as its channel."""
_NAME = re.compile(r"[a-z][a-z0-9]{0,31}")


class Unloaded(NamedTuple):
    """A channel whose package cannot be used."""

    name: str
    problem: str


@cache
def own_kinds() -> Mapping[str, AnyKind]:
    """Antiphon's own, by name."""
    points = distribution("antiphon").entry_points.select(group=GROUP)
    return MappingProxyType({point.name: point.load() for point in sorted(points, key=lambda each: each.name)})


def installed_names() -> list[str]:
    """All that may have a section below `channels`; to find those of others, all packages are looked through."""
    own = own_kinds()
    others = {name for name in _points(tuple(sys.path)) if _NAME.fullmatch(name)} - own.keys()
    return sorted({*(kind.name for kind in own.values() if kind.place == ("channels", kind.name)), *others})


@cache
def _points(path: tuple[str, ...]) -> Mapping[str, Sequence[EntryPoint]]:
    """What the packages on that path offer, by name."""
    found: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        found.setdefault(point.name, []).append(point)
    return found


def find_kind(name: str) -> AnyKind | Unloaded:
    """The installed channel of that name, loaded. Raises `Invalid` like `refuse_several`."""
    if (own := own_kinds().get(name)) is not None:
        return own
    refuse_several(name)
    return _load(_points(tuple(sys.path))[name][0])


def refuse_several(name: str) -> None:
    """Raises `Invalid` if two packages offer the channel."""
    points = _points(tuple(sys.path)).get(name, ())
    if len(points) > 1:
        packages = sorted(each.value if each.dist is None else each.dist.name for each in points)
        raise Invalid(
            f"Channel {name!r} is offered by several packages: {', '.join(packages)}. Uninstall all but one.",
            code="invalid_config",
        )


@cache
def _load(point: EntryPoint) -> AnyKind | Unloaded:
    package = point.value if point.dist is None else point.dist.name
    try:
        loaded: object = point.load()
        if not isinstance(loaded, ChannelKind):
            return Unloaded(point.name, f"{point.value!r} of the package {package} is no ChannelKind.")
        kind = cast("AnyKind", loaded)
        if kind.name != point.name:
            return Unloaded(point.name, f"The package {package} calls the channel {kind.name!r}.")
        if kind.address is not None and not kind.address.path.startswith(f"/channels/{kind.name}/{{"):
            return Unloaded(
                point.name, f"The package {package} wants the address {kind.address.path!r} of the gateway."
            )
        kind.field()
    except Exception as error:  # any error of another package's import
        problem = f"The package {package} cannot be imported: {type(error).__name__}: {error}"
        return Unloaded(point.name, problem)
    return kind
