"""One message and its reply."""

from antiphon.cli.chat.screen import Screen
from antiphon.cli.connection.client import Client, new_message_id, session_path
from antiphon.cli.exits import TimedOut
from antiphon.cli.rendering.output import console, show_json, tell, text_of
from antiphon.cli.rendering.rows import approval_lines, run_answer, show_outcome
from antiphon.domain.errors import AntiphonError, Unavailable
from antiphon.domain.message import JsonObject

LOOK_SECONDS = 2.0
"""How often it is looked whether the turn waits for an approval."""


def say_once(client: Client, key: str, text: str, timeout: float | None, *, as_json: bool) -> JsonObject:
    """Posts the message and shows its reply, as it streams on a terminal; returns the run. Raises `TimedOut`.

    Ctrl-C cancels the run.
    """
    body: JsonObject = {"text": text, "messageId": new_message_id()}
    try:
        if console().is_terminal and timeout is None and not as_json:
            return _stream(client, key, body)
        posted = client.post_message(key, body)
        run_id = posted.get("runId")
        if run_id is None:
            raise Unavailable(
                "Message started no turn: it is stored for later turns of the group", code="not_triggered"
            )
        run = _wait(client, str(run_id), timeout)
    except KeyboardInterrupt:
        _call_off(client, key, body)
        raise
    if as_json:
        show_json(run_answer(posted, run))
    else:
        show_outcome(run, client.reads_details)
    return run


def _wait(client: Client, run_id: str, timeout: float | None) -> JsonObject:
    """The run once it has ended; says once on standard error that a call waits for approval. Raises `TimedOut`."""
    while timeout is None:
        try:
            return client.wait_posted(run_id, LOOK_SECONDS)
        except TimedOut:
            if client.find_run(run_id).get("status") == "awaiting_approval":
                tell("A call waits for approval; the turn goes on after it. `antiphon approvals list` shows the call.")
                break
    return client.wait_posted(run_id, timeout)


def _call_off(client: Client, key: str, body: JsonObject) -> None:
    """Cancels the run of the message; the same id again finds it, whether its answer had come or not."""
    try:
        run_id = client.post_message(key, body).get("runId")
        client.post(f"/runs/{run_id}/cancel")
        tell(f"The turn was cancelled. `antiphon sessions history {key}` shows what was said.")
    except AntiphonError as error:
        tell(f"The turn may go on: {error.message} `antiphon sessions follow {key}` shows it.")


def _stream(client: Client, key: str, body: JsonObject) -> JsonObject:
    screen, run_id, shown = Screen(), "", ""
    try:
        with client.stream("POST", session_path(key, "/messages"), body, stream=True) as events:
            for event in events:
                match event.name:
                    case "message_ack":
                        run_id = str(event.data.get("runId"))
                    case "delta" if event.data.get("restart"):
                        screen.take_back()
                    case "delta":
                        screen.piece(str(event.data.get("text", "")))
                    case "delay" if isinstance(delay := event.data.get("delay"), dict):
                        screen.delay(str(delay["text"]))
                    case "approval":
                        for line in approval_lines(event.data):
                            screen.line(line, "yellow")
                    case "message" if event.data.get("role") == "assistant":
                        shown = text_of(event.data)
                        screen.settle(shown)
                    case _:
                        pass
    except Unavailable:
        pass  # The run does not depend on the stream: its end is in the ledger.
    screen.end_draft()
    run_id = run_id or str(client.post_message(key, body).get("runId"))
    run = client.wait_posted(run_id)
    show_outcome(run if run.get("reply") != shown else {**run, "reply": None}, client.reads_details)
    return run
