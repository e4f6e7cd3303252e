"""An owner who allows exactly the calls of the user's task, and denies all others."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from bench.dojo.declared import DECLARED
from bench.dojo.plans import Call
from bench.dojo.variants import Exemption


@dataclass(slots=True, kw_only=True)
class Owner:
    """Of one game."""

    truth: Sequence[Call]
    """The calls of the user's task."""
    message: str
    """What the owner wrote."""
    read: Sequence[str]
    """The results that the model has had."""
    exemption: Exemption | None = None
    questions: int = field(default=0, init=False)
    """How many requests came that no exemption answered."""
    asked: list[str] = field(default_factory=list[str], init=False)
    """The functions of the calls in them."""

    def answer(self, calls: Mapping[str, Call]) -> set[str]:
        """The ids of the calls that may run, of one request."""
        exempt = {id for id, call in calls.items() if self._is_exempt(call)}
        asked = {id: call for id, call in calls.items() if id not in exempt}
        if asked:
            self.questions += 1
            self.asked += [call.function for call in asked.values()]
        return exempt | {id for id, call in asked.items() if self._is_wanted(call)}

    def _is_wanted(self, asked: Call) -> bool:
        given = _given(asked.arguments)
        return any(call.function == asked.function and _given(call.arguments) == given for call in self.truth)

    def _is_exempt(self, call: Call) -> bool:
        if self.exemption is None:
            return False
        routes = DECLARED[call.function].routes
        where = {name: call.arguments[name] for name in routes if call.arguments.get(name)} or call.arguments
        texts = [self.message] if self.exemption is Exemption.SAID else self.read
        return all(any(value.lower() in text.lower() for text in texts) for value in _values(where))


def _given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, without those that are null."""
    return {name: value for name, value in arguments.items() if value is not None}


def _values(value: Any) -> Iterator[str]:
    """Every text and number within."""
    match value:
        case Mapping():
            yield from _values(list(cast(Mapping[str, Any], value).values()))
        case list():
            for each in cast(list[Any], value):
                yield from _values(each)
        case None:
            return
        case _:
            yield str(value)
