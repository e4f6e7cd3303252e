"""A request for approval as a message, drawn by the engine: every surface shows the same. Contract: approvals 4.

Whether somebody may approve it where it is shown follows from the message alone: it must show each call whole.
"""

from collections.abc import Mapping
from typing import Final

from antiphon.domain.approval import Approval, AskedCall
from antiphon.domain.channel_form import ChannelForm, LengthUnit
from antiphon.domain.own_text import Code, OwnText, own_text
from antiphon.domain.parts import measure
from antiphon.domain.source_words import was_read
from antiphon.domain.text import exact, shown_name

MOST_CALLS: Final = 5
"""Calls of one request that a message shows: nobody reads sixty of them in a chat."""
LONGEST: Final = 16_000
"""Characters of a message where the channel has no limit."""
ROOM_FOR_OUTCOME: Final = 512
"""What is left in a message for the decision, which is written below."""
MOST_OF_REASON: Final = 300
_LEAST_SHARE: Final = 64
TRUST_TOO: Final = "\n\nIt goes only if you also trust what was read."
"""Below words that others may have steered."""
MAY_ACCEPT: Final = "\n\nOr accept it: then the session holds such data, and what it says is kept as private."
"""Below a result that its session may not read."""


def draw_request(approval: Approval, names: Mapping[str, str], form: ChannelForm) -> OwnText:
    """The message: the exact calls if they fit into one; else their beginnings and ends, and where to see the rest.

    `names` are those of the persons in it.
    """
    calls = approval.calls[:MOST_CALLS]
    asker = str(approval.principal)
    head = own_text(
        "Approval needed. ",
        _read_before(approval, names),
        f"Agent {approval.agent_id} {'now ' if approval.sources else ''}wants to do this for ",
        Code(shown_name(names.get(asker, asker))),
        ":",
    )
    longest = min(form.longest or LONGEST, LONGEST)
    asks = TRUST_TOO if approval.needs_trust else MAY_ACCEPT if approval.result is not None else ""
    frames = measure(asks, form.unit) + sum(measure(_call_text(call, own_text()).text, form.unit) for call in calls)
    room = longest - ROOM_FOR_OUTCOME - measure(head.text, form.unit) - frames
    if len(calls) == len(approval.calls) and _fit(calls, room, form.unit):
        return own_text(head, *(_call_text(call, _block(exact(call.shown))) for call in calls), asks)
    more = _more(approval)
    share = max((room - measure(more.text, form.unit)) // len(calls), _LEAST_SHARE)
    return own_text(head, *(_call_text(call, shown_arguments(call.shown, share, form.unit)) for call in calls), more)


def shows_whole(message: OwnText, approval: Approval) -> bool:
    """Whether the message shows all that would run: in its blocks, exactly the arguments or words of every call."""
    if sum(len(call.shown) for call in approval.calls) > len(message.text):
        return False
    blocks = [message.text[span.start : span.end] for span in message.spans if span.is_block]
    return len(blocks) <= MOST_CALLS and blocks == [exact(call.shown) for call in approval.calls]


def shows_read(message: OwnText, approval: Approval, names: Mapping[str, str]) -> bool:
    """Whether the message says what was read, as people are asked to trust it."""
    return bool(approval.sources) and was_read(approval.sources, names).text in message.text


def _read_before(approval: Approval, names: Mapping[str, str]) -> OwnText:
    if not approval.sources:
        return own_text()
    return own_text(was_read(approval.sources, names), " ")


def _fit(calls: tuple[AskedCall, ...], room: int, unit: LengthUnit) -> bool:
    if sum(len(call.shown) for call in calls) > room:
        return False
    return sum(measure(exact(call.shown), unit) for call in calls) <= room


def _call_text(call: AskedCall, arguments: OwnText) -> OwnText:
    reason = exact(call.reason[:MOST_OF_REASON])
    if (release := call.release) is not None:
        to = Code(shown_name(release.to))
        return own_text(f"\n\n{exact(release.whose)} → ", to, ". Exact text:\n", arguments, "\nSend once?")
    return own_text("\n\n", Code(shown_name(call.tool)), "\n", arguments, f"\n{reason}")


def _block(arguments: str) -> OwnText:
    return own_text(Code(arguments, is_block=True))


def shown_arguments(arguments: str, longest: int, unit: LengthUnit) -> OwnText:
    """The arguments as one block; as two, cut in the middle, if they are longer."""
    if len(arguments) <= longest and measure(shown := exact(arguments), unit) <= longest:
        return _block(shown)
    half = (longest - _LEAST_SHARE) // 2
    first = _count_in(arguments[:half], half, unit)
    last = _count_in(arguments[::-1][:half], half, unit)
    end = len(arguments) - last
    left_out = f"\n… {end - first} characters are left out here …\n"
    return own_text(_block(exact(arguments[:first])), left_out, _block(exact(arguments[end:])))


def _count_in(text: str, room: int, unit: LengthUnit) -> int:
    """How many of the first characters fit, as they are shown."""
    count = max(min(len(text), room), 0)
    while count and (length := measure(exact(text[:count]), unit)) > room:
        count = min(count - 1, count * room // length)
    return count


def _more(approval: Approval) -> OwnText:
    hidden = len(approval.calls) - MOST_CALLS
    calls = f"\n\nAnd {hidden} more calls." if hidden > 0 else ""
    return own_text(
        f"{calls}\n\nThis message does not show all of it, so it cannot be approved here. Look at the page, or at ",
        Code(f"antiphon approvals show {approval.id}"),
        ".",
    )
