"""What is shown of a run while it works: pieces of its reply, and why it waits for the provider of its model."""

from datetime import datetime

from msgspec import Struct

from antiphon.domain.classification import Classification
from antiphon.domain.ids import RunId

SILENT = "model_silent"
"""The code of a delay during which the provider sends nothing."""


class Delay(Struct, frozen=True, kw_only=True):
    """What a run waits for at present, in the words of its readers."""

    code: str
    """The code of the error after which the provider is asked again, or `model_silent`."""
    text: str
    since: datetime
    until: datetime | None = None
    """When the provider is asked again; None during silence."""
    attempt: int
    """The number of the request that waits, or that is made next."""
    attempts: int
    """How many requests are made at most."""


class DelayOver(Struct, frozen=True):
    """The run goes on."""


LivePiece = str | Delay | DelayOver | None
"""What readers see of a run between two events: a piece of the reply, a delay; None withdraws the reply's pieces."""


class Delta(Struct, frozen=True, gc=False):
    """A piece, as readers see it live. It is not stored and may be lost."""

    run: RunId
    after: int
    """The `seq` of the event that it comes after."""
    piece: LivePiece
    made_of: Classification
    """The context of the prompt that it answers. Contract: flow 2."""
