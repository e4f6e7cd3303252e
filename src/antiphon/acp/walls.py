"""How a harness is started: with the rights of this program, or within walls. Contract: foreign_agents 2."""

import os
from pathlib import Path

from antiphon.acp.process import HarnessCommand
from antiphon.acp.settings import HarnessSetting
from antiphon.engine.sessions.workspaces import Workspace


def command_on_host(setting: HarnessSetting, workspace: Workspace) -> HarnessCommand:
    """The harness with the rights of this program, in the workspace, with the HOME of its user. Blocks."""
    env = {"HOME": os.environ.get("HOME", str(Path.home())), **setting.env}
    if setting.provider is not None:
        env[setting.provider.variable] = setting.provider.key
    return HarnessCommand(argv=setting.command, cwd=workspace.open(), env=env, secrets=setting.secrets)
