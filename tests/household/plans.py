"""What a household asks of its agents in thirty days, and what a model that does as it is asked calls for it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

LETTER = "The biopsy of the twenty-first was benign."
"""The private words: of the doctor's letter, which only the parent may read."""
RECIPE_PAGE = "http://recipes.example/week"
PARTNER = "partner@home.example"
CHANNEL = "telegram"
GROUP_ID, CHILD_ID = "-100", "8"


class Who(StrEnum):
    """Where a task begins: the session that is asked."""

    PARENT = "parent"
    CHILD = "child"
    GROUP = "group"
    CLOCK = "clock"
    """Nobody: a task that the parent made before is due."""


class Answer(StrEnum):
    """What a sensible owner says to the question of a task."""

    ONCE = "once"
    ALWAYS = "always"
    """The same will come again and again: the same page, the same recipient."""
    DENY = "deny"


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    arguments: Mapping[str, Any]


Results = Sequence[str]
"""What the calls of the run have brought so far."""
Step = Call | str | Callable[[Results], Call | str]
"""One step of the model: a call, or the words with which it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """One task."""

    what: str
    """For the table."""
    who: Who
    says: str
    """What the person writes; at a task's hour, its prompt."""
    steps: tuple[Step, ...]
    done: str
    """A mark that `House.marks` holds once the task is done."""
    answer: Answer = Answer.ONCE


def call(tool: str, **arguments: Any) -> Call:
    return Call(tool, arguments)


def tells(text: str, to: str = GROUP_ID) -> Call:
    return call("message", channel=CHANNEL, recipient=to, text=text)


def refused_or(words: str) -> Callable[[Results], str]:
    """The words; after a refusal the sentence that it gave, which the person needs to know."""

    def say(results: Results) -> str:
        sentence = sentence_of(results[-1])
        return words if sentence is None else f"That did not work: {sentence}"

    return say


def sentence_of(result: str) -> str | None:
    """The sentence of a refused call's result; None for any other result."""
    try:
        found = json.loads(result)
    except ValueError:
        return None
    match found:
        case {"error": str(sentence)}:
            return sentence
        case _:
            return None


def _last(results: Results) -> str:
    return results[-1]


def _waits(results: Results) -> Call:
    return call("sessions_wait", runIds=[json.loads(results[-1])["runId"]], mode="all")


SEARCH = "Search my mails for the rules of the holiday flat."
"""The task of the sub-agent."""
SEARCHING: tuple[Step, ...] = (call("read_mail", sender="flat"), "No pets. Keys at noon.")
BINS = "Say that the bins go out tonight."
LANDLORD = "Say that the landlord is to be called."
_SEND_RULES = call("send_mail", to=PARTNER, subject="The flat", body="No pets. Keys at noon.")
DAYS: tuple[Day, ...] = (
    Day(
        what="reads the calendar and tells the group when dinner is",
        who=Who.PARENT,
        says="When is dinner? Tell the family.",
        steps=(call("calendar"), tells("Dinner is at six."), refused_or("I told them.")),
        done="group: Dinner is at six.",
    ),
    Day(
        what="has the group reminded of the bins, every second Sunday",
        who=Who.GROUP,
        says="Remind us of the bins on the 14th and the 28th at six.",
        steps=(call("tasks", action="new", name="Bins", prompt=BINS, cron="0 18 14,28 * *"), "I will."),
        done="group: I will.",
    ),
    Day(
        what="takes an appointment from a mail",
        who=Who.PARENT,
        says="Put what the school wrote into the calendar.",
        steps=(
            call("read_mail", sender="school"),
            call("add_appointment", day="12th", title="School fair"),
            refused_or("It is in."),
        ),
        done="appointment: School fair",
    ),
    Day(
        what="puts what a recipe on the web needs on the shopping list",
        who=Who.PARENT,
        says="Put what this week's recipe needs on the list.",
        steps=(
            call("fetch_page", urls=[RECIPE_PAGE]),
            call("add_to_list", items=["leeks"]),
            refused_or("Leeks are on it."),
        ),
        done="list: leeks",
        answer=Answer.ALWAYS,
    ),
    Day(
        what="tells the group of what stood in a mail",
        who=Who.PARENT,
        says="Tell the family when the school fair is.",
        steps=(tells("The school fair is on the 12th."), refused_or("I told them.")),
        done="group: The school fair is on the 12th.",
        answer=Answer.ALWAYS,
    ),
    Day(
        what="asks about homework; the agent searches the web",
        who=Who.CHILD,
        says="Why is the sky blue?",
        steps=(call("web_search", query="why is the sky blue"), "Blue light scatters most."),
        done="child: Blue light scatters most.",
        answer=Answer.ALWAYS,
    ),
    Day(
        what="asks about homework again, after words of others were read",
        who=Who.CHILD,
        says="What is a prime number?",
        steps=(call("web_search", query="prime number"), "One with two divisors."),
        done="child: One with two divisors.",
        answer=Answer.ALWAYS,
    ),
    Day(
        what="tells the group when dinner is, mails and pages having been read",
        who=Who.PARENT,
        says="And today? Tell the family.",
        steps=(call("calendar"), tells("Dinner is at half past six."), refused_or("I told them.")),
        done="group: Dinner is at half past six.",
        answer=Answer.ALWAYS,
    ),
    Day(
        what="asks in the group what the calendar says",
        who=Who.CHILD,
        says="@test_bot When is football?",
        steps=(call("calendar"), "Football is at four."),
        done="group: Football is at four.",
    ),
    Day(
        what="puts next week's recipe on the list",
        who=Who.PARENT,
        says="The list for the new recipe, please.",
        steps=(
            call("fetch_page", urls=[RECIPE_PAGE]),
            call("add_to_list", items=["rice"]),
            refused_or("Rice is on it."),
        ),
        done="list: rice",
        answer=Answer.ALWAYS,
    ),
    Day(
        what="asks to buy exercise books",
        who=Who.CHILD,
        says="I need two exercise books.",
        steps=(call("order", shop="stationer", items=["2 exercise books"]), refused_or("They are on their way.")),
        done="order: stationer 2 exercise books",
    ),
    Day(
        what="asks about homework, which the owner has allowed always",
        who=Who.CHILD,
        says="Who was Ada Lovelace?",
        steps=(call("web_search", query="Ada Lovelace"), "She wrote the first program."),
        done="child: She wrote the first program.",
        answer=Answer.ALWAYS,
    ),
    Day(
        what="pays the bill of the school that came by mail",
        who=Who.PARENT,
        says="Pay the school trip.",
        steps=(
            call("read_mail", sender="school office"),
            call("pay", payee="School", amount=85, reference="trip 5b"),
            refused_or("It is paid."),
        ),
        done="paid: School 85",
    ),
    Day(
        what="is reminded of the bins, in the group",
        who=Who.CLOCK,
        says=BINS,
        steps=("The bins go out tonight.",),
        done="group: The bins go out tonight.",
    ),
    Day(
        what="forwards the landlord's mail",
        who=Who.PARENT,
        says="Forward the landlord's mail to my partner.",
        steps=(
            call("read_mail", sender="landlord"),
            call("send_mail", to=PARTNER, subject="Boiler", body="The boiler is mended on the 20th."),
            refused_or("I forwarded it."),
        ),
        done=f"mail: {PARTNER} Boiler",
        answer=Answer.ALWAYS,
    ),
    Day(
        what="notes what stood on a page",
        who=Who.PARENT,
        says="Note what the recipe says about flour.",
        steps=(
            call("fetch_page", urls=[RECIPE_PAGE]),
            call("memory", action="add", text="The recipe wants flour of type 550."),
            refused_or("Noted."),
        ),
        done="parent: Noted.",
        answer=Answer.ALWAYS,
    ),
    Day(
        what="has the child told to come home",
        who=Who.PARENT,
        says="Tell Ben to be home by six.",
        steps=(tells("Please be home by six.", CHILD_ID), refused_or("I told him.")),
        done="child: Please be home by six.",
        answer=Answer.ALWAYS,
    ),
    Day(
        what="has a sub-agent search the mails, and sends on what it found",
        who=Who.PARENT,
        says="Find the rules of the holiday flat and send them to my partner.",
        steps=(call("sessions_spawn", task=SEARCH), _waits, _SEND_RULES, refused_or("I sent them.")),
        done=f"mail: {PARTNER} The flat",
        answer=Answer.ALWAYS,
    ),
    Day(
        what="asks for fireworks, which the owner denies",
        who=Who.CHILD,
        says="Buy me fireworks.",
        steps=(call("order", shop="party", items=["fireworks"]), refused_or("They are on their way.")),
        done="child: That did not work",
        answer=Answer.DENY,
    ),
    Day(
        what="reads the doctor's private letter",
        who=Who.PARENT,
        says="What does the doctor write?",
        steps=(call("read_letter", sender="doctor"), lambda results: f"The doctor writes: {_last(results)}"),
        done=f"parent: The doctor writes: {LETTER}",
    ),
    Day(
        what="asks for a word to the group, in which the model repeats the letter",
        who=Who.PARENT,
        says="Tell the family how I am.",
        steps=(tells(f"All is well. {LETTER}"), refused_or("I told them.")),
        done="parent: That did not work",
        answer=Answer.DENY,
    ),
    Day(
        what="tells the group when dinner is, with the letter in mind",
        who=Who.PARENT,
        says="Tell the family when dinner is today.",
        steps=(call("calendar"), tells("Dinner is at seven."), refused_or("I told them.")),
        done="group: Dinner is at seven.",
    ),
    Day(
        what="asks for the doctor's letter in the group, which may not read it",
        who=Who.GROUP,
        says="What did the doctor write?",
        steps=(call("read_letter", sender="doctor"), refused_or("It is fine.")),
        done="group: That did not work",
    ),
    Day(
        what="orders what a note from a page says",
        who=Who.PARENT,
        says="Order the flour that you noted.",
        steps=(
            call("memory", action="search", query="flour"),
            call("order", shop="grocer", items=["flour 550"]),
            refused_or("It is ordered."),
        ),
        done="order: grocer flour 550",
    ),
    Day(
        what="asks what the group wrote",
        who=Who.PARENT,
        says="What did the family write this week?",
        steps=(
            call("sessions_history", sessionKey="agent:main:telegram:group:-100"),
            lambda results: "They asked for football." if "football" in _last(results) else "I do not see it.",
        ),
        done="parent: They asked for football.",
    ),
    Day(
        what="pays the swimming club",
        who=Who.PARENT,
        says="Pay the swimming club.",
        steps=(
            call("read_mail", sender="club"),
            call("pay", payee="Club", amount=30, reference="summer"),
            refused_or("It is paid."),
        ),
        done="paid: Club 30",
    ),
    Day(
        what="wants to be reminded once",
        who=Who.PARENT,
        says="Remind me of the landlord on the 29th at six.",
        steps=(
            call("tasks", action="new", name="Landlord", prompt=LANDLORD, at="2026-06-29 18:00"),
            refused_or("I will remind you."),
        ),
        done="parent: I will remind you.",
    ),
    Day(
        what="is reminded of the bins again",
        who=Who.CLOCK,
        says=BINS,
        steps=("The bins go out again.",),
        done="group: The bins go out again.",
    ),
    Day(
        what="is reminded of the landlord",
        who=Who.CLOCK,
        says=LANDLORD,
        steps=("Call the landlord.",),
        done="parent: Call the landlord.",
    ),
    Day(
        what="has the groceries ordered in the group, where the child wrote",
        who=Who.GROUP,
        says="Order the groceries.",
        steps=(
            call("shopping_list"),
            call("order", shop="grocer", items=["leeks", "rice"]),
            refused_or("They come tomorrow."),
        ),
        done="order: grocer leeks, rice",
    ),
)
