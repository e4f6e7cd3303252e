"""What `antiphon doctor` says of the people and groups of any channel."""

from collections.abc import Iterator

from antiphon.domain.chat_state import ChatState
from antiphon.domain.check_result import CheckResult, Grade


def check_people(
    name: str, title: str, chats: ChatState, *, remedy: str, rooms: str = "group", bot: str = "the bot"
) -> Iterator[CheckResult]:
    """Whether an owner is reached there, and which groups wait. `remedy` says how an owner links an account."""
    if not chats.owners.get(name):
        said = f"no account on {title} is an owner's yet, so nobody can be admitted from there"
        yield CheckResult(f"{name} owner", Grade.WARNING, said, remedy)
    yield from check_rooms(name, chats, rooms=rooms, bot=bot)


def check_rooms(name: str, chats: ChatState, *, rooms: str, bot: str) -> Iterator[CheckResult]:
    """Which groups wait."""
    if waiting := chats.asked.get(name):
        said = f"{waiting} {rooms}(s) not allowed yet, in which {bot} answers nobody"
        decide = "`antiphon groups list` shows them; `antiphon groups allow` and `refuse` decide."
        yield CheckResult(f"{name} {rooms}s", Grade.WARNING, said, decide)
