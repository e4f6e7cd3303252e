"""What a home remembers of a channel, whether or not it is configured."""

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote

from antiphon.cli.rendering.rows import rows_of

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client
    from antiphon.domain.message import JsonObject

PAGE = 200


class ChannelUses(NamedTuple):
    """How many there are."""

    sessions: int
    routes: int
    identities: int
    """Accounts of people there that are linked."""


def count_uses(client: "Client", channel: str, account: str | None) -> ChannelUses:
    """Those of the channel, or of one account of it."""

    def is_there(row: "JsonObject", field: str = "account") -> bool:
        return row.get("channel") == channel and account in (None, row.get(field))

    people = _all(client, "/people", "people", after="next", field="after")
    sessions = _all(client, "/sessions", "sessions", after="nextCursor", field="cursor")
    routes = rows_of(client.get("/routes"), "routes")
    return ChannelUses(
        sessions=sum(_speaks_at(each, channel, account) for each in sessions),
        routes=sum(is_there(each) for each in routes),
        identities=sum(is_there(each) for person in people for each in _identities(person)),
    )


def _identities(person: "JsonObject") -> "list[JsonObject]":
    return rows_of(person, "identities") if "identities" in person else []


def _speaks_at(session: "JsonObject", channel: str, account: str | None) -> bool:
    place = session.get("deliveryContext")
    there = place if isinstance(place, dict) else session
    return there.get("channel") == channel and account in (None, there.get("accountId"))


def _all(client: "Client", path: str, name: str, *, after: str, field: str) -> "list[JsonObject]":
    answer = client.get(f"{path}?limit={PAGE}")
    found = rows_of(answer, name)
    while follows := answer.get(after):
        answer = client.get(f"{path}?limit={PAGE}&{field}={quote(str(follows), safe='')}")
        found += rows_of(answer, name)
    return found
