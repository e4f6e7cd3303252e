"""The same question to many customers' sessions. Started again after a crash, it asks nobody twice."""

import asyncio
import sys
from collections.abc import Sequence

import antiphon

AT_ONCE = 50


async def ask(app: antiphon.Antiphon, customer: str, slots: asyncio.Semaphore) -> tuple[str, str]:
    async with slots:
        session = await app.sessions.open(f"customer-{customer}", metadata={"customer": customer})
        run = await session.post(f"How can we help {customer}?", message_id="survey-1")
        try:
            end = await run.wait(timeout=300)
        except TimeoutError:
            return customer, "no answer yet"
        return customer, end.reply or f"failed: {end.error}"


async def survey(home: str, customers: Sequence[str]) -> dict[str, str]:
    slots = asyncio.Semaphore(AT_ONCE)
    async with antiphon.open(home) as app:
        answers = await asyncio.gather(*(ask(app, customer, slots) for customer in customers))
        print(f"{len(answers)} answers, {len(await app.runs.list(status=[antiphon.RunStatus.OK]))} runs on this page")
        return dict(answers)


if __name__ == "__main__":
    asyncio.run(survey(sys.argv[1], [str(number) for number in range(int(sys.argv[2]))]))
