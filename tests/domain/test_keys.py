import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import (
    ChatType,
    DmScope,
    SessionKey,
    SessionKind,
    chat_key,
    cron_key,
    direct_key,
    group_key,
    hook_key,
    key_from_path,
    key_to_path,
    main_key,
    node_key,
    parse_agent_id,
    parse_key,
    quote_platform_id,
    slug_from_name,
    subagent_key,
    text_from_path,
    unquote_platform_id,
)
from tests.claims import requirement

MAIN = AgentId("main")

agent_ids = st.from_regex(r"[a-z0-9][a-z0-9_-]{0,63}", fullmatch=True).map(AgentId)
channels = st.sampled_from(["telegram", "discord", "matrix", "webhook"])
platform_ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
few_ids = st.text("aA.:%~ /-é", min_size=1, max_size=4) | st.sampled_from(["direct", "group", "thread", "chat"])
lower_segments = st.from_regex(r"[a-z0-9_@+-]{1,12}", fullmatch=True)


@st.composite
def direct_keys(draw: st.DrawFn) -> SessionKey:
    return direct_key(
        draw(agent_ids),
        channel=draw(channels),
        peer=draw(platform_ids),
        account=draw(st.sampled_from(["default", "Bot:1"])),
        scope=draw(st.sampled_from(DmScope)),
        shares_main=draw(st.booleans()),
    )


@st.composite
def group_keys(draw: st.DrawFn) -> SessionKey:
    suffix = draw(st.sampled_from(["thread", "topic", ""]))
    return group_key(
        draw(agent_ids),
        channel=draw(channels),
        chat_type=draw(st.sampled_from([ChatType.GROUP, ChatType.CHANNEL])),
        platform_id=draw(platform_ids),
        thread=draw(platform_ids) if suffix == "thread" else None,
        topic=draw(platform_ids) if suffix == "topic" else None,
    )


keys = st.one_of(
    direct_keys(),
    group_keys(),
    st.builds(main_key, agent_ids),
    st.builds(subagent_key, agent_ids, lower_segments),
    st.builds(cron_key, lower_segments),
    st.builds(hook_key, lower_segments),
    st.builds(node_key, lower_segments),
    st.builds(chat_key, group_keys(), st.text().map(slug_from_name)),
)


def code_of(text: str) -> str:
    with pytest.raises(Invalid) as raised:
        parse_key(text)
    return raised.value.code


FORMS: list[tuple[str, SessionKind, str | None, str | None, ChatType | None]] = [
    ("agent:main:main", SessionKind.MAIN, "main", None, None),
    ("agent:ops:main", SessionKind.MAIN, "ops", None, None),
    ("agent:main:direct:alice", SessionKind.OTHER, "main", None, ChatType.DIRECT),
    ("agent:main:telegram:direct:42", SessionKind.OTHER, "main", "telegram", ChatType.DIRECT),
    ("agent:main:slack:T1:direct:U1", SessionKind.OTHER, "main", "slack", ChatType.DIRECT),
    ("agent:main:telegram:group:-100", SessionKind.GROUP, "main", "telegram", ChatType.GROUP),
    ("agent:main:discord:channel:C1", SessionKind.GROUP, "main", "discord", ChatType.CHANNEL),
    ("agent:main:discord:channel:C1:thread:T1", SessionKind.GROUP, "main", "discord", ChatType.CHANNEL),
    ("agent:main:telegram:group:-1:topic:77", SessionKind.GROUP, "main", "telegram", ChatType.GROUP),
    ("agent:main:telegram:group:-1:chat:plan", SessionKind.GROUP, "main", "telegram", ChatType.GROUP),
    ("agent:main:main:chat:chat-1", SessionKind.OTHER, "main", None, None),
    ("cron:task-standup-1a2b", SessionKind.CRON, None, None, None),
    ("agent:main:cron:job", SessionKind.CRON, "main", None, None),
    ("hook:0b7e", SessionKind.HOOK, None, None, None),
    ("agent:main:hook:0b7e", SessionKind.HOOK, "main", None, None),
    ("node-phone", SessionKind.NODE, None, None, None),
    ("agent:main:node-phone", SessionKind.NODE, "main", None, None),
    ("agent:main:node-red:group:5", SessionKind.GROUP, "main", "node-red", ChatType.GROUP),
    ("agent:main:subagent:0b7e", SessionKind.OTHER, "main", None, None),
    ("agent:main:cli:work", SessionKind.OTHER, "main", None, None),
    ("agent:main:api:customer-42", SessionKind.OTHER, "main", None, None),
    ("agent:main:telegram:20260101-ab12", SessionKind.OTHER, "main", None, None),
    ("agent:codex:peer:slug", SessionKind.OTHER, "codex", None, None),
    ("agent:main:acp:x", SessionKind.OTHER, "main", None, None),
    ("agent:main:api:café", SessionKind.OTHER, "main", None, None),
]


@requirement("keys:1", "keys:2")
@pytest.mark.parametrize(("text", "kind", "agent", "channel", "chat_type"), FORMS)
def test_a_key_says_its_kind_agent_channel_and_chat_type(
    text: str, kind: SessionKind, agent: str | None, channel: str | None, chat_type: ChatType | None
) -> None:
    key = parse_key(text)
    assert (str(key), key.kind, key.agent_id, key.channel, key.chat_type) == (
        text,
        kind,
        agent,
        channel,
        chat_type,
    )
    assert key.last_segment == text.split(":")[-1]


@requirement("keys:1")
@pytest.mark.parametrize("short", ["whatsapp:group:1203@g.us", "discord:channel:C1", "telegram:group:-1:topic:7"])
def test_a_short_form_is_read_as_the_default_agents_key(short: str) -> None:
    assert parse_key(short, default_agent=AgentId("ops")) == parse_key(f"agent:ops:{short}")
    assert code_of(short) == "invalid_key"


@requirement("keys:1")
@pytest.mark.parametrize(
    ("text", "parent"),
    [
        ("agent:main:telegram:group:-1:topic:77", "agent:main:telegram:group:-1"),
        ("agent:main:discord:channel:c1:thread:t1", "agent:main:discord:channel:c1"),
        ("agent:main:x:group:g:topic:1:thread:2", "agent:main:x:group:g:topic:1"),
        ("agent:main:x:group:g:thread:1:chat:plan", "agent:main:x:group:g"),
        ("agent:main:slack:direct:U1:thread:5.6", "agent:main:slack:direct:U1"),
        ("node-phone:thread:1", "node-phone"),
    ],
)
def test_a_thread_hangs_on_the_place_before_its_last_marker(text: str, parent: str) -> None:
    assert parse_key(text).thread_parent == parse_key(parent)


@requirement("keys:1")
@pytest.mark.parametrize(
    "text",
    [
        "agent:main:main",
        "agent:main:x:group:thread",
        "agent:main:x:direct:topic",
        "agent:main:cli:thread",
        "agent:main:main:chat:thread:chat:b",
    ],
)
def test_a_key_without_a_thread_marker_has_no_thread_parent(text: str) -> None:
    assert parse_key(text).thread_parent is None


@requirement("keys:1")
@pytest.mark.parametrize(
    ("text", "depth"),
    [
        ("agent:a:subagent:x", 1),
        ("agent:a:subagent:x:subagent:y", 2),
        ("agent:a:main", 0),
        ("agent:a:x:group:subagent", 0),
        ("agent:a:x:direct:subagent:chat:subagent", 0),
    ],
)
def test_the_depth_of_a_sub_agent_is_how_many_spawns_its_key_shows(text: str, depth: int) -> None:
    assert parse_key(text).subagent_depth == depth


@requirement("keys:3")
@pytest.mark.parametrize("text", ["global", "unknown", "agent:main:global", "agent:main:unknown", "current", "parent"])
def test_reserved_and_relative_names_are_not_keys(text: str) -> None:
    assert code_of(text) == "invalid_key"


@requirement("keys:4")
@pytest.mark.parametrize(
    "text",
    [
        "", ":", "main", "agent", "agent:main", "agent:main:", "agent::main", "agent:a::b", "foo:bar",
        "node-", "cron:", " agent:main:main", "agent:main:main ", "agent:main:a b", "agent:main:a\tb",
        "agent:main:a\u00a0b",
        "agent:main:a\x00b", "agent:main:a\u200bb", "agent:main:a\u202eb", "agent:main:\ud800",
        "agent:main:a..b", "agent:main:x:group:..", "agent:main:cafe\u0301",
        "Agent:main:main", "agent:main:Main", "agent:main:CLI:work", "agent:main:Telegram:group:1",
        "agent:main:telegram:Group:1", "agent:main:cli:Work", "cron:Job", "hook:AB", "node-Phone",
        "agent:main:x:group:1:chat:Plan", "agent:main:subagent:AB",
        "agent:main:x:group:a%2fb", "agent:main:x:group:%41", "agent:main:x:group:a!b",
        "agent:main:x:group:é",
        "agent:main:x:group:%", "agent:main:x:group:%FF", "agent:main:x:group:1:thread:a/b",
        "agent:main:" + "a" * 502,
    ],
)  # fmt: skip
def test_an_invalid_key_is_an_error_and_never_repaired(text: str) -> None:
    assert code_of(text) == "invalid_key"


@requirement("keys:4")
def test_a_key_may_have_512_bytes() -> None:
    assert parse_key("agent:main:" + "a" * 501)
    assert code_of("agent:main:" + "é" * 251) == "invalid_key"


@requirement("keys:4")
@pytest.mark.parametrize("text", ["", "Ops", "My Agent!", "--x--", "_x", "a" * 65, "Agent not found: xyz", "a\n", "ä"])
def test_an_invalid_agent_id_is_refused_not_normalised(text: str) -> None:
    with pytest.raises(Invalid) as raised:
        parse_agent_id(text)
    assert raised.value.code == "invalid_agent_id"


@requirement("keys:4")
@pytest.mark.parametrize("text", ["main", "ops_1", "0", "a" * 64, "a-b"])
def test_a_valid_agent_id_stays_as_it_is(text: str) -> None:
    assert parse_agent_id(text) == text


@requirement("keys:4")
def test_the_error_says_what_to_write_instead() -> None:
    with pytest.raises(Invalid, match=r"Session key has upper case outside a platform id: .* Write 'work'"):
        parse_key("agent:main:cli:Work")


@requirement("keys:4")
@given(st.text() | st.text("agent:mainxgroupdctreh-%.A ", max_size=40).map("agent:main:".__add__))
def test_any_text_is_a_canonical_key_or_invalid(text: str) -> None:
    try:
        key = parse_key(text)
    except Invalid:
        return
    assert key.value == text


@requirement("keys:1", "keys:4")
@given(keys)
def test_constructed_keys_are_canonical(key: SessionKey) -> None:
    again = parse_key(key.value)
    assert again == key
    assert hash(again) == hash(key)
    assert (again.kind, again.agent_id, again.channel) == (key.kind, key.agent_id, key.channel)
    assert (again.chat_type, again.thread_parent) == (key.chat_type, key.thread_parent)


@requirement("keys:4")
@given(platform_ids | few_ids)
def test_a_platform_id_survives_quoting(platform_id: str) -> None:
    quoted = quote_platform_id(platform_id)
    assert unquote_platform_id(quoted) == platform_id
    assert ".." not in quoted
    assert set(quoted) <= set(string.ascii_letters + string.digits + "_.@+-%")


@requirement("keys:4")
@pytest.mark.parametrize(
    ("platform_id", "quoted"),
    [
        ("C1", "C1"),
        ("-100", "-100"),
        ("123@g.us", "123@g.us"),
        ("!room:example.org", "%21room%3Aexample.org"),
        ("a b~", "a%20b%7E"),
        ("a...b", "a.%2E%2Eb"),
        ("é", "%C3%A9"),
    ],
)
def test_a_platform_id_keeps_its_case_and_is_percent_encoded(platform_id: str, quoted: str) -> None:
    assert quote_platform_id(platform_id) == quoted


@requirement("keys:4")
@pytest.mark.parametrize("platform_id", ["", "\ud800"])
def test_an_id_that_cannot_be_written_has_no_key(platform_id: str) -> None:
    with pytest.raises(Invalid):
        quote_platform_id(platform_id)
    with pytest.raises(Invalid):
        direct_key(MAIN, channel="telegram", peer=platform_id)


@requirement("keys:4")
@given(few_ids, few_ids, few_ids, few_ids)
def test_different_platform_ids_never_give_one_key(a: str, b: str, c: str, d: str) -> None:
    def made(first: str, second: str) -> list[SessionKey]:
        places = [{"thread": second}, {"topic": second}, {}]
        types = [ChatType.GROUP, ChatType.CHANNEL]
        groups = [
            group_key(MAIN, channel="x", chat_type=chat_type, platform_id=first, **place)
            for chat_type in types
            for place in places
        ]
        linked = direct_key(MAIN, channel="x", peer="0", scope=DmScope.PER_PEER, person=first)
        return [*groups, linked, direct_key(MAIN, channel="x", peer=first, scope=DmScope.PER_CHANNEL_PEER)]

    assert len(set(made(a, b))) == 8
    if a != c:
        assert not set(made(a, b)) & set(made(c, d))


@requirement("keys:5")
@given(few_ids, few_ids, few_ids, few_ids)
def test_accounts_and_peers_never_run_into_one_another(a: str, b: str, c: str, d: str) -> None:
    def made(account: str, peer: str) -> SessionKey | None:
        try:
            scope = DmScope.PER_ACCOUNT_CHANNEL_PEER
            return direct_key(MAIN, channel="x", account=account, peer=peer, scope=scope)
        except Invalid:
            assert account in {"direct", "group", "thread", "chat"}
            return None

    first, second = made(a, b), made(c, d)
    if first is not None and second is not None:
        assert (first == second) is ((a, b) == (c, d))
    group = group_key(MAIN, channel="x", chat_type=ChatType.GROUP, platform_id=c, thread=d)
    assert first != group


@requirement("keys:5")
@pytest.mark.parametrize("account", ["direct", "group", "channel", "thread", "main", "node-1", ""])
def test_an_account_whose_name_means_something_else_in_keys_is_refused(account: str) -> None:
    scope = DmScope.PER_ACCOUNT_CHANNEL_PEER
    with pytest.raises(Invalid):
        direct_key(MAIN, channel="x", account=account, peer="1", scope=scope)


@requirement("keys:1")
def test_a_marker_is_never_read_as_an_account() -> None:
    assert parse_key("agent:main:main:chat:direct:1").chat_type is None


@requirement("keys:4")
@given(keys)
def test_a_key_survives_a_url_path(key: SessionKey) -> None:
    segment = key_to_path(key)
    assert key_from_path(segment) == key
    assert not set(segment) & set("/?#\\ ")


@requirement("keys:4")
def test_a_percent_sign_is_encoded_once_more_in_a_path() -> None:
    key = group_key(MAIN, channel="matrix", chat_type=ChatType.GROUP, platform_id="!r:example.org")
    assert key_to_path(key) == "agent:main:matrix:group:%2521r%253Aexample.org"
    with pytest.raises(Invalid):
        key_from_path(key.value)


@requirement("keys:4")
@pytest.mark.parametrize("segment", ["%", "%2", "%zz", "agent:main:%ff", "%E9", "agent:main:a%20b", ""])
def test_a_path_that_is_no_key_is_refused(segment: str) -> None:
    with pytest.raises(Invalid) as raised:
        key_from_path(segment)
    assert raised.value.code == "invalid_key"


@requirement("keys:4")
def test_a_path_is_decoded_exactly_once() -> None:
    assert text_from_path("main") == "main"
    assert text_from_path("api%3Aa%2525") == "api:a%25"
    assert key_from_path("x%3Agroup%3A1", default_agent=MAIN) == parse_key("agent:main:x:group:1")


@requirement("keys:5")
@pytest.mark.parametrize(
    ("scope", "shares_main", "text"),
    [
        (DmScope.MAIN, True, "agent:main:main"),
        (DmScope.MAIN, False, "agent:main:telegram:direct:55"),
        (DmScope.PER_PEER, True, "agent:main:telegram:direct:55"),
        (DmScope.PER_CHANNEL_PEER, False, "agent:main:telegram:direct:55"),
        (DmScope.PER_ACCOUNT_CHANNEL_PEER, False, "agent:main:telegram:Bot1:direct:55"),
    ],
)
def test_the_scope_decides_which_direct_chats_share_a_session(scope: DmScope, shares_main: bool, text: str) -> None:
    key = direct_key(MAIN, channel="telegram", peer="55", account="Bot1", scope=scope, shares_main=shares_main)
    assert str(key) == text


@requirement("keys:5")
@pytest.mark.parametrize(
    ("channel", "peer", "person", "text"),
    [
        ("telegram", "123", "alice", "agent:main:direct:alice"),
        ("discord", "9", "alice", "agent:main:direct:alice"),
        ("slack", "123", None, "agent:main:slack:direct:123"),
        ("matrix", "@alice:example.org", "alice", "agent:main:direct:alice"),
    ],
)
def test_identity_links_fold_a_persons_peers_into_one(channel: str, peer: str, person: str | None, text: str) -> None:
    key = direct_key(MAIN, channel=channel, peer=peer, scope=DmScope.PER_PEER, person=person)
    assert str(key) == text


@requirement("keys:5")
@given(platform_ids)
def test_equal_ids_of_two_platforms_are_never_one_peer(peer: str) -> None:
    for scope in DmScope:
        first, second = (direct_key(MAIN, channel=channel, peer=peer, scope=scope) for channel in ("slack", "signal"))
        assert first != second


@requirement("keys:5")
def test_links_change_nothing_for_the_owners_shared_session() -> None:
    key = direct_key(MAIN, channel="telegram", peer="123", shares_main=True, person="owner")
    assert key == main_key(MAIN)


@requirement("keys:5")
def test_a_stranger_whose_id_is_a_linked_name_does_not_get_that_persons_session() -> None:
    linked = direct_key(MAIN, channel="telegram", peer="123", scope=DmScope.PER_PEER, person="alice")
    assert direct_key(MAIN, channel="webhook", peer="alice", scope=DmScope.PER_PEER) != linked


@requirement("keys:1")
@pytest.mark.parametrize("channel", ["", "Discord", "a:b", "main", "direct", "cron", "node-1", "subagent"])
def test_a_channel_whose_name_means_something_else_in_keys_is_refused(channel: str) -> None:
    with pytest.raises(Invalid):
        group_key(MAIN, channel=channel, chat_type=ChatType.GROUP, platform_id="1")


@requirement("keys:1")
def test_a_group_key_is_of_a_group_or_channel_with_a_thread_or_a_topic() -> None:
    with pytest.raises(Invalid):
        group_key(MAIN, channel="x", chat_type=ChatType.DIRECT, platform_id="1")
    with pytest.raises(Invalid):
        group_key(MAIN, channel="x", chat_type=ChatType.GROUP, platform_id="1", thread="2", topic="3")


@requirement("keys:1")
@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("Chat 1", "chat-1"),
        ("Café & Plan!!", "café-plan"),
        ("x" * 100, "x" * 48),
        ("a" * 47 + " b", "a" * 47),
        ("日本", "日本"),
        ("", "chat"),
        ("Straße und Ärger", "straße-und-ärger"),
        ("தமிழ் குறிப்புகள்", "தமிழ்-குறிப்புகள்"),
        ("日本の予定", "日本の予定"),
        ("İstanbul", "i\u0307stanbul"),
        ("!?… 🎉", "chat"),
        ("é" * 60, "é" * 48),
        ("語" * 60, "語" * 32),
    ],
)
def test_a_further_chats_last_segment_is_made_of_its_name(name: str, slug: str) -> None:
    assert slug_from_name(name) == slug
    assert str(chat_key(main_key(MAIN), slug)) == f"agent:main:main:chat:{slug}"
