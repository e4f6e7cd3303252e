"""`sessions_spawn`: creates a child for a task; its result arrives on its own. Contract: spawn 1 to 7."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from antiphon.domain.agent import LONGEST, Effect
from antiphon.domain.attachments import GivenAttachment
from antiphon.domain.label import MAX_LABEL_LENGTH, parse_child_label
from antiphon.domain.message import JsonObject
from antiphon.domain.spawn import Cleanup, Context, Mode
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.children.spawn import Spawned, SpawnRequest, Spawns
from antiphon.tools.session_tool import Arguments, SessionTool

DESCRIPTION = (
    "Gives a task to a sub-agent in its own session, and returns its runId at once. Its result is recorded in this "
    "session when it arrives. To use the result in this turn, call sessions_wait with the runId. To end this turn and "
    "continue when all results have arrived, call sessions_yield. Do not poll."
)

CODES = (
    *("invalid_agent_id", "unsupported", "empty_task", "task_too_large", "spawn_depth", "spawn_children"),
    *("spawn_agent", "spawn_unsandboxed", "unknown_agent", "fork_agent", "not_found"),
    *("spawn_model", "unknown_model", "model_key_missing", "model_authentication"),
    *("attachment_count", "attachment_too_large", "attachments_too_large", "attachment_name"),
    *("attachment_duplicate", "attachment_base64", "attachment_text", "idempotency_key_reused", "cancelled"),
    *(
        "spawn_runtime",
        "thread_failed",
        "above_clearance",
        "invalid_schema",
        "schema_too_large",
        "reference_not_allowed",
        "no_run",
    ),
)


class AttachmentArgument(Arguments):
    name: str = Field(description="The file's name, without a path.")
    content: str = Field(description="The file's content, at most 1 MiB.")
    encoding: Literal["utf8", "base64"] = Field("utf8", description="How content is encoded.")
    mime_type: str | None = Field(None, max_length=200, description="The file's media type.")


class AttachAsArgument(Arguments):
    mount_path: str | None = Field(None, max_length=500, description="Stored, but not used yet.")


class SpawnArguments(Arguments):
    aliases = {"timeoutSeconds": "runTimeoutSeconds"}
    self_checked = frozenset({"attachments.name", "attachments.content"})

    task: str = Field(description="The task, with everything the sub-agent needs to know.")
    label: Annotated[str, Field(max_length=MAX_LABEL_LENGTH), AfterValidator(parse_child_label)] | None = Field(
        None, description="A name for the sub-agent, on one line; not 'all'."
    )
    agent_id: str | None = Field(None, description="The sub-agent's agent; default: this session's agent.")
    model: str | None = Field(
        None, min_length=1, max_length=200, description="The name of another model, if the owner allows it."
    )
    thinking: Literal["off", "low", "medium", "high"] | None = Field(None, description="How much the model thinks.")
    run_timeout_seconds: float | None = Field(
        None, ge=0, le=LONGEST.total_seconds(), description="How long its run may take; 0 sets no limit."
    )
    thread: bool = Field(
        False, description="Whether it works in a thread of its own in this chat, where people talk to it."
    )
    mode: Literal["run", "session"] | None = Field(
        None, description="'run': one task, then it is archived. 'session': it stays, and each of its runs reports."
    )
    cleanup: Literal["keep", "delete"] = Field("keep", description="Whether to keep or delete it after its result.")
    sandbox: Literal["inherit", "require"] = Field(
        "inherit", description="'require': spawn only if the child is sandboxed."
    )
    runtime: Literal["subagent", "acp"] = Field(
        "subagent", description="'acp': the agent named by agentId is an external harness, without attachments."
    )
    attachments: list[AttachmentArgument] = Field(
        default_factory=list[AttachmentArgument],
        description="Files for its workspace, at most 50 files and 5 MiB together.",
    )
    attach_as: AttachAsArgument | None = Field(None, description="Reserved for mounts.")
    context: Literal["none", "fork"] = Field(
        "none", description="'fork': the child begins with a copy of this conversation."
    )
    returns: JsonObject | None = Field(
        None,
        description=(
            "JSON Schema of the result. The sub-agent then only reads, and you get values instead of its words: "
            'numbers with bounds, enums, dates and booleans as they are, texts as {"$ref": …}, which you pass to '
            "tools as whole arguments without seeing them. Use it to read what others wrote."
        ),
    )


def sessions_spawn(spawns: Spawns) -> SessionTool[SpawnArguments]:
    async def carry_out(caller: Caller, arguments: SpawnArguments) -> Mapping[str, Any]:
        return _shown(await spawns.spawn(caller, _request(arguments)))

    async def foresee(caller: Caller, arguments: SpawnArguments) -> ForeseenCall:
        return await spawns.foresee(caller, _request(arguments))

    return SessionTool(
        "sessions_spawn",
        DESCRIPTION,
        SpawnArguments,
        carry_out,
        codes=CODES,
        effects=frozenset({Effect.WRITES}),
    ).foreseen_by(foresee)


def _request(arguments: SpawnArguments) -> SpawnRequest:
    attach_as = arguments.attach_as
    return SpawnRequest(
        task=arguments.task,
        label=arguments.label,
        agent_id=arguments.agent_id,
        model=arguments.model,
        thinking=arguments.thinking,
        time_limit_seconds=arguments.run_timeout_seconds,
        is_thread=arguments.thread,
        mode=None if arguments.mode is None else Mode(arguments.mode),
        cleanup=Cleanup(arguments.cleanup),
        requires_sandbox=arguments.sandbox == "require",
        runtime=arguments.runtime,
        attachments=tuple(
            GivenAttachment(name=file.name, content=file.content, encoding=file.encoding, mime_type=file.mime_type)
            for file in arguments.attachments
        ),
        attach_as=None if attach_as is None else attach_as.model_dump(by_alias=True, exclude_none=True),
        context=Context(arguments.context),
        returns=arguments.returns,
    )


def _shown(spawned: Spawned) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "status": "accepted",
        "runId": spawned.run_id,
        "childSessionKey": str(spawned.child),
        "mode": spawned.mode.value,
    }
    if spawned.thread is not None:
        shown["threadId"] = spawned.thread.thread_id
    return shown if spawned.receipt is None else {**shown, "attachments": spawned.receipt}
