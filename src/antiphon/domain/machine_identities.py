"""The accounts as which programs of Antiphon's own kinds speak. Contract: access 3."""

from antiphon.domain.keys import SessionKind
from antiphon.domain.person import Identity

HOOK = SessionKind.HOOK.value
"""What stands for hooks in place of the name of a channel."""
NODE = SessionKind.NODE.value
"""What stands for nodes in place of the name of a channel."""
NODES_ACCOUNT = "default"


def identity_of_hook(name: str) -> Identity:
    """The hook as the account of a guest."""
    return Identity(channel=HOOK, account=name, platform_id=name)


def identity_of_node(node_id: str) -> Identity:
    """The node as the account of a guest."""
    return Identity(channel=NODE, account=NODES_ACCOUNT, platform_id=node_id)
