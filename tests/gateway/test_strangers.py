"""Bodies that nobody is known behind: bounded together. Contract: gateway 5."""

from collections.abc import MutableMapping
from typing import Any

import pytest

from antiphon.gateway.asgi import Receive, Scope, Send
from antiphon.gateway.strangers import StrangersBodies
from tests.claims import requirement

pytestmark = pytest.mark.anyio


async def crowded(scope: Scope, receive: Receive, send: Send) -> None:
    """The answer to a request whose body was given up."""


class Coming:
    """A request whose body comes in parts of a hundred bytes."""

    def __init__(self) -> None:
        self.is_ended = False
        self.scope: Scope = {"antiphon.cancel": self.end}
        self.has_more = True

    def end(self) -> None:
        self.is_ended = True

    async def receive(self) -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": b"y" * 100, "more_body": self.has_more}


@requirement("gateway:5")
async def test_the_body_that_began_first_is_given_up_for_the_others() -> None:
    bodies, first, second = StrangersBodies(most=350), Coming(), Coming()
    with (
        bodies.reading(first.scope, first.receive, crowded) as of_first,
        bodies.reading(second.scope, second.receive, crowded) as of_second,
    ):
        await of_first()
        await of_second()
        await of_second()
        assert not first.is_ended
        await of_second()
        assert first.is_ended and first.scope["antiphon.last"] is crowded
        assert not second.is_ended


@requirement("gateway:5")
async def test_a_body_counts_until_it_is_whole_or_its_request_has_ended() -> None:
    bodies = StrangersBodies(most=350)
    for has_more in (True, False) * 5:
        each = Coming()
        with bodies.reading(each.scope, each.receive, crowded) as receive:
            await receive()
            await receive()
            each.has_more = has_more
            await receive()
            assert not each.is_ended
            last = Coming()
            with bodies.reading(last.scope, last.receive, crowded) as receive_last:
                await receive_last()
                assert each.is_ended is has_more
