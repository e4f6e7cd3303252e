"""How a child in quarantine works: it only reads, and its result has a form. Contract: flow 10."""

import json
from collections.abc import Sequence

from msgspec import Struct

from antiphon.domain.message import AssistantMessage, JsonObject
from antiphon.domain.quarantine import ResultMisfit, ReturnForm, parse_returns
from antiphon.domain.transcript import Step
from antiphon.engine.reports.quarantined import read_result


class Quarantine(Struct, frozen=True, kw_only=True):
    """What the run of such a child has to return."""

    schema: JsonObject
    form: ReturnForm

    def misfit(self, said: AssistantMessage) -> str | None:
        """Where the answer does not have the form; None if it has, or is none yet."""
        if said.calls:
            return None
        try:
            read_result(self.form, said.text)
        except ResultMisfit as misfit:
            return str(misfit)
        return None

    def asks_again(self, steps: Sequence[Step]) -> str | None:
        """Why the last answer is asked for once more; None for one that fits, and for the second that does not."""
        misfits = [step for step in steps if self.misfit(step.message) is not None]
        return self.misfit(steps[-1].message) if len(misfits) == 1 and steps[-1] is misfits[0] else None

    def words(self, steps: Sequence[Step]) -> str:
        """For the end of the prompt."""
        shown = json.dumps(self.schema, ensure_ascii=False)
        wanted = f"Your final reply must be one JSON value of this JSON Schema, and nothing else:\n{shown}"
        again = None if not steps else self.asks_again(steps)
        if again is None:
            return wanted
        return f"{wanted}\nYour last reply did not fit: {again}. Reply once more, with the JSON alone."


def quarantine_of(schema: JsonObject | None) -> Quarantine | None:
    return None if schema is None else Quarantine(schema=schema, form=parse_returns(schema))
