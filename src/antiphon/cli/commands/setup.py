"""`antiphon setup`: a configuration for one person, a family or repositories, and what the present one means.

Contract: flow 14.
"""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command
from antiphon.domain.errors import Invalid
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.presets.answers import Coding, NamedFamily, PresetName

app = typer.Typer(
    no_args_is_help=True, help="Write a first configuration, or see in plain words what the present one means."
)
ModelOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--model", metavar="MODEL", help="The model of the agents, such as openai:gpt-5; it echoes unless set."
    ),
]


@app.command()
@command
def solo(
    model: ModelOption = None, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Write a configuration for one person: one agent, which asks before it acts on words of others."""
    from antiphon.cli.presets.answers import PresetName
    from antiphon.cli.presets.questions import ask_model
    from antiphon.cli.presets.texts import solo_text

    if model is None and _is_asked(as_json=as_json):
        _say_what_exists(home, config)
        model = ask_model()
    _finish(PresetName.SOLO, solo_text(model), home, config, as_json=as_json, next_steps=_serving())


@app.command()
@command
def family(
    owner: Annotated[str | None, typer.Option("--owner", metavar="NAME", help="Your name.")] = None,
    adults: Annotated[
        list[str] | None, typer.Option("--adult", metavar="NAME", help="Another adult; may be repeated.")
    ] = None,
    children: Annotated[
        list[str] | None,
        typer.Option("--child", metavar="NAME", help="A child, who gets an agent of their own; may be repeated."),
    ] = None,
    child_tools: Annotated[
        list[str] | None,
        typer.Option(
            "--child-tool", metavar="TOOL", help="A tool that children's agents may ask you to use; may be repeated."
        ),
    ] = None,
    model: ModelOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a configuration for a family: everybody's chat is theirs, and what children want done asks you."""
    from antiphon.cli.presets.answers import PresetName, read_family
    from antiphon.cli.presets.questions import ask_family, ask_model
    from antiphon.cli.presets.texts import family_text

    if owner is None and adults is None and children is None:
        _refuse_unasked("Name yourself and your family: --owner NAME, --adult NAME, --child NAME.", as_json=as_json)
        _say_what_exists(home, config)
        found, model = ask_family(), model or ask_model()
    else:
        found = read_family("The owner" if owner is None else owner, adults or [], children or [], child_tools or [])
    steps = _steps_of_family(found)
    _finish(PresetName.FAMILY, family_text(found, model), home, config, as_json=as_json, next_steps=steps)


@app.command()
@command
def coding(
    repositories: Annotated[
        list[str] | None,
        typer.Option(
            "--repo", metavar="[NAME=]PATH", help="The folder of a repository, which gets an agent; may be repeated."
        ),
    ] = None,
    files_server: Annotated[
        str | None,
        typer.Option(
            "--files-server",
            metavar="COMMAND",
            help="The MCP server that serves a folder, which is its last argument; that of npm unless set.",
        ),
    ] = None,
    model: ModelOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a configuration for repositories: an agent for each, whose data no other agent gets."""
    from antiphon.cli.presets.answers import PresetName, read_coding
    from antiphon.cli.presets.questions import ask_coding, ask_model
    from antiphon.cli.presets.texts import coding_text

    if repositories is None:
        _refuse_unasked("Name the folder of each repository with --repo PATH.", as_json=as_json)
        _say_what_exists(home, config)
        found, model = ask_coding(), model or ask_model()
    else:
        found = read_coding(repositories, files_server)
    _finish(
        PresetName.CODING,
        coding_text(found, model),
        home,
        config,
        as_json=as_json,
        kept_apart=[each.id for each in found.repositories],
        next_steps=_steps_of_coding(found),
    )


@app.command("show")
@command
def show_setup(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Say in plain words who sees what under the present configuration, what asks you, and what leaves."""
    from antiphon.cli.connection.home import config_of, home_of
    from antiphon.cli.presets.plain_words import plain_words
    from antiphon.cli.rendering.output import show, show_json

    words = plain_words(config_of(home_of(home), config))
    parts = {"Who sees what": words.sees, "What asks": words.asks, "What leaves": words.leaves}
    if as_json:
        answer: JsonObject = {
            "preset": None if words.preset is None else words.preset.value,
            "differences": [*words.differences],
            "sees": [*words.sees],
            "asks": [*words.asks],
            "leaves": [*words.leaves],
        }
        show_json(answer)
        return
    if words.preset is None:
        show("This configuration is like none of the presets solo, family and coding.", "bold")
    else:
        but = ", except:" if words.differences else "."
        show(f"This configuration is that of the preset {words.preset.value}{but}", "bold")
    for each in words.differences:
        show(f"  - {each}", "yellow")
    for title, lines in parts.items():
        show(title, "bold")
        for line in lines:
            show(f"  {line}")


def _is_asked(*, as_json: bool) -> bool:
    """Whether a person sits at the terminal."""
    return not as_json and sys.stdin.isatty() and sys.stdout.isatty()


def _refuse_unasked(advice: str, *, as_json: bool) -> None:
    if not _is_asked(as_json=as_json):
        raise Invalid(f"There is no terminal to ask at. {advice}", code="setup_incomplete")


def _say_what_exists(home_option: Path | None, config_option: Path | None) -> None:
    """Before somebody answers questions in vain."""
    from antiphon.cli.connection.home import home_of
    from antiphon.cli.presets.writing import existing_file, place_of
    from antiphon.cli.rendering.output import tell

    home = home_of(home_option)
    if (existing := existing_file(place_of(home, config_option), home)) is not None:
        tell(f"{str(existing)!r} exists and stays as it is. The lines are only printed at the end.")


def _finish(
    preset: "PresetName",
    text: str,
    home_option: Path | None,
    config_option: Path | None,
    *,
    as_json: bool,
    next_steps: Sequence[str],
    kept_apart: Sequence[str] = (),
) -> None:
    """Writes the file and says what to do next; prints the text if there is a file already."""
    from antiphon.cli.connection.home import home_of
    from antiphon.cli.presets.writing import (
        add_compartments,
        check_text,
        existing_file,
        place_of,
        refuse_place,
        write_new,
    )
    from antiphon.cli.rendering.output import hint, show, show_json, tell
    from antiphon.config.home import default_home
    from antiphon.program import program_path

    home = home_of(home_option)
    place = place_of(home, config_option)
    config = check_text(text, place, home)
    existing = existing_file(place, home)
    if existing is None:
        refuse_place(place, home)
        if kept_apart:
            add_compartments(home, config, kept_apart)
        write_new(place, text, home)
    else:
        next_steps = [*(f"antiphon compartments add {name}" for name in kept_apart), *next_steps]
    options = "" if home == default_home() else f" --home {shlex.quote(str(home))}"
    if place.parent != home:
        options += f" --config {shlex.quote(str(place))}"
    next_steps = [f"{step}{options}" if step.startswith("antiphon ") else step for step in next_steps]
    if as_json:
        answer: JsonObject = {"preset": preset.value, "file": str(existing or place), "written": existing is None}
        answer["next"] = [*next_steps]
        if existing is not None:
            answer["text"] = text
        show_json(answer)
        return
    if existing is None:
        show(f"Wrote {str(place)!r}.", "bold green")
        show("`antiphon setup show` says what it means. Next:")
    else:
        show(text)
        tell(f"{str(existing)!r} exists and stays as it is. Take over what you want from the lines above. Then:")
    for step in next_steps:
        is_command = step.startswith("antiphon ")
        hint(f"  {program_path()}{step.removeprefix('antiphon')}" if is_command else f"  {step}")


def _serving() -> list[str]:
    return ["antiphon serve"]


def _steps_of_family(family: "NamedFamily") -> list[str]:
    return [
        *_serving(),
        *(f"antiphon people invite --name {shlex.quote(each.name)} --agent main" for each in family.adults),
        *(
            step
            for each in family.children
            for step in (
                f"# Once {each.name} has written to the bot, `antiphon pair list` shows the number of their account:",
                f"antiphon routes set telegram direct:NUMBER --agent {each.id}",
            )
        ),
    ]


def _steps_of_coding(coding: "Coding") -> list[str]:
    return [*_serving(), "antiphon tools review", *(f"antiphon chat --agent {each.id}" for each in coding.repositories)]
