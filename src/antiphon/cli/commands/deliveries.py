"""`antiphon deliveries`: texts sent through channels."""

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, listed, since
from antiphon.cli.commands.options import LimitOption
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client

app = NounCommands(no_args_is_help=True, help="List, show and retry texts sent through channels.")
DeliveryArgument = Annotated[str, typer.Argument(metavar="DELIVERY", help="A delivery's id.")]


def _place(delivery: JsonObject) -> str:
    account = f":{delivery['accountId']}" if delivery.get("accountId") else ""
    thread = f" ({delivery['threadId']})" if delivery.get("threadId") else ""
    return f"{delivery['channel']}{account} {delivery['to']}{thread}"


def _show(delivery: JsonObject) -> None:
    from antiphon.cli.rendering.output import clock_time, show, show_fields

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


@app.asks(
    "list",
    listed(
        "deliveries",
        {
            "Delivery": "deliveryId",
            "To": _place,
            "Status": "status",
            "Created": since("createdAt"),
            "Text or error": lambda each: " ".join(str(each.get("error") or each["text"]).split()),
        },
        none="There are no deliveries.",
    ),
)
def list_deliveries(
    client: "Client",
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
) -> JsonObject:
    """List deliveries, newest first."""
    return client.get("/deliveries", status=status, limit=limit, before=before)


@app.asks("show", _show)
def show_delivery(client: "Client", delivery: DeliveryArgument) -> JsonObject:
    """Show a delivery with its text."""
    return client.get(f"/deliveries/{delivery}")


@app.asks("retry", _show)
def retry_delivery(client: "Client", delivery: DeliveryArgument) -> JsonObject:
    """Send a dead or suppressed delivery again, under its id. A waiting delivery is tried at once."""
    return client.post(f"/deliveries/{delivery}/retry")
