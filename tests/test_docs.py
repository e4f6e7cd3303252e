"""What the documents say is what the program does.

`python -m tests.test_docs` brings the tables of settings, parameters and codes up to date.
"""

import re
import tempfile
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, cast, get_args, get_origin

import anyio
import typer.main
from pydantic import BaseModel, SecretStr
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from antiphon.app import open_app
from antiphon.channels.sections import SeveralAccounts
from antiphon.cli.exits import ExitCode
from antiphon.cli.main import app
from antiphon.config.config import Config
from antiphon.config.descriptions import describe
from antiphon.config.sections.tools import RunCommandSection, SearchWebSection, ToolsSection
from antiphon.domain.sandbox import CommandMode
from antiphon.domain.search_kind import SearchKind
from antiphon.policy.session_tools import GUEST_TOOLS
from antiphon.policy.written.fields import ANY_ARGUMENT, ANY_ARGUMENT_FIELD, FIELDS, OPERATORS, Field, Hook
from antiphon.tools.session_tool import SessionTool
from tests.claims import requirement

DOCS = Path(__file__).parents[1] / "docs"
SOURCES = Path(__file__).parents[1] / "src"

describe(Config)


def settings(section: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, str, str, str]]:
    """Name, values, default and meaning of every setting."""
    for name, field in section.model_fields.items():
        place = prefix + name
        nested = list(sections_of(field.annotation, place))
        if name == "accounts" and issubclass(section, SeveralAccounts):
            yield f"{place}.<name>", "the settings of the channel", "none", field.description or ""
        elif nested:
            for inner, inner_place in nested:
                yield from settings(inner, f"{inner_place}.")
            if field.description and is_whole(field):
                yield place, "a section", "unset", field.description
        else:
            yield place, values_of(field.annotation) + bounds_of(field), default_of(field), field.description or ""


def is_whole(field: FieldInfo) -> bool:
    """Whether the section as a whole may be absent."""
    return type(None) in get_args(field.annotation)


def sections_of(annotation: Any, place: str) -> Iterator[tuple[type[BaseModel], str]]:
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation, place
    elif origin is tuple:
        yield from sections_of(arguments[0], f"{place}[]")
    elif origin is dict:
        keys = [key for key in get_args(arguments[0]) if isinstance(key, str)]
        yield from sections_of(arguments[1], f"{place}.<{'|'.join(keys) or 'name'}>")
    elif origin in (Union, UnionType, Annotated):
        for argument in arguments:
            yield from sections_of(argument, place)


def values_of(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return " ".join(values_of(argument) for argument in arguments if argument is not type(None))
    if origin is Annotated:
        return values_of(arguments[0])
    if origin is Literal:
        return " ".join(f"`{value if isinstance(value, str) else toml(value)}`" for value in arguments)
    if origin is tuple:
        return "list of whole numbers" if values_of(arguments[0]) == "whole number" else "list of texts"
    if origin is dict:
        return "table of texts"
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return " ".join(f"`{value}`" for value in annotation)
    return {int: "whole number", float: "number", str: "text", bool: "`true` `false`", SecretStr: "text"}[annotation]


def bounds_of(field: FieldInfo) -> str:
    """Of a number."""
    constraints = [*field.metadata]
    for argument in get_args(field.annotation):
        if get_origin(argument) is Annotated:
            constraints += [each for inner in argument.__metadata__ for each in getattr(inner, "metadata", ())]
    found = {name: getattr(each, name) for each in constraints for name in ("gt", "ge", "le") if hasattr(each, name)}
    match found:
        case {"ge": least, "le": most}:
            return f", {toml(least)} to {toml(most)}"
        case _:
            words = {"gt": "more than", "ge": "at least", "le": "at most"}
            return "".join(f", {words[name]} {toml(bound)}" for name, bound in found.items())


def default_of(field: FieldInfo) -> str:
    default: object = field.get_default(call_default_factory=True)
    if default is PydanticUndefined:
        return "required"
    if default is None:
        return "unset"
    return f"`{toml(default)}`"


def toml(value: object) -> str:
    match value:
        case str():
            return f'"{value}"'
        case bool():
            return str(value).lower()
        case int() | float():
            return f"{value:_}" if isinstance(value, int) and value >= 10_000 else f"{value:g}"
        case tuple():
            return f"[{', '.join(map(toml, cast(tuple[object, ...], value)))}]"
        case _:
            return "{}"


def table() -> str:
    rows = [
        f"| {cell(f'`{name}`')} | {values} | {default} | {cell(meaning)} |"
        for name, values, default, meaning in settings(Config)
    ]
    return "\n".join(["| Setting | Values | Default | Meaning |", "|---|---|---|---|", *rows]) + "\n"


def cell(text: str) -> str:
    """The text on one line, and with nothing that ends its cell."""
    return " ".join(text.split()).replace("|", "\\|")


def with_table(text: str, name: str, rows: str) -> str:
    """The text with these rows between its marks of that name."""
    begin = f"<!-- {name} -->\n"
    start, end = text.index(begin) + len(begin), text.index(f"<!-- /{name} -->")
    return text[:start] + rows + text[end:]


def with_settings(text: str) -> str:
    return with_table(text, "settings", table())


def with_tables(text: str, tool: SessionTool[Any]) -> str:
    """A tool's page with the parameters and codes that it has."""
    return with_table(with_table(text, "parameters", parameters(tool)), "codes", codes(tool))


def with_fields(text: str) -> str:
    """The page of rules with the fields that these have."""
    rows = [_field(name, field) for name, field in {**FIELDS, ANY_ARGUMENT_FIELD: ANY_ARGUMENT}.items()]
    return with_table(
        text, "fields", "\n".join(["| Field | Hooks | Operators | Meaning |", "|---|---|---|---|", *rows]) + "\n"
    )


def _field(name: str, field: Field) -> str:
    hooks = (
        "every hook" if len(field.hooks) == len(Hook) else ", ".join(f"`{h.value}`" for h in Hook if h in field.hooks)
    )
    words = f": {', '.join(f'`{word}`' for word in field.words)}" if field.words else ""
    return f"| `{name}` | {hooks} | {' '.join(f'`{op.value}`' for op in OPERATORS[field.kind])} | {field.says}{words} |"


def test_the_page_of_rules_lists_their_fields() -> None:
    text = (DOCS / "POLICY.md").read_text("utf-8")
    assert with_fields(text) == text, "python -m tests.test_docs"


def session_tools() -> list[SessionTool[Any]]:
    async def read() -> list[SessionTool[Any]]:
        with tempfile.TemporaryDirectory() as directory:
            every = ToolsSection(
                run_command=RunCommandSection(mode=CommandMode.SANDBOXED),
                search_web=SearchWebSection(kind=SearchKind.SEARXNG, url="http://127.0.0.1:8888"),
            )
            settings = Config.model_validate({"tools": every, "agents": {"defaults": {"skills": ["walks"]}}})
            async with open_app(Path(directory) / "home", settings) as running:
                tools = [running.tools.find(name) for name in running.tools.names]
                return [tool for tool in tools if isinstance(tool, SessionTool)]

    return anyio.run(read)


def parameters(tool: SessionTool[Any]) -> str:
    schema: Any = tool.schema.parameters
    if not schema["properties"]:
        return "It has none.\n"
    rows = [
        f"| `{name}` | {type_of(each)} | {shown_default(name, each, schema)} | {each['description']} |"
        for name, each in schema["properties"].items()
    ]
    return "\n".join(["| parameter | type | default | meaning |", "|---|---|---|---|", *rows]) + "\n"


def type_of(schema: Any) -> str:
    kinds = {
        "string": "text",
        "object": "object",
        "integer": "whole number",
        "number": "number",
        "boolean": "`true` `false`",
    }
    match schema:
        case {"enum": values}:
            return " ".join(f"`{value}`" for value in values)
        case {"$ref": _}:
            return "object"
        case {"type": "array", "items": {"$ref": _}}:
            return "list of objects"
        case {"type": "array"}:
            return "list of texts"
        case _:
            return kinds[schema["type"]]


def shown_default(name: str, schema: Any, whole: Any) -> str:
    if name in whole.get("required", ()):
        return "required"
    if "default" not in schema:
        return "unset"
    default = schema["default"]
    return f"`{str(default).lower() if isinstance(default, bool) else default}`"


def codes(tool: SessionTool[Any]) -> str:
    """The rows of ERRORS.md that concern the tool."""
    tools = (DOCS / "ERRORS.md").read_text("utf-8").partition("\n## Tools\n")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^(\| `(?:\w+)`) (\|.*)$", tools, re.MULTILINE))
    lines = [f"| `{code}` {rows[f'| `{code}`']}" for code in tool.codes]
    return "\n".join(["| code | status | when |", "|---|---|---|", *lines]) + "\n"


@requirement("config:1")
def test_every_setting_is_documented_with_its_default() -> None:
    text = (DOCS / "CONFIGURATION.md").read_text("utf-8")
    assert text == with_settings(text), "python -m tests.test_docs brings it up to date"
    assert [name for name, _, _, meaning in settings(Config) if not meaning] == []


@requirement("config:1")
def test_every_setting_has_a_row_of_its_own_with_its_bounds() -> None:
    _, _, *lines = table().splitlines()
    rows = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    assert [row for row in rows if len(row) != 4] == []
    assert len(rows) == len(list(settings(Config)))
    found = {row[0].strip(" `"): (row[1].strip(), row[2].strip()) for row in rows}
    assert found["agents.defaults.sandbox.network"] == ("`true` `false`", "`false`")
    assert found["agents.list[].sandbox.memory_mb"] == ("whole number, 16 to 1_048_576", "unset")
    assert found["agents.defaults.sandbox.seconds"] == ("number, more than 0, at most 86_400", "`120`")
    assert found["runs.max_concurrent"] == ("whole number, at least 1", "`16`")
    assert found["limits.run.tokens"] == ("whole number, more than 0", "unset")


@requirement("cli:1")
def test_every_command_and_option_is_documented() -> None:
    text = (DOCS / "CLI.md").read_text("utf-8")
    missing = [
        name for name, options in commands() for name in (f"antiphon {name}", *options) if f"`{name}" not in text
    ]
    assert missing == []


ARCHAIC = re.compile(
    r"\b(whoever|whomever|whosoever|those that|those who|one that|there (?:is|are) not|(?:is|are|was|were|be) told"
    r"|put by|put away|so long as|so many|go(?:es)? before|makes of|what there is|anew|shall|com(?:es|ing) into being"
    r"|knows? of|who (?:asks|waits|calls)|stands? in the|called? off|calls off|where there (?:is|are))\b",
    re.IGNORECASE,
)
"""Phrases that plain English does not need; docs/STYLE.md shows what to write."""
OTHERS_WORDS = {"STYLE.md"}
"""Pages that are not read: STYLE.md quotes the phrases."""


def test_what_people_and_models_read_is_plain_english() -> None:
    found = [
        f"{place}: {match[0]!r} in …{prose[max(0, match.start() - 40) : match.end() + 40]}…"
        for place, text in readable_texts()
        for prose in (" ".join(re.sub(r"```.*?```|`[^`\n]*`", "``", text, flags=re.DOTALL).split()),)
        for match in ARCHAIC.finditer(prose)
    ]
    assert not found, "\n".join(["docs/STYLE.md says how to write:", *found])


def readable_texts() -> Iterator[tuple[str, str]]:
    """Documents, help of the command line and descriptions of tools, each with its place."""
    top = DOCS.parent
    pages = [page for folder in (".", "tools", "guides") for page in (DOCS / folder).glob("*.md")]
    for path in (top / "README.md", top / "CONTRIBUTING.md", *pages):
        if path.name not in OTHERS_WORDS:
            yield str(path.relative_to(top)), path.read_text("utf-8")
    yield from helps(typer.main.get_command(app), "antiphon")
    for tool in session_tools():
        yield tool.schema.name, tool.schema.description
        yield tool.schema.name, parameters(tool)


def helps(command: Any, name: str) -> Iterator[tuple[str, str]]:
    yield name, command.help or ""
    for parameter in command.params:
        yield f"{name} {parameter.name}", getattr(parameter, "help", None) or ""
    for inner, each in getattr(command, "commands", {}).items():
        yield from helps(each, f"{name} {inner}")


@requirement("cli:1")
def test_every_exit_code_is_documented() -> None:
    text = (DOCS / "CLI.md").read_text("utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d+) \|", text, re.MULTILINE)}
    assert documented == {int(code) for code in ExitCode}


def commands() -> Iterator[tuple[str, list[str]]]:
    """Each command's name, and its long options."""

    def walk(command: Any, prefix: str) -> Iterator[tuple[str, list[str]]]:
        if hasattr(command, "commands"):
            for name, inner in command.commands.items():
                yield from walk(inner, f"{prefix} {name}".strip())
        else:
            yield prefix, [option for each in command.params for option in each.opts if option.startswith("--")]

    yield from walk(typer.main.get_command(app), "")


@requirement("tools:1", "answers:1")
def test_every_tool_has_a_page_with_its_parameters_and_codes() -> None:
    tools = {tool.schema.name: tool for tool in session_tools()}
    pages = {path.stem: path.read_text("utf-8") for path in (DOCS / "tools").glob("*.md")}
    index = pages.pop("README")
    assert tools.keys() == pages.keys()
    for name, text in pages.items():
        assert text == with_tables(text, tools[name]), "python -m tests.test_docs brings it up to date"
        assert f"({name}.md)" in index
    guests = index.partition("has only these tools:")[2].partition("and only for its own session")[0]
    assert {*re.findall(r"`(\w+)`", guests)} == GUEST_TOOLS


@requirement("answers:1")
def test_every_error_code_is_documented() -> None:
    text = (DOCS / "ERRORS.md").read_text("utf-8")
    sources = [
        path for path in SOURCES.rglob("*.py") if "testing" not in path.parts
    ]  # its codes are those of providers
    used = {code for path in sources for code in re.findall(r"\bcode=\"(\w+)\"", path.read_text("utf-8"))}
    assert sorted(code for code in used if f"`{code}`" not in text) == []


PATH = re.compile(r"`((?:\w+/)+)(\w+)(?:\.py)?(?:\.(\w+))?(?:\.(\w+))?`")
"""`folder/file`, with what stands in it, as in `engine/ledger/queue.queue_run`."""


def test_every_place_that_the_architecture_names_is_there() -> None:
    text = "".join((DOCS / page).read_text("utf-8") for page in ("ARCHITECTURE.md", "WALKS.md"))
    missing: list[str] = []
    for folder, file, name, member in PATH.findall(text):
        place = SOURCES / "antiphon" / folder / f"{file}.py"
        if folder.startswith(("tests/", "docs/")) or (SOURCES / "antiphon" / folder / file).is_dir():
            continue
        source = place.read_text("utf-8") if place.is_file() else ""
        names = [each for each in (name, member) if each not in ("", "py", "sql")]
        if not source or not all(re.search(rf"(def|class) {each}\b|^{each}\b", source, re.M) for each in names):
            missing.append(f"{folder}{file} {name} {member}".strip())
    assert missing == []


def test_a_newcomer_finds_where_to_change_twelve_things() -> None:
    text = (DOCS / "ARCHITECTURE.md").read_text("utf-8")
    table = text.partition("## Where to change what")[2].partition("##")[0]
    answers = re.findall(r"^\| [^|]+ \| `([\w/]+\.py)` \|$", table, re.M)
    assert len(answers) == len(set(answers)) >= 12
    assert [answer for answer in answers if not (SOURCES / "antiphon" / answer).is_file()] == []


def test_every_link_between_documents_leads_somewhere() -> None:
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    links = [
        (page, link) for page in pages for link in re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", page.read_text("utf-8"))
    ]
    assert [(page.name, link) for page, link in links if not (page.parent / link).exists()] == []


if __name__ == "__main__":
    path = DOCS / "CONFIGURATION.md"
    path.write_text(with_settings(path.read_text("utf-8")), "utf-8")
    path = DOCS / "POLICY.md"
    path.write_text(with_fields(path.read_text("utf-8")), "utf-8")
    for each in session_tools():
        path = DOCS / "tools" / f"{each.schema.name}.md"
        path.write_text(with_tables(path.read_text("utf-8"), each), "utf-8")
