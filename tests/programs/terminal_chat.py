"""A chat in the terminal: each line is a message, and the reply appears while it is written."""

import asyncio
import sys

import antiphon


def add(a: int, b: int) -> int:
    """The sum of two numbers."""
    return a + b


async def answer(session: antiphon.SessionHandle, line: str) -> None:
    run = await session.post(line)
    async for piece in run.stream():
        if piece.is_restart:
            print("\n(again)", end=" ")
        print(piece.text, end="", flush=True)
    print()
    end = await run.wait(timeout=60)
    if end.status is not antiphon.RunStatus.OK:
        print(f"({end.status}: {end.error})", file=sys.stderr)


async def main(home: str) -> None:
    async with antiphon.open(home, tools=[antiphon.tool(add, effects=["reads"])]) as app:
        session = await app.sessions.open("terminal")
        for event in await session.history(limit=4):
            if event.message is not None:
                print(f"{event.message.role}: {event.message.text}")
        while line := await asyncio.to_thread(sys.stdin.readline):
            await answer(session, line.strip())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
