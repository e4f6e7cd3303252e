"""Gives each peer of a webhook a principal of its own, where a webhook was one guest before. Contract: channels 1."""

from antiphon.domain.errors import Invalid
from antiphon.domain.keys import parse_key, unquote_platform_id
from antiphon.store.codec import place
from antiphon.store.database import SqlValue
from antiphon.store.step import Asking, Statement

_OLD, _NEW = "guest:webhook:%", "guest:webhook:%:%"
"""A webhook's name has no colon, so that what has one more names its peer already."""
_IS_OLD = "principal LIKE ? AND principal NOT LIKE ?"
_TREE = "(SELECT id FROM sessions WHERE id = ? OR ancestor_0 = ?)"


def name_peers() -> Asking:
    """Rewrites whoever takes part, and whose rights runs, exchanges and reports have.

    What is of a chat's tree, and what a chain carried elsewhere, is found by the chat; what was said in a session that
    all chats share, by where it is answered. Nobody takes part any more whose peer cannot be told; the peer does again
    with the next message.
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
    """The chat's guest as it was called, and as it is; None for a key of another kind."""
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
    """What belongs to the chain of a run, or brings its result, has its principal."""
    for table, link in (("runs", "chain"), ("exchanges", "chain"), ("reports", "run")):
        begun = f"(SELECT r.principal FROM runs r WHERE r.id = {table}.{link})"
        yield Statement(
            f"UPDATE {table} SET principal = {begun} WHERE {_IS_OLD} AND {begun} LIKE ?", (_OLD, _NEW, _NEW)
        )
