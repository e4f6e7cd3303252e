"""The chat in a terminal with a bot, without Telegram: what TELEGRAM.md tells people to try."""

import subprocess
import sys
from pathlib import Path
from typing import IO

from tests.claims import requirement
from tests.cli.program import antiphon_json, environment, serving
from tests.directives import to_call
from tests.processes import ending


def until(lines: IO[str], text: str) -> str:
    """The next line with that text."""
    return next(line for line in lines if text in line)


@requirement("channels:1")
def test_one_chats_with_the_bot_of_a_gateway_and_decides_by_its_buttons(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text('[tools.run_command]\nmode = "host"\n', "utf-8")
    command = [sys.executable, "-m", "antiphon.testing.telegram_chat", "--name", "Olga"]
    with ending(
        subprocess.Popen(
            command, env=environment({}), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
    ) as chat:
        assert chat.stdin is not None and chat.stdout is not None
        said = [until(chat.stdout, "export ").split()[-1].split("=", 1) for _ in range(2)]
        with serving(home, env=dict(said)):
            code = antiphon_json("pair", "link", home=home)["code"]
            chat.stdin.write(f"/link {code} yes\n")
            until(chat.stdout, "This chat is linked")
            chat.stdin.write("hello\n")
            assert "hello" in until(chat.stdout, "bot: ")
            chat.stdin.write("/press 1\n")
            assert "there are 0" in until(chat.stdout, "No button 1")
            chat.stdin.write(to_call("run_command", command="echo of the host") + "\n")
            assert "[3 Deny]" in until(chat.stdout, "[1 Approve once]")
            chat.stdin.write("/press 1\n")
            until(chat.stdout, "exitCode")
        chat.stdin.close()
        assert chat.wait() == 0
