"""Proxies of the environment: never between this machine and itself, and named where a connection fails."""

import socket
from collections.abc import Iterator

import pytest

from antiphon.agents.model import ModelError, ProviderSettings
from antiphon.agents.provider import open_provider_model
from antiphon.proxies import proxy_for, uses_environment
from antiphon.testing import Reply, fake_provider
from tests.agents.test_provider import collect, prompt
from tests.claims import requirement

pytestmark = pytest.mark.anyio
VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")

OWN = (
    *("127.0.0.1:8080", "127.8.9.1", "127.1", "2130706433", "0.0.0.0:8080"),
    *("localhost:11434", "LOCALHOST", "localhost.", "x.localhost"),
    *("[::1]:8080", "[::]", "[::ffff:127.0.0.1]"),
)
"""Ways to write an address of this machine."""


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def dead_proxy() -> Iterator[str]:
    """An address at which nobody answers, with credentials that no error may show."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://me:sesame@127.0.0.1:{held.getsockname()[1]}"


@pytest.mark.parametrize(
    ("url", "environment", "proxy"),
    [
        ("http://api.example/v1", {}, None),
        ("http://api.example/v1", {"HTTP_PROXY": "http://me:sesame@gate.example:3128/"}, "gate.example:3128"),
        ("https://api.example/v1", {"HTTP_PROXY": "http://gate.example:3128"}, None),
        ("https://api.example/v1", {"HTTPS_PROXY": "gate.example:3128"}, "gate.example:3128"),
        ("https://api.example/v1", {"ALL_PROXY": "socks5://gate.example:1080"}, "gate.example:1080"),
        ("http://api.example/v1", {"HTTP_PROXY": "http://gate.example:3128", "NO_PROXY": "api.example"}, None),
        *(
            (
                f"http://{host}/v1",
                {"HTTP_PROXY": "http://gate.example:3128", "ALL_PROXY": "http://gate.example:1"},
                None,
            )
            for host in OWN
        ),
    ],
)
def test_a_proxy_stands_between_here_and_other_machines_alone(
    monkeypatch: pytest.MonkeyPatch, url: str, environment: dict[str, str], proxy: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert proxy_for(url) == proxy
    assert uses_environment(url) == ("api.example" in url)


@requirement("config:1")
@pytest.mark.parametrize("variable", ["HTTP_PROXY", "ALL_PROXY"])
async def test_a_prompt_for_this_machine_goes_there_and_to_no_proxy(
    monkeypatch: pytest.MonkeyPatch, dead_proxy: str, variable: str
) -> None:
    monkeypatch.setenv(variable, dead_proxy)
    async with fake_provider([Reply(text="yes")]) as fake:
        settings = {"fake": ProviderSettings(base_url=fake.base_url)}
        model = open_provider_model("fake:fake-model", settings, context_tokens=1000)
        try:
            _, answer = await collect(model, prompt())
            await model.look()
        finally:
            await model.aclose()
    assert answer.content and len(fake.requests) == 1


@requirement("config:1")
@pytest.mark.parametrize("given", ["", "ftp://gate.example:1"])
async def test_an_error_names_the_proxy_and_none_of_its_credentials(
    monkeypatch: pytest.MonkeyPatch, dead_proxy: str, given: str
) -> None:
    monkeypatch.setenv("HTTP_PROXY", given or dead_proxy)
    settings = {"far": ProviderSettings(base_url="http://api.example/v1")}
    model = open_provider_model("far:model", settings, context_tokens=1000)
    try:
        with pytest.raises(ModelError) as failed:
            await collect(model, prompt())
        with pytest.raises(ModelError) as looked:
            await model.look()
    finally:
        await model.aclose()
    named = (given or dead_proxy).rpartition("@")[2].removeprefix("ftp://")
    for error in (failed.value, looked.value):
        assert f"through the proxy {named}" in str(error) and "sesame" not in str(error)
        assert error.kind.value == "model_unreachable"
