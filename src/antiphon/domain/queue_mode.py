"""The mode of a message. Contract: runs 4."""

from enum import StrEnum


class QueueMode(StrEnum):
    """How a message is handled if its session is busy."""

    ENQUEUE = "enqueue"
    COLLECT = "collect"
    STEER = "steer"
    INTERRUPT = "interrupt"
    REJECT = "reject"
