"""What readers are shown of sessions and runs, by their clearance. Contract: flow 3, 4, 8."""

from msgspec.structs import replace

from antiphon.domain.classification import Classification
from antiphon.domain.message import NO_USAGE
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import Session
from antiphon.policy.flow import may_enter


def is_shown(made_of: Classification, clearance: Classification) -> bool:
    """Whether a reader with that clearance sees what was made so."""
    return may_enter(made_of, clearance)


def shown_session(session: Session, clearance: Classification) -> Session:
    """The row without what was made of data that may not go to the reader.

    Preview, description and working memory have classifications of their own; label and display name have that of its
    base. How its runs ended and what they used was made of all that they took in.
    """
    shown_texts = (session.preview_made_of, session.description_made_of, session.working_memory_made_of)
    base, taint, preview, description, memory = (
        is_shown(each, clearance) for each in (session.base, session.taint, *shown_texts)
    )
    if base and preview and description and memory and taint:
        return session
    shown = replace(
        session,
        label=session.label if base else None,
        display_name=session.display_name if base else None,
        preview=session.preview if base and preview else None,
        description=session.description if base and description else None,
        working_memory=session.working_memory if base and memory else "",
    )
    if base and taint:
        return shown
    return replace(shown, context_tokens=0, usage=NO_USAGE, aborted_last_run=False)


def shown_run(run: Run, clearance: Classification) -> Run:
    """The run, whole if it flows to the clearance; otherwise only that it is at work or has ended.

    Then an ended run has the status `ok`, however it ended.
    """
    if is_shown(run.made_of, clearance):
        return run
    return replace(
        run,
        status=RunStatus.OK if run.status.is_terminal else run.status,
        started_at=None,
        ended_at=None,
        reply=None,
        error=None,
        code=None,
        cut=None,
        place_got=None,
        model=None,
        delay=None,
        usage=NO_USAGE,
        is_withheld=True,
    )
