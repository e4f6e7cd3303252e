"""Commands in private chats and groups of a channel, each carried out in the unit of its arrival."""

import re

import pytest

from antiphon.config.sections.access import AccessSection
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Denied
from antiphon.domain.person import PersonId, PersonRole, person_principal
from antiphon.domain.run import RunStatus
from antiphon.policy.commands import RoleCommands
from antiphon.store.arrivals import ArrivalOutcome
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import OWNERS_ID, Lobby, lobby
from tests.engine.chats.test_groups import GROUP, allowed
from tests.story import Story

pytestmark = pytest.mark.anyio

IN_GROUP = "agent:main:telegram:group:-100"


@requirement("channels:2", "channels:3", "channels:4")
async def test_a_session_is_begun_where_it_is_asked_for_and_takes_the_next_message(open_home: OpenHome) -> None:
    async with lobby(open_home) as there:
        await there.knows_owner()
        received = await there.hears(OWNERS_ID, "/session new Plans", id="c-1")
        assert received.outcome is ArrivalOutcome.COMMAND and received.posted is None
        said = 'Created session "Plans". New messages in this chat will use it.'
        assert (await there.told(OWNERS_ID))[-1] == said
        again = await there.hears(OWNERS_ID, "/session new Plans", id="c-1")
        assert again.is_repeated and (await there.told(OWNERS_ID)).count(said) == 1
        posted = (await there.hears(OWNERS_ID, "hello")).posted
        assert posted is not None and posted.session_key == "agent:main:main:chat:plans"


@requirement("channels:4", "runs:5")
async def test_stop_acts_at_once_while_messages_wait(open_home: OpenHome) -> None:
    async with lobby(open_home) as there:
        await there.knows_owner()
        story = Story(there.app)
        posted = (await there.hears(OWNERS_ID, "!sleep 3600")).posted
        assert posted is not None and posted.run_id is not None
        await story.until_running(posted.run_id)
        await there.hears(OWNERS_ID, "/stop")
        assert (await there.told(OWNERS_ID))[-1] == "The answer is being stopped."
        assert (await story.end_of(posted.run_id)).status is RunStatus.CANCELLED


@requirement("runs:5", "access:4", "groups:1")
async def test_a_guest_stops_only_what_they_asked_for(open_home: OpenHome) -> None:
    """By the command in a group, and by the calls that HTTP and the WebSocket use."""
    async with lobby(open_home) as there:
        await there.knows_owner()
        await allowed(there)
        story, runs = Story(there.app), there.app.services.runs
        posted = (await there.hears(OWNERS_ID, "!sleep 3600", group=GROUP)).posted
        guests = (await there.hears("8", "hello", group=GROUP)).posted
        assert posted is not None and posted.run_id is not None and guests is not None and guests.run_id is not None
        await story.until_running(posted.run_id)
        eve = person_principal(PersonId(await there.person_of("8") or ""))
        await there.hears("8", "/stop", group=GROUP)
        assert (await there.told(GROUP))[-1] == "The answer is being stopped."
        assert (await story.end_of(guests.run_id)).status is RunStatus.CANCELLED, "their own, which waits"
        await there.hears("8", "/stop", group=GROUP)
        assert (await there.told(GROUP))[-1] == (
            "Guests stop only what they asked for. Its asker or an owner can stop this."
        )
        for refused in (
            runs.cancel(eve, posted.run_id),
            runs.cancel_session(eve, there.app.services.sessions.target(IN_GROUP)),
        ):
            with pytest.raises(Denied) as error:
                await refused
            assert error.value.code == "not_asker"
        assert not (await runs.get(OWNER, posted.run_id)).is_cancel_requested
        await there.hears(OWNERS_ID, "/stop", group=GROUP)
        assert (await story.end_of(posted.run_id)).status is RunStatus.CANCELLED


@requirement("channels:4", "access:4", "groups:1")
async def test_in_a_group_only_owners_begin_a_new_conversation(open_home: OpenHome) -> None:
    async with lobby(open_home) as there:
        await there.knows_owner()
        await allowed(there)
        story = Story(there.app)
        await there.hears("8", "hello", group=GROUP)
        await story.settles()
        before = (await story.session(IN_GROUP).session()).id
        received = await there.hears("8", "/new", group=GROUP)
        assert received.outcome is ArrivalOutcome.IGNORED and await there.told(GROUP) == []
        assert (await story.session(IN_GROUP).session()).id == before
        await there.hears(OWNERS_ID, "/new", group=GROUP)
        assert await there.told(GROUP) == ["A new conversation begins."]
        assert (await story.session(IN_GROUP).session()).id != before


@requirement("channels:3", "access:3")
async def test_a_code_is_never_said_in_a_group(open_home: OpenHome) -> None:
    async with lobby(open_home) as there:
        await there.knows_owner()
        await allowed(there)
        await there.hears(OWNERS_ID, "/link", group=GROUP)
        assert await there.told(GROUP) == ["Send /link in a private chat: whoever reads a code can use it."]
        assert await there.count("link_codes") == 0
        await there.hears(OWNERS_ID, "/link")
        assert (await there.told(OWNERS_ID))[-1].startswith("Your code is ")
        assert await there.count("link_codes") == 1


EVE = "66"


async def knows_user(there: Lobby) -> None:
    person = (await there.app.services.people.invite(OWNER, "Eve", PersonRole.USER)).person
    made = await there.links.make_code(person.principal)
    await there.hears(EVE, f"/link {made.code} yes")


@requirement("channels:4", "access:4", "checkpoints:1")
async def test_a_user_has_every_command_that_the_documentation_names(open_home: OpenHome) -> None:
    """Nothing of it is dropped without a word: not what a setting leaves to its default, nor what owners alone do."""
    assert AccessSection().roles.role_commands() == RoleCommands()
    async with lobby(open_home, checkpoints__enabled=False, access__roles__user__agents=["main"]) as there:
        await there.knows_owner()
        await knows_user(there)
        story = Story(there.app)
        await there.hears(EVE, "hello")
        await story.settles()
        told = len(await there.told(EVE))
        await there.hears(EVE, "/checkpoint")
        (answer,) = (await there.told(EVE))[told:]
        assert answer.endswith("switched off.")  # in this home; a user whose command is dropped gets no answer at all
        await there.hears(EVE, "/task new every 1h Standup: say hello")
        (id,) = set(re.findall(r"task-[0-9a-f]{10}", " ".join(await there.told(EVE))))
        told = len(await there.told(EVE))
        await there.hears(EVE, f"/task approve {id}")
        (answer,) = (await there.told(EVE))[told:]
        assert answer == "Only owners approve tasks."
        await there.hears(EVE, "/help")
        assert "/checkpoint" in (await there.told(EVE))[-1]
        (task,) = await there.app.services.tasks.list(OWNER, limit=10)
        assert not task.may_consult


@requirement("channels:4", "access:4", "groups:1")
async def test_a_users_approval_of_a_task_in_a_group_is_refused_in_words_and_other_changes_are_dropped(
    open_home: OpenHome,
) -> None:
    async with lobby(open_home) as there:
        await there.knows_owner()
        await knows_user(there)
        await allowed(there)
        story = Story(there.app)
        await there.hears(OWNERS_ID, "hello", group=GROUP)
        await story.settles()
        before = len(await there.told(GROUP))
        await there.hears(EVE, "/task new every day x", group=GROUP)
        assert len(await there.told(GROUP)) == before
        await there.hears(EVE, "/task approve task-0000000000", group=GROUP)
        (answer,) = (await there.told(GROUP))[before:]
        assert answer == "Only owners approve tasks."
