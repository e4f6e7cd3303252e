"""What a platform can do beyond carrying texts. `antiphon.testing.channels` proves what a kind declares."""

from enum import StrEnum


class Ability(StrEnum):
    IDS = "ids"
    """A text that is sent again under the id of its delivery is seen once."""
    KEEPS = "keeps"
    """A program of the platform beside the gateway keeps a text until it is delivered, and sends it again by itself."""
    REPLAY = "replay"
    """What people write while no gateway listens comes once one does."""
    ACKS = "acks"
    """What was not confirmed comes again, so that a gateway that dies loses no message."""
    FIRSTS = "firsts"
    """`replay` and `acks` hold for the first message of a chat as well."""
    EDITS = "edits"
    """A reply is shown while it is written: `form.streaming` is not `none`."""
    THREADS = "threads"
    """A chat has threads, each a conversation of its own."""
    OPENS_THREADS = "opens_threads"
    """A thread can be begun for a sub-agent: its senders are `ThreadedChannel`s."""
    REACTS = "reacts"
    """The bot can react to somebody's message with an emoji: its senders are `ReactingChannel`s."""
    FILES = "files"
    """Files go out after a text: `form.files` is their largest size."""
    BUTTONS = "buttons"
    """A text can have buttons: `form.has_buttons`."""
