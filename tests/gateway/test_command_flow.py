"""Answers to commands hold nothing above public data: they go where everybody in the chat can read them."""

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification, Level
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import serve
from tests.story import Story

pytestmark = pytest.mark.anyio

SECRET = Classification(Level.CONFIDENTIAL)


@requirement("flow:3", "flow:7", "channels:3")
async def test_an_answer_names_no_label_and_counts_no_tokens_of_a_session_above_public(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        story = Story(served.app)
        await served.open("main")
        secret = await story.opens("agent:main:main:chat:merger", label="merger with Acme", taint=SECRET)
        await story.opens("agent:main:main:chat:plain", label="Shopping list")
        await secret.answers("hello")

        async def says(key: str, text: str) -> str:
            answer = await served.client.post(f"/sessions/{key}/command", json={"text": text})
            return answer.json()["answer"]

        listed = await says("main", "/session list")
        assert "Shopping list" in listed and "Begun 20" in listed
        assert "Acme" not in listed and "merger" not in listed
        for text in ("/session", "/status", "/who", "/help", "/session list"):
            said = await says(secret.key, text)
            assert not any(word in said for word in ("Acme", "merger", "Tokens")), text
        assert "Tokens" not in await says(secret.key, "/status")
        session = await served.app.services.sessions.get(OWNER, secret.target)
        assert session.session.label == "merger with Acme"
