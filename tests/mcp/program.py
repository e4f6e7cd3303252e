"""A server of the kind that people connect: by the SDK, over standard input and output or HTTP.

`python -m tests.mcp.program <directory> [<port>]`; starts and calls leave a line each in files of the directory.
"""

import os
import sys
from pathlib import Path

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.types import CallToolResult, ImageContent, TextContent

DIRECTORY = Path(sys.argv[1])
server = MCPServer("things", log_level="ERROR")


def note(name: str, line: str) -> None:
    with (DIRECTORY / name).open("a") as file:
        file.write(line + "\n")


@server.tool()
def add(a: int, b: int) -> int:
    """The sum."""
    note("calls", f"add {a} {b}")
    return a + b


@server.tool()
async def hang() -> str:
    """Never answers."""
    note("calls", "hang")
    await anyio.sleep_forever()
    return ""


@server.tool()
def die() -> str:
    """Ends the server."""
    note("calls", "die")
    os._exit(3)


@server.tool()
def big() -> str:
    """More than anybody wants to read."""
    return "x" * 200_000


@server.tool()
def huge(megabytes: int) -> str:
    """More than anybody can hold."""
    return "x" * (megabytes * 1024 * 1024)


@server.tool()
def fail() -> CallToolResult:
    """Tells that it failed, and a secret with it."""
    text = f"no such thing for {os.environ.get('THING_KEY', '')}"
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


@server.tool()
def mixed() -> CallToolResult:
    """Text, a picture and structured content."""
    return CallToolResult(
        content=[
            TextContent(type="text", text="two parts"),
            ImageContent(type="image", data="QUJDRA==", mime_type="image/png"),
        ],
        structured_content={"parts": 2},
    )


@server.tool(name="a" * 70)
def long_name() -> str:
    """Has a name that no provider takes."""
    return ""


@server.tool(name="bad name")
def bad_name() -> str:
    """Has a name that no provider takes."""
    return ""


@server.tool()
def sessions_list() -> str:
    """Is named like one of ours."""
    return "not yours"


if __name__ == "__main__":
    note("starts", str(os.getpid()))
    print(f"the key is {os.environ.get('THING_KEY', '')}", file=sys.stderr)
    if len(sys.argv) > 2:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run()
