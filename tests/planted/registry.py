"""All planted bugs, by the package that they stand in."""

from tests.planted import (
    agents,
    ceilings,
    chats,
    commands,
    domain,
    edges,
    engine,
    feed,
    hooks,
    machines,
    policy,
    sockets,
    store,
    task_edges,
    tasks,
    telegram,
)

BUGS = (
    *domain.BUGS,
    *policy.BUGS,
    *store.BUGS,
    *feed.BUGS,
    *engine.BUGS,
    *agents.BUGS,
    *edges.BUGS,
    *ceilings.BUGS,
    *chats.BUGS,
    *commands.BUGS,
    *telegram.BUGS,
    *hooks.BUGS,
    *machines.BUGS,
    *sockets.BUGS,
    *task_edges.BUGS,
    *tasks.BUGS,
)
