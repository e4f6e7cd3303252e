"""A task as it is stored: when it fires, what it asks for, and in whose name. Contract: tasks 1, 2."""

from datetime import datetime, timedelta

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import Invalid, TooLarge
from antiphon.domain.ids import AgentId, RunId, SessionId, SessionRow, TaskId
from antiphon.domain.keys import SessionKey, cron_key
from antiphon.domain.label import parse_label
from antiphon.domain.schedule import Schedule
from antiphon.domain.send_to import TO_CHAT, SendTo, SendToKind, place_text
from antiphon.domain.session import DeliveryContext
from antiphon.domain.session_ids import TASK_NAMESPACE, parse_session_id
from antiphon.domain.task import MissedPolicy, SlotOutcome, Task, TaskLimits, Why

MAX_NAME = 80
MAX_PROMPT_BYTES = 16 * 1024
MAX_STOP_TEXT = 200
MOST_TASKS = 50
"""Tasks of one person that have not ended."""
LONGEST_GRACE = timedelta(days=7)


class StoredTask(Task, frozen=True, kw_only=True):
    """A row of tasks."""

    id: TaskId
    agent_id: AgentId
    maker: Principal
    """With whose present rights it acts."""
    session: SessionRow
    """The session in which it was made."""
    session_key: str
    name: str
    prompt: str
    made_of: Classification = PUBLIC
    """What the prompt and the name were made of."""
    place: DeliveryContext | None = None
    """Of `chat` and `place`: where its results are sent, if that was fixed when it was made or changed."""
    send_to: SendToKind = SendToKind.CHAT
    chat: SessionRow | None = None
    """Of `chat`: the session of its records; None for the one in which it was made."""
    chat_key: str | None = None
    """The key of `chat`; None if that session was deleted."""
    keeps_context: bool = False
    """Whether all firings share one incarnation."""
    may_consult: bool = False
    """Whether its runs may reach sessions of other agents, as far as the settings allow any session to."""
    is_sandboxed: bool = False
    """Whether a sandboxed session made it; then its runs are sandboxed too."""
    why: Why | None = None
    """Why it paused or ended by itself, or goes on without reaching anybody; None if a person paused it."""
    skips: int = 0
    """Slots without a run, in all."""
    last_slot_at: datetime | None = None
    """The newest slot that fired or was skipped."""
    last_outcome: SlotOutcome | None = None
    """What became of it; None while its run works."""
    version: int = 1
    """Raised by every edit."""
    created_at: datetime
    updated_at: datetime

    @property
    def key(self) -> SessionKey:
        """The session in which its runs work."""
        return cron_key(self.id)

    @property
    def written_send_to(self) -> str:
        """Where its results go, in the words of `domain/send_to`."""
        if self.send_to is SendToKind.CHAT and self.chat is not None:
            return f"{SendToKind.CHAT}:{self.chat_key or ''}"
        if self.send_to is SendToKind.PLACE:
            return SendToKind.LOG.value if self.place is None else place_text(self.place)
        return self.send_to.value


class TaskSlot(Struct, frozen=True, kw_only=True):
    """A time at which a task was due, or at which somebody ran it, and what became of it."""

    task: TaskId
    slot_at: datetime
    is_manual: bool = False
    """Whether somebody ran it by hand."""
    run: RunId | None = None
    """None for a slot without a run."""
    missed: int = 0
    """How many slots this one stands for, itself included, that came while nothing fired them."""
    outcome: SlotOutcome | None = None
    """None while its run works."""
    why: Why | None = None
    """Why it has no run."""
    fired_at: datetime
    ended_at: datetime | None = None


class NewTask(Struct, frozen=True, kw_only=True):
    """A task as somebody asks for it."""

    name: str
    prompt: str
    schedule: Schedule
    missed: MissedPolicy = MissedPolicy.RUN
    grace: timedelta = timedelta(minutes=10)
    limits: TaskLimits = TaskLimits()
    keeps_context: bool = False
    send_to: SendTo = TO_CHAT


class TaskEdit(Struct, frozen=True, kw_only=True):
    """Changes of a task; None leaves what is stored."""

    name: str | None = None
    prompt: str | None = None
    schedule: Schedule | None = None
    missed: MissedPolicy | None = None
    grace: timedelta | None = None
    limits: TaskLimits | None = None
    keeps_context: bool | None = None
    send_to: SendTo | None = None


def session_id_of(task: TaskId) -> SessionId:
    """The first incarnation of the task's session. Contract: keys 7."""
    return parse_session_id(f"{TASK_NAMESPACE}:{task}")


def parse_name(text: str) -> str:
    """Raises `Invalid` (`invalid_task`)."""
    try:
        name = parse_label(text)
    except ValueError as error:
        raise Invalid(f"Task name {error}.", code="invalid_task") from error
    if len(name) > MAX_NAME:
        raise Invalid(f"Task name is longer than {MAX_NAME} characters.", code="invalid_task")
    return name


def check_prompt(prompt: str) -> None:
    """Raises `Invalid` (`invalid_task`) for an empty prompt, and `TooLarge` (`prompt_too_large`)."""
    if not prompt.strip():
        raise Invalid("Task prompt is empty. Say what the agent is to do.", code="invalid_task")
    size = len(prompt.encode("utf-8", "surrogatepass"))
    if size > MAX_PROMPT_BYTES:
        raise TooLarge(
            f"Task prompt is too large: {size} bytes, the most is {MAX_PROMPT_BYTES}.", code="prompt_too_large"
        )


def check_bounds(grace: timedelta, limits: TaskLimits) -> None:
    """Raises `Invalid` (`invalid_task`) for a grace or a limit that makes no sense."""
    if not timedelta(0) <= grace <= LONGEST_GRACE:
        raise Invalid(f"Task grace is not between 0 and {LONGEST_GRACE.days} days.", code="invalid_task")
    counts = (limits.runs_an_hour, limits.tokens_a_day, limits.microusd_a_day, limits.total_runs)
    if any(count is not None and not 0 < count < 2**53 for count in counts):
        raise Invalid("Task limit is not a positive number. Leave it out for no limit.", code="invalid_task")
    if limits.stop_text is not None and not 0 < len(limits.stop_text.strip()) <= MAX_STOP_TEXT:
        raise Invalid(
            f"Stop text has no visible character, or more than {MAX_STOP_TEXT} characters.", code="invalid_task"
        )
