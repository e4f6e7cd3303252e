"""Gives each peer of a webhook its own principal; before, each webhook was one guest. Contract: channels 1."""

from antiphon.domain.errors import Invalid
from antiphon.domain.keys import parse_key, unquote_platform_id
from antiphon.store.codec import place
from antiphon.store.database import SqlValue
from antiphon.store.step import Asking, Statement

_OLD, _NEW = "guest:webhook:%", "guest:webhook:%:%"
"""A webhook's name has no colon, so a name with one more colon already includes the peer."""
_IS_OLD = "principal LIKE ? AND principal NOT LIKE ?"
_TREE = "(SELECT id FROM sessions WHERE id = ? OR ancestor_0 = ?)"


def name_peers() -> Asking:
    """Rewrites participants, and the principals of runs, exchanges and reports.

    The chat identifies the peer for a chat's tree and for chains that left it; in a session that all chats share, the
    place of the answer does. If a peer cannot be identified, it loses its participation until its next message.
    """
    for row, key in (yield Statement("SELECT id, key FROM sessions WHERE key LIKE ?", ("agent:%:webhook:%",))):
        if (found := _guest_of(key)) is not None:
            old, new = found
            yield from _rename(int(row), old, new)
    yield from _follow_chains()
    for run_id, old, text in (
        yield Statement(f"SELECT id, principal, place FROM runs WHERE {_IS_OLD} AND place IS NOT NULL", (_OLD, _NEW))
    ):
        if peer := place(text).to:
            yield Statement("UPDATE runs SET principal = ? WHERE id = ?", (f"{old}:{peer}", run_id))
    yield from _follow_chains()
    yield Statement(f"DELETE FROM participants WHERE {_IS_OLD}", (_OLD, _NEW))


def _guest_of(key: str) -> tuple[str, str] | None:
    """The chat's guest under its old and new name; None for a key of another kind."""
    try:
        parse_key(key)
        match key.split(":"):
            case ["agent", _, "webhook", name, "direct", peer, *_]:
                old = f"guest:webhook:{name}"
                return old, f"{old}:{unquote_platform_id(peer)}"
            case _:
                return None
    except Invalid:
        return None


def _rename(session: int, old: str, new: str) -> Asking:
    tree: tuple[SqlValue, ...] = (session, session)
    for table, column in (("participants", "session"), ("runs", "session"), ("reports", "child")):
        text = f"UPDATE {table} SET principal = ? WHERE principal = ? AND {column} IN {_TREE}"
        yield Statement(text, (new, old, *tree))
    yield Statement(
        f"UPDATE exchanges SET principal = ? WHERE principal = ? AND requester IN {_TREE}", (new, old, *tree)
    )
    yield Statement(f"UPDATE events SET actor = ? WHERE actor = ? AND session IN {_TREE}", (new, old, *tree))


def _follow_chains() -> Asking:
    """All rows of a run's chain, and reports that the run brings, get the run's principal."""
    for table, link in (("runs", "chain"), ("exchanges", "chain"), ("reports", "run")):
        begun = f"(SELECT r.principal FROM runs r WHERE r.id = {table}.{link})"
        yield Statement(
            f"UPDATE {table} SET principal = {begun} WHERE {_IS_OLD} AND {begun} LIKE ?", (_OLD, _NEW, _NEW)
        )
