"""Settings of information flow."""

from antiphon.policy.approvals import UntrustedRule
from antiphon.settings.section import Section


class FlowSection(Section):
    untrusted: UntrustedRule = UntrustedRule.APPROVE
    """What becomes of a call that sends something out, deletes, spends or changes settings, once its turn has read
    words that it does not trust: a web page, a mail, a message of somebody with fewer rights. `approve` asks, `block`
    refuses, `allow` lets it run."""
