"""Questions to owners in their chats: buttons, presses, and what the messages say after."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.channel_form import ChannelForm, DeliveryPart
from antiphon.domain.inbound import ButtonPress, ChangeKind, Sender
from antiphon.domain.person import Person, PersonRole
from antiphon.domain.session import DeliveryContext
from antiphon.engine.chats.linking import LINK_ANSWERS, NOBODY_WAITS, NOT_AGREED, Linked
from antiphon.engine.chats.take_in import Received
from antiphon.engine.runs.presses import UNKNOWN
from antiphon.store.arrivals import ArrivalOutcome
from tests.channels.fake_channel import FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import ACCOUNT, CHANNEL, OWNERS_ID, Lobby, lobby
from tests.engine.deliveries.test_deliveries import quiet
from tests.engine.stage import ManualClock

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


async def a_maker(scene: Lobby, account: str = "77") -> tuple[Person, str]:
    """A user with a chat, and a code of hers that a guest with a history has sent."""
    eve = (await scene.app.services.people.invite(OWNER, "Eve", PersonRole.USER)).person
    await scene.hears(account, f"/link {(await scene.links.make_code(eve.principal)).code} yes")
    await scene.hears("42", "my diary")
    code = (await scene.links.make_code(eve.principal)).code
    await scene.hears("42", f"/link {code} yes")
    return eve, code


@requirement("access:3")
@pytest.mark.parametrize("is_agreed", [True, False])
async def test_the_maker_of_a_code_answers_by_a_button(open_home: OpenHome, is_agreed: bool) -> None:
    channel = bot()
    async with lobby(open_home, Parts(channels=[channel]), access=ChannelAccess.PUBLIC) as scene:
        eve, code = await a_maker(scene)
        guest = await scene.person_of("42")
        asked = await question(scene, channel)
        assert f"/link {code} yes" in asked.text and f"/link {code} no" in asked.text
        assert [button.label for button in asked.buttons] == ["Agree", "Refuse"]
        assert all(len(button.data.encode()) <= 64 and code not in button.data for button in asked.buttons)
        pressed = await presses(scene, asked.buttons[0 if is_agreed else 1].data, by="77")
        told = LINK_ANSWERS[Linked.LINKED if is_agreed else Linked.REFUSED]
        assert (pressed.outcome, pressed.toast) == (ArrivalOutcome.PRESSED, told)
        assert await scene.person_of("42") == (eve.id if is_agreed else guest)
        assert (await scene.told("42"))[-1] == (LINK_ANSWERS[Linked.LINKED] if is_agreed else NOT_AGREED)
        await quiet(scene.app)
        (last,) = [part for part in channel.shown.values() if "wants to be linked" in part.text]
        assert last.text.endswith("Agreed." if is_agreed else "Refused.") and not last.buttons
        again = await presses(scene, asked.buttons[0].data, by="77", id="press:2")
        assert again.toast == NOBODY_WAITS and await scene.person_of("42") == (eve.id if is_agreed else guest)


@requirement("access:3", "answers:2")
async def test_only_the_maker_presses(open_home: OpenHome) -> None:
    channel, clock = bot(), ManualClock()
    async with lobby(open_home, Parts(channels=[channel], clock=clock), access=ChannelAccess.PUBLIC) as scene:
        await scene.knows_owner()
        _, code = await a_maker(scene)
        guest = await scene.person_of("42")
        asked = await question(scene, channel)
        forged = asked.buttons[0].data.replace("link_", "link_0")[:64]
        answers = {
            (await presses(scene, data, by=by, id=f"press:{by} {data}")).toast
            for by in (OWNERS_ID, "42")
            for data in (asked.buttons[0].data, asked.buttons[1].data, forged)
        }
        assert answers == {NOBODY_WAITS}
        assert (await presses(scene, asked.buttons[0].data, by="666", id="press:9")).toast == UNKNOWN
        assert await scene.person_of("42") == guest
        clock.pass_time(timedelta(hours=1))
        late = await presses(scene, asked.buttons[0].data, by="77", id="press:10")
        assert late.toast == NOBODY_WAITS and await scene.person_of("42") == guest
        assert code not in str(answers)


@requirement("access:3")
@pytest.mark.parametrize("word", ["yes", "no"])
async def test_a_typed_answer_takes_the_buttons_away(open_home: OpenHome, word: str) -> None:
    channel = bot()
    async with lobby(open_home, Parts(channels=[channel]), access=ChannelAccess.PUBLIC) as scene:
        eve, code = await a_maker(scene)
        await question(scene, channel)
        await scene.hears("77", f"/link {code} {word}")
        assert (await scene.person_of("42") == eve.id) is (word == "yes")
        await quiet(scene.app)
        (last,) = [part for part in channel.shown.values() if "wants to be linked" in part.text]
        assert last.text.endswith("Agreed." if word == "yes" else "Refused.") and not last.buttons
