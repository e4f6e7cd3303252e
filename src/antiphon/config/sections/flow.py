"""Settings of information flow."""

from antiphon.domain.message import JsonValue
from antiphon.policy.approvals import UntrustedRule
from antiphon.policy.chats import ChatData
from antiphon.settings.section import Section


class FlowSection(Section):
    untrusted: UntrustedRule = UntrustedRule.APPROVE
    """What becomes of a call that sends something out, deletes, spends or changes settings, once its turn has read
    words that it does not trust: a web page, a mail, a message of somebody with fewer rights. `approve` asks, `block`
    refuses, `allow` lets it run."""
    rules: tuple[dict[str, JsonValue], ...] = ()
    """Rules that tighten what may happen, each `{id, hook, when, action, message}`; docs/POLICY.md lists their fields.
    Changes count within two seconds, without a restart."""
    rules_file: str | None = None
    """A file with these rules in their place, as `[[rules]]`; beside the configuration unless it names a path."""
    chats: ChatData = ChatData.OPEN
    """Whose data the conversation in a new chat is. `own`: in a direct chat that of its person, so that it reaches
    nobody but them and the owner; in a group what all its members may read. `open`: nobody's. Sessions that exist keep
    what they are."""
