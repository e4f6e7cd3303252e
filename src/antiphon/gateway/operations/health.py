"""Operations for supervisors: whether the process is alive, and whether it can work."""

from antiphon.gateway.operations.operation import Http, NoParams, OperationRequest, operation
from antiphon.wire import health as wire


@operation("health.get", Http("GET /health", is_lenient=True), scope=None)
async def get_health(request: OperationRequest, params: NoParams) -> wire.Alive:
    """Answers whenever the process is alive."""
    return wire.Alive(ok=True)


@operation("health.ready", Http("GET /ready", is_lenient=True), scope=None)
async def check_ready(request: OperationRequest, params: NoParams) -> wire.ReadyShape:
    """Answers 200 if messages can be accepted and stored; without a worker they wait until one starts."""
    ready = await request.services.health.check()
    notes = [f"Channel {name!r} is broken: {problem}" for name, problem in ready.broken_channels.items()]
    if ready.held_up is not None:
        notes.insert(0, ready.held_up)
    if not ready.workers:
        notes.insert(0, "No worker is running: messages are stored, and answered once a worker starts.")
    return wire.ReadyShape(
        ok=True,
        workers=ready.workers,
        configured_alike=ready.is_configured_alike,
        stalls=wire.StallsShape(p999_ms=ready.stalls.p999_ms, longest_ms=ready.stalls.longest_ms),
        note=" ".join(notes) or None,
    )
