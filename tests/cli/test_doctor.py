import json
import platform
import socket
import sys
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from antiphon.testing import run_fake_provider
from antiphon.testing.ports import free_port
from antiphon.tools.sandbox.start import find_problem
from tests.claims import requirement
from tests.cli.program import NO_VARIABLES, antiphon, antiphon_json, serving

pytestmark = requirement("cli:1")

SANDBOXED = {"ANTIPHON_TOOLS__RUN_COMMAND__MODE": "sandboxed"}


def checks(home: Path, env: Mapping[str, str] = NO_VARIABLES, prefix: Sequence[str] = ()) -> tuple[int, dict[str, Any]]:
    done = antiphon("doctor", "--json", home=home, env={"ANTIPHON_PORT": str(free_port()), **env}, prefix=prefix)
    answer = json.loads(done.stdout)
    assert answer["ok"] is (done.returncode == 0)
    return done.returncode, {check["name"]: check for check in answer["checks"]}


def test_a_home_that_does_not_exist_yet_is_in_order_and_not_made(home: Path) -> None:
    code, found = checks(home)
    assert code == 0
    assert found["model of main"]["status"] == "warning" and "OPENAI_API_KEY" in found["model of main"]["remedy"]
    assert not home.exists()


@pytest.mark.parametrize(("name", "text"), [("antiphon.toml", "[agents.defaults]\n"), ("other.json5", "{}")])
def test_the_remedy_for_the_model_that_echoes_is_right_for_the_file(home: Path, name: str, text: str) -> None:
    home.mkdir(mode=0o700)
    file = home / name
    file.write_text(text)
    remedy = checks(home, env={"ANTIPHON_CONFIG": str(file)})[1]["model of main"]["remedy"]
    if file.suffix == ".toml":
        assert remedy.startswith(f'Set model = "openai:gpt-5" under [agents.defaults] in {file},')
    else:
        assert remedy.startswith(f'Set agents.defaults.model to "openai:gpt-5" in {file},')


def test_no_model_is_asked_for_of_an_agent_with_a_runner_and_a_module_that_is_not_found_has_a_remedy(
    home: Path,
) -> None:
    home.mkdir(mode=0o700)
    file = home / "antiphon.toml"
    file.write_text('[[agents.list]]\nid = "support"\nrunner = "no_such_shop.agents:answer"\n')
    found = checks(home, env={"ANTIPHON_CONFIG": str(file)})[1]
    assert "model of support" not in found
    assert "PYTHONPATH" in found["runner of support"]["remedy"]


def test_a_running_gateway_is_asked_whether_it_is_ready(home: Path) -> None:
    with serving(home) as gateway:
        code, found = checks(home)
        assert code == 0
        assert gateway.url in found["gateway"]["detail"] and found["database"]["status"] == "ok"
        read = antiphon("doctor", home=home)
        assert read.returncode == 0 and "Nothing is broken." in read.stdout


def test_what_is_broken_is_named_with_a_remedy_and_no_secret_is_shown(home: Path) -> None:
    antiphon_json("sessions", "list", home=home)
    (home / "owner.token").chmod(0o644)
    home.chmod(0o755)
    code, found = checks(home, env={"ANTIPHON_MODEL": "openai:gpt-5", "OPENAI_API_KEY": "sk-\N{EURO SIGN}-planted"})
    assert code == 1
    assert found["owner's token"]["status"] == "broken" and "chmod 600" in found["owner's token"]["remedy"]
    assert found["home"]["status"] == "warning" and "chmod 700" in found["home"]["remedy"]
    assert found["model of main"]["status"] == "broken" and "planted" not in json.dumps(found)
    code, found = checks(home, env={"ANTIPHON_NONSENSE": "1"})
    assert code == 1 and "ANTIPHON_NONSENSE" in found["configuration"]["detail"]


def test_mcp_servers_are_asked_for_their_tools_and_the_left_out_ones_are_told(home: Path, tmp_path: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text(
        f"""
        [agents.defaults.mcp_servers.things]
        command = {json.dumps(sys.executable)}
        args = ["-m", "tests.mcp.program", {json.dumps(str(tmp_path))}]
        cwd = {json.dumps(str(Path(__file__).parents[2]))}
        [agents.defaults.mcp_servers.gone]
        command = "/no/such/program"
        env = {{ THING_KEY = "planted-secret" }}
        """
    )
    code, found = checks(home)
    assert code == 1
    things, gone = found["MCP server things of main"], found["MCP server gone of main"]
    assert things["status"] == "warning" and "'bad name': its prefixed name" in things["detail"]
    assert gone["status"] == "broken" and "'/no/such/program'" in gone["detail"]
    assert "planted" not in json.dumps(found)
    assert not (home / "mcp").exists()


def test_the_sandbox_is_tried_where_agents_need_it(home: Path, tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    absent = {"PATH": str(programs)}
    commands = "ANTIPHON_TOOLS__RUN_COMMAND__MODE"
    for mode in ("off", "host"):
        assert "sandbox" not in checks(home, env={**absent, commands: mode})[1]
    boxed = {"ANTIPHON_AGENTS__DEFAULTS__SANDBOX__MODE": "all"}
    for needed in ({commands: "sandboxed"}, {commands: "host", **boxed}):
        code, found = checks(home, env={**absent, **needed})
        assert code == 1 and found["sandbox"]["status"] == "broken"
        assert "'bwrap' is not installed" in found["sandbox"]["detail"]
        assert "bubblewrap" not in found["sandbox"]["detail"]
        assert found["sandbox"]["remedy"].startswith("Install bubblewrap")
    if find_problem() is None:
        assert checks(home, env=SANDBOXED)[1]["sandbox"]["status"] == "ok"


@pytest.mark.skipif(find_problem() is not None, reason="bubblewrap is missing, or may not make namespaces")
def test_where_namespaces_are_refused_the_sandbox_says_so(home: Path) -> None:
    refusing = ("bwrap", "--unshare-user", "--disable-userns", "--dev-bind", "/", "/")
    code, found = checks(home, env=SANDBOXED, prefix=refusing)
    assert code == 1 and found["sandbox"]["status"] == "broken"
    detail, remedy = found["sandbox"]["detail"], found["sandbox"]["remedy"]
    assert "nothing was run: bwrap: " in detail and "namespace" in detail
    assert "user.max_user_namespaces" in remedy and "user.max_user_namespaces" not in detail


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only this processor can say that it is another")
def test_a_processor_without_a_filter_of_system_calls_is_told(home: Path) -> None:
    assert "sandbox filter" not in checks(home, env=SANDBOXED)[1]
    found = checks(home, env=SANDBOXED, prefix=("setarch", "i686"))[1]
    assert found["sandbox filter"]["status"] == "warning" and "'i686'" in found["sandbox filter"]["detail"]
    if find_problem() is None:
        assert found["sandbox"]["status"] == "ok", "commands run all the same"


class WebPage(BaseHTTPRequestHandler):
    """A server of something else, which answers every address with a page."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(b"<!doctype html><p>Sign in.")

    def log_message(self, format: str, *args: object) -> None:
        pass


def own_provider(url: str, **more: str) -> dict[str, str]:
    return {"ANTIPHON_MODEL": "own:tiny", "ANTIPHON_PROVIDERS__OWN__BASE_URL": url, **more}


def test_a_key_is_said_to_be_set_only_if_one_is(home: Path) -> None:
    with run_fake_provider([]) as provider:
        own = own_provider(provider.base_url)
        assert checks(home, env=own)[1]["model of main"]["detail"] == "own:tiny"
        keyed = checks(home, env={**own, "OWN_API_KEY": "k"})[1]["model of main"]
        assert keyed["status"] == "ok" and keyed["detail"] == "own:tiny, its key is set"


def test_a_provider_is_asked_whether_it_answers_and_takes_the_key(home: Path) -> None:
    with run_fake_provider([], api_key="right") as provider:
        for key, status in (("right", "ok"), ("planted", "broken")):
            code, found = checks(home, env=own_provider(provider.base_url, OWN_API_KEY=key))
            assert found["model of main"]["status"] == status and "planted" not in json.dumps(found)
            assert (code == 0) is (status == "ok")
        assert "Key refused by provider 'own'" in found["model of main"]["detail"]
        assert provider.requests == [], "to look costs nothing"
        gone = provider.base_url
    code, found = checks(home, env=own_provider(gone))
    place = urlsplit(gone).netloc
    assert code == 1 and found["model of main"]["status"] == "broken"
    assert found["model of main"]["detail"] == f"own:tiny: Connection to provider 'own' failed: {place}"


def test_an_address_of_something_else_and_one_that_never_answers_are_named(home: Path) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), WebPage) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        found = checks(home, env=own_provider(f"http://127.0.0.1:{server.server_port}"))[1]["model of main"]
        assert "answers with a web page, not as an API" in found["detail"]
        server.shutdown()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        env = own_provider(f"http://127.0.0.1:{silent.getsockname()[1]}/v1")
        assert "No answer of provider 'own'" in checks(home, env=env)[1]["model of main"]["detail"]
