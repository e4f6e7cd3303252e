"""The view of one session: what it is, its settings, its runs and its earlier conversations."""

from collections.abc import Mapping, Sequence

from markupsafe import Markup
from msgspec import Struct

from antiphon.domain.classification import Classification, Level
from antiphon.domain.keys import SessionKind, main_key
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.session import Session, SessionType
from antiphon.domain.targets import NamedTarget
from antiphon.domain.text import plain
from antiphon.engine.deliveries.outbox import is_external
from antiphon.engine.runs.cancel import RunFilter
from antiphon.engine.views.contents import MOST, SessionContents
from antiphon.engine.views.incarnations import EarlierPage
from antiphon.gateway.operations.operation import OperationRequest, Params
from antiphon.gateway.page.page_view import page_view
from antiphon.gateway.page.rendering import dollars, render, sum_of
from antiphon.gateway.page.titles import titles_of
from antiphon.gateway.page.tree import state_of_run
from antiphon.policy.acts import Act
from antiphon.policy.shown import is_shown

SHOWN_RUNS = 20
SHOWN_CONVERSATIONS = 20
LEVELS = tuple(level.name for level in Level)
SENDING = (("", "As the settings say"), ("allow", "Allow"), ("deny", "Deny"))
QUEUEING = (
    ("", "As its channel and the settings say"),
    (QueueMode.ENQUEUE.value, "One after another"),
    (QueueMode.COLLECT.value, "Collect into one run"),
    (QueueMode.STEER.value, "Steer: the run at work reads them"),
    (QueueMode.INTERRUPT.value, "Interrupt: cancel the run at work"),
    (QueueMode.REJECT.value, "Reject while it is busy"),
)


class ShowDetails(Params, frozen=True, kw_only=True):
    session: str
    cursor: str | None = None
    """`next` of a page of earlier conversations."""


class RunRow(Struct, frozen=True, kw_only=True):
    id: str
    at: str
    state: str
    words: str
    model: str
    spent: str


class Fact(Struct, frozen=True):
    name: str
    value: str


@page_view("details", "Session", is_listed=False)
async def show_details(request: OperationRequest, params: ShowDetails) -> Markup:
    """A session with everything that can be seen and changed of it."""
    services, target = request.services, request.target(params.session)
    found = await services.sessions.get(request.principal, target)
    session = found.shown
    present = NamedTarget(session.key, None)
    earlier = await _earlier(request, present, params.cursor)
    held = await services.contents.read(request.principal, present)
    parent = (await services.trees.family(request.principal, present, limit=1)).parent
    titles = titles_of(request.gateway)
    names = await services.names.read(session.participants)
    values = {
        "session": session,
        "title": titles.of(session),
        "titles": titles,
        "parent": parent,
        "facts": _facts(session, titles.agent(session.agent_id), names, clearance=found.grant.clearance),
        "held": _held(held),
        "runs": await _runs(request, session),
        "earlier": earlier.conversations,
        "next": None if earlier.next is None else services.cursors.seal(_about(request, session), earlier.next),
        "may_all": await services.people.may(request.principal, Act.SET_MODEL),
        "may_edit": await services.people.may(request.principal, Act.EDIT),
        "why_kept": _why_kept(session),
        "default_model": request.gateway.default_model(session.agent_id),
        "sending": SENDING,
        "queueing": QUEUEING,
        "levels": LEVELS,
        "place": _place(session),
    }
    return render("details.html", values)


async def _earlier(request: OperationRequest, target: NamedTarget, cursor: str | None) -> EarlierPage:
    services = request.services
    about = ("page details", str(request.principal), str(target.key))
    before = None if cursor is None else services.cursors.unseal(about, cursor)[0]
    return await services.incarnations.ended(request.principal, target, limit=SHOWN_CONVERSATIONS, before=before)


def _about(request: OperationRequest, session: Session) -> tuple[str, str, str]:
    return ("page details", str(request.principal), str(session.key))


async def _runs(request: OperationRequest, session: Session) -> list[RunRow]:
    found = await request.services.runs.list(request.principal, RunFilter(session=session.row), limit=SHOWN_RUNS)
    return [
        RunRow(
            id=run.id,
            at=run.created_at.isoformat(),
            state=state_of_run(run).sign,
            words=state_of_run(run).words,
            model=plain(run.model or ""),
            spent=sum_of(run.usage.total_tokens, run.usage.cost_microusd),
        )
        for run in found
    ]


def _facts(session: Session, agent: str, names: Mapping[str, str], *, clearance: Classification) -> list[Fact]:
    usage = session.usage
    found = [
        Fact("Key", str(session.key)),
        Fact("Session id", session.id),
        Fact("Agent", agent),
        Fact("Kind", f"{session.key.kind.value}, {session.source.type.value}"),
        Fact("Status", session.status.value.replace("_", " ")),
        Fact("Came from", " ".join(filter(None, (session.source.kind, session.source.platform)))),
        Fact(
            "Participants besides owners", ", ".join(names.get(each, each) for each in session.participants) or "nobody"
        ),
        Fact("Answers go to", _place(session) or "this conversation only"),
        Fact("Messages in this conversation", f"{session.message_count:,}"),
        Fact("Tokens", f"{usage.input_tokens:,} in, {usage.output_tokens:,} out"),
        Fact("Cost", "not known" if usage.cost_microusd is None else dollars(usage.cost_microusd)),
        Fact("Size of the context now", f"{session.context_tokens:,} tokens"),
    ]
    if is_shown(session.taint, clearance):
        highest = "anything" if session.clearance is None else _classification(session.clearance)
        found += [Fact("Level of its data", _classification(session.taint)), Fact("May hold data up to", highest)]
    return [Fact(fact.name, plain(fact.value)) for fact in found]


def _classification(made_of: Classification) -> str:
    return made_of.level.name if not made_of.compartments else f"{made_of.level.name} with compartments"


def _place(session: Session) -> str | None:
    delivery = session.delivery
    return plain(f"{delivery.channel} {delivery.to}") if is_external(delivery) else None


def _held(held: SessionContents) -> Sequence[str]:
    """What a deletion takes away, in words."""
    parts = ((held.messages, "message"), (held.runs, "run"), (held.conversations, "earlier conversation"))
    words = [_counted(count, noun) for count, noun in parts if count]
    if held.unsent_texts:
        words.append(_counted(held.unsent_texts, "unsent text") + " for its channel")
    return words


def _counted(count: int, noun: str) -> str:
    return f"{'at least ' if count >= MOST else ''}{count:,} {noun}{'' if count == 1 else 's'}"


def _why_kept(session: Session) -> str:
    """Why the session cannot be deleted; empty if it can."""
    if session.source.type is SessionType.GROUP or session.key.kind is SessionKind.GROUP:
        return "The session of a group cannot be deleted: its history belongs to the group."
    if session.key == main_key(session.agent_id):
        return "An agent’s main session cannot be deleted. Start over instead."
    return ""
