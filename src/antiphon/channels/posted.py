"""What the signed messages of webhooks and hooks have in common."""

from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from antiphon.domain.run import Run, RunStatus
from antiphon.engine.deliveries.replies import ChannelReply
from antiphon.wire.runs import PostedShape

MAX_WAIT_SECONDS = 600.0
Name = Annotated[str, Meta(min_length=1, max_length=120)]


def with_end(answer: PostedShape, run: Run, reply: ChannelReply, *, is_told: bool) -> PostedShape:
    """Everyone sees the code of an error. Only the owner sees its text, which may name hosts, settings and budgets.

    A place that may not have the reply does not learn that the run failed either. Contract: flow 4, 7.
    """
    if reply.is_withheld:
        return replace(answer, status=RunStatus.OK, suppressed=reply.suppressed)
    return replace(
        answer,
        status=run.status,
        reply=reply.text,
        error=run.error if is_told else None,
        code=run.code,
        suppressed=reply.suppressed,
    )
