"""Settings of information flow."""

from antiphon.domain.message import JsonValue
from antiphon.policy.approvals import UntrustedRule
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
