"""Tasks beside a piece of work, which end with it and leave its errors as they are."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from anyio import create_task_group
from anyio.abc import TaskGroup


@asynccontextmanager
async def background_tasks() -> AsyncGenerator[TaskGroup]:
    """A task group that is cancelled at the end. An error of the body is raised alone, in no group."""
    tasks = create_task_group()
    await tasks.__aenter__()
    try:
        yield tasks
    finally:
        tasks.cancel_scope.cancel()
        await tasks.__aexit__(None, None, None)
