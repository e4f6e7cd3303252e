"""What pydantic-ai knows about providers: the parameters of a request without its messages.

It builds a request with a mark in the place of the conversation, through a transport without a network. Conversations
and streams, which every turn pays for, do not pass through it, and neither do refusals (`failures`).
"""

from collections.abc import Callable, Mapping
from secrets import token_hex
from typing import TYPE_CHECKING, Final, cast

import anyio
import msgspec
from anyio import to_thread
from msgspec import Struct

from antiphon.agents.model import Prompt

if TYPE_CHECKING:
    import httpx2
    from pydantic_ai.models import Model as LibraryModel
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.settings import ModelSettings

INSTRUCTIONS: Final = f"instructions {token_hex(8)}"
"""Stands in the place of the instructions; no tool can contain it."""
CONVERSATION: Final = "conversation"
TRANSPORT_HEADERS: Final = frozenset({"host", "content-length", "transfer-encoding", "connection"})


class RequestHead(Struct, frozen=True, kw_only=True):
    """A request of which the instructions and the conversation are still missing."""

    url: str
    headers: Mapping[str, str]
    before: tuple[bytes, ...]
    """The body up to the conversation; split where the instructions belong, if there are any."""

    @property
    def size(self) -> int:
        """Bytes of the definitions of tools, and of little else."""
        return sum(map(len, self.before))

    def body(self, instructions: str, messages: bytes) -> bytes:
        before = msgspec.json.encode(instructions).join(self.before)
        return b"%s%s]}" % (before, messages)


OpenLibraryModel = Callable[["httpx2.AsyncClient"], "LibraryModel"]
"""The library's model over a given HTTP client."""


async def build_head(open_model: OpenLibraryModel, prompt: Prompt, settings: "ModelSettings") -> RequestHead:
    """How the library would ask for the prompt. Takes milliseconds, in a thread. Raises its error if it would not."""
    import httpx2

    requests: list[httpx2.Request] = []

    def keep(request: "httpx2.Request") -> "httpx2.Response":
        requests.append(request)
        return httpx2.Response(500)

    error = await to_thread.run_sync(_ask, open_model, keep, prompt, settings)
    if not requests:
        raise error or AssertionError("the library made no request")
    request = requests[0]
    fields = msgspec.json.decode(request.content, type=dict[str, msgspec.Raw])
    *leading, _conversation = msgspec.json.decode(fields.pop("messages"), type=list[msgspec.Raw])
    parts = [b"%s:%s" % (msgspec.json.encode(name), bytes(value)) for name, value in fields.items()]
    messages = b"".join(b"%s," % bytes(message) for message in leading)
    before = b"{%s" % b",".join([*parts, b'"messages":[' + messages])
    return RequestHead(
        url=str(request.url),
        headers={name: value for name, value in request.headers.items() if name.lower() not in TRANSPORT_HEADERS},
        before=tuple(before.split(msgspec.json.encode(INSTRUCTIONS))),
    )


def _ask(
    open_model: OpenLibraryModel,
    answer: "Callable[[httpx2.Request], httpx2.Response]",
    prompt: Prompt,
    settings: "ModelSettings | None",
) -> Exception | None:
    import httpx2
    from pydantic_ai.direct import model_request_stream
    from pydantic_ai.exceptions import AgentRunError, UserError
    from pydantic_ai.messages import ModelRequest

    async def ask() -> Exception | None:
        async with httpx2.AsyncClient(transport=httpx2.MockTransport(answer)) as client:
            try:
                async with model_request_stream(
                    open_model(client),
                    [ModelRequest.user_text_prompt(CONVERSATION)],
                    model_settings=settings,
                    model_request_parameters=_parameters(prompt),
                ) as response:
                    async for _ in response:
                        pass
            except (AgentRunError, UserError) as error:
                return error
        return None

    return anyio.run(ask)


def _parameters(prompt: Prompt) -> "ModelRequestParameters":
    from pydantic_ai.messages import InstructionPart
    from pydantic_ai.models import ModelRequestParameters
    from pydantic_ai.tools import ToolDefinition

    return ModelRequestParameters(
        function_tools=[
            ToolDefinition(
                name=tool.name,
                description=tool.description,
                parameters_json_schema=cast("dict[str, object]", tool.parameters),
                strict=False,
            )
            for tool in prompt.tools
        ],
        instruction_parts=[InstructionPart(content=INSTRUCTIONS)] if prompt.instructions else [],
    )
