"""The configuration files of the presets, with comments for the people who change them. Contract: flow 14."""

import json
from collections.abc import Iterable

from antiphon.cli.presets.answers import OFFLINE, Coding, FamilyMember, NamedFamily, PresetName, Repository

_HEAD = """\
# Antiphon {title}, written by `antiphon setup {name}`.
# `antiphon setup show` says in plain words who sees what, and what asks you.
# Change what you like, check it with `antiphon config check`, and restart the gateway.
# docs/CONFIGURATION.md names every setting.
"""
_MODEL = """\
model = {model}  # such as "openai:gpt-5"; the key comes from OPENAI_API_KEY. "offline" only echoes
"""
_UNTRUSTED = """\
untrusted = "approve"  # after a page or a mail was read, sending, deleting, paying and setting ask you first
"""


def solo_text(model: str | None) -> str:
    """The configuration of one person."""
    return f"""{_head(PresetName.SOLO, "for one person")}
[agents.defaults]
{_model(model)}instructions = "You help the person who owns this home."

[[agents.list]]
id = "main"

[flow]
chats = "open"  # all that you say and read is alike: every chat of yours may use it
{_UNTRUSTED}"""


def family_text(family: NamedFamily, model: str | None) -> str:
    """The configuration of a family: the adults share an agent, each child has one."""
    names = [family.owner, *(each.name for each in (*family.adults, *family.children))]
    about = f"You help a family: {', '.join(names)}. {family.owner} owns this home."
    return f"""{_head(PresetName.FAMILY, "for a family")}
[agents]
default = "main"

[agents.defaults]
{_model(model)}
[[agents.list]]  # answers the adults, each in a chat of their own, and the family's group
id = "main"
name = "Home"
instructions = {_quoted(about)}
{"".join(_child_text(child, family) for child in family.children)}
[flow]
chats = "own"  # what somebody says in their chat reaches them and the owner; a group has what all in it may see
{_UNTRUSTED}
[tools.sessions]
visibility = "agent"  # a chat may look into others of its agent, as far as everybody in it may see them

[tools.approval]
# What anybody but the owner asks an agent to do beyond reading waits for the owner's yes.
people = ["effect:writes", "effect:leaves", "effect:deletes", "effect:spends", "effect:configures"]

[access.roles.user]
agents = ["main"]  # with these agents the other adults may begin conversations
approve = []       # agents whose requests they may answer; with none, all requests go to the owner

[access.roles.guest]
# Guests are children, and members of a group whom you did not invite. Without these names they have no tools but
# those that look back at their own chat.
tools = {_list(family.child_tools)}

[limits.guest]
tokens = 100_000  # of each guest in a day (UTC)
usd = 0.5
"""


def _child_text(child: FamilyMember, family: NamedFamily) -> str:
    about = f"You help {child.name}, a child. Be kind and clear. What children may not do, leave to a parent."
    return f"""
[[agents.list]]  # {child.name}'s own: nobody else writes to it
id = {_quoted(child.id)}
name = {_quoted(f"{child.name}'s helper")}
instructions = {_quoted(about)}
tools = {{ allow = {_list(family.child_tools)} }}  # the tools that it has at all; each use asks the owner
daily = {{ tokens = 100_000, usd = 0.5 }}  # reached, it rests until the next day (UTC)
"""


def coding_text(coding: Coding, model: str | None) -> str:
    """The configuration of an agent for each repository, whose data reach no other one."""
    return f"""{_head(PresetName.CODING, "for repositories that are kept apart")}
[agents]
default = {_quoted(coding.repositories[0].id)}

[agents.defaults]
{_model(model)}{"".join(_repository_text(each, coding) for each in coding.repositories)}
[flow]
chats = "own"  # what is said in a conversation is its person's, besides being its repository's
{_UNTRUSTED}
[tools.run_command]
mode = "sandboxed"  # commands run in a sandbox without a network, which needs bubblewrap (docs/SANDBOX.md)
clearance = {{ level = "PUBLIC" }}  # with a network, they get nothing of any repository

# A tool that reaches the network gets nothing of any repository either, if it is written like this:
# [agents.defaults.mcp_servers.web]
# command = "my-web-server"
# clearance = {{ level = "PUBLIC" }}
"""


def _repository_text(each: Repository, coding: Coding) -> str:
    command, *arguments = coding.files_server
    data = f'{{ level = "INTERNAL", compartments = [{_quoted(each.id)}] }}'
    return f"""
[[agents.list]]
id = {_quoted(each.id)}
instructions = {_quoted(f"You work on the repository {each.id}, in {each.path}.")}
classification = {data}  # what it reads and says stays with it

[agents.list.mcp_servers.files]  # gives it the files of its repository, and of nothing else
command = {_quoted(command)}
args = {_list([*arguments, str(each.path)])}
classification = {data}
clearance = {data}
effects = {{ "*" = ["writes"] }}
"""


def _head(name: PresetName, title: str) -> str:
    return _HEAD.format(title=title, name=name.value)


def _model(model: str | None) -> str:
    return _MODEL.format(model=_quoted(model or OFFLINE))


def _quoted(text: str) -> str:
    """A TOML string; JSON's escapes are among TOML's, save for the one of DEL, which no name has."""
    return json.dumps(text, ensure_ascii=False)


def _list(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"
