"""Operations on checkpoints. Contract: checkpoints 1, gateway 4."""

from datetime import timedelta

from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.following import Seconds
from antiphon.gateway.operations.operation import Http, OperationRequest, TargetKind, operation
from antiphon.gateway.operations.sessions import NamedSession
from antiphon.wire.checkpoints import CheckpointShape

USUAL_WAIT_SECONDS = 60.0


class CheckpointSession(NamedSession, frozen=True, kw_only=True):
    wait: Seconds = USUAL_WAIT_SECONDS


@operation(
    "sessions.checkpoint",
    Http("POST /sessions/{key}/checkpoint", query=("wait",)),
    scope=TokenScope.WRITE,
    target=TargetKind.SESSION,
)
async def checkpoint_session(request: OperationRequest, params: CheckpointSession) -> CheckpointShape:
    """Has the session look back at its present conversation, and waits for the end, at most `wait` seconds.

    `checkpointed` is false, with a `code`, if nothing is new, another checkpoint is at work, or this one failed.
    """
    timeout = timedelta(seconds=params.wait)
    with request.waiting():
        outcome = await request.services.checkpoints.ask(request.principal, request.target(params.key), timeout)
    return CheckpointShape(
        session_key=outcome.session_key,
        checkpointed=outcome.is_done,
        run_id=outcome.run_id,
        changed=outcome.changed,
        code=outcome.code,
        error=outcome.error,
    )
