"""What request bodies may hold, and what becomes of it."""

import base64
import json
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from msgspec import Meta, field
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, JsonValue
from pydantic.alias_generators import to_camel

from antiphon.domain.classification import Classification, parse_level
from antiphon.domain.errors import Invalid
from antiphon.domain.label import MAX_LABEL_LENGTH, parse_label
from antiphon.domain.message import MAX_PARTS, ImagePart, Part, TextPart, text_content
from antiphon.domain.run import QueueMode
from antiphon.domain.session import SessionType, Source
from antiphon.gateway.bodies import BodyOf, Incoming


def _whole(text: str) -> str:
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise ValueError("text holds half of a surrogate pair, which is no character") from None
    return text


def _whole_object(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    _whole(json.dumps(value, ensure_ascii=False, allow_nan=False))
    return value


Text = Annotated[str, AfterValidator(_whole)]
"""Text that can be stored and sent."""
Label = Annotated[Text, Field(max_length=MAX_LABEL_LENGTH), AfterValidator(parse_label)]


MAX_SEARCH = 200
"""Characters looked for in names; the tool `sessions_list` takes as many."""


class Body(BaseModel):
    """Unknown names are refused. Contract: answers 3."""

    model_config = ConfigDict(
        alias_generator=to_camel, extra="forbid", populate_by_name=False, hide_input_in_errors=True
    )


async def check_query(request: Request) -> None:
    """Refuses parameters that the route does not know. Contract: answers 3."""
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    if not request.query_params:
        return
    known = [field.alias for field in route.dependant.query_params]
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if unknown:
        told = f"unknown parameter. Known here: {', '.join(known) or 'none'}"
        raise RequestValidationError(
            [{"type": "extra_forbidden", "loc": ("query", name[:100]), "msg": told} for name in unknown[:10]]
        )


class SourceBody(Body):
    kind: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")] = "api"
    interactive: bool = True
    platform: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")] | None = None
    trigger_id: Text | None = None
    type: SessionType = SessionType.DIRECT

    def source(self) -> Source:
        return Source(
            kind=self.kind,
            interactive=self.interactive,
            platform=self.platform,
            trigger_id=self.trigger_id,
            type=self.type,
        )


class ClassificationBody(Body):
    level: str

    def classification(self) -> Classification:
        return Classification(parse_level(self.level))


class OpenBody(Body):
    """Of `POST /sessions`: a key or a session id."""

    key: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    source: SourceBody = SourceBody()
    metadata: Annotated[dict[str, JsonValue], AfterValidator(_whole_object)] = Field(
        default_factory=dict[str, JsonValue]
    )
    label: Label | None = None
    taint: ClassificationBody | None = None
    clearance: ClassificationBody | None = None


class PatchBody(Body):
    """Of `PATCH /sessions/{key}`: what is named is changed, null unsets."""

    label: Label | None = None
    display_name: Label | None = None
    description: Annotated[Text, Field(max_length=80)] | None = None
    model: Text | None = None
    thinking_level: Literal["off", "low", "medium", "high"] | None = None
    verbose_level: Annotated[Text, Field(max_length=32)] | None = None
    send_policy: Literal["allow", "deny"] | None = None
    clearance: ClassificationBody | None = None


class TextItem(Incoming, frozen=True, tag="text", tag_field="type"):
    text: str


class ImageItem(Incoming, frozen=True, tag="image", tag_field="type"):
    mime_type: Annotated[str, Meta(pattern=r"^image/[a-z0-9.+-]+$", max_length=100)]
    data: str
    """Base64."""


class MessageBody(Incoming, frozen=True):
    """Of `POST /sessions/{key}/messages`: `text`, or `content` for parts; `role` and `occurredAt` to append."""

    text: str | None = None
    content: Annotated[list[TextItem | ImageItem], Meta(max_length=MAX_PARTS)] | None = None
    message_id: str | None = None
    queue_mode: QueueMode | None = None
    sender: Annotated[str, Meta(min_length=1, max_length=200)] | None = None
    mentioned: bool = True
    role: Literal["user", "assistant"] = "user"
    occurred_at: Annotated[int, Meta(ge=0, le=253402300799000)] | None = None
    """Milliseconds since 1970."""

    def parts(self) -> tuple[Part, ...]:
        """Raises `Invalid` unless exactly one of `text` and `content` is given."""
        if (self.text is None) == (self.content is None):
            raise Invalid("Message needs either 'text' or 'content'.", code="invalid_message")
        if self.content is None:
            return text_content(self.text or "")
        return tuple(_part(item) for item in self.content)

    def occurred(self) -> datetime | None:
        return None if self.occurred_at is None else datetime.fromtimestamp(self.occurred_at / 1000, UTC)


class ForkBody(Body):
    seq: Annotated[int, Field(ge=1, lt=10**18)] | None = None


class TokenBody(Body):
    """Of `POST /tokens`."""

    session_key: str
    name: Annotated[Text, Field(min_length=1, max_length=100)] | None = None
    days: Annotated[float, Field(gt=0, le=3650)] | None = None
    """How long it is good; for ever unless set."""


class CodeBody(Incoming, frozen=True):
    """Of `POST /auth/exchange`."""

    code: Annotated[str, Meta(max_length=200)]


class NonceBody(Incoming, frozen=True):
    """Of `POST /auth/prove`."""

    nonce: Annotated[str, Meta(pattern="^[0-9a-f]{32,128}$", max_length=128)]


class ToolBody(Incoming, frozen=True):
    """Of `POST /tools/{name}`."""

    session_key: str | None = None
    """The session that the call acts as; a token that is bound to one needs none, and can name no other."""
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])


MESSAGE = BodyOf(MessageBody)
CODE = BodyOf(CodeBody)
TOOL = BodyOf(ToolBody)
NONCE = BodyOf(NonceBody)
DECODED = (MESSAGE, CODE, NONCE, TOOL)


def _part(item: TextItem | ImageItem) -> Part:
    if isinstance(item, TextItem):
        return TextPart(text=item.text)
    try:
        base64.b64decode(item.data, validate=True)
    except ValueError as error:
        raise Invalid("Image is not valid base64.", code="invalid_message") from error
    return ImagePart(mime_type=item.mime_type, data=item.data)
