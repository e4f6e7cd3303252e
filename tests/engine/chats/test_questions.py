"""Questions to owners in their chats: buttons, presses, and what the messages say after."""

import pytest
from msgspec.structs import replace

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_form import ChannelForm, DeliveryPart
from antiphon.domain.inbound import ButtonPress, ChangeKind, Sender
from antiphon.domain.person import PersonRole
from antiphon.domain.session import DeliveryContext
from antiphon.engine.chats.take_in import Received
from antiphon.engine.runs.presses import UNKNOWN
from antiphon.store.arrivals import ArrivalOutcome
from tests.channels.fake_channel import FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import ACCOUNT, CHANNEL, OWNERS_ID, Lobby, lobby
from tests.engine.test_deliveries import quiet

pytestmark = pytest.mark.anyio

GROUP = "-100"


def bot() -> FakeChannel:
    channel = FakeChannel(ACCOUNT, form=ChannelForm(has_buttons=True))
    channel.name = CHANNEL
    return channel


async def question(scene: Lobby, channel: FakeChannel) -> DeliveryPart:
    """The newest message with buttons, once everything is sent."""
    await quiet(scene.app)
    return [part for part in channel.parts if part.buttons][-1]


async def presses(
    scene: Lobby, data: str, *, by: str = OWNERS_ID, id: str = "press:1", message: str | None = None
) -> Received:
    place = DeliveryContext(channel=CHANNEL, to=by, account_id=ACCOUNT)
    press = ButtonPress(platform_id=id, place=place, sender=Sender(id=by, name="Somebody"), data=data)
    press = replace(press, message_id=message)
    return await scene.reception.press(press)


@requirement("access:3")
async def test_an_owner_admits_a_stranger_by_a_button(open_home: OpenHome) -> None:
    channel = bot()
    async with lobby(open_home, Parts(channels=[channel])) as scene:
        await scene.knows_owner()
        await scene.hears("42", "hello", name="Anna")
        asked = await question(scene, channel)
        assert [button.label for button in asked.buttons] == ["Admit", "Refuse"]
        assert all(len(button.data.encode()) <= 64 for button in asked.buttons)
        pressed = await presses(scene, asked.buttons[0].data)
        assert (pressed.outcome, pressed.toast) == (ArrivalOutcome.PRESSED, "Admitted.")
        assert await scene.messages("agent:main:telegram:direct:42") == ["hello"]
        await quiet(scene.app)
        (last,) = [part for part in channel.shown.values() if "Anna" in part.text]
        assert last.text.endswith("Admitted.") and not last.buttons
        again = await presses(scene, asked.buttons[1].data, id="press:2")
        assert again.toast is not None and again.toast.startswith("Nobody waits")
        assert await scene.messages("agent:main:telegram:direct:42") == ["hello"]


@requirement("access:3", "groups:1")
async def test_an_owner_who_is_linked_later_is_asked_about_all_who_waited(open_home: OpenHome) -> None:
    """The bot was found before its owner had opened the link: by two strangers, a group, and the owner themself."""
    channel = bot()
    async with lobby(open_home, Parts(channels=[channel])) as scene:
        await scene.hears("42", "hello", name="Anna")
        await scene.hears("43", "me too", name="Ben")
        await scene.hears(OWNERS_ID, "is anybody there?", name="Olga")
        await scene.sees(ChangeKind.ADDED, GROUP)
        await quiet(scene.app)
        assert not [part for part in channel.parts if part.buttons]
        await scene.pairings.refuse(OWNER, (await scene.pairings.list(OWNER))[1].id)
        await scene.knows_owner()
        await quiet(scene.app)
        asked = [part for part in channel.parts if part.buttons]
        assert len(asked) == 2, "one stranger was refused already, and nobody is asked about themself"
        about_anna, about_group = sorted((part for part in asked), key=lambda part: "Anna" not in part.text)
        assert "Anna" in about_anna.text and f"Group {GROUP}" in about_group.text
        await presses(scene, about_anna.buttons[0].data)
        assert await scene.messages("agent:main:telegram:direct:42") == ["hello"]
        await scene.knows_owner()
        await quiet(scene.app)
        assert len([part for part in channel.parts if part.buttons]) == 2, "nobody is asked twice"


@requirement("access:3", "channels:1")
async def test_a_question_that_was_sent_twice_loses_the_buttons_of_both(open_home: OpenHome) -> None:
    """The platform took the first one, and the process died before it knew; that one is pressed."""
    channel = bot()
    async with lobby(open_home, Parts(channels=[channel])) as scene:
        await scene.knows_owner()
        await scene.hears("42", "hello", name="Anna")
        asked = await question(scene, channel)
        await presses(scene, asked.buttons[0].data, message="unknown-1")
        await quiet(scene.app)
        shown = [part for part in channel.shown.values() if "Anna" in part.text]
        assert len(shown) == 2 and channel.shown["unknown-1"] in shown
        assert all(part.text.endswith("Admitted.") and not part.buttons for part in shown)


@requirement("access:3")
async def test_a_question_shows_the_answer_that_was_given_elsewhere(open_home: OpenHome) -> None:
    channel = bot()
    async with lobby(open_home, Parts(channels=[channel])) as scene:
        await scene.knows_owner()
        await scene.hears("42", "hello", name="Anna")
        await question(scene, channel)
        await scene.pairings.refuse(OWNER, await scene.code_of("42"))
        await quiet(scene.app)
        (last,) = [part for part in channel.shown.values() if "Anna" in part.text]
        assert last.text.endswith("Refused.") and not last.buttons


@requirement("groups:1")
async def test_an_owner_allows_a_group_by_a_button(open_home: OpenHome) -> None:
    channel = bot()
    async with lobby(open_home, Parts(channels=[channel])) as scene:
        await scene.knows_owner()
        await scene.sees(ChangeKind.ADDED, GROUP)
        asked = await question(scene, channel)
        assert [button.label for button in asked.buttons] == ["Allow", "Refuse"]
        assert (await presses(scene, asked.buttons[0].data)).toast == "Allowed."
        assert (await scene.hears("42", "hello", group=GROUP)).outcome is ArrivalOutcome.POSTED


@requirement("access:3", "groups:1")
async def test_nobody_but_an_owner_decides_by_a_button(open_home: OpenHome) -> None:
    channel = bot()
    async with lobby(open_home, Parts(channels=[channel])) as scene:
        await scene.knows_owner()
        ben = (await scene.app.services.people.invite(OWNER, "Ben", PersonRole.USER)).person
        made = await scene.links.make_code(ben.principal)
        await scene.hears("7", f"/link {made.code} yes")
        await scene.hears("42", "hello")
        admit = (await question(scene, channel)).buttons[0].data
        await scene.sees(ChangeKind.ADDED, GROUP)
        allow = (await question(scene, channel)).buttons[0].data
        assert {taken.place.to for taken in channel.taken if taken.buttons} == {OWNERS_ID}
        for data in (admit, allow):
            users = await presses(scene, data, by="7", id=f"press:{data}")
            assert users.toast is not None and users.toast.startswith("Only owners")
            strangers = await presses(scene, data, by="42", id=f"press:2:{data}")
            assert (strangers.outcome, strangers.toast) == (ArrivalOutcome.IGNORED, UNKNOWN)
        assert len(await scene.pairings.list(OWNER)) == 1
        assert (await scene.hears("42", "hello", group=GROUP)).outcome is ArrivalOutcome.IGNORED


@requirement("approvals:3")
@pytest.mark.parametrize("data", ["", ":", "pair_x", "pair_x:admit", "group:1:admit", "group:a:b:c:admit", "x:once"])
async def test_a_button_of_another_message_decides_nothing(open_home: OpenHome, data: str) -> None:
    async with lobby(open_home) as scene:
        await scene.knows_owner()
        await scene.hears("42", "hello")
        assert (await presses(scene, data)).toast
        assert len(await scene.pairings.list(OWNER)) == 1


@requirement("access:1", "flow:7")
async def test_a_question_does_not_go_to_somebody_who_is_no_owner_any_more(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        await scene.knows_owner()
        people = scene.app.services.people
        carla = (await people.invite(OWNER, "Carla", PersonRole.USER)).person
        made = await scene.links.make_code(carla.principal)
        await scene.hears("7", f"/link {made.code} yes")
        await people.change_role(OWNER, carla.id, PersonRole.OWNER)
        await scene.hears("42", "hello", name="Anna")
        await people.change_role(OWNER, carla.id, PersonRole.USER)
    channel = bot()
    async with lobby(open_home, Parts(channels=[channel])) as scene:
        await quiet(scene.app)
        assert {taken.place.to for taken in channel.taken if "Anna" in taken.text} == {OWNERS_ID}
