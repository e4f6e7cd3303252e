"""The servers of all places."""

from tests.channels.deltachat.conftest import people
from tests.channels.email.conftest import dovecot, office
from tests.channels.matrix.conftest import synapse

__all__ = ("dovecot", "office", "people", "synapse")
