"""What became of a checkpoint that somebody asked for. Contract: gateway 4."""

from antiphon.wire.encoding import Shape


class CheckpointShape(Shape, frozen=True, kw_only=True):
    session_key: str
    checkpointed: bool
    """Whether a checkpoint ended well."""
    run_id: str | None = None
    """The run in the ledger that says what it used."""
    changed: str | None = None
    """What it changed, in words; absent if that is above your clearance."""
    code: str | None = None
    """Why there was none: `nothing_new`, `checkpoint_running`, `checkpoints_off`, `timeout`, or how it failed."""
    error: str | None = None
