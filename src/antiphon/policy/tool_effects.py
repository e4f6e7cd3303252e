"""What a tool of others may do, as its name and its server's hints suggest. An owner confirms it. Contract: flow 10."""

import re
from collections.abc import Mapping

from msgspec import Struct

from antiphon.domain.agent import Effect


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_READING = _words(
    "calculate check compare count describe detect explain fetch find get inspect list look lookup peek preview query "
    "read recall retrieve scan search see show summarize view"
)
"""A name that begins with one of these only reads, whatever its other words are: `list_orders`."""
_DOING: Mapping[Effect, frozenset[str]] = {
    Effect.DELETES: _words(
        "archive cancel clear delete destroy discard drop erase kill prune purge remove terminate trash truncate "
        "uninstall unlink wipe"
    ),
    Effect.SPENDS: _words(
        "book buy charge checkout donate invest order pay payment purchase refund rent reserve sell spend subscribe "
        "tip trade transfer withdraw"
    ),
    Effect.CONFIGURES: _words(
        "config configure deploy disable enable grant install password permission permissions policy revoke role "
        "schedule setting settings webhook"
    ),
    Effect.LEAVES: _words(
        "comment email forward invite mail message notify post publish push reply send share sms submit tweet upload "
        "webhook"
    ),
}
_OUTWARD = _words("browse browser crawl download fetch http https navigate page scrape url visit web webpage")
"""Words of a reading tool that sends its arguments out: who asks for a page tells its host something."""
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_BETWEEN = re.compile(r" (?:and|or|then) ")


class Hints(Struct, frozen=True, kw_only=True):
    """What an MCP server says of a tool's effects; None for what it does not say."""

    reads_only: bool | None = None
    destroys: bool | None = None
    reaches_out: bool | None = None
    """Whether it deals with the world outside its server."""


def propose_effects(name: str, hints: Hints) -> frozenset[Effect]:
    """Never fewer than the name suggests: hints are words of the server, and may lie."""
    words = [word.lower() for word in _PARTS.findall(name)]
    is_named_reading = all(each.split(" ")[0] in _READING for each in _BETWEEN.split(" ".join(words)))
    found: set[Effect] = set()
    if not is_named_reading:
        found |= {effect for effect, known in _DOING.items() if not known.isdisjoint(words)}
    only_reads = hints.reads_only is not False if is_named_reading else hints.reads_only is True and not found
    if not _OUTWARD.isdisjoint(words) or hints.reaches_out or (not only_reads and hints.reaches_out is None):
        found.add(Effect.LEAVES)
    if hints.destroys and not only_reads:
        found.add(Effect.DELETES)
    return frozenset({*found, Effect.READS if only_reads else Effect.WRITES})
