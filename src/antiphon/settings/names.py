"""Names of agents in settings."""

from typing import Annotated

from pydantic import AfterValidator

from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import parse_agent_id

DEFAULT_AGENT = AgentId("main")


def agent_id(text: str) -> str:
    try:
        return parse_agent_id(text)
    except Invalid as error:
        raise ValueError(error.message) from error


AgentName = Annotated[str, AfterValidator(agent_id)]
"""The id of an agent."""
