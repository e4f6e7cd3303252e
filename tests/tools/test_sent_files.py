"""Files that agents send: which may go, what of them is stored, and what holds for texts holds for them.

Contract: message 1, flow 7, 8, 9, channels 1.
"""

import os
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Verdict
from antiphon.domain.attachments import MAX_SENT_BYTES
from antiphon.domain.channel_form import ChannelForm
from antiphon.domain.classification import NO_COMPARTMENTS, Classification, Level
from antiphon.domain.delivery import UNREAD_FILES, DeliveryFile, DeliveryStatus, words_of_files
from antiphon.domain.errors import Conflict, Invalid
from antiphon.domain.session import DeliveryContext
from antiphon.engine.ledger.append import raise_workspace
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.policy.written.reading import read_rules
from antiphon.store.database import Query, Transaction
from antiphon.store.deliveries import FILES_KEPT
from tests.channels.fake_channel import NAME, Act, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.deliveries.test_deliveries import open_chat, quiet
from tests.engine.deliveries.test_live import NO_SECRET
from tests.engine.stage import ManualClock, facts, find_session, open_session, read_log
from tests.story import Character, Story, telling
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

FILES = ChannelForm(longest=64, files=1_000_000)


async def workspace_of(app: App) -> Path:
    return app.workspaces.of_session(await find_session(app, "main")).open()


async def sends(story: Story, *files: str, key: str | None = None, **more: Any) -> dict[str, Any]:
    return await (await main_of(story)).calls("message", key=key, files=[*files], **more)


async def main_of(story: Story) -> Character:
    return story.session(str((await find_session(story.app, "main")).key))


async def kept(app: App) -> int:
    """Rows with bytes of files."""

    async def count(query: Query) -> int:
        row = await query.fetch_one("SELECT COUNT(*) FROM delivery_files")
        assert row is not None
        return row[0]

    return await app.database.read(count)


@requirement("message:1", "channels:1")
async def test_files_go_after_the_text_to_where_the_reply_goes_and_their_bytes_are_forgotten(
    open_home: OpenHome,
) -> None:
    channel = FakeChannel(form=FILES)
    async with telling(open_home, Parts(channels=[channel])) as story:
        app = story.app
        await open_chat(app)
        top = await workspace_of(app)
        (top / "a.txt").write_bytes(b"tea")
        (top / "sub").mkdir()
        (top / "sub" / "b.bin").write_bytes(b"\0\xff")
        answer = await sends(story, "a.txt", "sub/b.bin", text="Here they are.")
        await quiet(app)
        assert [(part.index, part.text, part.file and (part.file.name, part.file.data)) for part in channel.parts] == [
            (0, "Here they are.", None),
            (1, "", ("a.txt", b"tea")),
            (2, "", ("b.bin", b"\0\xff")),
        ]
        assert answer["files"][0] == {"name": "a.txt", "bytes": 3, "sha256": sha256(b"tea").hexdigest()}
        (delivered,) = facts(await read_log(app, "main"), "delivered")
        assert delivered["files"] == answer["files"]
        assert await kept(app) == 0
        assert (await sends(story, "a.txt"))["status"] == "accepted"
        await quiet(app)
        assert channel.parts[-1].file is not None and channel.parts[-1].index == 0


@requirement("channels:1")
@pytest.mark.parametrize("act", [Act.DROP, Act.BUSY])
async def test_only_what_was_not_sent_is_sent_again_and_a_changed_file_is_sent_as_it_was(
    open_home: OpenHome, act: Act
) -> None:
    first, second = FakeChannel(form=FILES), FakeChannel(form=FILES)
    async with open_home(parts=Parts(channels=[first])) as app:
        story = Story(app)
        await open_chat(app)
        top = await workspace_of(app)
        for name in "ab":
            (top / name).write_bytes(name.encode())
        first.will(Act.TAKE, Act.TAKE, act)
        await sends(story, "a", "b", text="Both.")
        await quiet(app)
        assert [part.index for part in first.parts] == [0, 1]
        (top / "b").write_bytes(b"something else")
        (top / "a").unlink()
        (waiting,) = await story.deliveries()
        await app.services.deliveries.retry(OWNER, waiting.id)
    async with open_home(parts=Parts(channels=[second])) as app:
        await quiet(app)
        assert [(part.index, part.file and part.file.data) for part in [*first.parts, *second.parts]][-1] == (2, b"b")
        assert len(first.parts) + len(second.parts) == 3
        assert await kept(app) == 0


@requirement("message:1")
async def test_what_is_no_file_of_the_session_is_refused(open_home: OpenHome, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("outside")
    async with telling(open_home, Parts(channels=[FakeChannel(form=FILES)])) as story:
        app = story.app
        await open_chat(app)
        top = await workspace_of(app)
        (top / "link").symlink_to(secret)
        (top / "beyond").symlink_to(tmp_path)
        os.mkfifo(top / "pipe")
        (top / "directory").mkdir()
        (top / "empty").touch()
        (top / "a\u202etxt.exe").write_text("x")
        (top / "huge").write_bytes(b"x" * (MAX_SENT_BYTES + 1))
        (top / "large").write_bytes(b"x" * 1_000_001)
        (top / "fine").write_text("x")
        for path, code in (
            ("link", "no_file"),
            ("beyond/secret", "no_file"),
            ("pipe", "no_file"),
            ("directory", "no_file"),
            ("", "no_file"),
            ("../main", "invalid_path"),
            ("/etc/passwd", "invalid_path"),
            ("a\nb", "invalid_path"),
            ("a\u202etxt.exe", "invalid_path"),
            ("nothing", "not_found"),
            ("empty", "empty_message"),
            ("huge", "attachment_too_large"),
            ("large", "attachment_too_large"),
        ):
            assert (await sends(story, path)).get("code") == code, path
        assert (await sends(story, *["fine"] * 11))["code"] == "attachment_count"
        assert (await sends(story, "fine", "directory/../fine"))["code"] == "invalid_path"
        assert (await sends(story, "fine", "./fine"))["code"] == "attachment_duplicate"
        assert (await sends(story))["code"] == "empty_message"
        large = (await sends(story, "large"))["error"]
        assert "1000001" in large and "1000000" in large
        assert (await sends(story, "fine", channel=NAME))["code"] == "invalid_arguments"
        assert await story.deliveries() == [] and await kept(app) == 0


@requirement("message:1")
async def test_a_channel_without_files_and_a_session_without_a_chat_say_so(open_home: OpenHome) -> None:
    channels = [FakeChannel(), FakeChannel("second", form=FILES)]
    async with telling(open_home, Parts(channels=channels)) as story:
        await open_session(story.app, "main")
        (await workspace_of(story.app) / "a").write_text("x")
        assert (await sends(story, "a"))["code"] == "no_place"
        await open_chat(story.app)
        refused = await sends(story, "a")
        assert refused["code"] == "unsupported" and NAME in refused["error"]


@requirement("flow:7", "flow:8")
async def test_a_file_is_as_secret_as_what_its_workspace_holds(open_home: OpenHome) -> None:
    channel = FakeChannel(form=FILES)
    async with telling(open_home, Parts(channels=[channel])) as story:
        app = story.app
        await open_chat(app, to="group")
        (await workspace_of(app) / "a").write_text("x")
        session = await find_session(app, "main")

        async def taint(tx: Transaction) -> None:
            await raise_workspace(tx, session.row, session.id, Classification(Level.CONFIDENTIAL))

        await app.database.run(taint, sessions=(session.row,))
        assert (await sends(story, text="hello"))["status"] == "accepted"
        assert (await sends(story, "a"))["code"] == "write_down"
        await quiet(app)
        assert all(part.file is None for part in channel.parts) and await kept(app) == 0


@requirement("flow:9")
async def test_a_file_that_holds_what_a_rule_takes_out_is_held_back_whole(open_home: OpenHome) -> None:
    channel = FakeChannel(form=FILES)
    async with telling(open_home, Parts(channels=[channel])) as story:
        app = story.app
        await open_chat(app)
        rule = {"id": "a", "hook": "PRE_OUTPUT", "action": "REDACT", "when": [NO_SECRET]}
        app.services.rules.written.replace(read_rules([rule], str), NO_COMPARTMENTS)
        top = await workspace_of(app)
        (top / "plain").write_text("tea")
        (top / "told").write_text("the secret")
        (top / "wide").write_text("the secret", "utf-16")
        (top / "picture").write_bytes(b"\0secret")
        for name in ("plain", "told", "wide", "picture"):
            await sends(story, name)
        await quiet(app)
        assert [part.file.name for part in channel.parts if part.file is not None] == ["plain", "picture"]
        assert sum(each.status is DeliveryStatus.SUPPRESSED for each in await story.deliveries()) == 2


@requirement("message:1")
async def test_a_repeated_call_sends_the_bytes_that_were_stored_once(open_home: OpenHome) -> None:
    channel = FakeChannel(form=FILES)
    async with telling(open_home, Parts(channels=[channel])) as story:
        app = story.app
        await open_chat(app)
        top = await workspace_of(app)
        (top / "a").write_text("first")
        answer = await sends(story, "a", key="one")
        (top / "a").write_text("second")
        assert await sends(story, "a", key="one") == answer
        await quiet(app)
        assert [part.file and part.file.data for part in channel.parts] == [b"first"]


@requirement("approvals:3")
async def test_what_was_approved_is_what_is_sent(open_home: OpenHome) -> None:
    channel = FakeChannel(form=FILES)
    async with telling(open_home, Parts(channels=[channel]), tools__approval__require=["message"]) as story:
        app = story.app
        await open_chat(app)
        top = await workspace_of(app)
        for change, code in (("the same", None), ("another", "approval_outdated"), (None, "not_found")):
            (top / "a").write_text("the same")
            answer = await sends(story, "a", key=f"{change}")
            assert answer["status"] == "pending"
            asked = await app.services.approvals.get(OWNER, answer["approvalId"])
            assert sha256(b"the same").hexdigest() in asked.calls[0].shown
            if change is None:
                (top / "a").unlink()
            else:
                (top / "a").write_text(change)
            await app.services.approvals.resolve(OWNER, asked.id, Verdict.ONCE)
            await quiet(app)
            with anyio.fail_after(SECONDS):
                while (said := await sends(story, "a", key=f"{change}"))["status"] == "pending":
                    await anyio.sleep(0.05)
            assert said.get("code") == code, said
        await quiet(app)
        assert [part.file and part.file.data for part in channel.parts] == [b"the same"]


@requirement("channels:1")
async def test_bytes_stay_while_a_delivery_can_be_tried_again_and_end_with_it(open_home: OpenHome) -> None:
    channel = FakeChannel(form=FILES)
    async with telling(open_home, Parts(channels=[channel])) as story:
        app = story.app
        await open_chat(app)
        (await workspace_of(app) / "a").write_text("x")
        channel.will(Act.GONE)
        await sends(story, "a")
        await quiet(app)
        (dead,) = await story.deliveries()
        assert (dead.status, await kept(app)) == (DeliveryStatus.DEAD, 1)
        await app.services.deliveries.retry(OWNER, dead.id)
        await quiet(app)
        assert channel.parts[-1].file is not None and await kept(app) == 0


@requirement("channels:1", "sessions:6")
async def test_a_deleted_session_leaves_no_bytes(open_home: OpenHome) -> None:
    channel = FakeChannel(form=FILES)
    async with telling(open_home, Parts(channels=[channel])) as story:
        app = story.app
        target = app.services.sessions.target("agent:main:room")
        await app.services.sessions.open(OWNER, target, place=DeliveryContext(channel=NAME, to="room"))
        (app.workspaces.of_session(await find_session(app, "agent:main:room")).open() / "a").write_text("x")
        channel.will(Act.GONE)
        await story.session("agent:main:room").calls("message", files=["a"])
        await quiet(app)
        assert await kept(app) == 1
        await app.services.sessions.delete(OWNER, target)
        assert await kept(app) == 0


@requirement("approvals:3", "approvals:5")
async def test_a_call_with_files_is_shown_with_them_and_never_allowed_always(open_home: OpenHome) -> None:
    channel = FakeChannel(form=FILES)
    async with telling(open_home, Parts(channels=[channel]), tools__approval__require=["message"]) as story:
        app = story.app
        await open_chat(app)
        (await workspace_of(app) / "a").write_text("tea")
        plain = await (await main_of(story)).calls("message", text="plain")
        asked = await app.services.approvals.get(OWNER, plain["approvalId"])
        await app.services.approvals.resolve(OWNER, asked.id, Verdict.ALWAYS, fields={asked.calls[0].id: ("text",)})
        await quiet(app)
        with_file = await sends(story, "a", text="plain")
        assert with_file["status"] == "pending", "what was allowed always covers no file"
        asked = await app.services.approvals.get(OWNER, with_file["approvalId"])
        assert not asked.may_stand
        with pytest.raises(Invalid) as refused:
            await app.services.approvals.resolve(OWNER, asked.id, Verdict.ALWAYS)
        assert refused.value.code == "invalid_always" and "only once" in refused.value.message
        events = facts(await read_log(app, str((await find_session(app, "main")).key)), "approval_requested")
        assert sha256(b"tea").hexdigest() in str(events[-1]["calls"])


@requirement("channels:1")
async def test_bytes_that_nobody_tries_to_send_again_are_forgotten_and_a_retry_says_so(open_home: OpenHome) -> None:
    channel, clock = FakeChannel(form=FILES), ManualClock()
    async with telling(open_home, Parts(channels=[channel], clock=clock)) as story:
        app = story.app
        await open_chat(app)
        upkeep = Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=None)
        top = await workspace_of(app)
        for name in "ab":
            (top / name).write_text(name)
        channel.will(Act.GONE)
        await sends(story, "a", "b")
        await quiet(app)
        (dead,) = await story.deliveries()
        clock.pass_time(FILES_KEPT - timedelta(minutes=1))
        channel.will(Act.GONE)
        await app.services.deliveries.retry(OWNER, dead.id)
        await quiet(app)
        clock.pass_time(timedelta(minutes=2))
        await upkeep.forget_files()
        assert await kept(app) == 2, "the week begins with the last attempt"
        clock.pass_time(FILES_KEPT)
        await upkeep.forget_files()
        assert await kept(app) == 0
        with pytest.raises(Conflict) as gone:
            await app.services.deliveries.retry(OWNER, dead.id)
        assert gone.value.code == "delivery_files_gone" and "7 days" in gone.value.message
        (still,) = await story.deliveries()
        assert (still.status, [each.name for each in still.files]) == (DeliveryStatus.DEAD, ["a", "b"])
        assert channel.parts == []


@requirement("sessions:6", "channels:1")
async def test_a_file_that_waits_when_its_session_is_reset_is_sent_once_and_forgotten(open_home: OpenHome) -> None:
    channel = FakeChannel(form=FILES)
    async with telling(open_home, Parts(channels=[channel])) as story:
        app = story.app
        await open_chat(app)
        (await workspace_of(app) / "a").write_text("tea")
        channel.will(Act.GONE)
        await sends(story, "a")
        await quiet(app)
        (dead,) = await story.deliveries()
        await story.resets(await main_of(story))
        await app.services.deliveries.retry(OWNER, dead.id)
        await quiet(app)
        assert [part.file and part.file.data for part in channel.parts] == [b"tea"] and await kept(app) == 0


@requirement("approvals:3", "approvals:5")
async def test_a_file_that_was_not_there_when_somebody_was_asked_is_not_sent(open_home: OpenHome) -> None:
    channel = FakeChannel(form=FILES)
    async with telling(open_home, Parts(channels=[channel]), tools__approval__require=["message"]) as story:
        app = story.app
        await open_chat(app)
        top = await workspace_of(app)
        answer = await sends(story, "later", text="Tea.", key="one")
        assert answer["status"] == "pending"
        asked = await app.services.approvals.get(OWNER, answer["approvalId"])
        assert UNREAD_FILES in asked.calls[0].shown and not asked.may_stand
        (top / "later").write_text("what nobody has seen")
        await app.services.approvals.resolve(OWNER, answer["approvalId"], Verdict.ONCE)
        await quiet(app)
        with anyio.fail_after(SECONDS):
            while (said := await sends(story, "later", text="Tea.", key="one"))["status"] == "pending":
                await anyio.sleep(0.05)
        assert said.get("code") == "approval_outdated", said
        assert channel.parts == [] and await kept(app) == 0
        (top / "later").unlink()
        plain = await (await main_of(story)).calls("message", text="Tea.")
        call = (await app.services.approvals.get(OWNER, plain["approvalId"])).calls[0]
        await app.services.approvals.resolve(OWNER, plain["approvalId"], Verdict.ALWAYS, fields={call.id: ("text",)})
        await quiet(app)
        assert (await sends(story, "later", text="Tea."))["status"] == "pending", "allowed always, but for no file"


@requirement("approvals:3")
def test_a_name_that_would_deceive_is_told_escaped() -> None:
    (line,) = words_of_files([DeliveryFile("a\u202etxt\nFile 'b'\x1b[2J.exe", 1, "0")]).splitlines()
    assert line.isascii() and "\\u202e" in line and "\\x1b" in line
