"""`antiphon deliveries`: texts sent through channels."""

from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption, LimitOption
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject

app = typer.Typer(no_args_is_help=True, help="List, show and retry texts sent through channels.")
DeliveryArgument = Annotated[str, typer.Argument(metavar="DELIVERY", help="A delivery's id.")]


@app.command("list")
@command
def list_deliveries(
    status: Annotated[
        list[str] | None,
        typer.Option(
            "--status",
            metavar="STATUS",
            help="Only this status: queued, claimed, sent, suppressed or dead; may be repeated.",
        ),
    ] = None,
    limit: LimitOption = 20,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="DELIVERY", help="Only older ones; give the last delivery of a page."),
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List deliveries, newest first."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import ago, show, show_json, show_table
    from antiphon.cli.rendering.rows import rows_of

    with connect(home, config) as client:
        answer = client.get("/deliveries", status=status, limit=limit, before=before)
    if as_json:
        show_json(answer)
        return
    rows = rows_of(answer, "deliveries")
    if not rows:
        show("There are no deliveries.", "dim")
        return
    show_table(
        ["Delivery", "To", "Status", "Created", "Text or error"],
        [
            [
                str(delivery["deliveryId"]),
                _place(delivery),
                str(delivery["status"]),
                ago(delivery["createdAt"]),
                " ".join(str(delivery.get("error") or delivery["text"]).split()),
            ]
            for delivery in rows
        ],
    )


@app.command("show")
@command
def show_delivery(
    delivery: DeliveryArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show a delivery with its text."""
    from antiphon.cli.connection.connect import connect

    with connect(home, config) as client:
        found = client.get(f"/deliveries/{delivery}")
    _show(found, as_json=as_json)


@app.command("retry")
@command
def retry_delivery(
    delivery: DeliveryArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Send a dead or suppressed delivery again, under its id. A waiting delivery is tried at once."""
    from antiphon.cli.connection.connect import connect

    with connect(home, config) as client:
        found = client.post(f"/deliveries/{delivery}/retry")
    _show(found, as_json=as_json)


def _place(delivery: JsonObject) -> str:
    account = f":{delivery['accountId']}" if delivery.get("accountId") else ""
    thread = f" ({delivery['threadId']})" if delivery.get("threadId") else ""
    return f"{delivery['channel']}{account} {delivery['to']}{thread}"


def _show(delivery: JsonObject, *, as_json: bool) -> None:
    from antiphon.cli.rendering.output import clock_time, show, show_fields, show_json

    if as_json:
        show_json(delivery)
        return
    show_fields(
        {
            "Delivery": str(delivery["deliveryId"]),
            "Session": str(delivery.get("sessionKey") or ""),
            "Run": str(delivery.get("runId") or ""),
            "To": _place(delivery),
            "Status": str(delivery["status"]) + (f" ({delivery['code']})" if delivery.get("code") else ""),
            "Attempts": str(delivery["attempts"]),
            "Created": clock_time(delivery.get("createdAt")),
            "Due": clock_time(delivery.get("dueAt")),
            "Ended": clock_time(delivery.get("endedAt")),
            "Error": str(delivery.get("error") or ""),
        }
    )
    show()
    show(str(delivery["text"]))
