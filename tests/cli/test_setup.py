"""`antiphon setup`: files that the loader accepts, with the policy that they promise; what is refused before that."""

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli.presets.plain_words import plain_words
from antiphon.config.config import Config
from antiphon.config.sources import load_config
from antiphon.domain.agent import DailyLimits
from antiphon.domain.classification import MAX_COMPARTMENTS, PUBLIC, Classification, Compartments, Level
from antiphon.domain.ids import AgentId
from antiphon.engine.rules import Rules
from antiphon.policy.approvals import PEOPLE, REQUIRED, UntrustedRule
from antiphon.policy.chats import ChatData
from antiphon.policy.visibility import Visibility
from tests.claims import requirement
from tests.cli.program import antiphon, antiphon_json, on_terminal, serving

FAMILY = ("--owner", "Olga", "--adult", "Tom", "--child", "Mia", "--child", "Jörg", "--child-tool", "shop__order")
JARGON = (
    "classif",
    "clearance",
    "taint",
    "compartment",
    "PUBLIC",
    "INTERNAL",
    "integrity",
    "sink",
    "untrusted",
    "label",
)


def loaded(home: Path) -> Config:
    """As a gateway reads it."""
    return load_config(home / "antiphon.toml", environment={})


def rules_in(home: Path, *compartments: str) -> Rules:
    return loaded(home).rules(Compartments(compartments))


def folders(home: Path, *names: str) -> list[str]:
    paths = [home.parent / name for name in names]
    for path in paths:
        path.mkdir(exist_ok=True)
    return [word for path in paths for word in ("--repo", str(path))]


@requirement("flow:14")
def test_solo_is_one_level_and_asks_before_it_acts_on_words_of_others(home: Path) -> None:
    written = antiphon_json("setup", "solo", "--model", "openai:gpt-5", home=home)
    assert written == {
        "preset": "solo",
        "file": str(home / "antiphon.toml"),
        "written": True,
        "next": ["antiphon serve"],
    }
    assert stat.S_IMODE((home / "antiphon.toml").stat().st_mode) == 0o600
    rules = rules_in(home)
    assert rules.agents.keys() == {"main"} and rules.agents[AgentId("main")].classification == PUBLIC
    assert rules.agents[AgentId("main")].model == "openai:gpt-5"
    assert rules.approval.untrusted is UntrustedRule.APPROVE and rules.chats.data is ChatData.OPEN
    assert antiphon("config", "check", home=home).returncode == 0


@requirement("flow:14")
def test_in_a_family_chats_are_their_persons_and_children_are_guests_who_ask_the_owner(home: Path) -> None:
    assert antiphon("setup", "family", *FAMILY, home=home).returncode == 0
    rules = rules_in(home)
    assert rules.chats.data is ChatData.OWN and rules.approval.untrusted is UntrustedRule.APPROVE
    assert rules.agents.keys() == {"main", "mia", "jorg"} and rules.default_agent == "main"
    for child in ("mia", "jorg"):
        agent = rules.agents[AgentId(child)]
        assert agent.tools == ("shop__order",) and agent.daily == DailyLimits(tokens=100_000, usd=0.5)
    assert rules.person_caps.guest == DailyLimits(tokens=100_000, usd=0.5)
    assert rules.role_tools.guest == {"shop__order"}
    assert (rules.approval.people, rules.approval.require) == (PEOPLE, REQUIRED), "what they want done asks"
    assert rules.user_approves == frozenset(), "the owner, and nobody else"
    assert rules.user_agents == {"main"}
    assert rules.visibility.visibility is Visibility.AGENT


@requirement("flow:14")
def test_each_repository_has_an_agent_whose_data_flow_to_no_other(home: Path) -> None:
    assert antiphon("setup", "coding", *folders(home, "shop", "blog"), home=home).returncode == 0
    names = [row["name"] for row in antiphon_json("compartments", "list", home=home)["compartments"]]
    assert names == ["shop", "blog"]
    compartments, config = Compartments(tuple(names)), loaded(home)
    rules = config.rules(compartments)
    shop, blog = (rules.agents[AgentId(name)].classification for name in names)
    assert (shop, blog) == (Classification(Level.INTERNAL, 1), Classification(Level.INTERNAL, 2))
    assert not shop.flows_to(blog) and not blog.flows_to(shop)
    for name, data in (("shop", shop), ("blog", blog)):
        server = config.mcp_servers()[AgentId(name)]["files"]
        assert server.args[-1] == str(home.parent / name)
        assert config.classification_of_server(server, "files", compartments) == data
        clearance = config.clearance_of_server(server, "files", compartments)
        assert clearance is not None and data.flows_to(clearance)
        assert not (blog if data is shop else shop).flows_to(clearance)
    assert rules.sinks.commands is not None and not shop.flows_to(rules.sinks.commands), "commands with a network"
    assert rules.chats.data is ChatData.OWN and rules.approval.untrusted is UntrustedRule.APPROVE
    assert not rules.visibility.agent_to_agent.enabled


@requirement("flow:14", "flow:4")
def test_agents_that_may_reach_each_other_get_nothing_of_another_repository(home: Path) -> None:
    assert antiphon("setup", "coding", *folders(home, "shop", "blog"), home=home).returncode == 0
    place = home / "antiphon.toml"
    bare = re.sub(r"\[agents.list.mcp_servers.files\].*?\neffects[^\n]*\n", "", place.read_text("utf-8"), flags=re.S)
    reaching = '[tools.sessions]\nvisibility = "all"\n[tools.agent_to_agent]\nenabled = true\n'
    place.write_text(bare + reaching, "utf-8")
    with serving(home):
        for agent in ("shop", "blog"):
            assert antiphon("chat", "--agent", agent, "-m", "swordfish", home=home).returncode == 0

        def called(tool: str, **arguments: str) -> Any:
            words = ("tool", tool, json.dumps(arguments), "--as", "agent:shop:main", "--json")
            return json.loads(antiphon(*words, home=home).stdout)

        assert called("sessions_history", sessionKey="agent:blog:main")["status"] == "not_found"
        assert called("sessions_list")["count"] == 1, "its own"
        found = called("sessions_search", query="swordfish")["results"]
        assert {each["sessionKey"] for each in found} == {"agent:shop:main"}
        assert called("sessions_send", sessionKey="agent:blog:main", message="the key")["status"] == "not_found"
        assert "the key" not in antiphon("sessions", "history", "agent:blog:main", home=home).stdout


@requirement("flow:14")
def test_as_many_repositories_as_there_are_compartments_can_be_kept_apart(home: Path) -> None:
    many = folders(home, *(f"r{number}" for number in range(MAX_COMPARTMENTS + 1)))
    refused = antiphon("setup", "coding", *many, "--json", home=home)
    assert '"setup_too_many"' in refused.stdout and not home.exists()
    assert antiphon("setup", "coding", *many[:-2], home=home).returncode == 0
    masks = {each.classification.compartments for each in loaded(home).agent_map(_all_of(home)).values()}
    assert len(masks) == MAX_COMPARTMENTS
    (home / "antiphon.toml").unlink()
    refused = antiphon("setup", "coding", *many[-2:], "--json", home=home)
    assert '"too_many_compartments"' in refused.stdout and not (home / "antiphon.toml").exists()


def _all_of(home: Path) -> Compartments:
    rows = antiphon_json("compartments", "list", home=home)["compartments"]
    return Compartments(tuple(row["name"] for row in rows))


@requirement("flow:14")
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["family"], "setup_incomplete"),
        (["coding"], "setup_incomplete"),
        (["family", "--owner", "Olga"], "setup_incomplete"),
        (["family", "--owner", "Olga", "--child", "olga"], "setup_named_twice"),
        (["family", "--owner", "Olga", "--adult", "Mia", "--child", "Mia"], "setup_named_twice"),
        (["family", "--owner", "Olga", "--child", "Mia", "--child", "MIA"], "setup_named_twice"),
        (["family", "--owner", "Olga", "--child", "мама"], "setup_invalid_name"),
        (["family", "--owner", "Olga", "--child", "Main"], "setup_invalid_name"),
        (["family", "--owner", "Olga", "--child", "Jörg", "--child", "Jorg"], "setup_invalid_name"),
        (["family", "--owner", "Ol\nga", "--child", "Mia"], "setup_invalid_name"),
        (["family", "--owner", "Olga", "--child", "x" * 61], "setup_invalid_name"),
        (["family", "--owner", "", "--child", "Mia"], "setup_invalid_name"),
        (["family", "--owner", "Olga", "--child", "Mia", "--child-tool", "a b"], "setup_invalid_name"),
        (
            ["family", "--owner", "Olga", *(word for number in range(21) for word in ("--child", f"Child {number}"))],
            "setup_too_many",
        ),
        (["coding", "--repo", "{here}/none"], "setup_no_folder"),
        (["coding", "--repo", "{here}/a/file"], "setup_no_folder"),
        (["coding", "--repo", "{here}/a", "--repo", "{here}/b/../a"], "setup_named_twice"),
        (["coding", "--repo", "{here}/a", "--repo", "a={here}/b"], "setup_named_twice"),
        (["coding", "--repo", "{here}/a", "--repo", "b={here}/link"], "setup_named_twice"),
        (["coding", "--repo", "no id={here}/a"], "setup_invalid_name"),
        (["coding", "--repo", "{here}/with blank"], "setup_invalid_name"),
        (["coding", "--repo", "{here}/a", "--files-server", " "], "setup_invalid_name"),
        (["solo", "--model", "nowhere:x"], "invalid_config"),
        (["solo", "--config", "{here}/none/antiphon.toml"], "setup_no_folder"),
    ],
)
def test_what_cannot_be_used_is_refused_before_anything_is_written(home: Path, words: list[str], code: str) -> None:
    here = home.parent
    for name in ("a", "b", "with blank"):
        (here / name).mkdir()
    (here / "a" / "file").write_text("x", "utf-8")
    (here / "link").symlink_to(here / "a")
    given = [word.replace("{here}", str(here)) for word in words]
    refused = antiphon("setup", *given, "--json", home=home)
    assert f'"code":"{code}"' in refused.stdout, refused.stdout + refused.stderr
    assert refused.returncode == 2 and not home.exists()
    assert "Traceback" not in refused.stderr


@requirement("flow:14")
@pytest.mark.parametrize("name", ["antiphon.toml", "antiphon.json5"])
def test_a_file_that_exists_is_never_touched_and_the_lines_are_printed(home: Path, name: str) -> None:
    home.mkdir(mode=0o700)
    (home / name).write_text("", "utf-8") if name.endswith("toml") else (home / name).write_text("{}", "utf-8")
    before = (home / name).read_bytes()
    shown = antiphon("setup", "coding", *folders(home, "shop"), home=home)
    assert shown.returncode == 0 and (home / name).read_bytes() == before
    assert [path.name for path in home.iterdir()] == [name], "no database either"
    assert f"{name}' exists and stays as it is" in shown.stderr
    assert "antiphon compartments add shop" in shown.stdout
    copied = home.parent / "copied.toml"
    text = antiphon_json("setup", "coding", *folders(home, "shop"), home=home)["text"]
    copied.write_text(text, "utf-8")
    assert text in shown.stdout and load_config(copied, environment={}).agents.list[0].id == "shop"


@requirement("flow:14")
def test_names_with_quotes_are_quoted_and_a_named_file_is_written_there(home: Path) -> None:
    place = home.parent / "mine.toml"
    name = 'O\'Brien "the\\boss" [x] #1'
    done = antiphon("setup", "family", "--owner", name, "--child", "Zoë", "--config", place, home=home)
    assert done.returncode == 0 and not home.exists()
    assert name in (load_config(place, environment={}).agents.list[0].instructions or "")


@requirement("flow:14")
def test_compartments_are_created_by_a_gateway_that_runs(home: Path) -> None:
    with serving(home):
        assert antiphon("setup", "coding", *folders(home, "shop"), home=home).returncode == 0
        assert _all_of(home).names == ("shop",)
        assert loaded(home).agents.list[0].id == "shop"


@requirement("flow:14")
def test_a_person_at_a_terminal_is_asked_and_may_answer_wrongly_first(home: Path) -> None:
    with on_terminal("setup", "family", home=home) as terminal:
        for question, answer in (
            ("Your name", "Olga"),
            ("Other adults", ""),
            ("Children", "Olga"),
            ("Your name", "Olga"),
            ("Other adults", "Tom, Ada"),
            ("Children", "Mia"),
            ("Model", ""),
        ):
            terminal.expect(question)
            terminal.type(f"{answer}\n")
        terminal.expect("antiphon.toml")
        assert terminal.wait() == 0
        assert "Name everybody once" in terminal.seen and "Traceback" not in terminal.seen
    assert [each.id for each in loaded(home).agents.list] == ["main", "mia"]


@requirement("flow:14")
def test_folders_are_asked_for_one_by_one(home: Path) -> None:
    shop = folders(home, "shop")[1]
    with on_terminal("setup", "coding", home=home) as terminal:
        for question, answer in (
            ("repository 1", ""),
            ("repository 1", shop),
            ("repository 2", shop),
            ("repository 2", ""),
            ("Model", ""),
        ):
            terminal.expect(question)
            terminal.type(f"{answer}\n")
        assert terminal.wait() == 0
    assert [each.id for each in loaded(home).agents.list] == ["shop"]


@requirement("flow:14")
@pytest.mark.parametrize("preset", ["solo", "family", "coding"])
def test_show_says_in_plain_words_which_preset_it_is(home: Path, preset: str) -> None:
    words: dict[str, Any] = {"solo": (), "family": FAMILY, "coding": folders(home, "shop", "blog")}
    assert antiphon("setup", preset, *words[preset], home=home).returncode == 0
    text = antiphon("setup", "show", home=home).stdout
    assert f"that of the preset {preset}." in text
    assert not [word for word in JARGON if word in text]
    shown = antiphon_json("setup", "show", home=home)
    assert shown["preset"] == preset and shown["differences"] == []
    expected = {
        "solo": "Chats are not kept apart by person",
        "family": "what is said there reaches nobody but them and you",
        "coding": "What the agent blog reads and says about blog stays there",
    }
    assert expected[preset] in " ".join(shown["sees"])


@requirement("flow:14")
def test_show_says_how_a_configuration_differs_and_when_it_is_like_none(home: Path) -> None:
    def words(**tree: Any) -> Any:
        return plain_words(Config.model_validate(tree))

    assert (words().preset, words().differences) == ("solo", ())
    allowing = words(flow={"untrusted": "allow"})
    assert allowing.preset == "solo" and "nothing asks you" in allowing.differences[0]
    own = words(flow={"chats": "own"}, access={"roles": {"user": {"approve": ["main"]}}})
    assert own.preset == "family" and "answer requests of main" in own.differences[0]
    data = {"level": "INTERNAL", "compartments": ["a"]}
    agents = [{"id": "a", "classification": data}, {"id": "b", "classification": data}]
    wide = {"web": {"command": "x", "clearance": {"level": "INTERNAL", "compartments": ["a"]}}}
    shared = words(flow={"chats": "own"}, agents={"list": agents, "defaults": {"mcp_servers": wide}})
    assert shared.preset == "coding" and len(shared.differences) == 2
    mixed = words(flow={"untrusted": "block"}, agents={"list": [*agents, {"id": "c"}]})
    assert mixed.preset is None
