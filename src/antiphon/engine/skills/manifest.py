"""Reads `SKILL.md`: front matter in a small part of YAML, and the instructions below it. Contract: foreign_agents 5.

Of YAML there are only mappings, lists and texts here: no aliases, which could grow a small text to gigabytes, no tags,
which could name types of this program, and no numbers or dates, so that nothing is written in two ways.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, cast

import yaml

from antiphon.domain.skill import MANIFEST, MAX_FRONT_MATTER, SkillWords, invalid_skill

Node: TypeAlias = "str | Sequence[Node] | Mapping[str, Node]"
MAX_NESTED = 4
_FENCE = re.compile(r"^---[ \t]*$", re.MULTILINE)


def read_manifest(content: bytes) -> SkillWords:
    """What the file says, not yet checked against the format. Raises `Invalid` (`skill_invalid`)."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        raise invalid_skill(f"{MANIFEST} is not UTF-8") from None
    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    first = _FENCE.match(text)
    if first is None:
        raise invalid_skill(f"{MANIFEST} does not begin with '---' and its front matter")
    # The limit counts before anything is parsed.
    last = _FENCE.search(text, first.end() + 1, first.end() + 1 + MAX_FRONT_MATTER + 4)
    matter = "" if last is None else text[first.end() + 1 : last.start()]
    if last is None or len(matter.encode()) > MAX_FRONT_MATTER:
        raise invalid_skill(f"the front matter of {MANIFEST} does not end with '---' within 16 KiB")
    return _words(_read_mapping(matter), text[last.end() :].strip("\n"))


def _words(found: Mapping[str, Node], body: str) -> SkillWords:
    for name in ("name", "description"):
        if name not in found:
            raise invalid_skill(f"the front matter of {MANIFEST} lacks '{name}'")
    metadata = found.get("metadata", {})
    if not isinstance(metadata, Mapping):
        raise invalid_skill(f"'metadata' in {MANIFEST} is no mapping")
    allowed = found.get("allowed-tools", "")
    if isinstance(allowed, Mapping):
        raise invalid_skill(f"'allowed-tools' in {MANIFEST} is no list")
    return SkillWords(
        name=_text(found, "name"),
        description=_flat(_text(found, "description")),
        license=_flat(_text(found, "license")) if "license" in found else None,
        compatibility=_flat(_text(found, "compatibility")) if "compatibility" in found else None,
        metadata={key: _flat(value) for key, value in metadata.items()},
        allowed_tools=tuple(allowed.split() if isinstance(allowed, str) else map(_flat, allowed)),
        body=body,
    )


def _text(found: Mapping[str, Node], name: str) -> str:
    value = found[name]
    if not isinstance(value, str):
        raise invalid_skill(f"'{name}' in {MANIFEST} is no text")
    return value


def _flat(value: Node) -> str:
    """The value on one line: other tools write lists where the format has texts."""
    if isinstance(value, str):
        return " ".join(value.split())
    if isinstance(value, Mapping):
        return ", ".join(f"{key}: {_flat(each)}" for key, each in value.items())
    return ", ".join(map(_flat, value))


def _read_mapping(text: str) -> Mapping[str, Node]:
    """The mapping that the YAML is. Raises `Invalid` (`skill_invalid`) for anything beyond texts in it."""
    try:
        events = cast("Iterator[yaml.Event]", yaml.parse(text, Loader=yaml.SafeLoader))  # pyright: ignore[reportUnknownMemberType]
        nodes = [_read_node(event, events) for event in events if isinstance(event, yaml.NodeEvent)]
    except (yaml.YAMLError, ValueError) as error:
        raise invalid_skill(f"the front matter of {MANIFEST} is not YAML{_place_of(error)}") from None
    if len(nodes) != 1 or not isinstance(nodes[0], Mapping):
        raise invalid_skill(f"the front matter of {MANIFEST} is not one mapping")
    return nodes[0]


def _read_node(event: yaml.Event, events: Iterator[yaml.Event], depth: int = 0) -> Node:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise invalid_skill(f"the front matter of {MANIFEST} has an alias or an anchor ('*', '&')")
    if getattr(event, "tag", None) is not None:
        raise invalid_skill(f"the front matter of {MANIFEST} has a tag ('!')")
    if depth > MAX_NESTED:
        raise invalid_skill(f"the front matter of {MANIFEST} is nested more than {MAX_NESTED} deep")
    if isinstance(event, yaml.ScalarEvent):
        return cast(str, event.value)
    if isinstance(event, yaml.SequenceStartEvent):
        listed: list[Node] = []
        while not isinstance(following := next(events), yaml.SequenceEndEvent):
            listed.append(_read_node(following, events, depth + 1))
        return listed
    found: dict[str, Node] = {}
    while not isinstance(following := next(events), yaml.MappingEndEvent):
        key = _read_node(following, events, depth + 1)
        if not isinstance(key, str) or key in found:
            raise invalid_skill(f"the front matter of {MANIFEST} has a name that is no text, or one twice")
        found[key] = _read_node(next(events), events, depth + 1)
    return found


def _place_of(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    return "" if mark is None else f" (line {mark.line + 2})"
