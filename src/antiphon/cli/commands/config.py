"""`antiphon config`: what can be set. Contract: config 1."""

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command

app = typer.Typer(no_args_is_help=True, help="Check the configuration, or print its schema.")


@app.command()
@command
def schema() -> None:
    """Print the JSON Schema of the configuration, for editors."""
    from antiphon.cli.streams import json_text
    from antiphon.config.config import Config
    from antiphon.config.descriptions import describe

    describe(Config)
    print(json_text(Config.model_json_schema(by_alias=False), indent=2))


@app.command()
@command
def check(config: ConfigOption = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """Say which file is used, whether it is valid, and whether the running gateway uses it."""
    from antiphon.cli.connection.gateway_file import find_gateway
    from antiphon.cli.connection.home import config_of, home_of
    from antiphon.cli.homes.settings import (
        address_problem,
        key_problems,
        model_problems,
        needs_restart,
        restart_reason,
    )
    from antiphon.cli.rendering.output import show, show_json
    from antiphon.config.misread import misread
    from antiphon.config.named import dropped_defaults, ineffective_names, refuse_misspelt
    from antiphon.config.readiness import missing, refusing
    from antiphon.config.sources import find_config_file
    from antiphon.configured import installed_tools
    from antiphon.domain.errors import Invalid
    from antiphon.domain.message import JsonValue
    from antiphon.settings.file import TOML_NAME

    directory = home_of(home)
    settings = config_of(directory, config)
    if problems := list(model_problems(directory, settings)):
        raise Invalid("\n".join(problems), code="invalid_config")
    functions = {each.schema.name for each in installed_tools()}
    refuse_misspelt(settings, functions)
    warnings: list[JsonValue] = [*ineffective_names(settings, functions)]
    warnings += [*dropped_defaults(settings), *missing(settings), *misread(settings)]
    warnings += [*key_problems(directory, settings), *refusing(settings)]
    if (unusable := address_problem(settings)) is not None:
        warnings.append(unusable)
    running = find_gateway(directory)
    is_due = None if running is None else needs_restart(settings, running)
    if running is not None and is_due:
        warnings.append(restart_reason(settings, running))
    file = find_config_file(directory, config)
    if as_json:
        show_json(
            {
                "ok": True,
                "file": None if file is None else str(file),
                **({} if is_due is None else {"restartDue": is_due}),
                **({"warnings": warnings} if warnings else {}),
            }
        )
    elif file is None:
        show(
            f"There is no configuration file, so defaults apply. To change them, create {str(directory / TOML_NAME)!r}."
        )
    else:
        show(f"Configuration is valid: {str(file)!r}")
    if not as_json:
        for warning in warnings:
            show(f"Warning: {warning}.", "yellow")
