"""Reads pages as the tools answer with them: several at once, within one bound of characters."""

from collections.abc import Sequence
from typing import Any

from anyio import CapacityLimiter, create_task_group
from msgspec import Struct

from antiphon.domain.errors import AntiphonError
from antiphon.domain.page_address import PageAddress
from antiphon.policy.decision import Deny
from antiphon.policy.web_addresses import WebRules
from antiphon.tools.web.fetching import READ_PAGE, Fetcher, FetchOptions
from antiphon.tools.web.network import Unanswered, Unsent
from antiphon.tools.web.page_text import AT_ONCE, PageText, text_of
from antiphon.wire.errors import tool_status_of

MAX_CHARACTERS = 40_000
"""Of all texts of an answer."""
_STAYING = FetchOptions(stays=True)


class PageAnswer(Struct, frozen=True):
    """One page, as a tool answers with it."""

    shown: dict[str, Any]
    is_read: bool
    """Whether its text is in it."""
    is_own: bool = False
    """Whether no word of it comes from the page's host."""


class Pages:
    """Fetches pages and reads their texts."""

    def __init__(self, fetcher: Fetcher, rules: WebRules) -> None:
        self._fetcher = fetcher
        self._rules = rules
        self._readers = CapacityLimiter(AT_ONCE)

    def refuse(self, addresses: Sequence[PageAddress]) -> Deny | None:
        """The refusal of the first address that is not asked for, as far as that is seen without a look-up."""
        return next((denied for each in addresses if (denied := self._rules.refusal_of(each))), None)

    async def read(self, addresses: Sequence[PageAddress], *, part: int, most: int, stays: bool) -> list[PageAnswer]:
        """The pages in the order of their addresses; each failure is an answer of its own.

        `most` is the number of characters of a part; `stays` says whether redirects must stay with their host.
        """
        answers: dict[int, PageAnswer] = {}

        async def read_one(number: int, address: PageAddress) -> None:
            answers[number] = await self._read_one(address, part, most, _STAYING if stays else READ_PAGE)

        async with create_task_group() as tasks:
            for number, address in enumerate(addresses):
                tasks.start_soon(read_one, number, address)
        return [answers[number] for number in range(len(addresses))]

    async def _read_one(self, address: PageAddress, part: int, most: int, request: FetchOptions) -> PageAnswer:
        try:
            fetched = await self._fetcher.fetch(address, request)
            page = await text_of(fetched, self._readers)
        except AntiphonError as error:
            failure = {"url": address.url, "status": tool_status_of(error), "code": error.code, "error": error.message}
            return PageAnswer(failure, is_read=False, is_own=isinstance(error, Unsent | Unanswered))
        return _answer(address, fetched.address, page, part=part, most=most)


def _answer(asked: PageAddress, found: PageAddress, page: PageText, *, part: int, most: int) -> PageAnswer:
    parts = max(1, -(-len(page.text) // most))
    if part > parts:
        error = f"Page has {parts} part{'s' if parts > 1 else ''}: {asked.url[:200]!r}. Ask for one of them."
        return PageAnswer({"url": asked.url, "status": "error", "code": "page_part", "error": error}, is_read=False)
    shown: dict[str, Any] = {"url": asked.url}
    if found.url != asked.url:
        shown["finalUrl"] = found.url
    if page.title:
        shown["title"] = page.title
    shown |= {"type": page.kind, "text": page.text[(part - 1) * most : part * most]}
    if parts > 1:
        shown |= {"part": part, "parts": parts}
    return PageAnswer(shown, is_read=True)
