"""The conversation of a turn as a `Session` of the OpenAI Agents SDK. Contract: foreign_agents 1."""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from agents.items import TResponseInputItem
from agents.memory import SessionSettings
from pydantic_core import to_json

from antiphon.agents.runners.turn import Turn


class LoggedSession:
    """The conversation as a `Session` of the SDK: what it adds stays in the turn, as the log has it anyway.

    What `pop_item` and `clear_session` take away is hidden from later turns; the log keeps it.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.session_id = turn.session.id
        self.session_settings: SessionSettings | None = None
        self._added: list[TResponseInputItem] = []

    async def _split(self) -> tuple[list[Any], list[Any]]:
        """What was said until the agent's last word, and what came since."""
        items: list[Any] = list(await self._turn.messages("responses"))
        count = next((i for i, item in enumerate(reversed(items)) if item.get("role") != "user"), len(items))
        return items[: len(items) - count], items[len(items) - count :]

    async def fresh(self) -> list[TResponseInputItem]:
        """What the turn answers: messages of people since the agent's last word."""
        return (await self._split())[1]

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        items = [*(await self._shown()).values(), *self._added]
        return items if limit is None else items[max(0, len(items) - limit) :]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        self._added.extend(items)

    async def pop_item(self) -> TResponseInputItem | None:
        if self._added:
            return self._added.pop()
        shown = await self._shown()
        name = next((name for name, item in reversed(shown.items()) if item.get("role") != "system"), None)
        if name is None:
            return None
        await self._hide([name])
        return shown[name]

    async def clear_session(self) -> None:
        self._added.clear()
        shown = await self._shown()
        gone = [name for name, item in shown.items() if item.get("role") != "system"]
        await self._hide(gone)

    async def _shown(self) -> dict[str, Any]:
        """The items before the turn that are not hidden, by names that they keep: hash and count among equal ones."""
        named, hidden = dict[str, Any](), self._hidden
        for item in (await self._split())[0]:
            digest, count = digest_of(item), 1
            while f"{digest}-{count}" in named:
                count += 1
            named[f"{digest}-{count}"] = item
        return {name: item for name, item in named.items() if name not in hidden}

    async def _hide(self, names: Sequence[str]) -> None:
        await self.keep(hidden=[*self._hidden, *names])

    # What lives beside the log.

    @property
    def kept(self) -> dict[str, Any]:
        """What `keep` kept, in this turn and before."""
        return json.loads(self._turn.state or "{}")

    async def keep(self, **values: Any) -> None:
        await self._turn.save(json.dumps(self.kept | values))

    @property
    def _hidden(self) -> list[str]:
        return self.kept.get("hidden", [])


def digest_of(value: object) -> str:
    return sha256(to_json(value)).hexdigest()[:24]
