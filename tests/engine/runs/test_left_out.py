"""What a provider refused stays left out: after a restart, in a fork, beside what is compacted."""

import json

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.event import EventType
from antiphon.domain.left_out import IMAGE_NOT_SEEN
from antiphon.domain.message import ImagePart, TextPart, text_content
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.engine.sessions.inbox import Envelope
from antiphon.testing import Answering, Failure, FakeRequest, Reply, fake_provider
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.deliveries.test_deliveries import quiet
from tests.engine.stage import ask, facts, open_session, open_with_provider, read_log, wait_end

pytestmark = pytest.mark.anyio

CHAT = "api:chat"
PHOTO = (TextPart(text="What is it?"), ImagePart(mime_type="image/png", data="aGk="))


def refusing(request: FakeRequest) -> Answering:
    """Takes no image, and nothing with the word `poison`."""
    said = json.dumps(request.messages)
    if "image_url" in said:
        return Failure(status=400, message="Could not process image")
    return Failure(status=400, message="Bad Request") if "poison" in said else Reply(text="yes")


def went_well(run: Run) -> bool:
    return (run.status, run.reply) == (RunStatus.OK, "yes")


@requirement("runs:9")
async def test_what_was_left_out_stays_so_after_a_restart_and_in_a_fork(open_home: OpenHome) -> None:
    async with fake_provider(refusing) as fake:
        async with open_with_provider(open_home, fake) as app:
            await open_session(app, CHAT)
            target = app.services.sessions.target(CHAT)
            photo = await app.services.inbox.post(OWNER, target, PHOTO)
            assert went_well(await wait_end(app, photo.run_id))
            assert (await ask(app, CHAT, "poison")).code == "model_refused"
            assert went_well(await ask(app, CHAT, "And now?"))
            log = await read_log(app, CHAT)
            image, message = facts(log, EventType.LEFT_OUT)
            assert (image["code"], message["code"]) == ("image_unreadable", "refused")
            posted = next(event.seq for event in log if event.message is not None)
            assert image["images"] == [[posted, 1]]
            asked = len(fake.requests)
            forked = await app.services.forks.fork(OWNER, target, None)
            assert went_well(await ask(app, str(forked.key), "In the fork?"))
            assert len(fake.requests) == asked + 1
        async with open_with_provider(open_home, fake) as app:
            assert went_well(await ask(app, CHAT, "After a restart?"))
            assert len(fake.requests) == asked + 2


@requirement("runs:9")
async def test_the_log_keeps_what_prompts_leave_out(open_home: OpenHome) -> None:
    async with fake_provider(refusing) as fake, open_with_provider(open_home, fake) as app:
        await open_session(app, CHAT)
        await app.services.inbox.post(OWNER, app.services.sessions.target(CHAT), PHOTO)
        assert went_well(await ask(app, CHAT, "And?"))
        kept = [event.message.content for event in await read_log(app, CHAT) if event.message is not None]
        assert PHOTO in kept


@requirement("runs:9", "groups:4")
async def test_a_place_hears_once_that_an_image_was_left_out(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with (
        fake_provider(refusing) as fake,
        open_with_provider(open_home, fake, Parts(channels=[channel])) as app,
    ):
        await open_session(app, CHAT)
        envelope, target = Envelope(place=DeliveryContext(channel=NAME, to="room")), app.services.sessions.target(CHAT)
        for content in (PHOTO, text_content("And now?")):
            posted = await app.services.inbox.post(OWNER, target, content, envelope=envelope)
            assert went_well(await wait_end(app, posted.run_id))
            await quiet(app)
        assert channel.texts == [IMAGE_NOT_SEEN, "yes", "yes"]
        assert IMAGE_NOT_SEEN not in json.dumps([request.messages for request in fake.requests])
