"""Chats with a bot: what people write, and what they see."""

import json
import logging
from pathlib import Path

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.message import ImagePart
from antiphon.domain.person import PersonId, person_principal
from antiphon.testing.faults import Fault
from antiphon.testing.telegram import FakeTelegram, Json
from tests.channels.telegram.bots import ANN, BEN, CODE, FAMILY, OLGA, open_bot
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import find_session, post, read_log

pytestmark = pytest.mark.anyio

PICTURE = b"\xff\xd8\xff\xe0" + b"jpeg" * 4


@requirement("channels:1", "access:3")
async def test_the_owner_opens_one_link_and_talks_to_the_agent(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake) as bot:
        await bot.link_owner()
        await bot.says("hello")
        await bot.settles()
        assert fake.texts(1)[-1] == "echo: hello" and len(fake.texts(1)) == 2
        assert "status" in {each["command"] for each in fake.commands[""]} and "de" in fake.commands
        session = await find_session(bot.app, "agent:main:main")
        assert session is not None


@requirement("access:3")
async def test_a_stranger_gets_a_code_and_the_first_message_waits_for_it(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with open_bot(open_home, fake) as bot:
        fake.write("may I come in", sender=ANN)
        await fake.until(lambda: fake.texts(7))
        found = CODE.search(fake.texts(7)[0])
        assert found is not None
        fake.write("hello?", sender=ANN)
        await bot.settles()
        assert len(fake.texts(7)) == 1, "one answer an hour"
        await bot.app.services.pairings.approve(OWNER, found.group())
        await fake.until(lambda: any("may I come in" in text for text in fake.texts(7)))


@requirement("groups:1", "keys:1")
async def test_each_topic_of_an_allowed_group_is_a_session_of_its_own(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, groups={"-100": {}}) as bot:
        topic = {"message_thread_id": 9, "is_topic_message": True}
        fake.write("I only talk to Ben", sender=ANN, chat=FAMILY, **topic)
        fake.write("@test_bot hello", sender=ANN, chat=FAMILY, **topic)
        await fake.until(lambda: fake.texts(-100, 9))
        await bot.settles()
        (reply,) = fake.texts(-100, 9)
        assert "@test_bot hello" in reply and fake.texts(-100) == []
        session = await find_session(bot.app, "agent:main:telegram:group:-100:topic:9")
        assert session is not None and session.metadata["telegram_chat_id"] == "-100"


@requirement("groups:1", "channels:3")
async def test_a_command_to_another_bot_of_the_group_is_stored_and_nobody_answers_it(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    """Also the owner's, who is answered without a mention, and one that replies to a message of ours."""
    async with open_bot(open_home, fake, groups={"-100": {"owner_trigger": "always"}}) as bot:
        await bot.link_owner()
        fake.write("hello", sender=OLGA, chat=FAMILY)
        await fake.until(lambda: fake.texts(-100))
        before = fake.texts(-100)
        answered = {"message_id": 1, "from": {"id": 999, "is_bot": True, "first_name": "Bot", "username": "test_bot"}}
        for text in ("/status@other_bot", "/new@Other_bot now", "/set_alarm2@other_bot 7:00"):
            entities = [{"type": "bot_command", "offset": 0, "length": len(text.split()[0])}]
            fake.write(text, sender=OLGA, chat=FAMILY, entities=entities)
            fake.write(text, sender=ANN, chat=FAMILY, entities=entities, reply_to_message=answered)
        await fake.until(lambda: not fake.updates)
        await bot.settles()
        assert fake.texts(-100) == before
        log = await read_log(bot.app, "agent:main:telegram:group:-100")
        assert (
            len([event for event in log if event.message is not None and "other_bot" in str(event.message).lower()])
            == 6
        )
        fake.write("/status@test_bot", sender=OLGA, chat=FAMILY)
        await fake.until(lambda: len(fake.texts(-100)) > len(before))


@requirement("groups:1")
async def test_a_group_that_no_owner_allowed_is_not_answered(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake) as bot:
        fake.write("@test_bot hello", sender=ANN, chat=FAMILY)
        await fake.until(lambda: not fake.updates)
        await bot.settles()
        assert fake.texts(-100) == []


async def test_photos_reach_the_model_and_files_the_workspace(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake) as bot:
        await bot.link_owner()
        fake.write(None, sender=OLGA, caption="look at this", photo=[fake.add_file(PICTURE, width=1, height=1)])
        await fake.until(lambda: any("look at this" in text for text in fake.texts(1)))
        fake.write(None, sender=OLGA, caption="read that", document=fake.add_file(b"12345", file_name="notes.txt"))
        await fake.until(lambda: any("read that" in text for text in fake.texts(1)))
        await bot.settles()
        messages = [event.message for event in await read_log(bot.app, "agent:main:main") if event.message is not None]
        parts = [part for message in messages for part in message.content]
        assert [part.mime_type for part in parts if isinstance(part, ImagePart)] == ["image/jpeg"]
        assert any("notes.txt" in str(part) for part in parts)
        files = [path for path in (bot.app.home / "workspaces").rglob("*notes.txt*") if path.is_file()]
        assert [path.read_bytes() for path in files] == [b"12345"]


async def test_a_file_that_telegram_does_not_give_is_told(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake) as bot:
        await bot.link_owner()
        fake.will("getFile", Fault.UNPARSED)
        fake.write(None, sender=OLGA, caption="read", document=fake.add_file(b"1", file_name="lost.txt"))
        await fake.until(lambda: any("lost.txt" in text for text in fake.texts(1)))


@pytest.mark.parametrize("kind", ["photo", "document"])
async def test_a_file_that_is_larger_than_was_said_is_not_read_to_its_end(
    open_home: OpenHome, fake: FakeTelegram, kind: str
) -> None:
    fake.more_bytes = 128 * 2**20
    async with open_bot(open_home, fake) as bot:
        await bot.link_owner()
        file = fake.add_file(PICTURE, file_name="notes.txt", width=1, height=1)
        files: Json = {"photo": [file], "document": file}
        fake.write(None, sender=OLGA, caption="read", **{kind: files[kind]})
        most = "5 MiB" if kind == "photo" else "20 MiB"
        await fake.until(lambda: any(f"larger than {most}" in text for text in fake.texts(1)))
        assert fake.sent_bytes < fake.more_bytes / 2
        await bot.settles()
        assert not any(path.is_file() for path in (bot.app.home / "workspaces").rglob("*notes.txt*"))


async def test_no_file_of_this_machine_is_read_for_one_of_telegram(
    open_home: OpenHome, fake: FakeTelegram, tmp_path: Path
) -> None:
    (tmp_path / "secret.txt").write_text("canary")
    async with open_bot(open_home, fake) as bot:
        await bot.link_owner()
        place = {"file_id": "1", "file_path": str(tmp_path / "secret.txt")}
        fake.will_answer("getFile", json.dumps({"ok": True, "result": place}))
        fake.write(None, sender=OLGA, caption="read", document=fake.add_file(b"1", file_name="notes.txt"))
        await fake.until(lambda: any("notes.txt" in text for text in fake.texts(1)))
        await bot.settles()
        files = [path for path in (bot.app.home / "workspaces").rglob("*notes.txt*") if path.is_file()]
        assert all(path.read_bytes() == b"1" for path in files)


@requirement("access:3")
async def test_files_of_people_who_may_not_write_are_not_fetched(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake) as bot:
        await bot.link_owner()
        for sender, chat in ((ANN, None), (ANN, None), (BEN, FAMILY)):
            for text in ("@test_bot look", "/link ABCD2345"):
                more: Json = {"caption": text, "document": fake.add_file(b"1" * 100, file_name="large.txt")}
                fake.write(None, sender=sender, chat=chat, **more)
        await bot.settles()
        assert "getFile" not in [method for method, _ in fake.requests]
        (code,) = CODE.findall("".join(fake.texts(7)))
        await bot.app.services.pairings.approve(OWNER, code)
        more = {"caption": "/link ABCD2345", "document": fake.add_file(b"1" * 100, file_name="small.txt")}
        fake.write(None, sender=ANN, **more)
        await fake.until(lambda: any("small.txt" in text for text in fake.texts(7)))
        assert [method for method, _ in fake.requests].count("getFile") == 1


@requirement("channels:1")
async def test_nobody_keeps_a_message_out_by_using_its_id_first(open_home: OpenHome, fake: FakeTelegram) -> None:
    key = "agent:main:telegram:group:-100"
    async with open_bot(open_home, fake, groups={"-100": {}}) as bot:
        await bot.says("@test_bot hi", sender=ANN, chat=FAMILY)
        await bot.settles()
        (ann,) = (await find_session(bot.app, key)).participants
        id = f"telegram:default:{fake.me['id']}:-100:5000"
        await post(
            bot.app, key, "mine", message_id=id, principal=person_principal(PersonId(ann.removeprefix("person:")))
        )
        await bot.says("@test_bot help", sender=BEN, chat=FAMILY, message_id=5000)


async def test_no_log_holds_the_token_or_what_is_said(
    open_home: OpenHome, fake: FakeTelegram, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_bot(open_home, fake, access="public") as bot:
        await bot.says("canary", sender=ANN)
        await bot.settles()
    assert fake.token not in caplog.text and "canary" not in caplog.text


async def test_updates_that_mean_nothing_hold_up_nothing(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, access="public") as bot:
        fake.add_update("edited_message", {"message_id": 1, "chat": ANN, "text": "x"})
        fake.add_update("a_new_kind", {"x": [1]})
        fake.add_update("message", {"message_id": "?", "chat": {"id": 3, "type": []}})
        fake.write("from a bot", sender={**BEN, "is_bot": True})
        await bot.says("hello", sender=ANN)
        await bot.settles()
        assert fake.texts(8) == [] and fake.updates == []


async def test_what_comes_again_after_a_restart_is_recognised(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, access="public") as bot:
        await bot.says("hello", sender=ANN)
        await bot.settles()
        given = {"message_id": 5_000, "date": 1, "chat": {"id": 7, "type": "private"}, "from": ANN, "text": "again"}
        for _ in range(2):
            fake.add_update("message", given)
        await bot.settles()
    async with open_bot(open_home, fake, access="public") as bot:
        fake.add_update("message", given)
        await bot.settles()
        assert [text for text in fake.texts(7) if "again" in text] == ["echo: again"]


@requirement("flow:7")
async def test_what_is_classified_is_not_said_in_a_chat(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, classification={"level": "CONFIDENTIAL"}) as bot:
        await bot.link_owner()
        fake.write("the secret is 42", sender=OLGA)
        await fake.until(lambda: len(fake.texts(1)) == 2)
        await bot.settles()
        assert "classified above the clearance" in fake.texts(1)[1] and "42" not in fake.texts(1)[1]
