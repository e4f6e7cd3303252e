"""`antiphon policy`: rules, refusals explained, and what is trusted of what was read. Contract: flow 9, 10, 14."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, cast

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, listed, quoted, said, session_key, since
from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption, LimitOption, SessionArgument
from antiphon.cli.exits import CommandFailed, ExitCode, command
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client
    from antiphon.policy.written.rule_set import RuleSet

app = NounCommands(no_args_is_help=True, help="Check and try rules, and see why something was refused.")
trust = NounCommands(no_args_is_help=True, help="List and revoke what owners trust of what sessions have read.")
app.add_typer(trust, name="trust")
HASH_CHARACTERS = 12
"""Of a hash in a table."""
MOST_LOOKED_AT = 200


def _line(content: JsonObject) -> str:
    from antiphon.cli.rendering.rows import source_line

    return source_line(content)


def _conditions(rule: JsonObject) -> str:
    when = cast("list[dict[str, Any]]", rule["when"])
    return " and ".join(f"{each['field']} {each['op']} {_value(each['value'])}" for each in when) or "always"


def _value(value: object) -> str:
    return " or ".join(map(str, cast("list[object]", value))) if isinstance(value, list) else str(value)


def _show_rules(answer: JsonObject) -> None:
    from antiphon.cli.rendering.output import hint, show

    columns: dict[str, Any] = {
        "Rule": "id",
        "Hook": "hook",
        "Action": "action",
        "When": _conditions,
        "Message": "message",
    }
    listed("rules", columns, none="There are no rules. docs/POLICY.md says how to write some.", optional="Message")(
        answer
    )
    if answer.get("problem") is not None:
        show("What is written now is not in force:", "red")
        hint(str(answer["problem"]))


@app.asks("list", _show_rules)
def list_rules(client: "Client") -> JsonObject:
    """List the rules in force, and what is wrong with the file if it could not be read."""
    return client.get("/policy/rules")


@app.asks("reload", said)
def reload_rules(client: "Client") -> Printed:
    """Read the rules again, as the gateway does by itself within two seconds of a change."""
    found = client.post("/policy/rules/reload")
    return Printed(found, f"In force: {_count(found)}.")


def _count(rules: JsonObject) -> str:
    count = rules["count"]
    return "1 rule" if count == 1 else f"{count} rules"


@app.asks("explain", said)
def explain_decision(
    client: "Client",
    name: Annotated[str, typer.Argument(metavar="RULE|last", help="A rule's id, or `last`: what was refused last.")],
    session: Annotated[
        str, typer.Option("--session", metavar="KEY", help="With `last`: the session to look at.")
    ] = "main",
) -> Printed:
    """Explain a rule, or what was refused last in a session, and what can be done."""
    if name != "last":
        found = client.get(f"/policy/rules/{quoted(name)}")
        told = f"\nIt says: {found['message']}" if found.get("message") else ""
        where = f"\nIt stands in: {found['where']}" if found.get("where") else ""
        text = f"{found['action']} at {found['hook']}, when {_conditions(found)}.{told}{where}"
        return Printed(found, text)
    found = client.get("/policy/refusals/last", session=session_key(client, session))
    rules = cast("list[JsonObject]", found.get("rules") or [])
    by = "".join(f"\nRule {each['id']}: {each['action']} when {_conditions(each)}." for each in rules)
    log = f"\nWhat the log says: {found['said']}" if found.get("said") else ""
    return Printed(found, f"{found['what']}: {found['explanation']}{log}{by}\nWhat to do: {found['remedy']}")


FileArgument: TypeAlias = Annotated[
    Path | None, typer.Argument(metavar="FILE", help="A file with [[rules]]; those of the settings unless given.")
]


@app.command("check")
@command
def check_rules(
    file: FileArgument = None, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Check rules without using them: every problem with its line. Exits with 2 if there is any."""
    from antiphon.cli.rendering.output import show, show_json

    rules = _read(file, home, config)
    answer: JsonObject = {"count": len(rules), "set": rules.hash}
    if as_json:
        show_json(answer)
    else:
        show(f"{_count(answer)} can be used." if rules.rules else "There are no rules.")


def _read(file: Path | None, home: Path | None, config: Path | None) -> "RuleSet":
    from antiphon.cli.connection.home import config_of, home_of
    from antiphon.config.written_rules import read_rules_file, read_written_rules

    return read_written_rules(config_of(home_of(home), config)) if file is None else read_rules_file(file)


@app.command("test")
@command
def test_rules(
    cases: Annotated[
        Path, typer.Argument(metavar="CASES", help="A file with [[cases]]: facts, and what must be said.")
    ],
    rules: Annotated[
        Path | None, typer.Option("--rules", metavar="FILE", help="A file with [[rules]]; else those of the settings.")
    ] = None,
    cedar: Annotated[bool, typer.Option("--cedar", help="With --json: each case as a request of Cedar too.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Play a file of cases against rules, and exit with 1 if any is not met."""
    from antiphon.cli.rendering.output import show, show_json
    from antiphon.config.rule_cases import play, read_cases

    results = play(read_cases(cases), _read(rules, home, config))
    failed = [each for each in results if not each.is_met]
    if as_json:
        show_json(
            {"count": len(results), "failed": len(failed), "cases": [each.data(as_cedar=cedar) for each in results]}
        )
    else:
        for each in failed:
            by = f" by {', '.join(each.rules)}" if each.rules else ""
            left = "" if each.text is None else f", leaving {each.text!r}"
            show(f"{each.case.name}: expected {each.case.expect.name}, got {each.action.name}{by}{left}", "red")
        show(f"{len(results) - len(failed)} of {len(results)} cases are met.")
    if failed:
        raise CommandFailed(ExitCode.FAILED)


@app.command("schema")
@command
def print_schema() -> None:
    """Print the JSON Schema of a rule, for editors and programs."""
    from antiphon.cli.streams import json_text
    from antiphon.policy.written.publishing import schema

    print(json_text(schema(), indent=2))


@trust.asks(
    "list",
    listed(
        "trustedContent",
        {
            "Content": lambda each: str(each["sha256"])[:HASH_CHARACTERS],
            "Session": "sessionKey",
            "What": _line,
            "By": lambda each: str(each.get("createdByName") or each["createdBy"]),
            "Trusted": since("createdAt"),
        },
        none="Nothing that was read is trusted.",
    ),
)
def list_trusted(
    client: "Client",
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="Only what this session has read.")
    ] = None,
    limit: LimitOption = 20,
) -> JsonObject:
    """List what is trusted, newest first."""
    return client.get("/trusted-content", session=session, limit=limit)


@trust.asks("revoke", said)
def revoke_trusted(
    client: "Client",
    session: SessionArgument,
    content: Annotated[
        str, typer.Argument(metavar="CONTENT", help="Its hash, or how that begins, as `list` shows it.")
    ],
) -> Printed:
    """Trust content no more; calls of the session ask again because of it."""
    from antiphon.cli.rendering.rows import rows_of

    key = session_key(client, session)
    trusted = rows_of(client.get("/trusted-content", session=key, limit=MOST_LOOKED_AT), "trustedContent")
    found = [str(each["sha256"]) for each in trusted if str(each["sha256"]).startswith(content)]
    hash = found[0] if len(found) == 1 else content
    revoked = client.delete(f"/trusted-content/{quoted(hash)}", sessionKey=key)
    return Printed(revoked, f"Not trusted any more: {_line(revoked)}")
