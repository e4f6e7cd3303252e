"""What holds of the providers `fable` and `minstrel`, which `test_declarations.py` declares."""

import json
import socket
from threading import Thread

import pytest

from antiphon.agents.model import ProviderSettings
from antiphon.agents.provider import ProviderModel, open_provider_model
from antiphon.cli.homes.checks import _tools  # pyright: ignore[reportPrivateUsage]
from antiphon.domain.errors import Invalid
from tests.agents.test_provider import KEY, TEXT, anthropic_events, collect, fake_anthropic

pytestmark = pytest.mark.anyio


def opened(base_url: str | None = None) -> ProviderModel:
    settings = {"fable": ProviderSettings(base_url=base_url)}
    return open_provider_model("fable:m", settings, environ={"FABLE_API_KEY": KEY})


async def test_it_is_spoken_to_as_its_row_says() -> None:
    with fake_anthropic(anthropic_events("end_turn", TEXT)) as (base_url, requests):
        model = opened(base_url)
        deltas, _ = await collect(model)
        await model.aclose()
    assert deltas == ["Let me ", "see."]
    assert "cache_control" in json.dumps(requests[0]["system"])


async def test_its_list_of_models_is_asked_for_with_its_key() -> None:
    heads: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                heads.append(connection.recv(65_536).decode().lower())
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")

        thread = Thread(target=answer)
        thread.start()
        await opened(f"http://127.0.0.1:{server.getsockname()[1]}").look()
        thread.join()
    assert heads[0].startswith("get /v9/models ") and f"fable-key: {KEY}" in heads[0]


def test_it_has_an_address_and_is_named() -> None:
    assert opened().name == "fable:m"
    with pytest.raises(Invalid, match="anthropic, fable, minstrel, ollama, openai"):
        open_provider_model("nobody:m", {}, environ={})


def test_what_it_needs_is_told() -> None:
    with pytest.raises(Invalid, match=r"antiphon\[no_such_package\]"):
        open_provider_model("minstrel:m", {}, environ={})
    assert "antiphon[no_such_package] (for Minstrel's models)" in _tools().detail
